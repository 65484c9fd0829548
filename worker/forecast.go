package worker

// Forecasts: what schedulers are told about the start of their queued offers.
// See docs/adr, ADR 91.

import (
	"cmp"
	"slices"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
)

// changes reports whether a scheduler that was told this should be told the other: the kind is another one, or the time
// differs by more than a sixteenth of what is left, and two seconds.
func (f forecast) changes(now Moment, to forecast) bool {
	return f.kind != to.kind || f.kind != unforeseen && f.at.Sub(to.at).Abs() > 2*time.Second+to.at.Sub(now.Boot)/16
}

// forecasts knows what schedulers were told, and what they are to be told.
type forecasts struct {
	told    []*offer                         // queued offers whose schedulers have a forecast
	pending map[job.Peer]map[uint64]forecast // by offer
}

// update takes in the forecasts of a pass. For other offers nothing is known any more.
func (fs *forecasts) update(now Moment, all []forecast) {
	for _, o := range fs.told {
		if o.state == offerQueued && !slices.ContainsFunc(all, func(f forecast) bool { return f.offer == o }) {
			fs.tell(now, forecast{offer: o})
		}
	}
	fs.told = fs.told[:0]
	for _, f := range all {
		if f.offer.state == offerQueued {
			fs.tell(now, f)
			fs.told = append(fs.told, f.offer)
		}
	}
	clear(fs.told[len(fs.told):cap(fs.told)])
}

func (fs *forecasts) tell(now Moment, f forecast) {
	o := f.offer
	if !o.told.changes(now, f) {
		return
	}
	o.told = forecast{kind: f.kind, at: f.at}
	if fs.pending == nil {
		fs.pending = map[job.Peer]map[uint64]forecast{}
	}
	if fs.pending[o.key.peer] == nil {
		fs.pending[o.key.peer] = map[uint64]forecast{}
	}
	fs.pending[o.key.peer][o.key.id] = f
}

// take returns what a scheduler is to be told now.
func (fs *forecasts) take(now Moment, p job.Peer) []lease.Forecast {
	if len(fs.pending[p]) == 0 {
		return nil
	}
	var out []lease.Forecast
	for id, f := range fs.pending[p] {
		if f.offer.state != offerQueued {
			continue
		}
		m, left := lease.Forecast{Offer: id}, min(max(time.Millisecond, f.at.Sub(now.Boot)), lease.MaxForecast)
		switch f.kind {
		case unforeseen:
		case startsBy:
			m.Start = left
		case keptAside:
			m.Kept = left
		case sharedOut:
			m.Shared = left
		}
		out = append(out, m)
	}
	delete(fs.pending, p)
	slices.SortFunc(out, func(a, b lease.Forecast) int { return cmp.Compare(a.Offer, b.Offer) })
	return out
}

// forget forgets what a scheduler is to be told. Its session has ended, and with it its offers.
func (fs *forecasts) forget(p job.Peer) { delete(fs.pending, p) }
