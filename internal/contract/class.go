package contract

// Resource classes: short strings that say what a host has when it is idle. A host advertises its classes in the DHT; a
// scheduler looks up the class of a request to find hosts that could serve it.

import (
	"fmt"
	"slices"
	"strings"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/job"
)

const (
	// MaxClasses bounds the classes of one host: each is a record in the DHT.
	MaxClasses = 32
	// AnyWorker is the class of every host that runs tasks. A scheduler looks it up when nobody advertises the
	// request's own class.
	AnyWorker = "worker"

	maxModelParts = 4 // bound on the parts of a device class: "h100-80gb-1g-10gb" is a MIG instance
	bigCPUs       = 32
	bigMemory     = 256 // GB
	gigabyte      = job.Size(1e9)
)

// The buckets mean "at least". A request is rounded down to a bucket, so every host that can serve it advertises that
// bucket.
var (
	classCounts    = []int{16, 8, 4, 2, 1}
	classGPUMemory = []int{180, 128, 96, 80, 48, 40, 32, 24, 16, 8} // GB
	// classManyMemory are the memory sizes that are also advertised with device counts.
	classManyMemory = []int{40}
)

// GPUMeets reports whether the device satisfies the need's model and memory. It does not say whether the device is
// free.
func GPUMeets(d gpu.Device, need job.Resources) bool {
	if d.Parent == "" && modelMeets(d.Class, need.GPUModel) { // the usual case, and cheap to check
		return d.Memory >= need.GPUMemory
	}
	return gpu.Fits(d, need)
}

func modelMeets(class, model string) bool {
	if model == "" {
		return true
	}
	for more := true; more; {
		var name string
		name, model, more = strings.Cut(model, job.ModelOr)
		want := ModelName(name)
		if rest, begins := strings.CutPrefix(class, want); want != "" && begins && (rest == "" || rest[0] == '-') {
			return true
		}
	}
	return false
}

// ModelName turns a model name as users write it into the spelling of device classes. It also takes several names that
// are joined by job.ModelOr.
func ModelName(model string) string {
	if strings.Contains(model, job.ModelOr) {
		names := strings.Split(model, job.ModelOr)
		for i, name := range names {
			names[i] = ModelName(name)
		}
		return strings.Join(names, job.ModelOr)
	}
	if !strings.ContainsFunc(model, func(r rune) bool { return r >= 'A' && r <= 'Z' || r <= ' ' || r > '~' }) {
		return strings.TrimPrefix(model, "nvidia-") // the usual case: already in that spelling
	}
	s := strings.ReplaceAll(strings.ToLower(strings.TrimSpace(model)), " ", "-")
	return strings.TrimPrefix(s, "nvidia-")
}

// Classes returns the classes that a host with this profile advertises, at most MaxClasses. If there are more, the last
// labels are left out; see AllClasses.
func Classes(p Profile) []string {
	all := AllClasses(p)
	return all[:min(len(all), MaxClasses)]
}

// AllClasses returns all classes that a host with this profile meets.
func AllClasses(p Profile) []string {
	if !p.Worker {
		return nil
	}
	out := []string{AnyWorker}
	if p.Name != "" {
		out = append(out, NameClass(p.Name))
	}
	if class := ArchClass(p.Arch); class != "" {
		out = append(out, class)
	}
	out = append(out, modelClasses(p.GPUs)...)
	out = append(out, memoryClasses(p.GPUs)...)
	if p.CPUs >= bigCPUs {
		out = append(out, cpuClass)
	}
	if p.Memory >= bigMemory*gigabyte {
		out = append(out, memClass)
	}
	labels := make([]string, 0, len(p.Labels))
	for k, v := range p.Labels {
		labels = append(labels, LabelClass(k, v))
	}
	slices.Sort(labels)
	out = append(out, labels...)
	return slices.DeleteFunc(out, func(c string) bool { return !IsClass(c) })
}

// maxClass bounds the bytes of a class.
const maxClass = 256

// IsClass reports whether a text may be a class: short, and printable ASCII without spaces. The check is needed because
// some classes contain names that users have chosen.
func IsClass(s string) bool {
	return s != "" && len(s) <= maxClass && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}

