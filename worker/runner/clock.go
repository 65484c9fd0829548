package runner

// The clocks that tell when a task has to end.

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/worker/leaseclock"
)

// lookEvery is how often the loop looks at the wall clock while leases run, on
// a host that does not tell when it is set.
const lookEvery = 5 * time.Second

// hostClock is how the loop reads the time.
type hostClock struct {
	read  func() leaseclock.Reading
	set   <-chan struct{} // tells that the wall clock was set
	every time.Duration   // the loop looks so often; 0: it waits to be told
}

// thisHost reads the clocks of this host.
func thisHost(log *slog.Logger) hostClock {
	c := hostClock{read: leaseclock.Reader()}
	set, err := wallClockSet()
	if err != nil {
		log.Info("host does not tell when its wall clock is set, looking at it", "every", lookEvery.String(), "error", err)
		c.every = lookEvery
	}
	c.set = set
	return c
}

// wallClockSet gives a channel that tells, as long as the process lives, that
// the wall clock was set.
func wallClockSet() (<-chan struct{}, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_REALTIME, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("runner: make timer: %w", err)
	}
	f := os.NewFile(uintptr(fd), "wall clock")
	never := unix.ItimerSpec{Value: unix.Timespec{Sec: math.MaxInt64}}
	if err := unix.TimerfdSettime(fd, unix.TFD_TIMER_ABSTIME|unix.TFD_TIMER_CANCEL_ON_SET, &never, nil); err != nil {
		_ = f.Close() // nothing was written to it
		return nil, fmt.Errorf("runner: set timer: %w", err)
	}
	set := make(chan struct{}, 1)
	go tellSet(f.Read, set)
	return set, nil
}

// tellSet passes on each time that a timer which never fires was cancelled.
func tellSet(read func([]byte) (int, error), set chan<- struct{}) {
	var count [8]byte
	for {
		if _, err := read(count[:]); err != nil && !errors.Is(err, unix.ECANCELED) {
			return
		}
		select {
		case set <- struct{}{}:
		default:
		}
	}
}
