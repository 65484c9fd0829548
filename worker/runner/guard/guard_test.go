package guard

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/leaseclock"
	"github.com/musterhq/muster/worker/runner/protocol"
)

const sec = time.Second

func attempt(n int) job.Attempt { return job.Attempt{Job: job.NewID(7, 9), Task: n, N: 1} }

func tables(t *testing.T) (runners, others *Table) {
	t.Helper()
	runners, err := New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(runners.Close)
	others, err = Open(protocol.Info{PID: os.Getpid(), Leases: int(runners.File().Fd())})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(others.Close)
	return runners, others
}

func put(t *testing.T, table *Table, e Entry) int {
	t.Helper()
	slot, err := table.Put(e)
	if err != nil {
		t.Fatal(err)
	}
	return slot
}

// at is a reading of both clocks, of a host that booted at 1,000 s of its wall clock.
func at(boot time.Duration) leaseclock.Reading {
	return leaseclock.Reading{Boot: boot, Wall: boot + 1000*sec}
}

// wants checks which tasks are over.
func (w *Watch) wants(t *testing.T, r leaseclock.Reading, want ...int) {
	t.Helper()
	over, wait := w.Look(r)
	var got []int
	for _, e := range over {
		got = append(got, e.Attempt.Task)
	}
	if len(got) != len(want) {
		t.Errorf("at %s: %v are over, want %v", r.Boot, got, want)
	}
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			t.Errorf("at %s: %v are over, want %v", r.Boot, got, want)
		}
	}
	if wait <= 0 || wait > lookMost {
		t.Errorf("at %s: looks again in %s, want more than 0 and at most %v", r.Boot, wait, lookMost)
	}
}

// play looks each time that the watch requests, up to a time.
func (w *Watch) play(to time.Duration, now *time.Duration) (over []Entry) {
	for {
		o, wait := w.Look(at(*now))
		if over = append(over, o...); *now+wait >= to {
			*now = to
			return over
		}
		*now += wait
	}
}

// A task is over a moment after its deadline, not before, and not if either process has moved the deadline.
func TestTaskIsOverAfterItsDeadline(t *testing.T) {
	t.Parallel()
	runners, others := tables(t)
	const skew = 1000 * sec
	plain := put(t, runners, Entry{Attempt: attempt(1), Group: "/g/1", PID: 11, Ticks: 111, Deadline: 130 * sec, Skew: skew})
	put(t, runners, Entry{Attempt: attempt(2), PID: 12, Deadline: 130 * sec, Skew: skew})
	put(t, runners, Entry{Attempt: attempt(3), Deadline: Never, Skew: skew})
	freed := put(t, runners, Entry{Attempt: attempt(4), Deadline: 130 * sec, Skew: skew})
	runners.Free(freed)
	others.ExtendAll(map[string]Extension{attempt(2).String(): {400 * sec, skew}, attempt(4).String(): {900 * sec, skew}})
	w, now := NewWatch(others, After), 100*sec
	if over := w.play(130*sec+After, &now); len(over) != 0 {
		t.Fatalf("%v are over by %s, want none", over, now)
	}
	over, _ := w.Look(at(now))
	if len(over) != 1 || over[0] != (Entry{Attempt: attempt(1), Group: "/g/1", PID: 11, Ticks: 111, Deadline: 130 * sec, Skew: skew}) {
		t.Fatalf("over: %+v, want the first task with its process and deadline", over)
	}
	runners.Extend(plain, 500*sec, skew)
	runners.Extend(plain, 200*sec, skew) // never earlier
	if over = w.play(400*sec, &now); len(over) != 0 {
		t.Errorf("over though it was renewed: %+v, want none", over)
	}
	now += After
	w.wants(t, at(now), 2)
	if again := put(t, runners, Entry{Attempt: attempt(5), Deadline: Never}); again != freed {
		t.Errorf("slot %d is taken, want the free one, %d", again, freed)
	}
	if all := others.All(); len(all) != 4 {
		t.Errorf("%d tasks, want 4: %+v", len(all), all)
	}
}

// The runner sees which tasks the guard has killed. The next task in the slot was not.
func TestRunnerSeesWhichTasksWereKilled(t *testing.T) {
	t.Parallel()
	runners, others := tables(t)
	one := put(t, runners, Entry{Attempt: attempt(1), Group: strings.Repeat("x", groupBytes-1), Deadline: Never})
	two := put(t, runners, Entry{Attempt: attempt(2), Deadline: Never})
	others.MarkKilled(attempt(1))
	if !runners.Killed(one) || runners.Killed(two) {
		t.Errorf("killed: %v, %v, want true and false", runners.Killed(one), runners.Killed(two))
	}
	runners.Free(one)
	if put(t, runners, Entry{Attempt: attempt(3), Deadline: Never}); runners.Killed(one) {
		t.Error("another task in the slot counts as killed")
	}
}

