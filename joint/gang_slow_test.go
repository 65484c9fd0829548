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

var (
	slowSeed  = flag.Uint64("joint.slow", 0, "run this world of gangs on slow machines alone, and log all that happens in it")
	slowSeeds = flag.Uint64("joint.slowseeds", 150, "how many worlds TestGangsOnSlowMachines runs")
	slowFirst = flag.Uint64("joint.slowfirst", 1, "the first of them")
)

// slowGangs is a world of two to four owners. Each submits its gangs in one moment, or holds them and releases them in one.
func slowGangs(t testing.TB, seed uint64) (*world, int) {
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
	w := newWorld(t, seed, opt)
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
	breaks := r.IntN(3) == 0
	if breaks {
		rate := [...]float64{5, 10, 30}[r.IntN(3)] // of a session in an hour
		t.Logf("seed %d rate %v", seed, rate)
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
	kind := 0
	if breaks {
		kind |= 1
	}
	if prios {
		kind |= 2
	}
	return w, kind
}

// TestGangsOnSlowMachines: while hosts are there, gangs go on: one ends every now and then.
func TestGangsOnSlowMachines(t *testing.T) {
	first, n := *slowFirst, *slowSeeds
	if testing.Short() {
		n = 15
	}
	if *slowSeed != 0 {
		first, n = *slowSeed, 1
	}
	var mu sync.Mutex
	var longest [4]time.Duration
	var who [4]uint64
	var worst [4]float64
	var most [4]uint64
	t.Run("seeds", func(t *testing.T) {
		for seed := first; seed < first+n; seed++ {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				w, k := slowGangs(t, seed)
				if *slowSeed != 0 {
					w.trace = t.Logf
				}
				w.start()
				w.watchGangs()
				left, since, gap, gapAt := -1, time.Duration(0), time.Duration(0), time.Duration(0)
				w.runUntil(12*time.Hour, func() bool {
					now, held := 0, 0
					for _, j := range w.works {
						if !j.settled() {
							now++
						}
						if !j.accepted || j.held && !j.released {
							held++
						}
					}
					if now < left || left < 0 || held > 0 {
						left, since = now, w.now
					}
					if now > 0 && w.now-since > gap {
						gap, gapAt = w.now-since, w.now
					}
					return now == 0
				})
				if !w.done() {
					w.failUnsettled()
				}
				w.checkGangs()
				w.report()
				runs := float64(w.stats.offers) / float64(len(w.works))
				mu.Lock()
				defer mu.Unlock()
				if gap > longest[k] {
					longest[k], who[k] = gap, seed
				}
				if runs > worst[k] {
					worst[k], most[k] = runs, seed
				}
				if testing.Verbose() {
					t.Logf("%d jobs of %d owners on %d hosts, %+v: seed %d kind %d, %v, longest without an end %v until %v, %.1f offers a job", len(w.works), len(w.owners), len(w.hosts), w.opt.slow, seed, k, w.now, gap, gapAt, runs)
				}
			})
		}
	})
	for k := range 4 {
		t.Logf("kind %d: longest without an end: %v (seed %d); most offers a job %.1f (seed %d)", k, longest[k], who[k], worst[k], most[k])
	}
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
