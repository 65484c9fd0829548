package scheduler

// What a request demands of a host, clause by clause: the same test decides,
// and explains why not.

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

// clause is one demand. test returns why the host does not meet it, "" if it
// does; it looks at what the host could ever give, not at what is free.
type clause struct {
	text   string
	test   func(p *lease.Profile) string
	amount bool // of CPUs or memory: compared as a footprint where that is quicker
}

// nameLabel is a node's name among its labels.
const nameLabel = "name"

// minSuffix is the shortest end of a peer id that may stand for it.
const minSuffix = 4

func clausesOf(s job.Spec) ([]clause, error) {
	out := append([]clause{driverClause(s)}, mountClauses(s)...)
	out = append(out, resourceClauses(s.Resources)...)
	c, err := job.ParseConstraint(s.Constraint)
	if err != nil {
		return nil, err
	}
	if len(c.Terms()) > 0 {
		out = append(out, clause{text: "constraint: " + s.Constraint, test: func(p *lease.Profile) string {
			if c.Match(labelsOf(p)) {
				return ""
			}
			return "its labels do not meet it"
		}})
	}
	if len(s.NodeList) > 0 {
		out = append(out, clause{text: "nodelist: " + strings.Join(s.NodeList, ","), test: func(p *lease.Profile) string {
			if slices.ContainsFunc(s.NodeList, func(n string) bool { return isNode(p, n) }) {
				return ""
			}
			return "not listed"
		}})
	}
	if len(s.Exclude) > 0 {
		out = append(out, clause{text: "exclude: " + strings.Join(s.Exclude, ","), test: func(p *lease.Profile) string {
			if slices.ContainsFunc(s.Exclude, func(n string) bool { return isNode(p, n) }) {
				return "excluded"
			}
			return ""
		}})
	}
	return out, nil
}

