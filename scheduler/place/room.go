package place

// Hosts with room: where a task fits now, and which of these hosts the policy chooses.

import (
	"slices"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/fleet"
	"github.com/musterhq/muster/scheduler/policy"
)

// feasible returns hosts where the task fits now: this daemon's own, and others until there are Sample. If the task has
// preferences, they are hosts that meet these best. If the task fits only at hosts that it avoids, feasible returns one
// of these: the first by Avoidance.before.
func (p *Placer) feasible(t *Task, from int, now time.Time) *candidates {
	p.fits.clear()
	p.shunned.clear()
	p.rooms = p.rooms[:0]
	p.again = p.again[:0]
	p.search = fleet.SearchFor(t.Need)
	own := p.fleet.Local()
	if own != nil && p.fleet.Could(t.Shape, own) {
		p.consider(t, p.fleet.Row(own.Slot()), p.fleet.Weight(t.Shape, own), now)
	}
	least := 0
	if _, near := t.Policy.(policy.Nearer); near {
		for slot, weight := range fleet.NearestWithRoom(p.fleet, t.Shape, from, &least) {
			if p.enough(t, slot, weight, &least, now) {
				break
			}
		}
	} else {
		for slot, weight := range p.fleet.WithRoom(t.Shape, from, &least) {
			if p.enough(t, slot, weight, &least, now) {
				break
			}
		}
	}
	if len(p.fits.seen) > 0 {
		return &p.fits
	}
	return &p.shunned
}

// enough considers a host, and reports whether there are enough candidates. It raises least to the weight that a further
// host must have.
func (p *Placer) enough(t *Task, slot, weight int, least *int, now time.Time) bool {
	if row := p.fleet.Row(slot); row.Host != p.fleet.Local() {
		p.consider(t, row, weight, now)
	}
	if len(p.fits.seen) == 0 {
		return false
	}
	if p.fits.weight == t.Pool.MostWeight() && len(p.fits.seen)+len(p.shunned.seen) >= p.Sample {
		return true
	}
	if *least = p.fits.weight; !p.fits.wants(*least, p.Sample) {
		*least++
	}
	return false
}

// consider adds the host of the row to the candidates if the task fits there now. Weight is how well it meets the
// preferences. The host itself is only read if the table has no Room of it.
func (p *Placer) consider(t *Task, row fleet.Row, weight int, now time.Time) {
	h := row.Host
	if !t.Foot.Within(row.Left) || len(t.At) > 0 && slices.Contains(t.At, h) || !t.Home.Has(h) {
		return
	}
	a, avoided := t.avoids(now, h)
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
	room, free := row.Room, row.Free
	if room == nil {
		if t.OverQuota(h) != "" {
			return
		}
		free = h.LeftFor(&t.Rank)
		room = p.roomOf(h, free)
	}
	if !p.search.Fits(room, &h.Devices, free) {
		return
	}
	switch {
	case !avoided:
		p.fits.add(p.candidate(h, room, free), weight)
	case len(p.shunned.seen) == 0 || a.before(p.shunnedAs):
		p.shunned.clear()
		p.shunned.add(p.candidate(h, room, free), weight)
		p.shunnedAs = a
	}
}

// roomOf works out the Room of a host if the table does not have it.
func (p *Placer) roomOf(h *fleet.Host, free *contract.Free) *fleet.Room {
	p.rooms = append(p.rooms, fleet.RoomOf(&h.Profile, &h.Devices, free))
	return &p.rooms[len(p.rooms)-1]
}

func (p *Placer) candidate(h *fleet.Host, room *fleet.Room, free *contract.Free) policy.Candidate {
	return policy.Candidate{
		Host: h, Local: h == p.fleet.Local(), Room: room, Profile: &h.Profile, Free: free, Devices: &h.Devices,
	}
}

// choose lets the policy choose one of the candidates, and returns the host with the policy's choice; nil if there is
// none.
func (p *Placer) choose(t *Task, from *candidates) (*fleet.Host, policy.Choice) {
	p.chosen = t.Policy.Choose(p.chosen[:0], policy.Ask{Need: t.Need, Typical: p.typical}, from.seen, 1)
	if len(p.chosen) == 0 {
		return nil, policy.Choice{}
	}
	host, choice := from.seen[p.chosen[0].Index].Host, p.chosen[0]
	choice.Why = Why(t.Need, t.Pool.Prefers(), host, choice.Why)
	return host, choice
}

// Why returns the reason of a choice. It adds what the policy does not know: that the task wants a host for itself, and
// what the task prefers.
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
	p.fits.add(policy.CandidateOf(h, free), 0)
	_, c := p.choose(t, &p.fits)
	return c.Devices
}
