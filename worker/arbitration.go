package worker

// Arbitration: which of the offers that wait get what is free.

import (
	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/job"
)

// arbitration is one pass over the offers, by rank. It changes nothing but the account: what it grants is held for good,
// and what it holds back for offers that wait is given back when the pass ends. So offers that come later get only what
// is left beyond that, and cannot starve those before them.
type arbitration struct {
	account *account
	held    heldBack
	misfits map[job.Resources]struct{} // needs that found no devices: what is left only shrinks
	late    bool                       // something is held back for offers whose wait is over
	filled  bool                       // a user with a limit got a reservation
}

func newArbitration(a *account, devices []gpu.Device) *arbitration {
	r := &arbitration{account: a, misfits: map[job.Resources]struct{}{}, held: heldBack{devices: make(map[string]gpu.Device, len(devices))}}
	for _, d := range devices {
		r.held.devices[d.UUID] = d
	}
	return r
}

// verdict is what becomes of an offer.
type verdict int

const (
	verdictWait    verdict = iota // it waits on
	verdictReserve                // it gets the devices
	verdictDecline
	verdictQuota // it is declined for the quota of its user
	verdictStale // its owner is not the newest any more
)

// decision is a verdict, with the devices that are held for a reservation or the reason of a refusal.
type decision struct {
	verdict verdict
	devices []string
	why     job.Reason
}

// decide decides one offer; here says that its attempt is on this host already.
//
// Something is held back also for an offer whose wait is over: its scheduler may be about to offer it again, in the same
// place.
func (r *arbitration) decide(now Moment, o *offer, here bool) decision {
	m := &o.msg
	if m.Epoch.Less(o.group.epoch) {
		return decision{verdict: verdictStale}
	}
	if why := r.account.quotas.over(m.User, m.Need); why != "" {
		return decision{verdict: verdictQuota, why: job.Reason{Word: job.ReasonQuota, Detail: why}}
	}
	devices, fit := r.fits(m.Need)
	waited := o.timer != nil
	if here && (fit || !waited) {
		return decision{verdict: verdictDecline, why: job.Reason{Word: job.ReasonResources, Detail: "this attempt is here already"}}
	}
	if fit && r.account.hold(m, devices) {
		r.filled = r.filled || r.account.quotas.bounded(m.User)
		return decision{verdict: verdictReserve, devices: devices}
	}
	d := decision{}
	if now.Boot >= o.until {
		d = decision{verdict: verdictDecline, why: job.Reason{Word: job.ReasonResources, Detail: r.account.missing(m.Need)}}
		if !waited { // it was to be answered at once, or comes too late
			return d
		}
		r.late = true
	}
	if r.account.capacity.gpus.Sound(m.Need) { // else it waits for a repair or for others, and nothing is held back for it
		r.account.capacity.holdBack(&r.held, m.Need)
	}
	return d
}

// fits looks for devices that are free.
func (r *arbitration) fits(need job.Resources) ([]string, bool) {
	if !r.account.capacity.enough(need) {
		return nil, false
	}
	if gpu.Count(need) == 0 {
		return nil, true
	}
	if _, misfit := r.misfits[need]; misfit || r.held.noGPUs {
		return nil, false
	}
	devices, ok := r.account.capacity.choose(need)
	if !ok {
		r.misfits[need] = struct{}{}
	}
	return devices, ok
}

// end gives back what was held back.
func (r *arbitration) end() { r.account.capacity.giveBack(&r.held) }
