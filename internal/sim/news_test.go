package sim

// News of capacity that comes late, out of order, twice, or from hosts that lie.

import (
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/internal/sim/load"
)

// rumours are News that arrive after a random time. Some are lost at first, and some old ones arrive again later.
type rumours struct {
	clock   *Clock
	chance  *rand.Rand
	most    time.Duration // of the delay
	lost    float64
	old     float64
	mute    bool // nothing arrives
	readers []int
	heard   func(reader, about int, version uint32)
	newest  map[int]uint32
	down    map[int]bool
	came    int
}

func newRumours(clock *Clock, seed uint64, most time.Duration) *rumours {
	return &rumours{
		clock: clock, chance: rand.New(rand.NewPCG(seed, 5)), most: most, lost: 0.2, old: 0.2,
		newest: map[int]uint32{}, down: map[int]bool{},
	}
}

func (r *rumours) Begin(readers []int, heard func(reader, about int, version uint32)) {
	r.readers, r.heard = readers, heard
}

func (r *rumours) Publish(about int, version uint32) {
	r.newest[about] = version
	for _, at := range r.readers {
		r.send(at, about, version)
	}
}

func (r *rumours) SetUp(machine int, up bool) {
	r.down[machine] = !up
	for about := range len(r.newest) + 64 { // in order
		if v := r.newest[about]; up && v > 0 {
			for _, at := range r.readers {
				if at == machine {
					r.send(at, about, v)
				}
			}
		}
	}
}

func (r *rumours) send(at, about int, version uint32) {
	r.clock.after(1+time.Duration(r.chance.Int64N(int64(r.most))), func() {
		switch {
		case r.mute || r.down[at]:
		case r.chance.Float64() < r.lost:
			r.send(at, about, version)
		default:
			r.came++
			r.heard(at, about, version)
			if r.chance.Float64() < r.old {
				r.send(at, about, version)
			}
		}
	})
}

// byRumours makes a simulation learn of capacity by rumours.
func byRumours(cfg Config, most time.Duration) (Config, *rumours) {
	cfg.Clock = &Clock{}
	r := newRumours(cfg.Clock, cfg.Seed, most)
	cfg.News = r
	return cfg, r
}

// The belief about capacity is as old as the news. Each task runs, and by the records none runs twice.
func TestJobsEndWhateverTheAgeOfNews(t *testing.T) {
	direct, _ := runs(t, small())
	if direct.Bulletins != 0 {
		t.Errorf("%d bulletins where the sessions tell, want 0", direct.Bulletins)
	}
	for _, stale := range []time.Duration{0, 100 * time.Millisecond, 10 * time.Second} {
		for _, most := range []time.Duration{0, time.Second, 20 * time.Second} {
			cfg := small()
			cfg.Stale = stale
			if most > 0 {
				cfg, _ = byRumours(cfg, most)
			}
			if stale+most == 0 {
				continue
			}
			r, _ := runs(t, cfg)
			if r.Ended != 200 || r.Finished != 280 || r.Bulletins == 0 {
				t.Errorf("stale by %v, rumours within %v: %d jobs ended, %d tasks finished, %d bulletins, want 200, 280 and some", stale, most, r.Ended, r.Finished, r.Bulletins)
			}
			if r.Ages.Mean() <= direct.Ages.Mean() {
				t.Errorf("stale by %v, rumours within %v: the belief is %v old, want older than %v, as by sessions", stale, most, r.Ages.Mean(), direct.Ages.Mean())
			}
			if r.ByKind[1].Kind == "" || most > 0 && count(&r, kindAvailability) >= count(&direct, kindAvailability) {
				t.Errorf("sessions carry %d messages of what is free, want fewer than %d, as without news", count(&r, kindAvailability), count(&direct, kindAvailability))
			}
		}
	}
}

func count(r *Result, k kind) int {
	for _, x := range r.ByKind {
		if x.Kind == kindNames[k] {
			return x.Count
		}
	}
	return 0
}

// If there is capacity for all, no offer is declined with fresh news. With news that are ten seconds too old, some are.
func TestStaleBeliefsCostDeclinedOffers(t *testing.T) {
	declined := func(stale time.Duration) int {
		cfg := Config{Seed: 1, Load: load.Load{Machines: machinesOf(10)}, Schedulers: 3}
		cfg.Stale = stale
		for i := range 600 {
			cfg.Load.Jobs = append(cfg.Load.Jobs, jobOf(i, []int{1, 1, 2, 4}[i%4], time.Duration(i)*5*time.Second, time.Duration(20+i%7*30)*time.Second))
		}
		r, _ := runs(t, cfg)
		return r.Declines
	}
	if fresh, late := declined(0), declined(10*time.Second); fresh != 0 || late < 20 {
		t.Errorf("%d offers were declined where beliefs are 10 s old, %d where they are fresh, want 0 and at least 20", late, fresh)
	}
}

// The seed also decides the news.
func TestSameSeedGivesTheSameNews(t *testing.T) {
	digest := func(seed uint64) string {
		cfg, _ := byRumours(small(), 3*time.Second)
		cfg.Seed = seed
		cfg.Stale = time.Second
		cfg.Faults = []Fault{
			{At: 2 * time.Minute, Kind: Crash, Machine: 4, For: 5 * time.Minute},
			{At: 3 * time.Minute, Kind: Kill, Machine: 0, For: 10 * time.Second},
		}
		r, log := runs(t, cfg)
		return fmt.Sprintf("%x", sha256.Sum256(fmt.Appendf(nil, "%+v %+v", r, log)))
	}
	first := digest(7)
	if digest(7) != first {
		t.Error("the same seed went another way")
	}
	if first == digest(8) {
		t.Error("another seed went the same way")
	}
}

