package runner

// The clocks by which leases end.

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

// lookEvery is how often the loop compares the clocks while leases run, if the kernel cannot tell when the wall clock
// is set.
const lookEvery = 5 * time.Second

// hostClock is how the loop reads the time.
type hostClock struct {
	read  func() leaseclock.Reading
	set   <-chan struct{} // receives when the wall clock was set
	every time.Duration   // how often the loop compares the clocks; 0: it waits for set
}

// thisHost returns the clocks of this host.
func thisHost(log *slog.Logger) hostClock {
	c := hostClock{read: leaseclock.Reader()}
	set, err := wallClockSet()
	if err != nil {
		log.Info("no notice when the wall clock is set, polling it", "every", lookEvery.String(), "error", err)
		c.every = lookEvery
	}
	c.set = set
	return c
}

// wallClockSet returns a channel that receives each time the wall clock is set, as long as the process lives.
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

// tellSet sends on set each time that the kernel cancels a timer, which it does when the wall clock is set.
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
