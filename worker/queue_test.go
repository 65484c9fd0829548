package worker_test

// The queue of offers: its order is the same on all hosts, and no offer starves.

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker"
	"github.com/musterhq/muster/worker/driver"
	"github.com/musterhq/muster/worker/leaseclock"
)

// theirs returns an offer of the scheduler that owns the group.
func theirs(g job.Group, id, number uint64, need job.Resources) contract.Offer {
	m := offer(id, job.Attempt{Job: job.NewID(g, number), N: 1}, need)
	m.Group, m.Wait = g, contract.MaxOfferWait
	return m
}

// owner makes a scheduler the owner of a group.
func (h *host) owner(p job.Peer, g job.Group) {
	h.t.Helper()
	worker.Bind(h.core, g, p)
	h.round(worker.Up{Peer: p})
	h.says(p, contract.Owns{Groups: []contract.GroupEpoch{{Group: g, Epoch: epoch(1)}}})
	h.renew(p)
}

// renew answers all Renews that were sent to a scheduler.
func (h *host) renew(p job.Peer) {
	for _, r := range got[contract.Renew](h, p) {
		h.says(p, answerTo(r, 1, true))
	}
}

// busy returns a host with one task that holds all GPUs.
func busy(t tb, n int) (*host, job.Attempt) {
	h := newHost(t, config(n))
	s := h.meet(amy, 1)
	a := attempt(1, 1)
	h.run(amy, 1, a, s, gpus(n))
	return h, a
}

// Each of two GPUs runs a task of 100 s, so that one of them becomes free every 50 s. Smaller jobs arrive after a job
// for both GPUs. Once what is free is kept for that job, it starts as soon as both are free.
func TestLargeOfferStartsBeforeLaterSmallOnes(t *testing.T) {
	const others = job.Group(8)
	h := newHost(t, config(2))
	h.owner(amy, group)
	h.owner(bob, others)
	ends := map[job.Attempt]leaseclock.BootTime{}
	zero, n, overtook := h.now.Boot, uint64(0), 0
	stream := func() {
		n++
		h.says(bob, theirs(others, n, n, gpus(1)))
	}
	run := func(c contract.Commit) {
		m := start(c.Offer, c.Attempt, c.Session, gpus(1))
		m.Group = others
		h.says(bob, m)
		h.round(driver.Event{Attempt: c.Attempt, Kind: driver.Started, PID: 42})
		ends[c.Attempt] = h.now.Boot.Add(100 * time.Second)
	}
	var big contract.Offer
	asked, renewed := zero.Add(60*time.Second), leaseclock.BootTime(0)
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
				h.says(bob, contract.Ack{Attempt: a, N: 4})
			}
		}
		for _, c := range got[contract.Commit](h, bob) {
			run(c)
			if big.ID != 0 {
				if h.now.Boot >= asked.Add(worker.DefaultSetAside) {
					overtook++
				}
				stream()
			}
		}
		if len(got[contract.Decline](h, bob)) > 0 {
			stream()
		}
		again := len(got[contract.Decline](h, amy)) > 0
		if again {
			big.ID++
		}
		if again || big.ID != 0 && h.now.Boot.Sub(renewed) >= 45*time.Second {
			renewed = h.now.Boot
			big.Age = h.now.Boot.Sub(asked)
			h.says(amy, big)
		}
		if c := got[contract.Commit](h, amy); len(c) > 0 {
			if at := h.now.Boot.Sub(zero); at > worker.DefaultSetAside+161*time.Second || overtook > 0 {
				t.Fatalf("started after %v; after what is free was kept for it, %d later ones started before it, want at most %v and 0", at, overtook, worker.DefaultSetAside+161*time.Second)
			}
			return
		}
		h.renew(amy)
		h.renew(bob)
		h.pass(time.Second)
	}
	t.Fatalf("the large offer never started; %d later ones did while what is free was kept for it", overtook)
}

// Two hosts serve the offers of several schedulers in the same order, whatever the order of arrival.
func TestAllHostsRankOffersEqually(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type asked struct {
			from job.Peer
			m    contract.Offer
			at   time.Duration // age of the job when the first offer arrives
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
					for _, c := range got[contract.Commit](h, p) {
						out = append(out, c.Attempt)
						h.says(p, contract.Release{Offer: c.Offer})
						break
					}
				}
			}
			return out
		}
		one, two := order(), order()
		if len(one) != len(all) || !slices.Equal(one, two) {
			t.Fatalf("one host: %v\nthe other: %v, want %v of them and %v", one, two, len(all), two)
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
	if c := one[contract.Commit](h, amy); c.Offer != 3 {
		t.Fatalf("committed offer %d, want the older one", c.Offer)
	}
}

