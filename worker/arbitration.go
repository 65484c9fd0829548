package worker

// Arbitration: which of the queued offers get what is free.

import (
	"fmt"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/job"
)

// arbitration is one pass over the offers in the order of their rank. It changes only the account. An offer that fits
// gets a reservation, which stays. For an offer that does not fit, what is free of its need is held back until the end
// of the pass. So an offer gets only what no offer before it needs, and cannot starve those.
type arbitration struct {
	account *account
	queue   *queue
	preempt func(*offer) string // makes room for an offer, or says why it cannot
	held    heldBack
	misfits map[job.Resources]struct{} // needs for which no devices were found; later in the pass even less is free
	late    bool                       // something is held back for an offer whose wait is over
	level   int                        // the priority of the last offer that something was held back for; -1: none yet
	filled  bool                       // a user with a limit got a reservation
}

func newArbitration(a *account, q *queue, devices []gpu.Device, preempt func(*offer) string) *arbitration {
	r := &arbitration{account: a, queue: q, level: -1, preempt: preempt, misfits: map[job.Resources]struct{}{}, held: heldBack{devices: make(map[string]gpu.Device, len(devices))}}
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
	if why := r.account.quotas.over(m.User, r.account.capacity.whole(m.Need)); why != "" {
		return decision{verdict: verdictQuota, why: job.Reason{Word: job.ReasonQuota, Detail: why}}
	}
	devices, fit := r.fits(m.Need, m.Device)
	waited := o.timer != nil
	if here && (fit || !waited) {
		return decision{verdict: verdictDecline, why: job.Reason{Word: job.ReasonResources, Detail: "this attempt is here already"}}
	}
	if fit && r.account.hold(m, devices) {
		r.filled = r.filled || r.account.quotas.bounded(m.User)
		return decision{verdict: verdictReserve, devices: devices}
	}
	if m.Preempt && !o.preempted && !fit {
		if why := r.preempt(o); why != "" {
			return decision{verdict: verdictDecline, why: job.Reason{Word: job.ReasonResources, Detail: why}}
		}
		o.preempted = true
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
		if r.level != m.Priority {
			r.level = m.Priority
			r.queue.firstWaits(o)
		}
	} else {
		r.queue.loseTurn(o)
	}
	return d
}

// fits reports whether the need of an offer fits now, and returns the devices for it.
func (r *arbitration) fits(need job.Resources, preferred string) ([]string, bool) {
	if r.held.all != (job.Attempt{}) || need.Exclusive && r.held.some || !r.account.capacity.enough(need) {
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
