package sim

// Messages of a session: they come in order, and those of one turn come together.

import (
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/step"
	"github.com/musterhq/muster/worker"
)

// direction is one way of a link.
type direction[M any] struct {
	link   *link
	toHost bool
	newest *batch[M] // of this turn; nil: nothing was sent in it
	sent   uint64    // batches of this session
	next   uint64    // the number of the batch that the other side takes next
	early  []*batch[M]
}

// batch is the messages that one side sends in one turn.
type batch[M any] struct {
	number  uint64
	session int
	sentAt  time.Duration
	bytes   int
	there   bool // the batch has arrived
	msgs    []M
}

// frame is the bytes that a session adds to the messages of one turn: headers of TCP and IP, and of the encryption.
const frame = 90

// begin prepares for a new session.
func (d *direction[M]) begin() { d.newest, d.sent, d.next, d.early = nil, 0, 0, nil }

// send carries a message to the host's core.
func (o *owner) send(to job.Peer, m contract.ToWorker) {
	l := o.links[to]
	if l == nil {
		return
	}
	w := o.w
	switch x := m.(type) {
	case contract.Offer:
		w.counts.Offers++
		w.counts.Ages.add(l.age())
		if w.watch != nil {
			w.watch.offered(o, l.h, x)
		}
	case contract.Release:
		if w.watch != nil {
			w.watch.dropped(l.h, x.Offer)
		}
	case contract.Start:
		if w.watch != nil {
			w.watch.starts(o, to, x)
		}
	}
	post(&l.toHost, l.oUp, m)
}

// send carries a message to the owner's core.
func (h *host) send(to job.Peer, m contract.ToScheduler) {
	if x, tells := m.(contract.Availability); tells && h.w.watch != nil {
		h.w.watch.keeps(h, x.Kept)
	}
	if to == listener {
		overheard(h, m)
		return
	}
	l := h.links[to]
	if l == nil {
		return
	}
	switch x := m.(type) {
	case contract.Availability:
		bare, some := l.bared(x)
		if !some {
			return
		}
		m = bare
		if h.w.watch != nil {
			for _, f := range x.Forecasts {
				h.w.watch.foresees(h, f)
			}
		}
	case contract.Commit:
		h.w.counts.Commits++
	case contract.Decline:
		h.w.counts.Declines++
		if h.w.watch != nil {
			h.w.watch.dropped(h, x.Offer)
		}
	}
	post(&l.toOwner, l.hUp, m)
}

// age returns the age of what the owner believes of the host. If nothing newer is under way, that is the latency of a
// message.
func (l *link) age() time.Duration {
	if heeds(l.w) && !l.local {
		return l.aged()
	}
	if l.toOwner.sent > l.toOwner.next {
		return l.w.now - l.told
	}
	return l.w.net.Cost(l.o.at, l.h.index)
}

// post puts a message on its way at the end of the turn, if the sender believes that the session is up.
func post[M any](d *direction[M], up bool, m M) {
	l := d.link
	w := l.w
	if !l.local {
		if why := wireRefuses(m); why != "" {
			w.fail("%s and %s: a %T that no session takes: %s", l.o.peer, l.h.peer, m, why)
			return
		}
	}
	if !l.open || !up {
		return
	}
	if w.trace != nil {
		w.logf("%s %s: %s", l.o.peer, l.h.peer, brief(m))
	}
	b := d.newest
	if b == nil {
		b = &batch[M]{number: d.sent, session: l.session, sentAt: w.now}
		d.sent++
		d.newest = b
		w.later = append(w.later, d.flush)
	}
	b.msgs = append(b.msgs, m)
	if l.local {
		w.counts.Local++
		return
	}
	k, n := measure(m)
	if s, ok := any(m).(contract.Start); ok && s.File != nil {
		n += l.carry(s.File)
	}
	w.kinds[k].Count++
	w.kinds[k].Bytes += int64(n)
	w.counts.Messages++
	b.bytes += n
	if w.cfg.Measured && (k == kindHello || k == kindAvailability) {
		w.counts.Told.add(l, n, len(b.msgs) == 1)
	}
	if w.cfg.Message != nil {
		w.cfg.Message(m, n)
	}
}

// flush sends the messages of this turn.
func (d *direction[M]) flush() {
	b := d.newest
	d.newest = nil
	if l := d.link; b != nil && l.open && l.session == b.session {
		if !l.local {
			l.w.counts.Bytes += int64(b.bytes + frame)
		}
		d.transmit(b, firstRetry)
	}
}

// firstRetry is how long after a round trip a batch that has not arrived is sent again.
const firstRetry = 200 * time.Millisecond

func (d *direction[M]) transmit(b *batch[M], again time.Duration) {
	l := d.link
	w := l.w
	from, to := l.o.at, l.h.index
	if !d.toHost {
		from, to = to, from
	}
	if l.local {
		w.after(0, func() { d.arrive(b) })
		return
	}
	w.net.Send(from, to, b.bytes+frame, func() { d.arrive(b) })
	if w.lossy {
		w.after(again+2*min(w.net.Cost(from, to), time.Second), func() {
			if !b.there && l.session == b.session {
				w.counts.Bytes += int64(b.bytes + frame)
				d.transmit(b, 2*again)
			}
		})
	}
}

// arrive receives a batch. A batch that has overtaken another waits for it.
func (d *direction[M]) arrive(b *batch[M]) {
	if b.there || d.link.session != b.session {
		return
	}
	b.there = true
	if b.number != d.next {
		d.early = append(d.early, b)
		return
	}
	for b != nil {
		d.next++
		d.deliver(b)
		b = nil
		for i, e := range d.early {
			if e.number == d.next {
				b = e
				d.early = append(d.early[:i], d.early[i+1:]...)
				break
			}
		}
	}
}

// deliver gives the messages to the core, if its daemon is up.
func (d *direction[M]) deliver(b *batch[M]) {
	l := d.link
	hello, heeds := false, heeds(l.w) && !l.local
	for _, m := range b.msgs {
		switch m := any(m).(type) {
		case contract.ToWorker:
			if l.h.up {
				l.h.tell(worker.Message{From: l.o.peer, Msg: m})
			}
		case contract.ToScheduler:
			switch m.(type) {
			case contract.Hello, contract.Availability, contract.Decline:
				l.told = b.sentAt
			}
			switch {
			case !l.o.up:
			case heeds:
				l.hears(any(b).(*batch[contract.ToScheduler]), m, hello)
				_, begins := m.(contract.Hello)
				hello = hello || begins
			default:
				l.o.tell(step.FromWorker{Peer: l.h.peer, Msg: m})
			}
		}
	}
}
