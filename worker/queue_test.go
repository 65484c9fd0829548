package worker_test

// The queue of offers: one order on all hosts, and nobody starves in it.

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
	"github.com/musterhq/muster/worker"
)

// theirs is an offer of the scheduler that owns the group.
func theirs(g job.Group, id, number uint64, need job.Resources) lease.Offer {
	m := offer(id, job.Attempt{Job: job.NewID(g, number), N: 1}, need)
	m.Group, m.Wait = g, lease.MaxOfferWait
	return m
}

// owner is a scheduler with a group of its own.
func (h *host) owner(p job.Peer, g job.Group) {
	h.t.Helper()
	h.round(worker.Up{Peer: p})
	h.says(p, lease.Owns{Groups: []lease.GroupEpoch{{Group: g, Epoch: epoch(1)}}})
	h.renew(p)
}

// renew answers all that a scheduler was asked for.
func (h *host) renew(p job.Peer) {
	for _, r := range got[lease.Renew](h, p) {
		h.says(p, answerTo(r, 1, true))
	}
}

// busy has one task hold all GPUs of the host.
func busy(t tb, n int) (*host, job.Attempt) {
	h := newHost(t, config(n))
	s := h.meet(amy, 1)
	a := attempt(1, 1)
	h.run(amy, 1, a, s, gpus(n))
	return h, a
}

// Two GPUs, tasks of 100 s, one freed every 50 s: a job for both that waits in
// front of a stream of smaller ones starts when both are free.
func TestBigOfferInFrontOfAStreamStarts(t *testing.T) {
	const others = job.Group(8)
	h := newHost(t, config(2))
	h.owner(amy, group)
	h.owner(bob, others)
	ends := map[job.Attempt]worker.BootTime{}
	zero, n, overtook := h.now.Boot, uint64(0), 0
	stream := func() {
		n++
		h.says(bob, theirs(others, n, n, gpus(1)))
	}
	run := func(c lease.Commit) {
		m := start(c.Offer, c.Attempt, c.Session, gpus(1))
		m.Group = others
		h.says(bob, m)
		h.round(worker.DriverEvent{Attempt: c.Attempt, Kind: worker.DriverStarted, PID: 42})
		ends[c.Attempt] = h.now.Boot.Add(100 * time.Second)
	}
	var big lease.Offer
	asked, renewed := zero.Add(60*time.Second), worker.BootTime(0)
	for h.now.Boot < zero.Add(6*time.Hour) {
		if at := h.now.Boot.Sub(zero); at == 0 || at == 50*time.Second {
			stream()
		} else if at == 60*time.Second {
			big = theirs(group, 1, 1, gpus(2))
			h.says(amy, big)
			renewed = h.now.Boot
			stream()
		}
		for a, at := range ends {
			if h.now.Boot >= at {
				delete(ends, a)
				h.round(exited(a, 0))
				h.says(bob, lease.Ack{Attempt: a, N: 4})
			}
		}
		for _, c := range got[lease.Commit](h, bob) {
			run(c)
			if big.ID != 0 {
				overtook++
				stream()
			}
		}
		if len(got[lease.Decline](h, bob)) > 0 {
			stream()
		}
		again := len(got[lease.Decline](h, amy)) > 0
		if again {
			big.ID++
		}
		if again || big.ID != 0 && h.now.Boot.Sub(renewed) >= 45*time.Second {
			renewed = h.now.Boot
			big.Age = h.now.Boot.Sub(asked)
			h.says(amy, big)
		}
		if c := got[lease.Commit](h, amy); len(c) > 0 {
			if at := h.now.Boot.Sub(zero); at > 151*time.Second || overtook > 0 {
				t.Fatalf("started after %v, %d later ones before it", at, overtook)
			}
			return
		}
		h.renew(amy)
		h.renew(bob)
		h.pass(time.Second)
	}
	t.Fatalf("never started; %d later ones did", overtook)
}