// modelClasses returns the classes of the device models. Classes for one device come first, so that the host can still be
// found if the list is cut.
func modelClasses(devices []gpu.Device) []string {
	count := map[string]int{}
	for _, d := range devices {
		parts := strings.Split(d.Class, "-")
		for i := 1; d.Class != "" && i <= min(len(parts), maxModelParts); i++ {
			count[strings.Join(parts[:i], "-")]++
		}
		if _, slice, isMIG := strings.Cut(d.Class, "-mig-"); isMIG {
			count[slice]++ // the name that users write
		}
	}
	models := make([]string, 0, len(count))
	for m := range count {
		models = append(models, m)
	}
	slices.Sort(models)
	var out []string
	for _, n := range slices.Backward(classCounts) {
		for _, m := range models {
			if count[m] >= n {
				out = append(out, countClass("gpu/model/"+m, n))
			}
		}
	}
	return out
}

func memoryClasses(devices []gpu.Device) []string {
	var out []string
	for _, gb := range classGPUMemory {
		n := 0
		for _, d := range devices {
			if d.Memory >= job.Size(gb)*gigabyte {
				n++
			}
		}
		for _, c := range slices.Backward(classCounts) {
			if n >= c && (c == 1 || slices.Contains(classManyMemory, gb)) {
				out = append(out, countClass(fmt.Sprintf("gpu/mem/%d", gb), c))
			}
		}
	}
	for _, c := range slices.Backward(classCounts) {
		if len(devices) >= c {
			out = append(out, countClass(gpuClass, c))
		}
	}
	return out
}

const (
	gpuClass = "gpu"
	cpuClass = "cpu/32"
	memClass = "mem/256"
)

// LabelClass is the class of hosts with a label of this value.
func LabelClass(k, v string) string { return "label/" + k + "=" + v }

// ArchClass is the class of hosts of an architecture. It is empty for an unknown architecture, and for the usual one:
// that class would exclude few hosts.
func ArchClass(arch string) string {
	if arch == "" || arch == usualArch {
		return ""
	}
	return "arch/" + arch
}

const usualArch = "amd64"

// NameClass is the class of hosts with a given name, nearly always one host. Daemons of older versions do not
// advertise it.
func NameClass(name string) string { return LabelClass("name", name) }

func countClass(class string, n int) string {
	if n == 1 {
		return class
	}
	return fmt.Sprintf("%s/x%d", class, n)
}

// ClassOf returns the most selective single class of a need.
func ClassOf(need job.Resources) string {
	n := need.GPUs
	if need.GPUShare > 0 {
		n = 1
	}
	switch {
	case n > 0 && strings.Contains(need.GPUModel, job.ModelOr): // no class stands for "either model"
		return memoryClass(need.GPUMemory, n)
	case n > 0 && ModelName(need.GPUModel) != "":
		parts := strings.Split(ModelName(need.GPUModel), "-")
		return countClass("gpu/model/"+strings.Join(parts[:min(len(parts), maxModelParts)], "-"), floor(classCounts, n))
	case n > 0:
		return memoryClass(need.GPUMemory, n)
	case need.Memory >= bigMemory*gigabyte:
		return memClass
	case need.CPUs >= bigCPUs:
		return cpuClass
	}
	return AnyWorker
}

// memoryClass prefers a large memory bucket to a device count, because hosts with large devices are rarer.
func memoryClass(memory job.Size, n int) string {
	gb := floor(classGPUMemory, int(memory/gigabyte))
	many := floor(classManyMemory, gb)
	switch {
	case gb == 0: // any device counts, even one below the smallest bucket
		return countClass(gpuClass, floor(classCounts, n))
	case n > 1 && many > 0 && gb < 80:
		return countClass(fmt.Sprintf("gpu/mem/%d", many), floor(classCounts, n))
	}
	return fmt.Sprintf("gpu/mem/%d", gb)
}

// floor returns the largest bucket that is at most n, or 0 if there is none. Buckets are in descending order.
func floor(buckets []int, n int) int {
	for _, b := range buckets {
		if b <= n {
			return b
		}
	}
	return 0
}