// An impossible age is limited: it does not overflow, and passes no offer with a possible age.
func TestAgeIsBounded(t *testing.T) {
	for _, age := range []time.Duration{math.MaxInt64, math.MinInt64, -1} {
		h, a := busy(t, 1)
		liar, honest := offer(3, attempt(3, 1), gpus(1)), offer(2, attempt(2, 1), gpus(1))
		liar.Wait, honest.Wait = time.Minute, time.Minute
		liar.Age, honest.Age = age, worker.MaxAge
		h.says(amy, liar, honest)
		h.round(exited(a, 0))
		if c := one[contract.Commit](h, amy); c.Offer != 2 {
			t.Fatalf("age %v: committed offer %d, want 2", age, c.Offer)
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
		if n := len(got[contract.Decline](h, amy)) + len(got[contract.Commit](h, amy)); n > 0 {
			t.Fatalf("%d answers to a renewal, want 0", n)
		}
		h.renew(amy)
	}
	if v := h.core.View(); v.Queued != 2 {
		t.Fatalf("%d wait, want 2", v.Queued)
	}
	h.round(exited(a, 0))
	if c := one[contract.Commit](h, amy); c.Offer != 2 {
		t.Fatalf("commit = %+v, want Offer 2", c)
	}
	h.says(amy, first) // was sent before the Commit arrived; the Commit is repeated
	if c := one[contract.Commit](h, amy); c.Offer != 2 {
		t.Fatalf("commit = %+v, want Offer 2", c)
	}
	h.pass(contract.MaxOfferWait - time.Second)
	if d := got[contract.Decline](h, amy); len(d) > 0 {
		t.Fatalf("declined early: %+v, want none", d)
	}
}

// An offer with the same id and another content does not renew the first one.
func TestRenewalWithOtherContentIsIgnored(t *testing.T) {
	for name, change := range map[string]func(*contract.Offer){
		"need":     func(m *contract.Offer) { m.Need = gpus(2) },
		"attempt":  func(m *contract.Offer) { m.Attempt = attempt(9, 1) },
		"user":     func(m *contract.Offer) { m.User = "bea" },
		"priority": func(m *contract.Offer) { m.Priority++ },
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
			if d := one[contract.Decline](h, amy); d.Attempt != m.Attempt {
				t.Fatalf("decline = %+v, want Attempt %v", d, m.Attempt)
			}
		})
	}
}

// An owner that was elected again renews its offers.
func TestOwnerRenewsItsOffersUnderANewerEpoch(t *testing.T) {
	h, a := busy(t, 1)
	m := offer(2, attempt(2, 1), gpus(1))
	m.Wait = time.Minute
	h.says(amy, m)
	m.Epoch = epoch(2)
	h.says(amy, m)
	h.round(exited(a, 0))
	if c := one[contract.Commit](h, amy); c.Offer != 2 {
		t.Fatalf("commit = %+v, want Offer 2", c)
	}
}

// When the wait of an offer ends, its resources are held back for a moment, because its renewal may be on the way. Then
// the next offer gets them.
func TestOfferWhoseWaitEndsIsNotOvertakenAtOnce(t *testing.T) {
	h := newHost(t, config(2))
	s := h.meet(amy, 1)
	a := attempt(1, 1)
	h.run(amy, 1, a, s, gpus(1))
	h.run(amy, 2, attempt(2, 1), s, gpus(1))
	big, small := offer(3, attempt(3, 1), gpus(2)), offer(4, attempt(4, 1), gpus(1))
	big.Wait, small.Wait = 30*time.Second, time.Minute
	h.says(amy, big)
	h.untilKept(big)
	h.says(amy, small)
	h.pass(10 * time.Second)
	h.round(exited(a, 0))
	h.jump(20 * time.Second)
	h.round()
	if d := one[contract.Decline](h, amy); d.Offer != 3 {
		t.Fatalf("decline = %+v, want Offer 3", d)
	}
	if c := got[contract.Commit](h, amy); len(c) > 0 {
		t.Fatalf("overtaken in the same arbitration: %+v, want none", c)
	}
	h.pass(time.Second)
	if c := one[contract.Commit](h, amy); c.Offer != 4 {
		t.Fatalf("commit = %+v, want Offer 4", c)
	}
}

