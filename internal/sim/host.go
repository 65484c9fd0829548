package sim

// A host: the loop around the worker's core, and the lives and deaths of its daemon and of the host itself.

import (
	"fmt"
	"strings"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker"
	"github.com/musterhq/muster/worker/health"
	"github.com/musterhq/muster/worker/leaseclock"
	"github.com/musterhq/muster/worker/resources"
)

type host struct {
	w        *World
	index    int // in load.Load.Machines
	peer     job.Peer
	cfg      worker.Config
	classes  []string
	deviceAt map[string]int // index of a device by its UUID
	links    map[job.Peer]*link
	order    []*link // the same, in the order in which they were made
	local    *owner  // of the same daemon, if any

	condition
	news bulletins
	hostLoop
	processes
	rough
}

// condition is whether a host and its daemon run, and what its disk has.
type condition struct {
	clock   hostClock
	power   bool          // the host runs
	gone    bool          // the host never runs again
	powerAt time.Duration // when the power was last lost
	up      bool          // the daemon runs
	upAt    time.Duration
	downAt  time.Duration
	boots   int

	store    string
	stores   int
	disk     *disk
	draining worker.Drain
}

// hostLoop is the loop around the core of a worker.
type hostLoop struct {
	core    *worker.Core
	life    int
	inbox   []worker.Event
	spare   []worker.Event
	turning bool
	saving  bool
	polling bool
	turnFn  func()
	alarm   alarm // for the next turn that the core asks for
}

// processes is what runs on a host.
type processes struct {
	speed  float64           // of the tasks; 1: as fast as their jobs say
	sick   map[string]string // devices that have fallen out, and why
	procs  map[job.Attempt]*proc
	ending []*proc        // ended, but their device memory is not free yet
	files  map[int]*files // of jobs that have some
}

// rough is what tests make worse than usual.
type rough struct {
	unfenced     bool          // its tasks go on when the daemon and the runner are dead
	real         bool          // the core is given the status of devices, as from a real driver
	wallOff      time.Duration // error of the wall clock
	diskBadUntil time.Duration
	stalledUntil time.Duration
}

// The least and the greatest uptime of hosts when a world begins.
const (
	minUptime = time.Minute
	maxUptime = 100 * time.Hour
)

// hostClock is CLOCK_BOOTTIME of one host: it starts again with each boot, and may run fast or slow by a few parts in a
// million.
type hostClock struct {
	bootAt time.Duration
	ppm    int64
}

func (c hostClock) read(now time.Duration) leaseclock.BootTime {
	d := int64(now - c.bootAt)
	if c.ppm == 0 {
		return leaseclock.BootTime(d)
	}
	return leaseclock.BootTime(d + d*c.ppm/1e6)
}

// when returns the first moment at which the clock reads at least t.
func (c hostClock) when(t leaseclock.BootTime) time.Duration {
	if c.ppm == 0 {
		return c.bootAt + time.Duration(t)
	}
	now := c.bootAt + time.Duration(float64(t)/(1+float64(c.ppm)/1e6)) - 2
	for c.read(now) < t {
		now++
	}
	return now
}

// now returns what the clocks of the host read.
func (h *host) now() leaseclock.Moment {
	return leaseclock.Moment{Boot: h.clock.read(h.w.now), Wall: h.w.wall(h.w.now, h.wallOff)}
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
	h.cfg.Profile.Fencing = job.Fencing{Certain: !h.unfenced, Boot: h.cfg.Boot}
	h.cfg.Seed = w.chance.Uint64()
	h.cfg.Draining = h.draining
	core, err := worker.NewCore(h.cfg)
	if err != nil {
		w.fail("the core of %s: %v", h.peer, err)
		h.up, h.gone = false, true
		return
	}
	h.core = core
	h.inbox, h.turning, h.saving, h.alarm.at, h.polling = h.inbox[:0], false, false, 0, false
	endOrphans(h)
	records, epochs := h.disk.restored()
	core.Restore(records, epochs)
	w.logf("%s begins, with %d records", h.peer, len(records))
	h.tell(worker.Adopted{Found: adopted(h)})
	setUp(w, h.index, true)
	listen(h)
	if h.real {
		h.poll()
	}
	for _, l := range h.order {
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
	setUp(h.w, h.index, false)
	for _, l := range h.order {
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
	h.w.appoint(h.w.now+after, func() {
		if h.life == life && !h.up {
			h.boot()
		}
	})
}

// powerOff cuts the power of the host: the tasks end with it.
func (h *host) powerOff() {
	if !h.power {
		return
	}
	h.w.logf("%s loses its power", h.peer)
	h.kill()
	h.power, h.powerAt = false, h.w.now
	h.disk.powerCut()
	for _, p := range h.running() {
		p.vanish()
		delete(h.procs, p.attempt)
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
		h.disk, h.files = newDisk(), nil
		h.procs = map[job.Attempt]*proc{}
		h.cfg.Quarantine, h.cfg.Usage = health.Quarantine{}, resources.Usage{}
	}
	h.boot()
}

func (h *host) drain(d worker.Drain) {
	h.draining = d
	if h.up {
		h.tell(d)
	}
}

// tell gives the core an event with its next turn.
func (h *host) tell(e worker.Event) {
	if h.up {
		h.inbox = append(h.inbox, e)
		h.turn()
	}
}

func (h *host) turn() {
	if !h.turning && h.up {
		h.turning = true
		h.w.at(max(h.w.now, h.stalledUntil), h.turnFn)
	}
}

// run runs one turn of the loop around the core.
func (h *host) run() {
	if !h.up || !h.turning || h.saving {
		return
	}
	h.turning = false
	events := h.inbox
	h.inbox = h.spare[:0]
	wr := h.core.Step(h.now(), events...)
	clear(events)
	h.spare = events
	h.w.counts.Rounds++
	switch {
	case wr.Empty():
		h.saved(nil)
	case h.w.now < h.diskBadUntil:
		h.saved(errDisk)
	case !wr.Sync:
		h.write(&wr)
		h.saved(nil)
	default:
		h.saving = true
		life := h.life
		h.w.after(h.w.draw(h.w.cfg.Costs.Sync), func() {
			switch {
			case h.life == life && h.up:
				h.saving = false
				h.write(&wr)
				h.saved(nil)
			case h.life == life && h.w.chance.IntN(2) == 0: // the write had reached the disk
				h.disk.write(&wr)
			}
		})
	}
}

// write writes to the disk what a turn has decided.
func (h *host) write(wr *worker.Writes) {
	h.disk.write(wr)
	if h.w.watch == nil {
		return
	}
	for i := range wr.Put {
		if wr.Put[i].Phase == contract.PhaseReserved {
			h.w.watch.reserved(h, wr.Put[i].Attempt)
		}
	}
}

func (h *host) saved(err error) {
	fx := h.core.Saved(h.now(), err)
	for _, l := range fx.Log {
		if strings.HasPrefix(l.Msg, "defect") {
			h.w.fail("the core of %s: %s %v", h.peer, l.Msg, l.Attrs)
		}
	}
	h.carry(fx)
	h.w.flush()
	if h.turning || len(h.inbox) > 0 { // something came while the disk was busy
		h.turning = false
		h.turn()
		return
	}
	h.arm()
}

// arm sets the alarm for the next turn that the core asks for.
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