// Whatever the order in which the offers of several schedulers arrive, two
// hosts give what is free to the same ones first.
func TestAllHostsRankOffersEqually(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type asked struct {
			from job.Peer
			m    lease.Offer
			at   time.Duration // submitted so long before the first of them arrives
		}
		var all []asked
		for i := range rapid.IntRange(2, 12).Draw(t, "offers") {
			from := rapid.IntRange(0, 2).Draw(t, "from")
			m := theirs(job.Group(20+from), uint64(i+1), uint64(rapid.IntRange(1, 3).Draw(t, "job")), gpus(1))
			m.Attempt.Task, m.Attempt.N = i/3, 1+i%3
			m.Priority = rapid.SampledFrom([]int{10, 50}).Draw(t, "priority")
			at := rapid.SampledFrom([]time.Duration{0, time.Second, time.Hour, 100 * 24 * time.Hour}).Draw(t, "submitted")
			all = append(all, asked{job.Peer(fmt.Sprint("s", from)), m, at})
		}
		order := func() []job.Attempt {
			h, a := busy(t, 1)
			for i := range 3 {
				h.owner(job.Peer(fmt.Sprint("s", i)), job.Group(20+i))
			}
			first := h.now.Boot
			for _, o := range rapid.Permutation(all).Draw(t, "arrival") {
				o.m.Age = o.at + h.now.Boot.Sub(first)
				h.says(o.from, o.m)
				h.jump(time.Second)
			}
			h.round(exited(a, 0))
			var out []job.Attempt
			for range all {
				for i := range 3 {
					p := job.Peer(fmt.Sprint("s", i))
					for _, c := range got[lease.Commit](h, p) {
						out = append(out, c.Attempt)
						h.says(p, lease.Release{Offer: c.Offer})
						break
					}
				}
			}
			return out
		}
		one, two := order(), order()
		if len(one) != len(all) || !slices.Equal(one, two) {
			t.Fatalf("one host: %v\nthe other: %v", one, two)
		}
	})
}

func TestOlderOfferGoesFirst(t *testing.T) {
	h, a := busy(t, 1)
	young, old := offer(2, attempt(2, 1), gpus(1)), offer(3, attempt(3, 1), gpus(1))
	young.Wait, old.Wait = time.Minute, time.Minute
	young.Age, old.Age = time.Second, time.Hour
	h.says(amy, young)
	h.jump(time.Second)
	h.says(amy, old)
	h.round(exited(a, 0))
	if c := one[lease.Commit](h, amy); c.Offer != 3 {
		t.Fatalf("committed offer %d, want the older one", c.Offer)
	}
}

// An age that cannot be is bounded: it neither overflows nor hides the rest of
// the order.
func TestAgeIsBounded(t *testing.T) {
	for _, age := range []time.Duration{math.MaxInt64, math.MinInt64, -1} {
		h, a := busy(t, 1)
		liar, honest := offer(3, attempt(3, 1), gpus(1)), offer(2, attempt(2, 1), gpus(1))
		liar.Wait, honest.Wait = time.Minute, time.Minute
		liar.Age, honest.Age = age, worker.MaxAge
		h.says(amy, liar, honest)
		h.round(exited(a, 0))
		if c := one[lease.Commit](h, amy); c.Offer != 2 {
			t.Fatalf("age %v: committed offer %d", age, c.Offer)
		}
	}
}

func TestRenewedOfferKeepsItsPlace(t *testing.T) {
	h, a := busy(t, 1)
	first, second := offer(2, attempt(2, 1), gpus(1)), offer(3, attempt(3, 1), gpus(1))
	first.Wait, second.Wait = time.Minute, time.Hour
	h.says(amy, first)
	h.jump(time.Millisecond)
	h.says(amy, second)
	for range 10 {
		h.pass(45 * time.Second)
		first.Age += 45 * time.Second
		h.says(amy, first, second)
		if n := len(got[lease.Decline](h, amy)) + len(got[lease.Commit](h, amy)); n > 0 {
			t.Fatalf("%d answers to a renewal", n)
		}
		h.renew(amy)
	}
	if v := h.core.View(); v.Queued != 2 {
		t.Fatalf("%d wait", v.Queued)
	}
	h.round(exited(a, 0))
	if c := one[lease.Commit](h, amy); c.Offer != 2 {
		t.Fatalf("commit = %+v", c)
	}
	h.says(amy, first) // crossed the commit: which is said again
	if c := one[lease.Commit](h, amy); c.Offer != 2 {
		t.Fatalf("commit = %+v", c)
	}
	h.pass(lease.MaxOfferWait - time.Second)
	if d := got[lease.Decline](h, amy); len(d) > 0 {
		t.Fatalf("declined early: %+v", d)
	}
}

