package worker

// Arbitration: which of the queued offers get what is free.

import (
	"fmt"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
)

// arbitration is one pass over the offers in the order of their rank. It changes only the account. An offer that fits
// gets a reservation, which stays. For an offer that does not fit, what is free of its need is held back until the end
// of the pass. So an offer gets only what no offer before it needs, and cannot starve those.
type arbitration struct {
	account *account
	queue   *queue
	room    makeRoom
	held    heldBack
	misfits map[job.Resources]struct{} // needs for which no devices were found; later in the pass even less is free
	kept    map[askedRoom]struct{}     // needs for which it would not be enough to revoke the reservations of gangs
	late    bool                       // something is held back for an offer whose wait is over
	level   int                        // the priority of the last offer that something was held back for; -1: none yet
	filled  bool                       // a user with a limit got a reservation
	revoked bool                       // reservations were revoked
}

// makeRoom makes room for an offer that does not fit.
type makeRoom struct {
	// revoke takes back the reservations of gangs that rank after it, if it then fits. enough says whether it would fit
	// if not for the quota of its user. Nil: no gang has a reservation.
	revoke  func(*offer) (done, enough bool)
	preempt func(*offer) string // ends tasks or promises that, or says why it cannot
}

// askedRoom is what decides whether reservations can be revoked for an offer, except its rank. Offers that come later in
// the pass may revoke less.
type askedRoom struct {
	need job.Resources
	gang bool
}

func newArbitration(a *account, q *queue, devices []gpu.Device, room makeRoom) *arbitration {
	r := &arbitration{
		account: a, queue: q, level: -1, room: room, misfits: map[job.Resources]struct{}{}, kept: map[askedRoom]struct{}{},
		held: heldBack{devices: make(map[string]gpu.Device, len(devices))},
	}
	for _, d := range devices {
		r.held.devices[d.UUID] = d
	}
	return r
}

// verdict is what happens to an offer.
type verdict int

const (
	verdictWait    verdict = iota // it stays in the queue
	verdictReserve                // it gets a reservation
	verdictDecline
	verdictQuota // it is declined because of its user's quota
	verdictStale // its job group has a newer owner
)

// decision is a verdict with the reserved devices or the reason of a decline.
type decision struct {
	verdict verdict
	devices []string
	why     job.Reason
}

// decide decides one offer. The argument here says that this host already has the offer's attempt.
//
// Resources are held back even for an offer whose wait is over, because its scheduler may be about to renew it.
func (r *arbitration) decide(now Moment, o *offer, here bool) decision {
	m := &o.msg
	if m.Epoch.Less(o.group.epoch) {
		return decision{verdict: verdictStale}
	}
	devices, fit, over := r.allowed(m)
	if !fit && !here && r.revoke(o) {
		devices, fit, over = r.allowed(m)
	}
	if over != "" {
		return decision{verdict: verdictQuota, why: job.Reason{Word: job.ReasonQuota, Detail: over}}
	}
	waited := o.timer != nil
	if here && (fit || !waited) {
		return decision{verdict: verdictDecline, why: job.Reason{Word: job.ReasonResources, Detail: "this attempt is here already"}}
	}
	if fit && r.account.hold(m, devices) {
		r.filled = r.filled || r.account.quotas.bounded(m.User)
		return decision{verdict: verdictReserve, devices: devices}
	}
	if m.Preempt && !o.preempted && !fit {
		if why := r.room.preempt(o); why != "" {
			return decision{verdict: verdictDecline, why: job.Reason{Word: job.ReasonResources, Detail: lease.Clip(why)}}
		}
	}
	d := decision{}
	if now.Boot >= o.until {
		d = decision{verdict: verdictDecline, why: job.Reason{Word: job.ReasonResources, Detail: r.missing(m.Need)}}
		if !waited { // its scheduler wanted an answer at once, or the offer arrived too late
			return d
		}
		r.late = true
	}
	if r.account.capacity.gpus.Sound(m.Need) { // otherwise even a host without tasks would have too few usable devices
		r.account.capacity.holdBack(&r.held, m.Attempt, m.Need)
		if r.level != m.Priority && !o.firm {
			r.level = m.Priority
			r.queue.takeTurn(o)
		}
	} else {
		r.queue.loseTurn(o)
	}
	return d
}

// allowed returns the devices for an offer if it fits now, or which quota of its user it would exceed.
func (r *arbitration) allowed(m *lease.Offer) (devices []string, fit bool, over string) {
	if over = r.account.quotas.over(m.User, r.account.capacity.whole(m.Need)); over != "" {
		return nil, false, over
	}
	devices, fit = r.fits(m.Need, m.Device)
	return devices, fit, ""
}

// revoke revokes reservations of gangs for an offer that does not fit, if that is enough. A firm offer has what it needs.
func (r *arbitration) revoke(o *offer) bool {
	if r.room.revoke == nil || o.firm || r.blocked(o.msg.Need) {
		return false
	}
	asked := askedRoom{o.msg.Need, o.msg.Gang > 0}
	if _, kept := r.kept[asked]; kept {
		return false
	}
	done, enough := r.room.revoke(o)
	if !enough {
		r.kept[asked] = struct{}{}
	}
	if done {
		clear(r.misfits)
		r.revoked, r.held.noGPUs = true, false
	}
	return done
}

// blocked reports whether the need gets nothing because of an offer before it.
func (r *arbitration) blocked(need job.Resources) bool {
	return r.held.all != (job.Attempt{}) || need.Exclusive && r.held.some
}

// fits reports whether the need of an offer fits now, and returns the devices for it.
func (r *arbitration) fits(need job.Resources, preferred string) ([]string, bool) {
	if r.blocked(need) || !r.account.capacity.enough(need) {
		return nil, false
	}
	if gpu.Count(need) == 0 {
		return r.account.capacity.choose(need, preferred)
	}
	if _, misfit := r.misfits[need]; misfit || r.held.noGPUs {
		return nil, false
	}
	devices, ok := r.account.capacity.choose(need, preferred)
	if !ok {
		r.misfits[need] = struct{}{}
	}
	return devices, ok
}

// missing returns why a need does not fit, for people.
func (r *arbitration) missing(need job.Resources) string {
	if r.held.all != (job.Attempt{}) && r.account.capacity.short(need) == "" {
		return fmt.Sprintf("this host is kept for task %s, which wants it for itself", r.held.all)
	}
	return r.account.missing(need)
}

// end frees what was held back.
func (r *arbitration) end() { r.account.capacity.giveBack(&r.held) }
