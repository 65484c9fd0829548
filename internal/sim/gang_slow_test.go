package sim

// Gangs on slow machines: messages take up to seconds, journals and disks up to half a second, and sessions break,
// while the gangs of several owners want the same few hosts at once.

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/fairshare"
)

var (
	slowSeed   = flag.Uint64("sim.slow", 0, "run this world of gangs on slow machines alone, and log all that happens in it")
	slowWorlds = flag.Uint64("sim.slows", 100, "how many worlds TestGangsMakeProgressOnSlowMachines runs")
)

// slowness is the random delay that a loaded machine adds, at most. Messages of a session stay in order, and so do the
// entries of a journal.
type slowness struct {
	message time.Duration // to each message, including those between the parts of one daemon
	step    time.Duration // before each step of a core
	journal time.Duration // to each entry; at least a tenth of it
	disk    time.Duration // to each write of a host's ledger
	start   time.Duration // to the start of a process
}

// slowed is a network that adds up to so much to the time of each message.
type slowed struct {
	Network
	w    *World
	most time.Duration
}

func (n slowed) Send(from, to, bytes int, arrive func()) {
	late := between(n.w.chance, 0, n.most)
	n.Network.Send(from, to, bytes, func() { n.w.after(late, arrive) })
}

// slow makes all machines of a world slow. The world already has its hosts and owners.
func (w *world) slow(s slowness) {
	w.net, w.within = slowed{w.net, w.World, s.message}, Range{0, s.message}
	c := &w.cfg.Costs
	c.Commit = Range{max(c.Commit.Least, s.journal/10), max(c.Commit.Most, s.journal)}
	c.Confirm.Most += s.journal
	c.Sync.Most += s.disk
	c.Start.Most += s.start
	if s.step == 0 {
		return
	}
	for _, h := range w.hosts {
		h.turnFn = func() { w.after(between(w.chance, 0, s.step), h.run) }
	}
	for _, o := range w.owners {
		o.turnFn = func() { w.after(between(w.chance, 0, s.step), o.run) }
	}
}

// slowGangs is a world of two to four owners. Each submits its gangs at one moment, or holds them and releases them at
// one moment. The jobs belong to the users in turn. If there are several users, their past use counts. breaks says
// whether sessions break.
func slowGangs(t testing.TB, seed uint64, users ...string) (w *world, breaks bool) {
	r := rand.New(rand.NewPCG(seed, 4))
	pick := func(all ...time.Duration) time.Duration { return all[r.IntN(len(all))] }
	slow := slowness{
		message: pick(0, 20*time.Millisecond, 200*time.Millisecond, time.Second, 3*time.Second),
		step:    pick(0, 20*time.Millisecond, 200*time.Millisecond, time.Second),
		journal: pick(0, 100*time.Millisecond, 500*time.Millisecond),
		disk:    pick(0, 20*time.Millisecond, 200*time.Millisecond),
		start:   pick(0, 200*time.Millisecond),
	}
	opt := options{sampling: endless, maxOffers: 1000}
	if r.IntN(4) == 0 {
		opt.refusals = 0.02
	}
	if len(users) > 1 {
		opt.shares = fairshare.Weights{HalfLife: [...]time.Duration{time.Minute, time.Hour}[seed%2], Users: map[string]float64{users[0]: 3}}
	}
	w = newTestWorld(t, seed, opt)
	for range 4 + r.IntN(2)*r.IntN(4) {
		w.addHost(hostSpec{cpus: 1})
	}
	for i := range 2 + r.IntN(3)*r.IntN(2) {
		var local *host
		if r.IntN(4) > 0 {
			local = w.hosts[i]
		}
		w.addOwner(local).wallOff = between(r, -10*time.Millisecond, 10*time.Millisecond)
	}
	w.slow(slow)
	w.flood(r, users, pick(50*time.Millisecond, 50*time.Millisecond, time.Second, 5*time.Second))
	if breaks = r.IntN(3) == 0; breaks {
		w.breakSessions(r, [...]float64{5, 10, 30}[r.IntN(3)])
	}
	return w, breaks
}

// flood gives each owner 10 to 50 jobs at once, nine out of ten of them gangs, all with this run time.
func (w *world) flood(r *rand.Rand, users []string, runs time.Duration) {
	held := r.IntN(3) == 0
	prios := r.IntN(4) == 0
	for range 10 + r.IntN(41) {
		for _, o := range w.owners {
			j := w.newWork(o, users[len(w.works)%len(users)], cpus(1), runs)
			if r.IntN(10) > 0 {
				j.spec.Nodes = 2 + r.IntN(len(w.hosts)-1)
			}
			if prios {
				j.spec.Priority = r.IntN(3) * 10
				j.spec.Preemptible = r.IntN(4) == 0
			}
			j.submitAt(time.Second)
			if held {
				j.spec.Hold, j.held = true, true
				w.at(5*time.Minute, j.release)
			}
		}
	}
}

// breakSessions breaks each session so many times an hour. Now and then a host is paused, and in half of the worlds an
// owner is restarted.
func (w *world) breakSessions(r *rand.Rand, rate float64) {
	for _, h := range w.hosts {
		for _, o := range w.owners {
			w.each(r, rate, func() { o.links[h.peer].sever(w.cfg.Costs.Notice, between(r, 0, 5*time.Second)) })
		}
		w.each(r, rate/10, func() { h.stalledUntil = w.now + between(r, 0, 5*time.Second) })
	}
	if r.IntN(2) == 0 {
		for _, o := range w.owners {
			w.each(r, rate/10, func() { o.restart(between(r, 300*time.Millisecond, 5*time.Second)) })
		}
	}
}

// slowMost is the longest time until the next gang ends: one by one, with messages of three seconds, and with back-offs
// of a minute at most. If sessions break, a gang may lose its places several times.
func slowMost(breaks bool) time.Duration {
	if breaks {
		return 3 * time.Minute
	}
	return 90 * time.Second
}

// TestGangsMakeProgressOnSlowMachines checks that gangs make progress: one of them ends every now and then, until all
// have ended.
func TestGangsMakeProgressOnSlowMachines(t *testing.T) { gangsGoOn(t, "ada") }

// TestGangsOfUsersMakeProgressOnSlowMachines checks that this holds too if each scheduler has another order of users,
// because each counts their use by itself.
func TestGangsOfUsersMakeProgressOnSlowMachines(t *testing.T) { gangsGoOn(t, "ada", "bob", "cyd") }

func gangsGoOn(t *testing.T, users ...string) {
	first, n := uint64(1), *slowWorlds
	if testing.Short() {
		n = min(n, 15)
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
				w, breaks := slowGangs(t, seed, users...)
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

// runToEnd runs a world until all its jobs have ended. It fails if none ends for this time although none is held. It
// returns the longest time without an end.
func (w *world) runToEnd(most time.Duration) (longest time.Duration) {
	least, since := len(w.works), time.Duration(0)
	for len(w.defects) == 0 && !w.done() {
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
