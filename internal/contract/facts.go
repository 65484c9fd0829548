package contract

// The facts of a host that constraints compare.

import (
	"slices"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/job"
)

// FactsOf returns the facts of a host with this profile.
func FactsOf(p *Profile) job.Facts {
	return job.Facts{
		Labels: p.Labels, Signed: p.Signed, Name: p.Name, Arch: p.Arch, OS: p.OS, CPUs: p.CPUs, Memory: p.Memory,
		GPUs: len(p.GPUs), Kinds: kindsOf(p.GPUs), NVLink: joined(p.GPUs), Fencing: fencing(p.Fencing),
	}
}

// fencing returns whether the tasks of the host are certain to end with their leases. It is Unknown if the host does not
// say.
func fencing(f job.Fencing) job.Truth {
	switch {
	case !f.Known():
		return job.Unknown
	case f.Certain:
		return job.Yes
	}
	return job.No
}

// kindsOf returns the different kinds of devices, or none if there are more than job.MaxKinds.
func kindsOf(devices []gpu.Device) []job.GPUKind {
	var kinds []job.GPUKind
	for i := range devices {
		d := &devices[i]
		if i > 0 && d.Class == devices[i-1].Class && d.Memory == devices[i-1].Memory && d.Compute == devices[i-1].Compute && d.Driver == devices[i-1].Driver {
			continue // the usual case
		}
		k := job.GPUKind{Class: d.Class, Memory: d.Memory, Compute: versionOf(d.Compute), Driver: versionOf(d.Driver)}
		if slices.Contains(kinds, k) {
			continue
		}
		if len(kinds) == job.MaxKinds {
			return nil
		}
		kinds = append(kinds, k)
	}
	return kinds
}

// versionOf parses a version that a driver reports. It returns the zero Version, which means unknown, if the text is no
// version.
func versionOf(text string) job.Version {
	v, err := job.ParseVersion(text)
	if err != nil {
		return job.Version{}
	}
	return v
}

// joined returns whether NVLink connects all devices, directly or through each other. If no device lists a link, it
// returns Unknown: the links may have been left out of the profile.
func joined(devices []gpu.Device) job.Truth {
	if len(devices) < 2 {
		return job.No
	}
	index := make(map[string]int, len(devices))
	for i := range devices {
		index[devices[i].UUID] = i
	}
	reached, todo, links := make([]bool, len(devices)), []int{0}, 0
	reached[0] = true
	for n := 0; n < len(todo); n++ {
		for _, l := range devices[todo[n]].Links {
			if to, known := index[l.To]; known && l.Kind == gpu.LinkNVLink && !reached[to] {
				reached[to] = true
				todo = append(todo, to)
			}
		}
	}
	for i := range devices {
		links += len(devices[i].Links)
	}
	switch {
	case len(todo) == len(devices):
		return job.Yes
	case links == 0:
		return job.Unknown
	}
	return job.No
}
