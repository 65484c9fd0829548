package joint

// A host: the loop around the worker's core, its disk, and the lives and deaths
// of its daemon and of the host itself.

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
	"github.com/musterhq/muster/worker"
)

type host struct {
	w       *world
	index   int
	peer    job.Peer
	cfg     worker.Config
	classes []string
	real    bool // a status of the devices is needed
	links   []*link
	local   *owner // of the same daemon, if any

	clock   hostClock
	wallOff time.Duration // error of the wall clock
	power   bool          // the host runs
	gone    bool          // and never will again
	powerAt time.Duration // it was last lost
	up      bool          // the daemon runs
	upAt    time.Duration
	downAt  time.Duration
	boots   int
	store   string
	stores  int

	core    *worker.Core
	life    int
	inbox   []worker.Event
	spare   []worker.Event
	turning bool
	saving  bool
	turnFn  func()
	alarm   alarm // for the turn that the core wants next

	disk         *disk
	diskBadUntil time.Duration
	stalledUntil time.Duration
	draining     worker.Drain
	polling      bool

	procs  map[job.Attempt]*proc
	ending []*proc // ended, with memory that is not back
	first  standing
}

// disk is a worker's ledger: what is written survives the daemon, what is synced
// survives the host.
type disk struct {
	records map[job.Attempt]*lease.Record
	epochs  map[job.Group]lease.Epoch
	undo    []unsynced
}

// unsynced is a record as it was before a write that is not synced.
type unsynced struct {
	attempt job.Attempt
	before  *lease.Record
}

func newDisk() *disk {
	return &disk{records: map[job.Attempt]*lease.Record{}, epochs: map[job.Group]lease.Epoch{}}
}

func (d *disk) write(wr *worker.Writes) {
	for i := range wr.Put {
		a := wr.Put[i].Attempt
		if !wr.Sync {
			d.undo = append(d.undo, unsynced{a, d.records[a]})
		}
		rec := wr.Put[i]
		d.records[a] = &rec
	}
	for _, a := range wr.Gone {
		if !wr.Sync {
			d.undo = append(d.undo, unsynced{a, d.records[a]})
		}
		delete(d.records, a)
	}
	for _, e := range wr.Epochs {
		d.epochs[e.Group] = e.Epoch
	}
	if wr.Sync {
		d.undo = d.undo[:0]
	}
}

// powerCut takes back what was not synced.
func (d *disk) powerCut() {
	for _, u := range slices.Backward(d.undo) {
		if u.before == nil {
			delete(d.records, u.attempt)
		} else {
			d.records[u.attempt] = u.before
		}
	}
	d.undo = nil
}

var errDisk = errors.New("no space left on device")

// now is what the clocks of the host read.
func (h *host) now() worker.Moment {
	return worker.Moment{Boot: h.clock.read(h.w.now), Wall: moment(h.w.now, h.wallOff)}
}