// A scheduler without news still works: hosts report themselves what is free when they decline an offer or start a
// session.
func TestSchedulerWithoutNewsPlacesJobs(t *testing.T) {
	cfg, r := byRumours(small(), time.Second)
	r.mute = true
	got, _ := runs(t, cfg)
	if got.Ended != 200 || r.came != 0 {
		t.Errorf("%d jobs ended, %d news came, want 200 and 0", got.Ended, r.came)
	}
}

// Two of ten hosts always claim to be free. They get no more than they have, others are not delayed, and they are not
// asked in a hot loop.
func TestHostThatLiesDelaysNoOther(t *testing.T) {
	cfg, _ := byRumours(small(), time.Second)
	honest, _ := runs(t, cfg)
	cfg, _ = byRumours(small(), time.Second)
	w, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	lies := 0
	w.lies = func(h *host, b *bulletin) {
		if h.index < 2 {
			lies++
			p := &h.cfg.Profile
			b.free = contract.Free{CPUs: p.CPUs, Memory: p.Memory}
			for _, d := range p.GPUs {
				b.free.GPUs = append(b.free.GPUs, contract.FreeGPU{UUID: d.UUID, Memory: d.Memory, Milli: 1000})
			}
		}
	}
	r, err := w.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if r.Ended != 200 || r.Finished != 280 || lies == 0 {
		t.Errorf("%d jobs ended, %d tasks finished, %d lies, want 200, 280 and some", r.Ended, r.Finished, lies)
	}
	if r.Offers > 4*honest.Offers {
		t.Errorf("%d offers, %d if all hosts are honest, want at most %v", r.Offers, honest.Offers, 4*honest.Offers)
	}
	if r.End > honest.End*3/2 {
		t.Errorf("the end comes after %v, %v if all hosts are honest, want at most %v", r.End, honest.End, honest.End*3/2)
	}
}

// The reports of hosts are kept only while somebody may still learn of them, even if a scheduler gets no news for
// hours.
func TestBulletinsAreBounded(t *testing.T) {
	for _, mute := range []bool{false, true} {
		cfg, r := byRumours(small(), 2*time.Second)
		r.mute = mute
		cfg.Load.Jobs = someJobs(3000, 2*time.Second)
		w, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		most := 0
		w.cfg.Progress = func(Progress) {
			for _, h := range w.hosts {
				most = max(most, len(h.news.all))
			}
		}
		got, err := w.Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if per := got.Bulletins / len(w.hosts); most > maxBulletins || per < 2*maxBulletins || !mute && most > maxBulletins/2 {
			t.Errorf("mute %v: %d bulletins of a host are kept, of %d, want few", mute, most, per)
		}
	}
}

func TestDroppedBulletinIsReplacedByAnOlderOne(t *testing.T) {
	var x bulletins
	for v := range uint32(1000) {
		x.trim(0)
		x.all = append(x.all, &bulletin{version: v + 1})
		if len(x.all) > maxBulletins || x.of(v+1) == nil || x.of(v+1).version != v+1 {
			t.Fatalf("%d are kept, the newest is %v, want at most maxBulletins and version v + 1", len(x.all), x.of(v+1))
		}
		if old := x.of(v/2 + 1); old == nil || old.version > v/2+1 {
			t.Fatalf("version %d is given for version %d, want one at most as new", old.version, v/2+1)
		}
	}
	x.trim(1000)
	if len(x.all) != 1 || x.of(3) != nil {
		t.Errorf("%d are kept that all have learnt, want the newest alone", len(x.all))
	}
}

// TestRandomWorldsByNews runs random worlds whose schedulers learn of capacity late, out of order, twice, or from a
// host that lies. All properties hold, except that offers go to hosts with capacity at once.
func TestRandomWorldsByNews(t *testing.T) {
	n := 60
	if testing.Short() {
		n = 10
	}
	for _, seed := range worldSeeds(n) {
		i := int(seed%leveled) - 1 //nolint:gosec // at most n
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			w := randomWorld(t, seed)
			r := newRumours(w.Clock, seed%leveled, []time.Duration{50 * time.Millisecond, time.Second, 5 * time.Second}[i%3])
			if i%4 == 3 {
				w.cfg.Stale = time.Second
			}
			if i%8 != 7 {
				w.cfg.News = r
			}
			if *oneSeed != 0 {
				w.trace = t.Logf
			}
			w.runRandom()
			if w.cfg.News != nil && r.came == 0 {
				t.Error("no news arrived")
			}
			w.report()
		})
	}
}

// 10,000 hosts with 16 schedulers that get news of them need little memory besides the cores.
func TestNewsOfManyHostsNeedLittleMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	used := func(news bool) int64 {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		cfg := Config{Seed: 1, Load: load.Load{Machines: machinesOf(10_000), Jobs: someJobs(300, 200*time.Millisecond)}, Schedulers: 16}
		if news {
			cfg, _ = byRumours(cfg, time.Second)
		}
		w, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		r, err := w.Run(t.Context())
		if err != nil || r.Ended != 300 {
			t.Fatalf("%d jobs ended: %v, want no error and 300", r.Ended, err)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		runtime.KeepAlive(w)
		return (int64(after.HeapAlloc) - int64(before.HeapAlloc)) / 10_000 //nolint:gosec // far below the bound
	}
	direct := used(false)
	if news := used(true); news > direct+4<<10 {
		t.Errorf("%d bytes a host, %d without news, want at most %v", news, direct, direct+4<<10)
	}
}
