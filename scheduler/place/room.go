package place

// Hosts with room: where a task fits now, and which of these hosts the policy chooses.

import (
	"time"

	"github.com/musterhq/muster/scheduler/fleet"
	"github.com/musterhq/muster/scheduler/policy"
)

// feasible returns hosts where the task fits now: this daemon's own, and others until there are Sample. Hosts that
// the task avoids while there is another are returned only if there is no other.
func (p *Placer) feasible(t *Task, from int, now time.Time) *candidates {
	p.fits.clear()
	p.shunned.clear()
	p.again = p.again[:0]
	if own := p.fleet.Local(); own != nil && p.fleet.Could(t.Shape, own) {
		p.consider(t, own, now)
	}
	for h := range p.fleet.WithRoom(t.Shape, from) {
		if !h.Local {
			p.consider(t, h, now)
		}
		if len(p.fits.hosts) > 0 && len(p.fits.hosts)+len(p.shunned.hosts) >= p.Sample {
			break
		}
	}
	if len(p.fits.hosts) > 0 {
		return &p.fits
	}
	return &p.shunned
}

// consider adds the host to the candidates if the task fits there now.
func (p *Placer) consider(t *Task, h *fleet.Host, now time.Time) {
	if !t.Foot.Within(p.fleet.Left(h)) {
		return
	}
	to := &p.fits
	if a, avoided := t.Avoid.at(now, h.Peer); avoided {
		switch {
		case a.Hard:
			p.again = append(p.again, Again{h, a.Until})
			return
		case a.Kept:
			return
		}
		to = &p.shunned
	}
	free := h.LeftFor(&t.Rank)
	if t.OverQuota(h) == "" && h.Devices.Suffices(t.Need, free) {
		to.add(h, free)
	}
}

// choose has the policy choose one of the candidates, and returns the host with the policy's choice; nil if there is
// none.
func (p *Placer) choose(t *Task, from *candidates) (*fleet.Host, policy.Choice) {
	p.chosen = t.Policy.Choose(p.chosen[:0], policy.Ask{Need: t.Need, Typical: p.typical}, from.seen, 1)
	if len(p.chosen) == 0 {
		return nil, policy.Choice{}
	}
	return from.hosts[p.chosen[0].Index], p.chosen[0]
}

// DevicesAt chooses devices for a task that goes to the host in any case; none if it does not fit there now.
func (p *Placer) DevicesAt(t *Task, h *fleet.Host) []string {
	free := h.LeftFor(&t.Rank)
	if !h.Devices.Suffices(t.Need, free) {
		return nil
	}
	p.fits.clear()
	p.fits.add(h, free)
	_, c := p.choose(t, &p.fits)
	return c.Devices
}