// Nothing is held back for an offer that must be answered at once.
func TestNothingIsHeldBackForAnOfferWithoutAWait(t *testing.T) {
	h := newHost(t, config(2))
	s := h.meet(amy, 1)
	h.run(amy, 1, attempt(1, 1), s, gpus(1))
	big, small := offer(2, attempt(2, 1), gpus(2)), offer(3, attempt(3, 1), gpus(1))
	small.Wait = time.Minute
	h.says(amy, big, small)
	if c := one[contract.Commit](h, amy); c.Offer != 3 {
		t.Fatalf("commit = %+v, want Offer 3", c)
	}
}

// When a session breaks, its offers are dropped. After a reconnection they get their former ranks by their age.
func TestOffersKeepTheirRankAfterABrokenSession(t *testing.T) {
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
	if c := one[contract.Commit](h, amy); c.Offer != 3 {
		t.Fatalf("commit = %+v, want Offer 3", c)
	}
}

// Nothing is held back for an offer while a foreign program uses a GPU that it needs.
func TestNothingIsHeldBackForAnOfferBlockedByForeignPrograms(t *testing.T) {
	h, _ := newHostWithRealGPUs(t)
	h.round(status([]gpu.Process{{PID: 9, Memory: 40e9}}, nil))
	big := offer(1, attempt(1, 1), gpus(2))
	big.Wait = time.Minute
	h.says(amy, big)
	h.says(amy, offer(2, attempt(2, 1), gpus(1)))
	if c := one[contract.Commit](h, amy); c.Offer != 2 {
		t.Fatalf("commit = %+v, want Offer 2", c)
	}
	h.says(amy, contract.Release{Offer: 2})
	h.round(status(nil, nil))
	if c := one[contract.Commit](h, amy); c.Offer != 1 {
		t.Fatalf("commit = %+v, want Offer 1", c)
	}
}

// If a host loses resources, the queued offers that can no longer fit are declined.
func TestQueuedOfferThatCanNoLongerFitIsDeclined(t *testing.T) {
	h, _ := busy(t, 2)
	big, small := offer(2, attempt(2, 1), gpus(2)), offer(3, attempt(3, 1), gpus(1))
	big.Wait, small.Wait = time.Minute, time.Minute
	h.says(amy, big, small)
	h.round(worker.ProfileChanged{Profile: config(1).Profile})
	if d := one[contract.Decline](h, amy); d.Offer != 2 || !d.Never {
		t.Fatalf("decline = %+v, want offer 2 for good", d)
	}
	if v := h.core.View(); v.Queued != 1 {
		t.Fatalf("%d wait, want 1", v.Queued)
	}
}

// If the queue is full, the last offer of the scheduler with the most offers is dropped for another scheduler.
func TestFullQueueIsShared(t *testing.T) {
	h, _ := busy(t, 1)
	n := uint64(1)
	many := worker.MaxQueued / contract.MaxOffers
	for i := range many {
		p, g := job.Peer(fmt.Sprintf("s%02d", i)), job.Group(100+i)
		h.owner(p, g)
		var msgs []contract.ToWorker
		for range contract.MaxOffers {
			n++
			m := theirs(g, n, n, gpus(1))
			m.Age = time.Hour
			msgs = append(msgs, m)
		}
		h.says(p, msgs...)
	}
	if v := h.core.View(); v.Queued != worker.MaxQueued {
		t.Fatalf("%d wait, want %v", v.Queued, worker.MaxQueued)
	}
	clear(h.sent)
	h.owner(bob, 8)
	h.says(bob, theirs(8, 1, 1, gpus(1)))
	if d := got[contract.Decline](h, bob); len(d) > 0 {
		t.Fatalf("declined: %+v, want none", d)
	}
	evicted := 0
	for i := range many {
		evicted += len(got[contract.Decline](h, job.Peer(fmt.Sprintf("s%02d", i))))
	}
	if v := h.core.View(); evicted != 1 || v.Queued != worker.MaxQueued {
		t.Fatalf("%d evicted, %d wait, want 1 and %v", evicted, v.Queued, worker.MaxQueued)
	}
	// A scheduler with as many offers as the others gets no more places.
	for i := range uint64(contract.MaxOffers) {
		h.says(bob, theirs(8, 2+i, 2+i, gpus(1)))
	}
	if v := h.core.View(); v.Queued != worker.MaxQueued {
		t.Fatalf("%d wait, want %v", v.Queued, worker.MaxQueued)
	}
	if d := got[contract.Decline](h, bob); len(d) < 1 || len(d) > 2 {
		t.Fatalf("%d of its own declined, want at least 1 and at most 2", len(d))
	}
}
