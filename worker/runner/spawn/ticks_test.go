package spawn

import (
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/musterhq/muster/worker/runner/proc"
)

// TestTicksAreThoseOfTheKernel checks that the clock gives the same start as /proc. A zombie still has its start.
func TestTicksAreThoseOfTheKernel(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var r tickReader
	byClock := 0
	for range 100 {
		before := proc.BootTime()
		pid, err := syscall.ForkExec(self, []string{self, "-test.run=^$"}, &syscall.ProcAttr{})
		if err != nil {
			t.Fatal(err)
		}
		after := proc.BootTime()
		got, want := r.start(pid, before, after), proc.StartTicks(pid)
		_ = syscall.Kill(pid, syscall.SIGKILL)
		if _, err := syscall.Wait4(pid, nil, 0, nil); err != nil {
			t.Fatal(err)
		}
		if got != want || want == 0 {
			t.Fatalf("start of a process between %s and %s is %d, the kernel says %d", before, after, got, want)
		}
		if before/tick == after/tick {
			byClock++
		}
	}
	if byClock > 0 && r.clock.Load() != sameClock {
		t.Errorf("the clock was not trusted after %d starts within a tick", byClock)
	}
}

// TestTicksAreReadFromProcOnAnotherClock checks that /proc is read if its start times are not readings of CLOCK_BOOTTIME.
func TestTicksAreReadFromProcOnAnotherClock(t *testing.T) {
	t.Parallel()
	var r tickReader
	want := proc.StartTicks(os.Getpid())
	off := time.Duration(want)*tick + time.Hour
	for range 3 {
		if got := r.start(os.Getpid(), off, off); got != want {
			t.Fatalf("start is %d, the kernel says %d", got, want)
		}
	}
}
