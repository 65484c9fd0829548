package runner

import (
	"log/slog"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/runner/proc"
	"github.com/musterhq/muster/worker/runner/protocol"
)

// A guard that dies at once, again and again, is restarted after pauses. One that has lived for a while is restarted at
// once.
func TestGuardThatDiesAtOnceIsRestartedAfterPauses(t *testing.T) {
	t.Parallel()
	any := true
	g := &guardProcess{command: []string{"/bin/false", "false"}, do: make(chan func(), 1), needed: func() bool { return any }, log: slog.New(slog.DiscardHandler)}
	dies := func() {
		t.Helper()
		if g.guard == 0 {
			t.Fatal("no guard runs")
		}
		if _, err := unix.Wait4(g.guard, nil, 0, nil); err != nil {
			t.Fatal(err)
		}
		g.guardDied()
	}
	begin := proc.BootTime()
	g.keepGuard()
	for want := guardPause; want <= 8*guardPause; want *= 2 {
		dies()
		if g.keepGuard(); g.guard != 0 || g.pause != want {
			t.Fatalf("guard %d runs, pause %s, want %s", g.guard, g.pause, want)
		}
		(<-g.do)()
	}
	if took := proc.BootTime() - begin; took < 15*guardPause {
		t.Errorf("five guards in %s, want at least %v", took, 15*guardPause)
	}
	g.since -= guardSettled
	if dies(); g.guard == 0 || g.pause != 0 {
		t.Errorf("guard %d runs, next pause %s, want a new one at once", g.guard, g.pause)
	}
	any = false
	if dies(); g.guard != 0 || g.paused {
		t.Error("the guard is restarted without a task")
	}
	g.pause, any = guardPauseMost, true
	if g.again(); g.pause != guardPauseMost {
		t.Errorf("a pause of %s, want %v", g.pause, guardPauseMost)
	}
}

// A task that the guard has killed, for whatever reason, has not failed.
func TestTaskKilledByTheGuardHasNotFailed(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		signal  unix.Signal
		guarded bool
		want    cause
	}{
		"by the guard": {unix.SIGKILL, true, causeGuard},
		"by its user":  {unix.SIGKILL, false, causeNone},
		"it crashed":   {unix.SIGSEGV, true, causeNone},
	} {
		w := newWatch(&protocol.Start{Hold: true}, sec)
		w.started(sec)
		w.ended(2*sec, int(tt.signal), tt.guarded)
		if w.cause != tt.want || w.signalled() != (tt.want != causeNone) {
			t.Errorf("%s: cause %d, stage %d, want the cause of the case", name, w.cause, w.stage)
		}
	}
	if got := causeGuard.state(); got != job.NodeFail {
		t.Errorf("it is %s, want %v", got, job.NodeFail)
	}
}

// A runner without its lock file may still live.
func TestRunnerWithoutALockFileMayLive(t *testing.T) {
	t.Parallel()
	dead := make(chan error, 1)
	go func() { dead <- awaitRunner(-1, protocol.Dir(t.TempDir()), 1) }()
	select {
	case err := <-dead:
		if err == nil {
			t.Error("the runner is reported as dead")
		}
	case <-time.After(time.Minute):
		t.Error("no answer within the time-out")
	}
}

// A runner whose files were deleted removes none of another runner that has its number now.
func TestRunnerRemovesOnlyItsOwnFiles(t *testing.T) {
	t.Parallel()
	for _, deleted := range []bool{false, true} {
		dir := protocol.Dir(t.TempDir())
		lock, err := dir.TryLock(1)
		if err != nil {
			t.Fatal(err)
		}
		if deleted {
			if err := os.Remove(dir.Lock(1)); err != nil {
				t.Fatal(err)
			}
			other, err := dir.TryLock(1)
			if err != nil || other == nil {
				t.Fatal(other, err)
			}
			defer other.Close()
		}
		removeOwn(dir, 1, lock)
		_ = lock.Close() // nothing was written to it
		if _, err := os.Stat(dir.Lock(1)); os.IsNotExist(err) == deleted {
			t.Errorf("deleted before: %t; then: %v, want only its own file removed", deleted, err)
		}
	}
}
