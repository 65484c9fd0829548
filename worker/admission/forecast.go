package admission

// Forecasts: what schedulers are told about the start of their queued offers, and about what is kept for waiting tasks.
// See docs/adr, ADR 91 and ADR 168.

import (
	"cmp"
	"slices"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/leaseclock"
	"github.com/musterhq/muster/worker/step"
)

// changes reports whether a scheduler that has heard f must now hear next: the kind differs, something is kept for the
// offer now or not any more, or the time differs much.
func (f forecast) changes(now leaseclock.Moment, next forecast) bool {
	return f.kind != next.kind || f.elsewhere != next.elsewhere || f.kind != unforeseen && differ(now, f.at, next.at)
}

// differ reports whether two times differ by more than 2 s and a sixteenth of the time that is left until at.
func differ(now leaseclock.Moment, told, at leaseclock.BootTime) bool {
	if told == Never || at == Never {
		return told != at
	}
	return told.Sub(at).Abs() > 2*time.Second+at.Sub(now.Boot)/16
}

// Forecasts knows what schedulers were told, and what they are to be told.
type Forecasts struct {
	sent    []*Offer                         // queued offers whose schedulers have a forecast
	pending map[job.Peer]map[uint64]forecast // by offer
}

// Update notes the forecasts of a pass. Offers that had a forecast and are not among them become unforeseen.
func (fs *Forecasts) Update(now leaseclock.Moment, all []forecast) {
	for _, o := range fs.sent {
		if o.State == Queued && !slices.ContainsFunc(all, func(f forecast) bool { return f.offer == o }) {
			fs.tell(now, forecast{offer: o})
		}
	}
	fs.sent = fs.sent[:0]
	for _, f := range all {
		if f.offer.State == Queued {
			fs.tell(now, f)
			fs.sent = append(fs.sent, f.offer)
		}
	}
	clear(fs.sent[len(fs.sent):cap(fs.sent)])
}

func (fs *Forecasts) tell(now leaseclock.Moment, f forecast) {
	o := f.offer
	if !o.sentForecast.changes(now, f) {
		return
	}
	o.sentForecast = forecast{kind: f.kind, at: f.at, elsewhere: f.elsewhere}
	if fs.pending == nil {
		fs.pending = map[job.Peer]map[uint64]forecast{}
	}
	if fs.pending[o.Key.Peer] == nil {
		fs.pending[o.Key.Peer] = map[uint64]forecast{}
	}
	fs.pending[o.Key.Peer][o.Key.ID] = f
}

// Unsent returns how many schedulers are to be told something.
func (fs *Forecasts) Unsent() int { return len(fs.pending) }

// Take returns what a scheduler is to be told now.
func (fs *Forecasts) Take(now leaseclock.Moment, p job.Peer) []contract.Forecast {
	if len(fs.pending[p]) == 0 {
		return nil
	}
	var out []contract.Forecast
	for id, f := range fs.pending[p] {
		if f.offer.State != Queued {
			continue
		}
		m, left := contract.Forecast{Offer: id}, min(max(time.Millisecond, f.at.Sub(now.Boot)), contract.MaxForecast)
		switch f.kind {
		case unforeseen:
		case startsBy:
			m.Start, m.Elsewhere = left, f.elsewhere
		case keptAside:
			m.Kept = left
		case sharedOut:
			m.Shared = left
		}
		out = append(out, m)
	}
	delete(fs.pending, p)
	slices.SortFunc(out, func(a, b contract.Forecast) int { return cmp.Compare(a.Offer, b.Offer) })
	return out
}

// Forget drops what a scheduler is to be told. Its session has ended, and so have its offers.
func (fs *Forecasts) Forget(p job.Peer) { delete(fs.pending, p) }

// Keeping is what schedulers are told about what is kept for waiting tasks.
type Keeping struct {
	turn   *step.Turn
	all    []keptFor
	unsaid bool // no Availability has reported the last change
	waits  bool // a timer is set
}

// NewKeeping returns what is known before the first pass: nothing is kept.
func NewKeeping(t *step.Turn) Keeping { return Keeping{turn: t} }

// Any reports whether something is kept.
func (k *Keeping) Any() bool { return len(k.all) > 0 }

// Told notes that an Availability has reported the last change.
func (k *Keeping) Told() { k.unsaid = false }

// Update notes what a pass keeps. If that has changed much, schedulers are told with the next Availability, or after
// sayKeptAfter. This news is for people, so it must not delay news of what is free.
func (k *Keeping) Update(now leaseclock.Moment, all []keptFor) {
	if !slices.EqualFunc(k.all, all, func(a, b keptFor) bool {
		return a.offer == b.offer && a.below == b.below && a.cpus == b.cpus && a.memory == b.memory && slices.Equal(a.held, b.held) &&
			a.starts == b.starts && !differ(now, a.until, b.until)
	}) {
		k.all, k.unsaid = all, true
	}
	if k.unsaid && !k.waits {
		k.waits = true
		k.turn.Timers.Set(now.Boot.Add(sayKeptAfter), func(leaseclock.Moment) {
			if k.waits = false; k.unsaid {
				k.turn.Announce()
			}
		})
	}
}

// Message returns what is kept of the free resources, for the first contract.MaxKept offers.
func (k *Keeping) Message(free *contract.Free) (out []contract.Kept) {
	for i := range k.all[:min(len(k.all), contract.MaxKept)] {
		f := &k.all[i]
		m := contract.Kept{
			Priority: f.offer.Msg.Priority, Below: f.below, CPUs: min(f.cpus, free.CPUs), Memory: min(f.memory, free.Memory), Milli: f.milli, Starts: f.starts,
		}
		if !f.offer.Msg.Private {
			m.Job, m.User = f.offer.Msg.Attempt.Job, f.offer.Msg.User
		}
		if f.until != Never {
			m.For = min(max(time.Millisecond, f.until.Sub(k.turn.Now())), contract.MaxForecast)
		}
		for n := range free.GPUs {
			if slices.Contains(f.held, free.GPUs[n].UUID) {
				m.GPUs = append(m.GPUs, n)
			}
		}
		if f.offer.State == Queued && (m.CPUs > 0 || m.Memory > 0 || len(m.GPUs) > 0) {
			out = append(out, m)
		}
	}
	return out
}