// A renewal that says something else is none; the first word stays.
func TestRenewalOfAnotherNeedIsNone(t *testing.T) {
	for name, change := range map[string]func(*lease.Offer){
		"need":     func(m *lease.Offer) { m.Need = gpus(2) },
		"attempt":  func(m *lease.Offer) { m.Attempt = attempt(9, 1) },
		"user":     func(m *lease.Offer) { m.User = "bea" },
		"priority": func(m *lease.Offer) { m.Priority++ },
	} {
		t.Run(name, func(t *testing.T) {
			h, _ := busy(t, 2)
			m := offer(2, attempt(2, 1), gpus(1))
			m.Wait = time.Minute
			h.says(amy, m)
			h.pass(45 * time.Second)
			other := m
			change(&other)
			h.says(amy, other)
			h.pass(16 * time.Second)
			if d := one[lease.Decline](h, amy); d.Attempt != m.Attempt {
				t.Fatalf("decline = %+v", d)
			}
		})
	}
}

// An owner that was elected anew renews what it offered before.
func TestRenewalUnderANewerEpoch(t *testing.T) {
	h, a := busy(t, 1)
	m := offer(2, attempt(2, 1), gpus(1))
	m.Wait = time.Minute
	h.says(amy, m)
	m.Epoch = epoch(2)
	h.says(amy, m)
	h.round(exited(a, 0))
	if c := one[lease.Commit](h, amy); c.Offer != 2 {
		t.Fatalf("commit = %+v", c)
	}
}

// What is free of an offer whose wait ends is kept in that arbitration: its
// renewal may be on its way. The next in line gets it a moment later.
func TestOfferWhoseWaitEndsIsNotOvertakenAtOnce(t *testing.T) {
	h := newHost(t, config(2))
	s := h.meet(amy, 1)
	a := attempt(1, 1)
	h.run(amy, 1, a, s, gpus(1))
	h.run(amy, 2, attempt(2, 1), s, gpus(1))
	big, small := offer(3, attempt(3, 1), gpus(2)), offer(4, attempt(4, 1), gpus(1))
	big.Wait, small.Wait = 30*time.Second, time.Minute
	h.says(amy, big, small)
	h.pass(10 * time.Second)
	h.round(exited(a, 0))
	h.jump(20 * time.Second)
	h.round()
	if d := one[lease.Decline](h, amy); d.Offer != 3 {
		t.Fatalf("decline = %+v", d)
	}
	if c := got[lease.Commit](h, amy); len(c) > 0 {
		t.Fatalf("overtaken in the same arbitration: %+v", c)
	}
	h.pass(time.Second)
	if c := one[lease.Commit](h, amy); c.Offer != 4 {
		t.Fatalf("commit = %+v", c)
	}
}

// An offer that may not wait keeps nothing from others.
func TestOfferWithoutAWaitSetsNothingAside(t *testing.T) {
	h := newHost(t, config(2))
	s := h.meet(amy, 1)
	h.run(amy, 1, attempt(1, 1), s, gpus(1))
	big, small := offer(2, attempt(2, 1), gpus(2)), offer(3, attempt(3, 1), gpus(1))
	small.Wait = time.Minute
	h.says(amy, big, small)
	if c := one[lease.Commit](h, amy); c.Offer != 3 {
		t.Fatalf("commit = %+v", c)
	}
}