// driverClause asks for what runs the task: an engine for an image, else
// nothing but processes.
func driverClause(s job.Spec) clause {
	driver := lease.DriverExec
	if s.Image != "" {
		driver = lease.DriverDocker
	}
	return clause{text: "driver: " + driver, test: func(p *lease.Profile) string {
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

// mountClauses ask, for each directory, for a host that shows it to containers.
func mountClauses(s job.Spec) []clause {
	var out []clause
	for _, text := range s.Mounts {
		m, err := job.ParseMount(text)
		if err != nil {
			continue // a spec is checked before it comes here
		}
		out = append(out, clause{text: "mount: " + m.Source, test: func(p *lease.Profile) string {
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

func resourceClauses(need job.Resources) []clause {
	var out []clause
	if need.CPUs > 0 {
		out = append(out, clause{amount: true, text: fmt.Sprintf("cpus: %d", need.CPUs), test: func(p *lease.Profile) string {
			if p.CPUs >= need.CPUs {
				return ""
			}
			return fmt.Sprintf("has %d", p.CPUs)
		}})
	}
	if need.Memory > 0 {
		out = append(out, clause{amount: true, text: "memory: " + need.Memory.String(), test: func(p *lease.Profile) string {
			if p.Memory >= need.Memory {
				return ""
			}
			return "has " + p.Memory.String()
		}})
	}
	if n := gpusOf(need); n > 0 {
		out = append(out, clause{text: "gpus: " + gpuText(need), test: func(p *lease.Profile) string {
			if len(p.GPUs) == 0 {
				return "has none"
			}
			if meet := meeting(p.GPUs, need); meet < n {
				return fmt.Sprintf("has %d such of %d (%s)", meet, len(p.GPUs), p.GPUs[0].Class)
			}
			return ""
		}})
	}
	return out
}

// gpusOf is how many devices the need touches.
func gpusOf(need job.Resources) int {
	if need.GPUShare > 0 {
		return 1
	}
	return need.GPUs
}

func meeting(devices []gpu.Device, need job.Resources) int {
	n := 0
	for _, d := range devices {
		if lease.GPUMeets(d, need) {
			n++
		}
	}
	return n
}

// gpuText is "2 × h100 ≥ 80GB".
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

func labelsOf(p *lease.Profile) map[string]string {
	labels := make(map[string]string, len(p.Labels)+1)
	maps.Copy(labels, p.Labels)
	labels[nameLabel] = p.Name
	return labels
}

// isNode says whether the host goes by this name, glob, peer id or end of one.
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

// withoutAmounts leaves out what a footprint compares.
func withoutAmounts(clauses []clause) []clause {
	return slices.DeleteFunc(slices.Clone(clauses), func(c clause) bool { return c.amount })
}

// meets says whether the host meets every clause.
func meets(clauses []clause, p *lease.Profile) bool {
	return !slices.ContainsFunc(clauses, func(c clause) bool { return c.test(p) != "" })
}

// classFor is the class of hosts that a request is looked for in: that of the one
// name that it lists, which a search of a wider class may not turn up among many.
func classFor(s job.Spec) string {
	if len(s.NodeList) == 1 && job.CheckLabel(nameLabel, s.NodeList[0]) == nil {
		return lease.NameClass(s.NodeList[0])
	}
	return lease.ClassOf(s.Resources, demanded(s.Constraint))
}

// demanded are the labels that a constraint demands with their values, if it
// is nothing but such demands.
func demanded(constraint string) map[string]string {
	c, err := job.ParseConstraint(constraint)
	if err != nil || strings.ContainsAny(constraint, "|!") {
		return nil
	}
	out := map[string]string{}
	for _, term := range c.Terms() {
		if k, v, ok := strings.Cut(term, "="); ok && k != nameLabel {
			out[k] = v
		}
	}
	return out
}

// wholeMilli is a device of which nothing is promised, in thousandths.
const wholeMilli = 1000

// fits says whether the need could be met from what is free, and with which
// devices; why not otherwise.
func fits(need job.Resources, free *lease.Free, devices map[string]gpu.Device) ([]string, string) {
	switch {
	case free.CPUs < need.CPUs:
		return nil, "cpus"
	case free.Memory < need.Memory:
		return nil, "memory"
	}
	n := gpusOf(need)
	if n == 0 {
		return nil, ""
	}
	chosen := choose(need, free, devices)
	if len(chosen) < n {
		return nil, "gpus"
	}
	return chosen[:n], ""
}

// choose lists the free devices that the need accepts: the smallest first, and
// for a share the fullest first.
func choose(need job.Resources, free *lease.Free, devices map[string]gpu.Device) []string {
	milli := shareMilli(need)
	var able []lease.FreeGPU
	for _, g := range free.GPUs {
		d, known := devices[g.UUID]
		if known && g.Milli >= milli && g.Memory >= need.GPUMemory && lease.GPUMeets(d, need) {
			able = append(able, g)
		}
	}
	slices.SortStableFunc(able, func(a, b lease.FreeGPU) int {
		if a.Milli != b.Milli {
			return a.Milli - b.Milli
		}
		x, y := devices[a.UUID], devices[b.UUID]
		switch {
		case x.Memory < y.Memory:
			return -1
		case x.Memory > y.Memory:
			return 1
		}
		return 0
	})
	out := make([]string, len(able))
	for i, g := range able {
		out[i] = g.UUID
	}
	return out
}

// shareMilli is how much of each device the need takes.
func shareMilli(need job.Resources) int {
	if need.GPUShare > 0 {
		return max(int(need.GPUShare*wholeMilli), 1)
	}
	return wholeMilli
}

// take lessens what is free by the need; what there is less of becomes none.
func take(need job.Resources, free *lease.Free, chosen []string) {
	free.CPUs = max(free.CPUs-need.CPUs, 0)
	free.Memory = max(free.Memory-need.Memory, 0)
	if len(chosen) == 0 {
		return
	}
	milli := shareMilli(need)
	for i := range free.GPUs {
		g := &free.GPUs[i]
		if !slices.Contains(chosen, g.UUID) {
			continue
		}
		memory := need.GPUMemory
		if milli == wholeMilli {
			memory = g.Memory
		} else if memory == 0 {
			memory = g.Memory * job.Size(milli) / job.Size(max(g.Milli, 1))
		}
		g.Milli = max(g.Milli-milli, 0)
		g.Memory = max(g.Memory-memory, 0)
	}
}
