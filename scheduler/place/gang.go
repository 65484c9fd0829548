package place

// Gangs: at which hosts the missing members of a gang may get a place.
// See docs/adr, ADR 89.

import (
	"slices"
	"time"

	"github.com/musterhq/muster/scheduler/fleet"
	"github.com/musterhq/muster/scheduler/policy"
)

// Spot is a host where a member fits now, with the devices that it gets there.
type Spot struct {
	Host    *fleet.Host
	Devices []string // UUIDs
	Why     string   // for people
}

// gangSample is how many hosts with room a policy gets to choose from for a gang. There are more of them than for one
// task, so that some are near each other.
const gangSample = 1024

// Gather returns up to missing hosts where a member fits now, best first. If there are not as many, it also returns up to
// more others where a member may queue. The members of a gang go to different hosts, and none to those of t.At.
func (p *Placer) Gather(t *Task, from int, now time.Time, missing, more int) (fits []Spot, queue []*fleet.Host, again []Again) {
	x := *t
	x.At = slices.Clone(t.At)
	ask := policy.Ask{Need: t.Need, Gang: true, Typical: p.typical}
	defer func(sample int) { p.Sample = sample }(p.Sample)
	p.Sample = max(p.Sample, gangSample)
	for len(fits) < missing {
		found := p.feasible(&x, from, now)
		for _, a := range p.again {
			if !slices.Contains(again, a) {
				again = append(again, a)
			}
		}
		p.chosen = t.Policy.Choose(p.chosen[:0], ask, found.seen, missing-len(fits))
		if len(p.chosen) == 0 {
			break
		}
		for _, c := range p.chosen {
			h := found.seen[c.Index].Host
			fits = append(fits, Spot{Host: h, Devices: c.Devices, Why: Why(x.Need, x.Pool.Prefers(), h, c.Why)})
			x.At = append(x.At, h)
		}
	}
	if len(fits) < missing && more > 0 {
		queue = slices.Clone(p.queueAt(&x, from, now, more))
	}
	return fits, queue, again
}

// Until returns when a task that found no room is placed again, because it avoids hosts that could run it; zero if it
// avoids none.
func (p *Placer) Until(t *Task, now time.Time) time.Time { return p.until(t, now) }

// PreemptAt returns n hosts where preemptible tasks would make room for a member each, or nil if there are fewer. Hosts
// of t.At are left out.
func (p *Placer) PreemptAt(t *Task, from int, now time.Time, n int) []*fleet.Host {
	x := *t
	x.At = slices.Clone(t.At)
	first := len(x.At)
	for range n {
		h := p.Preempt(&x, from, now)
		if h == nil {
			return nil
		}
		x.At = append(x.At, h)
	}
	return x.At[first:]
}
