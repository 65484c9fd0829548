package fleet

// Clauses: what a request demands of a host, one by one. The same test decides whether a host meets a demand, and
// explains why it does not.

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
)

// Clause is one demand on a host.
type Clause struct {
	Text string // for people: "memory: 8GiB"
	// Test returns why the host does not meet the demand; empty if it does. It compares with what the host has, not
	// with what is free.
	Test   func(p *lease.Profile) string
	amount bool // of CPUs or memory: searches compare footprints instead, which is faster
}

// nameLabel is the label that holds the name of a node.
const nameLabel = "name"

// minSuffix is the shortest end of a peer id that may stand for it.
const minSuffix = 4

// ClausesOf returns the demands of a job. The error says what is wrong with its constraint.
func ClausesOf(s job.Spec) ([]Clause, error) {
	out := append([]Clause{driverClause(s)}, mountClauses(s)...)
	out = append(out, resourceClauses(s.Resources)...)
	c, err := job.ParseConstraint(s.Constraint)
	if err != nil {
		return nil, err
	}
	if len(c.Terms()) > 0 {
		out = append(out, Clause{Text: "constraint: " + s.Constraint, Test: func(p *lease.Profile) string {
			if c.Match(labelsOf(p)) {
				return ""
			}
			return "its labels do not meet it"
		}})
	}
	if len(s.NodeList) > 0 {
		out = append(out, Clause{Text: "nodelist: " + strings.Join(s.NodeList, ","), Test: func(p *lease.Profile) string {
			if slices.ContainsFunc(s.NodeList, func(n string) bool { return isNode(p, n) }) {
				return ""
			}
			return "not listed"
		}})
	}
	if len(s.Exclude) > 0 {
		out = append(out, Clause{Text: "exclude: " + strings.Join(s.Exclude, ","), Test: func(p *lease.Profile) string {
			if slices.ContainsFunc(s.Exclude, func(n string) bool { return isNode(p, n) }) {
				return "excluded"
			}
			return ""
		}})
	}
	return out, nil
}

// driverClause demands a Docker engine if the task has an image, else a host that starts processes.
func driverClause(s job.Spec) Clause {
	driver := lease.DriverExec
	if s.Image != "" {
		driver = lease.DriverDocker
	}
	return Clause{Text: "driver: " + driver, Test: func(p *lease.Profile) string {
		switch {
		case !p.Worker:
			return "runs no tasks"
		case slices.Contains(p.Drivers, driver):
			return ""
		case driver == lease.DriverDocker:
			return "no Docker engine"
		}
		return "has " + strings.Join(p.Drivers, ", ")
	}}
}

// mountClauses demand a host that allows each mount of the job.
func mountClauses(s job.Spec) []Clause {
	var out []Clause
	for _, text := range s.Mounts {
		m, err := job.ParseMount(text)
		if err != nil {
			continue // a spec is checked before it comes here
		}
		out = append(out, Clause{Text: "mount: " + m.Source, Test: func(p *lease.Profile) string {
			switch {
			case m.Below(p.Mounts):
				return ""
			case len(p.Mounts) == 0:
				return "lets containers see no directory (docker-mount)"
			}
			return "lets containers see " + strings.Join(p.Mounts, ", ")
		}})
	}
	return out
}

// resourceClauses demand the CPUs, the memory and the GPUs.
func resourceClauses(need job.Resources) []Clause {
	var out []Clause
	if need.CPUs > 0 {
		out = append(out, Clause{amount: true, Text: fmt.Sprintf("cpus: %d", need.CPUs), Test: func(p *lease.Profile) string {
			if p.CPUs >= need.CPUs {
				return ""
			}
			return fmt.Sprintf("has %d", p.CPUs)
		}})
	}
	if need.Memory > 0 {
		out = append(out, Clause{amount: true, Text: "memory: " + need.Memory.String(), Test: func(p *lease.Profile) string {
			if p.Memory >= need.Memory {
				return ""
			}
			return "has " + p.Memory.String()
		}})
	}
	if n := gpu.Count(need); n > 0 {
		out = append(out, Clause{Text: "gpus: " + gpuText(need), Test: func(p *lease.Profile) string {
			if len(p.GPUs) == 0 {
				return "has none"
			}
			if meet := meeting(p.GPUs, need); meet < n {
				return hasText(p.GPUs, meet)
			}
			return ""
		}})
	}
	return out
}

// hasText describes the devices of a host that has too few that fit: "has 2 × h100-80gb, none of them fits".
func hasText(devices []gpu.Device, fitting int) string {
	text := fmt.Sprintf("has %d × %s", len(devices), devices[0].Class)
	switch fitting {
	case len(devices):
		return text
	case 0:
		return text + ", none of them fits"
	case 1:
		return text + ", 1 of them fits"
	}
	return fmt.Sprintf("%s, %d of them fit", text, fitting)
}

// meeting counts the devices that the need accepts.
func meeting(devices []gpu.Device, need job.Resources) int {
	n := 0
	for _, d := range devices {
		if lease.GPUMeets(d, need) {
			n++
		}
	}
	return n
}

// gpuText describes the GPUs of a need: "2 × h100 ≥ 80GB".
func gpuText(need job.Resources) string {
	text := fmt.Sprint(need.GPUs)
	if need.GPUShare > 0 {
		text = fmt.Sprintf("%g of 1", need.GPUShare)
	}
	if need.GPUModel != "" {
		text += " × " + need.GPUModel
	}
	if need.GPUMemory > 0 {
		text += " ≥ " + need.GPUMemory.String()
	}
	return text
}

// labelsOf returns the labels of a host, its name among them.
func labelsOf(p *lease.Profile) map[string]string {
	labels := make(map[string]string, len(p.Labels)+1)
	maps.Copy(labels, p.Labels)
	labels[nameLabel] = p.Name
	return labels
}

// isNode says whether a name that a user gave is that of the host: its name, a glob that matches its name, its peer id,
// or the end of its peer id.
func isNode(p *lease.Profile, name string) bool {
	if name == p.Name || name == string(p.Peer) {
		return true
	}
	if len(name) >= minSuffix && strings.HasSuffix(string(p.Peer), name) {
		return true
	}
	ok, err := path.Match(name, p.Name)
	return err == nil && ok
}

// Meets says whether the host meets every clause.
func Meets(clauses []Clause, p *lease.Profile) bool {
	return !slices.ContainsFunc(clauses, func(c Clause) bool { return c.Test(p) != "" })
}
