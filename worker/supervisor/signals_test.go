package supervisor

import (
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// A signal that arrives while the daemon looks whether a runner lives does not make the runner count as dead: its tasks
// would be ended.
func TestSignalDoesNotMakeALivingRunnerCountAsDead(t *testing.T) {
	fd, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		t.Skipf("needs pidfds: %v", err)
	}
	k := &keeper{pidfd: os.NewFile(uintptr(fd), "self")}
	defer k.pidfd.Close()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	self, stop, stopped := unix.Gettid(), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				_ = unix.Tgkill(os.Getpid(), self, unix.SIGURG) // as Go's scheduler does
			}
		}
	}()
	for range 100_000 {
		if !k.lives() {
			t.Error("a living process counts as dead, want it alive")
			break
		}
	}
	close(stop)
	<-stopped
}
