package joint

// Gangs on slow machines: messages take up to seconds, journals and disks up to half a second, and sessions break, while
// the gangs of several owners want the same few hosts at once.

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler"
)

var slowSeed = flag.Uint64("joint.slow", 0, "run this world of gangs on slow machines alone, and log all that happens in it")

// slowGangs is a world of two to four owners. Each submits its gangs in one moment, or holds them and releases them in
// one. breaks says that sessions break.
func slowGangs(t testing.TB, seed uint64) (w *world, breaks bool) {
	r := rand.New(rand.NewPCG(seed, 4))
	var opt options
	pick := func(all ...time.Duration) time.Duration { return all[r.IntN(len(all))] }
	opt.sampling = endless
	opt.maxOffers = 1000
	opt.slow = slowness{
		message: pick(0, 20*time.Millisecond, 200*time.Millisecond, time.Second, 3*time.Second),
		step:    pick(0, 20*time.Millisecond, 200*time.Millisecond, time.Second),
		journal: pick(0, 100*time.Millisecond, 500*time.Millisecond),
		disk:    pick(0, 20*time.Millisecond, 200*time.Millisecond),
		start:   pick(0, 200*time.Millisecond),
	}
	if r.IntN(4) == 0 {
		opt.refusals = 0.02
	}
	w = newWorld(t, seed, opt)
	for range 4 + r.IntN(2)*r.IntN(4) {
		w.addHost(hostSpec{cpus: 1})
	}
	for i := range 2 + r.IntN(3)*r.IntN(2) {
		var local *host
		if r.IntN(4) > 0 {
			local = w.hosts[i]
		}
		o := w.addOwner(local)
		o.wallOff = between(r, -10*time.Millisecond, 10*time.Millisecond)
	}
	runs := pick(50*time.Millisecond, 50*time.Millisecond, time.Second, 5*time.Second)
	heldBack := r.IntN(3) == 0
	prios := r.IntN(4) == 0
	for range 10 + r.IntN(41) {
		for _, o := range w.owners {
			j := w.newWork(o, "ada", cpus(1), runs)
			if r.IntN(10) > 0 {
				j.spec.Nodes = 2 + r.IntN(len(w.hosts)-1)
			}
			if prios {
				j.spec.Priority = r.IntN(3) * 10
				j.spec.Preemptible = r.IntN(4) == 0
			}
			at := time.Second
			if heldBack {
				j.spec.Hold = true
				j.held = true
			}
			j.submitAt(at)
			if heldBack {
				w.at(5*time.Minute, j.release)
			}
		}
	}
	if breaks = r.IntN(3) == 0; breaks {
		rate := [...]float64{5, 10, 30}[r.IntN(3)] // of a session in an hour
		for _, h := range w.hosts {
			for _, o := range w.owners {
				w.each(r, rate, func() {
					w.links[[2]job.Peer{o.peer, h.peer}].sever(noticeMost, between(r, 0, 5*time.Second))
				})
			}
			w.each(r, rate/10, func() { h.stalledUntil = w.now + between(r, 0, 5*time.Second) })
		}
		if r.IntN(2) == 0 {
			for _, o := range w.owners {
				w.each(r, rate/10, func() { o.restart(between(r, 300*time.Millisecond, 5*time.Second)) })
			}
		}
	}
	return w, breaks
}

// slowMost is how long gangs may take until the next one ends: one by one, with messages of three seconds, and with
// back-offs of a minute at most. If sessions break, a gang may lose its places several times.
func slowMost(breaks bool) time.Duration {
	if breaks {
		return 3 * time.Minute
	}
	return 90 * time.Second
}

// TestGangsOnSlowMachines: gangs go on. One ends every now and then until all have ended.
func TestGangsOnSlowMachines(t *testing.T) {
	first, n := uint64(1), uint64(60)
	if testing.Short() {
		n = 15
	}
	if *slowSeed != 0 {
		first, n = *slowSeed, 1
	}
	var mu sync.Mutex
	longest := map[bool]time.Duration{}
	jobs, offers := 0, 0
	t.Run("seeds", func(t *testing.T) {
		for seed := first; seed < first+n; seed++ {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				w, breaks := slowGangs(t, seed)
				if *slowSeed != 0 {
					w.trace = t.Logf
				}
				w.start()
				w.watchGangs()
				gap := w.runToEnd(slowMost(breaks))
				w.checkGangs()
				w.report()
				mu.Lock()
				defer mu.Unlock()
				longest[breaks] = max(longest[breaks], gap)
				jobs += len(w.works)
				offers += w.stats.offers
			})
		}
	})
	t.Logf("%d jobs, %.1f offers a job; longest time without an end %v, and %v if sessions break", jobs, float64(offers)/float64(max(jobs, 1)), longest[false], longest[true])
}

// runToEnd runs a world until all its jobs have ended. It fails if for so long none ends although none is held. It
// returns the longest such time.
func (w *world) runToEnd(most time.Duration) (longest time.Duration) {
	least, since := len(w.works), time.Duration(0)
	for len(w.bad) == 0 && !w.done() {
		w.run(w.now + time.Second)
		left, held := 0, false
		for _, j := range w.works {
			if !j.settled() {
				left++
			}
			held = held || !j.accepted || j.held && !j.released
		}
		if left < least || held {
			least, since = left, w.now
		}
		if longest = max(longest, w.now-since); longest > most {
			w.fail("no job has ended for %v, and %d have not", longest, left)
		}
	}
	return longest
}

// release has the user release a job that was submitted held.
func (j *work) release() {
	if !j.accepted {
		j.w.after(time.Second, j.release)
		return
	}
	j.owner.ask(func(tok scheduler.Token) scheduler.Event {
		return scheduler.Hold{Token: tok, Job: j.id, Release: true, Reason: "later"}
	}, func(r scheduler.Reply) {
		if r.Err == nil || errors.Is(r.Err, scheduler.ErrConflict) || errors.Is(r.Err, scheduler.ErrNotFound) {
			j.released = true
			return
		}
		j.w.after(time.Second, j.release)
	})
}
