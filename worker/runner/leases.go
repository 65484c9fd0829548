package runner

// The lease clock of the loop, and the schedule that says which task's watch is due next.

import (
	"cmp"
	"fmt"
	"log/slog"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/internal/timers"
	"github.com/musterhq/muster/worker/leaseclock"
	"github.com/musterhq/muster/worker/runner/protocol"
)

// leases knows the time, the pauses of this host, and when each watch is due.
type leases struct {
	host  hostClock
	skew  leaseclock.Watch
	timer *timer
	next  *timers.Heap[time.Duration, *task] // when each watch is due
	armed time.Duration                      // when the loop should look next; 0: never
	hears time.Duration                      // until when nothing is ended, because this process stood still; see hearFor
	log   *slog.Logger
}

const (
	// lateBy is how late the loop may look at a watch that is due. If it looks later, this process stood still: it was
	// stopped, or the host slept.
	lateBy = time.Second
	// hearFor is how long nothing is ended after this process stood still. What the daemon has sent is read within
	// milliseconds. But the daemon may have stood still too, and then first has to read what the owners have sent.
	hearFor = time.Second
)

func newLeases(host hostClock, t *timer, log *slog.Logger) *leases {
	c := &leases{host: host, timer: t, next: timers.New[time.Duration, *task](cmp.Compare[time.Duration]), log: log}
	c.skew.Look(host.read())
	return c
}

// now reads CLOCK_BOOTTIME. Missed is for how long this host was paused since the last call, or 0. Every deadline has
// to move earlier by missed before it is compared with now.
func (c *leases) now() (now, missed time.Duration) {
	r := c.host.read()
	jump := c.skew.Look(r)
	if jump < 0 {
		c.log.Warn("wall clock of this host was set back; leases go by the time since boot and stay as they are", "by", (-jump).Round(time.Millisecond).String())
	}
	return r.Boot, max(0, jump)
}

// boot reads CLOCK_BOOTTIME.
func (c *leases) boot() time.Duration { return c.host.read().Boot }

// since returns for how long this host was paused since a daemon computed a deadline under the given skew. A daemon
// that knows no skew sends 0, and the result is 0.
func (c *leases) since(skew time.Duration) time.Duration {
	if skew == 0 {
		return 0
	}
	return c.skew.Since(skew)
}

// extend moves a task's deadline to that of the extension, less the pauses that the daemon did not know of.
func (c *leases) extend(t *task, now time.Duration, e protocol.Extension) {
	t.watch.extend(now, e.Deadline-c.since(e.Skew))
	c.look(t)
}

// look updates a task's place in the schedule.
func (c *leases) look(t *task) {
	if at := t.watch.next(); at != 0 {
		c.next.Set(&t.due, at)
	} else {
		c.next.Stop(&t.due)
	}
}

// catchingUp reports whether this process stood still when a watch was due, and has not yet had the time to hear what
// others have sent meanwhile.
func (c *leases) catchingUp(now time.Duration) bool {
	if late := now - c.armed; c.armed != 0 && late >= lateBy {
		c.hears = now + hearFor
		c.log.Warn("this process stood still, reading first what has happened meanwhile", "late_by", late.Round(time.Millisecond).String())
	}
	return now < c.hears
}

// arm sets the timer to when the next watch is due.
func (c *leases) arm(now time.Duration) {
	at, ok := c.next.Next()
	if c.armed = 0; !ok {
		return
	}
	at = max(at, c.hears)
	c.armed = max(at, now)
	if c.host.every != 0 {
		at = min(at, now+c.host.every)
	}
	if err := c.timer.set(at); err != nil {
		c.log.Error("timer not set", "error", err)
	}
}

// fired sends on ticked each time that the timer fires, until the timer is closed.
func (t *timer) fired(ticked chan<- struct{}) {
	var count [8]byte
	for {
		if _, err := t.Read(count[:]); err != nil {
			return // closed
		}
		select {
		case ticked <- struct{}{}:
		default:
		}
	}
}

// timer is a timerfd on CLOCK_BOOTTIME. Timers of the Go runtime stand still while the host sleeps.
type timer struct {
	*os.File
	fd int // File.Fd would set the file to blocking mode
}

func newTimer() (*timer, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("runner: make timer: %w", err)
	}
	return &timer{File: os.NewFile(uintptr(fd), "timer"), fd: fd}, nil
}

// set makes the timer fire when CLOCK_BOOTTIME reaches at.
func (t *timer) set(at time.Duration) error {
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(at))}
	return unix.TimerfdSettime(t.fd, unix.TFD_TIMER_ABSTIME, &spec, nil)
}
