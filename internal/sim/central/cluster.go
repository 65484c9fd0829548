package central

// The machines with what is free of them.

import (
	"cmp"
	"slices"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/internal/sim/load"
	"github.com/musterhq/muster/internal/sim/record"
	"github.com/musterhq/muster/job"
)

type cluster struct{ machines []machine }

type machine struct {
	total, cpus int // thousandths
	memory, mem job.Size
	model       string
	left        []int // thousandths of each device
	all         int   // their sum
	closed      int   // faults for which it takes no tasks
	speed       float64
}

func newCluster(list []load.Machine) *cluster {
	c := &cluster{machines: make([]machine, len(list))}
	for i := range list {
		l := &list[i]
		m := machine{total: l.CPUs, cpus: l.CPUs, memory: l.Memory, mem: l.Memory, model: contract.ModelName(l.Model), left: make([]int, l.GPUs), all: l.GPUs * gpu.Whole, speed: 1}
		for d := range m.left {
			m.left[d] = gpu.Whole
		}
		c.machines[i] = m
	}
	return c
}

func (c *cluster) clone() *cluster {
	x := &cluster{machines: slices.Clone(c.machines)}
	for i := range x.machines {
		x.machines[i].left = slices.Clone(x.machines[i].left)
	}
	return x
}

// could reports whether an empty cluster has the machines for a shape.
func (c *cluster) could(s *shape) bool {
	n := 0
	for i := range c.machines {
		m := &c.machines[i]
		if m.total >= s.need.CPUs && m.memory >= s.need.Memory && len(m.left) >= s.devices && m.allows(s) {
			n++
		}
	}
	return n >= s.members
}

func (m *machine) allows(s *shape) bool {
	return len(s.models) == 0 || slices.Contains(s.models, m.model)
}

// fits reports whether a member fits now.
func (m *machine) fits(s *shape) bool {
	if m.closed > 0 || m.cpus < s.need.CPUs || m.mem < s.need.Memory || s.need.Exclusive && (m.cpus < m.total || m.all < len(m.left)*gpu.Whole) || !m.allows(s) {
		return false
	}
	n := s.devices
	for _, left := range m.left {
		if n > 0 && left >= s.milli {
			n--
		}
	}
	return n == 0
}

// devices chooses the devices that fit with the least left.
func (m *machine) devices(s *shape) []int {
	if s.devices == 0 {
		return nil
	}
	out := make([]int, 0, len(m.left))
	for d, left := range m.left {
		if left >= s.milli {
			out = append(out, d)
		}
	}
	slices.SortStableFunc(out, func(a, b int) int { return cmp.Compare(m.left[a], m.left[b]) })
	out = out[:s.devices]
	slices.Sort(out)
	return out
}

// bestFit chooses the machines that have the least left over; nil if the shape does not fit.
func (c *cluster) bestFit(s *shape) []record.Alloc {
	tighter := func(a, b int) int {
		x, y := &c.machines[a], &c.machines[b]
		return cmp.Or(cmp.Compare(x.all, y.all), cmp.Compare(x.cpus, y.cpus), cmp.Compare(a, b))
	}
	var fits []int
	for i := range c.machines {
		switch m := &c.machines[i]; {
		case s.members == 1 && len(fits) == 1 && (m.all > c.machines[fits[0]].all || !m.fits(s)):
		case !m.fits(s):
		case s.members > 1 || len(fits) == 0:
			fits = append(fits, i)
		case tighter(i, fits[0]) < 0:
			fits[0] = i
		}
	}
	if len(fits) < s.members {
		return nil
	}
	slices.SortFunc(fits, tighter)
	return c.allocs(s, fits[:s.members])
}

func (c *cluster) allocs(s *shape, at []int) []record.Alloc {
	out := make([]record.Alloc, 0, len(at))
	for _, i := range at {
		out = append(out, record.Alloc{Machine: i, Devices: c.machines[i].devices(s), Milli: s.milli})
	}
	return out
}

// has reports whether the shape fits at exactly these machines and devices.
func (c *cluster) has(s *shape, where []record.Alloc) bool {
	for _, a := range where {
		m := &c.machines[a.Machine]
		if m.cpus < s.need.CPUs || m.mem < s.need.Memory {
			return false
		}
		for _, d := range a.Devices {
			if m.left[d] < s.milli {
				return false
			}
		}
	}
	return true
}

func (c *cluster) take(s *shape, where []record.Alloc) { c.change(s, where, -1) }
func (c *cluster) give(s *shape, where []record.Alloc) { c.change(s, where, 1) }

func (c *cluster) change(s *shape, where []record.Alloc, sign int) {
	for _, a := range where {
		m := &c.machines[a.Machine]
		m.cpus += sign * s.need.CPUs
		m.mem += job.Size(sign) * s.need.Memory
		for _, d := range a.Devices {
			m.left[d] += sign * s.milli
		}
		m.all += sign * s.milli * len(a.Devices)
	}
}

// victims returns tasks of the list whose end makes the shape fit. For a shape of one machine these are the first ones
// at the machine that needs the fewest; for a gang they are found in the order of the list. It returns nil if the end
// of all tasks would not be enough.
func (c *cluster) victims(s *shape, list []*item) []*item {
	if s.members > 1 {
		return c.victimsAll(s, list)
	}
	var best []*item
	byMachine := map[int][]*item{}
	var order []int
	for _, y := range list {
		for _, a := range y.where {
			if byMachine[a.Machine] == nil {
				order = append(order, a.Machine)
			}
			byMachine[a.Machine] = append(byMachine[a.Machine], y)
		}
	}
	for _, i := range order {
		most := len(byMachine[i])
		if best != nil {
			most = min(most, len(best)-1)
		}
		if chosen := c.victimsAt(i, s, byMachine[i][:most]); chosen != nil {
			best = chosen
		}
	}
	return best
}

// victimsAt returns the first tasks of the list whose end makes the shape fit at a machine; nil if the end of all is
// not enough.
func (c *cluster) victimsAt(at int, s *shape, list []*item) []*item {
	m := c.machines[at]
	if !m.allows(s) || len(m.left) < s.devices {
		return nil
	}
	m.left = slices.Clone(m.left)
	one := cluster{machines: []machine{m}}
	for n, y := range list {
		for _, a := range y.where {
			if a.Machine == at {
				a.Machine = 0
				one.give(y.shape, []record.Alloc{a})
			}
		}
		if one.machines[0].fits(s) {
			return list[:n+1]
		}
	}
	return nil
}

// victimsAll collects tasks in the order of the list until a gang would fit, and then spares those that need not end.
func (c *cluster) victimsAll(s *shape, list []*item) []*item {
	later := c.clone()
	for n, y := range list {
		later.give(y.shape, y.where)
		where := later.bestFit(s)
		if where == nil {
			continue
		}
		later.take(s, where)
		var chosen []*item
		for _, v := range slices.Backward(list[:n+1]) {
			if later.has(v.shape, v.where) {
				later.take(v.shape, v.where)
			} else {
				chosen = append(chosen, v)
			}
		}
		return chosen
	}
	return nil
}