// A task has its place before it has a process. Until then there is nothing to kill, and the guard looks again soon.
func TestTaskWithoutAProcessIsLookedAtAgain(t *testing.T) {
	t.Parallel()
	runners, others := tables(t)
	slot := put(t, runners, Entry{Attempt: attempt(1), Deadline: 130 * sec, Skew: 1000 * sec})
	w, now := NewWatch(others, After), 100*sec
	w.play(131*sec, &now)
	over, wait := w.Look(at(now))
	if len(over) != 0 || wait > hearFor {
		t.Fatalf("%v are over, and it looks again in %s, want none and at most %v", over, wait, hearFor)
	}
	if (Entry{Attempt: attempt(1), Group: "/nowhere", Deadline: sec}).Kill() {
		t.Error("something was killed")
	}
	if runners.Over(slot, 130*sec-1) || !runners.Over(slot, 130*sec) {
		t.Error("the runner sees another deadline")
	}
	if err := runners.SetProcess(slot, 12, 34, "/g/1"); err != nil {
		t.Fatal(err)
	}
	want := Entry{Attempt: attempt(1), Group: "/g/1", PID: 12, Ticks: 34, Deadline: 130 * sec, Skew: 1000 * sec}
	if over, _ = w.Look(at(now)); len(over) != 1 || over[0] != want {
		t.Errorf("over: %+v, want 1 of them and [0] %v", over, want)
	}
	if err := runners.SetProcess(slot, 12, 34, strings.Repeat("x", groupBytes)); !errors.Is(err, ErrFull) {
		t.Errorf("a name that is too long: %v, want ErrFull", err)
	}
}

// A process that is being made when the runner is stopped is found by its environment if it has neither a namespace nor
// a group with the task's name.
func TestProcessThatIsBeingMadeIsKilled(t *testing.T) {
	t.Parallel()
	a := attempt(7)
	cmd := exec.Command("sleep", "1000")
	cmd.Env = []string{"MUSTER_JOB_ID=" + string(a.Job), "MUSTER_TASK=7", "MUSTER_ATTEMPT=1"}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	e := Entry{Attempt: a, PID: Making}
	for deadline := time.Now().Add(time.Minute); !e.Kill(); { // until it has executed its program
		if time.Now().After(deadline) {
			t.Fatal("the process was not found")
		}
	}
	err := cmd.Wait()
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		t.Errorf("status %v, want killed", err)
	}
	if e.Kill() {
		t.Error("the process was found again")
	}
}

// A guard that was paused first lets the others record their renewals.
func TestPausedGuardWaitsForRenewals(t *testing.T) {
	t.Parallel()
	runners, others := tables(t)
	put(t, runners, Entry{Attempt: attempt(1), PID: 11, Deadline: 130 * sec, Skew: 1000 * sec})
	put(t, runners, Entry{Attempt: attempt(2), PID: 12, Deadline: 130 * sec, Skew: 1000 * sec})
	w := NewWatch(runners, After)
	w.wants(t, at(100*sec))
	w.wants(t, at(150*sec))
	others.ExtendAll(map[string]Extension{attempt(2).String(): {400 * sec, 1000 * sec}})
	w.wants(t, at(150*sec+hearFor), 1)
}

// A pause of the host counts as time that has passed, for deadlines from before it.
func TestPauseOfTheHostCountsAsTime(t *testing.T) {
	t.Parallel()
	runners, _ := tables(t)
	put(t, runners, Entry{Attempt: attempt(1), PID: 11, Deadline: 200 * sec, Skew: 1000 * sec})
	put(t, runners, Entry{Attempt: attempt(2), PID: 12, Deadline: 200 * sec, Skew: 1100 * sec}) // from after the pause
	w := NewWatch(runners, After)
	w.wants(t, at(100*sec))
	r := at(104 * sec)
	r.Wall += 100 * sec
	w.wants(t, r, 1)
}

func TestTableIsBounded(t *testing.T) {
	t.Parallel()
	runners, _ := tables(t)
	for _, e := range []Entry{{Attempt: attempt(1), Group: strings.Repeat("x", groupBytes), Deadline: Never}, {Attempt: attempt(1)}} {
		if _, err := runners.Put(e); !errors.Is(err, ErrFull) {
			t.Errorf("%.20s…, deadline %s: %v, want ErrFull", e.Group, e.Deadline, err)
		}
	}
	for n := range maxSlots - 1 {
		put(t, runners, Entry{Attempt: attempt(n), Deadline: Never})
	}
	if _, err := runners.Put(Entry{Attempt: attempt(0), Deadline: Never}); !errors.Is(err, ErrFull) {
		t.Errorf("one more than there are slots: %v, want ErrFull", err)
	}
	if err := os.Truncate("/proc/self/fd/"+strconv.Itoa(int(runners.File().Fd())), 0); err == nil {
		t.Error("the table can be truncated, which would kill everyone who has mapped it")
	}
	for _, info := range []protocol.Info{{PID: os.Getpid()}, {PID: os.Getpid(), Leases: 1}, {PID: 1 << 30, Leases: 3}} {
		if _, err := Open(info); err == nil {
			t.Errorf("%+v: opened", info)
		}
	}
}