// A session that breaks takes its offers along; when it is back they have their
// places, as their age says.
func TestOfferOfASessionThatBroke(t *testing.T) {
	h, a := busy(t, 1)
	h.owner(bob, 8)
	m := offer(2, attempt(2, 1), gpus(1))
	m.Wait = time.Minute
	h.says(amy, m)
	h.jump(time.Second)
	h.says(bob, theirs(8, 1, 1, gpus(1)))
	h.round(worker.Down{Peer: amy})
	h.jump(time.Second)
	h.round(worker.Up{Peer: amy})
	m.ID, m.Age = 3, 2*time.Second
	h.says(amy, m)
	h.round(exited(a, 0))
	if c := one[lease.Commit](h, amy); c.Offer != 3 {
		t.Fatalf("commit = %+v", c)
	}
}

// Nothing is kept for an offer that muster cannot serve, whoever of its own
// tasks end: a program of somebody else has the GPU.
func TestNothingIsKeptBesideForeignPrograms(t *testing.T) {
	h, _ := real(t)
	h.round(status([]gpu.Process{{PID: 9, Memory: 40e9}}, nil))
	big := offer(1, attempt(1, 1), gpus(2))
	big.Wait = time.Minute
	h.says(amy, big)
	h.says(amy, offer(2, attempt(2, 1), gpus(1)))
	if c := one[lease.Commit](h, amy); c.Offer != 2 {
		t.Fatalf("commit = %+v", c)
	}
	h.says(amy, lease.Release{Offer: 2})
	h.round(status(nil, nil))
	if c := one[lease.Commit](h, amy); c.Offer != 1 {
		t.Fatalf("commit = %+v", c)
	}
}

// A host that shrinks says so to those who wait for what it had.
func TestQueuedOfferThatCanNoLongerFit(t *testing.T) {
	h, _ := busy(t, 2)
	big, small := offer(2, attempt(2, 1), gpus(2)), offer(3, attempt(3, 1), gpus(1))
	big.Wait, small.Wait = time.Minute, time.Minute
	h.says(amy, big, small)
	h.round(worker.ProfileChanged{Profile: config(1).Profile})
	if d := one[lease.Decline](h, amy); d.Offer != 2 || !d.Never {
		t.Fatalf("decline = %+v", d)
	}
	if v := h.core.View(); v.Queued != 1 {
		t.Fatalf("%d wait", v.Queued)
	}
}

// Schedulers that fill the queue do not keep a further one out: the last in line
// of the one with most makes room.
func TestFullQueueIsShared(t *testing.T) {
	h, _ := busy(t, 1)
	n := uint64(1)
	many := worker.MaxQueued / lease.MaxOffers
	for i := range many {
		p, g := job.Peer(fmt.Sprintf("s%02d", i)), job.Group(100+i)
		h.owner(p, g)
		var msgs []lease.ToWorker
		for range lease.MaxOffers {
			n++
			m := theirs(g, n, n, gpus(1))
			m.Age = time.Hour
			msgs = append(msgs, m)
		}
		h.says(p, msgs...)
	}
	if v := h.core.View(); v.Queued != worker.MaxQueued {
		t.Fatalf("%d wait", v.Queued)
	}
	clear(h.sent)
	h.owner(bob, 8)
	h.says(bob, theirs(8, 1, 1, gpus(1)))
	if d := got[lease.Decline](h, bob); len(d) > 0 {
		t.Fatalf("kept out: %+v", d)
	}
	evicted := 0
	for i := range many {
		evicted += len(got[lease.Decline](h, job.Peer(fmt.Sprintf("s%02d", i))))
	}
	if v := h.core.View(); evicted != 1 || v.Queued != worker.MaxQueued {
		t.Fatalf("%d evicted, %d wait", evicted, v.Queued)
	}
	// With as many as the others there is no more room to make.
	for i := range uint64(lease.MaxOffers) {
		h.says(bob, theirs(8, 2+i, 2+i, gpus(1)))
	}
	if v := h.core.View(); v.Queued != worker.MaxQueued {
		t.Fatalf("%d wait", v.Queued)
	}
	if d := got[lease.Decline](h, bob); len(d) < 1 || len(d) > 2 {
		t.Fatalf("%d of its own declined", len(d))
	}
}