// boot starts a life of the daemon.
func (h *host) boot() {
	if !h.power || h.gone {
		return
	}
	w := h.w
	h.life++
	h.up, h.upAt = true, w.now
	h.cfg.Profile.Store = h.store
	h.cfg.Boot = fmt.Sprintf("boot-%d", h.boots)
	h.cfg.Seed = w.chance.Uint64()
	h.cfg.Draining = h.draining
	core, err := newWorkerCore(h.cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	h.core = core
	h.inbox, h.turning, h.saving, h.alarm.at, h.polling = h.inbox[:0], false, false, 0, false
	records := make([]lease.Record, 0, len(h.disk.records))
	for _, r := range h.disk.records {
		rec := *r
		rec.Started, rec.Recorded = rec.Started.Round(0), rec.Recorded.Round(0)
		records = append(records, rec)
	}
	slices.SortFunc(records, func(a, b lease.Record) int { return compareAttempts(a.Attempt, b.Attempt) })
	epochs := make([]lease.GroupEpoch, 0, len(h.disk.epochs))
	for g, e := range h.disk.epochs {
		epochs = append(epochs, lease.GroupEpoch{Group: g, Epoch: e})
	}
	slices.SortFunc(epochs, func(a, b lease.GroupEpoch) int { return int(a.Group) - int(b.Group) })
	core.Restore(records, epochs)
	w.logf("%s begins, with %d records", h.peer, len(records))
	h.tell(worker.Adopted{Found: h.adopt()})
	if h.real {
		h.poll()
	}
	for _, l := range h.links {
		l.tend()
	}
	if h.local != nil && !h.local.up {
		h.local.boot(between(w.chance, 0, 2*time.Second))
	}
}

// kill ends the daemon, without a word to anyone.
func (h *host) kill() {
	if !h.up {
		return
	}
	h.w.logf("%s is killed", h.peer)
	h.up, h.downAt, h.core = false, h.w.now, nil
	for _, l := range h.links {
		l.died(true)
	}
	if h.local != nil {
		h.local.kill()
	}
}

// restart kills the daemon and starts it again after a while.
func (h *host) restart(after time.Duration) {
	h.kill()
	life := h.life
	h.w.after(after, func() {
		if h.life == life && !h.up {
			h.boot()
		}
	})
}

// powerOff is a power cut: the tasks end with the host.
func (h *host) powerOff() {
	if !h.power {
		return
	}
	h.w.logf("%s loses its power", h.peer)
	h.kill()
	h.power, h.powerAt = false, h.w.now
	h.disk.powerCut()
	for a, p := range h.procs {
		if !p.over {
			p.vanish()
			delete(h.procs, a)
		}
	}
	h.ending = h.ending[:0]
}

// powerOn lets the host boot, if need be with an empty disk.
func (h *host) powerOn(wiped bool) {
	if h.power || h.gone {
		return
	}
	h.power = true
	h.boots++
	h.clock.bootAt = h.w.now
	if wiped {
		h.stores++
		h.store = fmt.Sprintf("store-%d-%d", h.index, h.stores)
		h.disk = newDisk()
		h.procs = map[job.Attempt]*proc{}
		h.cfg.Quarantine, h.cfg.Usage = worker.Quarantine{}, worker.Usage{}
	}
	h.boot()
}

func (h *host) drain(d worker.Drain) {
	h.draining = d
	if h.up {
		h.tell(d)
	}
}

// tell has the core see an event with its next turn.
func (h *host) tell(e worker.Event) {
	if h.up {
		h.inbox = append(h.inbox, e)
		h.turn()
	}
}

func (h *host) turn() {
	if !h.turning && h.up {
		h.turning = true
		h.w.at(max(h.w.now+h.w.late(h.w.opt.slow.step), h.stalledUntil), h.turnFn)
	}
}

// run is one turn of the loop around the core.
func (h *host) run() {
	if !h.up || !h.turning || h.saving {
		return
	}
	h.turning = false
	events := h.inbox
	h.inbox = h.spare[:0]
	now := h.now()
	var wr worker.Writes
	h.w.timed(func() {
		wr = h.core.Step(now, events...)
	})
	clear(events)
	h.spare = events
	h.w.stats.rounds++
	switch {
	case wr.Empty():
		h.saved(nil)
	case h.w.now < h.diskBadUntil:
		h.saved(errDisk)
	case !wr.Sync:
		h.disk.write(&wr)
		h.saved(nil)
	default:
		h.saving = true
		life := h.life
		h.w.after(between(h.w.chance, 500*time.Microsecond, 4*time.Millisecond)+h.w.late(h.w.opt.slow.disk), func() {
			switch {
			case h.life == life && h.up:
				h.saving = false
				h.disk.write(&wr)
				h.saved(nil)
			case h.life == life && h.w.chance.IntN(2) == 0: // it had reached the disk
				h.disk.write(&wr)
			}
		})
	}
}

func (h *host) saved(err error) {
	var fx worker.Effects
	h.w.timed(func() { fx = h.core.Saved(h.now(), err) })
	for _, l := range fx.Log {
		if strings.HasPrefix(l.Msg, "defect") {
			h.w.fail("the core of %s: %s %v", h.peer, l.Msg, l.Attrs)
		}
	}
	h.carry(fx)
	if h.turning || len(h.inbox) > 0 { // something came while the disk was busy
		h.turning = false
		h.turn()
		return
	}
	h.arm()
}

// arm sets the alarm for the turn that the core wants next.
func (h *host) arm() {
	at, ok := h.core.Wake()
	if !ok {
		return
	}
	now := h.w.now
	when := now
	if at > h.clock.read(now) {
		when = h.clock.when(at)
	}
	h.alarm.set(when)
}

func (h *host) awake() {
	if !h.up || !h.alarm.rang() {
		return
	}
	if at, ok := h.core.Wake(); ok && at <= h.clock.read(h.w.now) {
		h.turn()
	} else if !h.saving {
		h.arm()
	}
}
