package joint

// The virtual clock: one queue of all that is to happen, and how the clocks of
// the hosts read it.

import (
	"math/rand/v2"
	"time"
	"unsafe"

	"github.com/musterhq/muster/worker"
)

// event is something that happens at a virtual moment. Events of one moment
// happen in the order in which they were queued.
type event struct {
	at  time.Duration // since the world began
	seq uint64
	do  func()
}

func (e *event) before(f *event) bool { return e.at < f.at || e.at == f.at && e.seq < f.seq }

// clock is a binary heap of events.
type clock struct {
	now  time.Duration
	seq  uint64
	heap []event
	ran  int // events that have happened
}

func (c *clock) at(when time.Duration, do func()) {
	c.seq++
	c.heap = append(c.heap, event{max(when, c.now), c.seq, do})
	for i := len(c.heap) - 1; i > 0; {
		up := (i - 1) / 2
		if !c.heap[i].before(&c.heap[up]) {
			break
		}
		c.heap[i], c.heap[up] = c.heap[up], c.heap[i]
		i = up
	}
}

func (c *clock) after(d time.Duration, do func()) { c.at(c.now+d, do) }

// next lets the earliest event happen if it is due by then.
func (c *clock) next(until time.Duration) bool {
	if len(c.heap) == 0 || c.heap[0].at > until {
		return false
	}
	first := c.heap[0]
	last := len(c.heap) - 1
	c.heap[0] = c.heap[last]
	c.heap[last].do = nil
	c.heap = c.heap[:last]
	for i := 0; ; {
		least := i
		for _, down := range [2]int{2*i + 1, 2*i + 2} {
			if down < last && c.heap[down].before(&c.heap[least]) {
				least = down
			}
		}
		if least == i {
			break
		}
		c.heap[i], c.heap[least] = c.heap[least], c.heap[i]
		i = least
	}
	c.now = first.at
	c.ran++
	first.do()
	return true
}

// firstDay is what all wall clocks read when a world begins, but for their
// errors, in seconds since 1970: 2026-01-01.
const firstDay = 1_767_225_600

// to1885 leads from seconds since 1970 to seconds since 1885, the way in which
// a time.Time with a monotonic reading counts them.
const to1885 = (1969*365 + 1969/4 - 1969/100 + 1969/400 - (1884*365 + 1884/4 - 1884/100 + 1884/400)) * 86_400

// moment is what time.Now reads on a host whose wall clock is wrong by offset:
// the wall clock and the monotonic clock each say their own. No call of package
// time makes such a value; TestMoment proves that this one is read right.
func moment(now, offset time.Duration) time.Time {
	const hasMonotonic = 1 << 63
	wall := firstDay*int64(time.Second) + int64(now+offset)
	t := struct {
		wall uint64
		ext  int64
		loc  *time.Location
	}{
		wall: hasMonotonic | uint64(wall/int64(time.Second)+to1885)<<30 | uint64(wall%int64(time.Second)),
		ext:  int64(now) + 1,
	}
	return *(*time.Time)(unsafe.Pointer(&t))
}

// hostClock is CLOCK_BOOTTIME of one host: it begins anew with each boot, and
// runs fast or slow by a few parts in a million.
type hostClock struct {
	bootAt time.Duration
	ppm    int64
}

func (c hostClock) read(now time.Duration) worker.BootTime {
	d := int64(now - c.bootAt)
	return worker.BootTime(d + d*c.ppm/1e6)
}

// when is the first moment at which the clock reads at least t.
func (c hostClock) when(t worker.BootTime) time.Duration {
	now := c.bootAt + time.Duration(float64(t)/(1+float64(c.ppm)/1e6)) - 2
	for c.read(now) < t {
		now++
	}
	return now
}

// between draws evenly.
func between(r *rand.Rand, least, most time.Duration) time.Duration {
	if most <= least {
		return least
	}
	return least + time.Duration(r.Int64N(int64(most-least)))
}
