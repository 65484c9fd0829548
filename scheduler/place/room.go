package place

// Hosts with room: where a task fits now, and which of these hosts the policy chooses.

import (
	"slices"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/fleet"
	"github.com/musterhq/muster/scheduler/policy"
)

// feasible returns hosts where the task fits now: this daemon's own, and others until there are Sample. If the task
// has preferences, they are hosts that meet these best. If there are only hosts that the task avoids while there is
// another, it returns the one that the task ceases to avoid first.
func (p *Placer) feasible(t *Task, from int, now time.Time) *candidates {
	p.fits.clear()
	p.shunned.clear()
	p.again = p.again[:0]
	if own := p.fleet.Local(); own != nil && p.fleet.Could(t.Shape, own) {
		p.consider(t, own, p.fleet.Weight(t.Shape, own), now)
	}
	least := 0
	if _, near := t.Policy.(policy.Nearer); near {
		for h, weight := range fleet.NearestWithRoom(p.fleet, t.Shape, from, &least) {
			if p.enough(t, h, weight, &least, now) {
				break
			}
		}
	} else {
		for h, weight := range p.fleet.WithRoom(t.Shape, from, &least) {
			if p.enough(t, h, weight, &least, now) {
				break
			}
		}
	}
	if len(p.fits.hosts) > 0 {
		return &p.fits
	}
	return &p.shunned
}

// enough considers a host, and says whether there are as many candidates as are compared. It raises least to the weight
// that a further host must have.
func (p *Placer) enough(t *Task, h *fleet.Host, weight int, least *int, now time.Time) bool {
	if !h.Local {
		p.consider(t, h, weight, now)
	}
	if len(p.fits.hosts) == 0 {
		return false
	}
	if p.fits.weight == t.Pool.MostWeight() && len(p.fits.hosts)+len(p.shunned.hosts) >= p.Sample {
		return true
	}
	if *least = p.fits.weight; !p.fits.wants(*least, p.Sample) {
		*least++
	}
	return false
}

// consider adds the host to the candidates if the task fits there now. Weight is how well it meets the preferences.
func (p *Placer) consider(t *Task, h *fleet.Host, weight int, now time.Time) {
	if !t.Foot.Within(p.fleet.Left(h)) || !t.Home.Has(h) || slices.Contains(t.At, h) {
		return
	}
	a, avoided := t.Avoid.at(now, h.Peer)
	switch {
	case avoided && a.Hard:
		p.again = append(p.again, Again{h, a.Until})
		return
	case avoided && a.Kept:
		return
	}
	if !avoided && !p.fits.wants(weight, p.Sample) {
		return
	}
	free := h.LeftFor(&t.Rank)
	if t.OverQuota(h) != "" || !h.Devices.Suffices(t.Need, free) {
		return
	}
	switch {
	case !avoided:
		p.fits.add(h, free, weight)
	case len(p.shunned.hosts) == 0 || a.Until.Before(p.shunnedUntil):
		p.shunned.clear()
		p.shunned.add(h, free, weight)
		p.shunnedUntil = a.Until
	}
}

// choose has the policy choose one of the candidates, and returns the host with the policy's choice; nil if there is
// none.
func (p *Placer) choose(t *Task, from *candidates) (*fleet.Host, policy.Choice) {
	p.chosen = t.Policy.Choose(p.chosen[:0], policy.Ask{Need: t.Need, Typical: p.typical}, from.seen, 1)
	if len(p.chosen) == 0 {
		return nil, policy.Choice{}
	}
	host, choice := from.hosts[p.chosen[0].Index], p.chosen[0]
	choice.Why = Why(t.Need, t.Pool.Prefers(), host, choice.Why)
	return host, choice
}

// Why is the reason of a choice with what the policy does not know: that the task wants a host for itself, and what it
// prefers.
func Why(need job.Resources, prefers []job.Preference, h *fleet.Host, why string) string {
	if need.Exclusive {
		why = "no other task runs there"
	}
	if preferred := fleet.Preferred(prefers, h); preferred != "" {
		return preferred + "; " + why
	}
	return why
}

// DevicesAt chooses devices for a task that goes to the host in any case; none if it does not fit there now.
func (p *Placer) DevicesAt(t *Task, h *fleet.Host) []string {
	free := h.LeftFor(&t.Rank)
	if !h.Devices.Suffices(t.Need, free) {
		return nil
	}
	p.fits.clear()
	p.fits.add(h, free, 0)
	_, c := p.choose(t, &p.fits)
	return c.Devices
}
