package supervisor

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/driver"
	"github.com/musterhq/muster/worker/output"
	"github.com/musterhq/muster/worker/runner/protocol"
)

func noFollower(string) bool { return false }

// inode returns the inode of the attempt's directory, or 0 if there is none.
func (r *rig) inode(a job.Attempt) uint64 {
	var is unix.Stat_t
	if unix.Lstat(r.d.dir.Task(a), &is) != nil {
		return 0
	}
	return is.Ino
}

// finish runs a task that succeeds, waits until its scratch directory is removed, and forgets its exit.
func (r *rig) finish(task driver.Task) uint64 {
	r.t.Helper()
	if exit := r.run(task); exit.State != job.Succeeded {
		r.t.Fatalf("exit %+v, want State %v", exit, job.Succeeded)
	}
	await(r.t, "removal of the scratch directory", func() bool {
		_, err := os.Lstat(r.d.dir.Scratch(task.Attempt))
		return errors.Is(err, os.ErrNotExist)
	})
	inode := r.inode(task.Attempt)
	if err := r.d.Forget(task.Attempt); err != nil {
		r.t.Fatal(err)
	}
	if err := r.d.Ping(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
	return inode
}

// log reads a log through the driver.
func (r *rig) log(a job.Attempt, offset int64, follow bool) (string, error) {
	f, err := r.d.Follow(r.t.Context(), a, output.Both, offset, follow)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	return string(b), err
}

// A task that writes nothing leaves its directory to the next one. Its log is still empty and not unknown, even for a
// later daemon.
func TestSilentTaskLeavesItsDirectory(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, mode string) {
		r := newRig(t, mode, testDir(t), "1")
		first := r.finish(r.task(1, "/bin/true"))
		second := r.task(2, "/bin/sh", "-c", `echo "$MUSTER_SCRATCH"; ls -A "$MUSTER_SCRATCH" ..`)
		if got := r.finish(second); got != first || r.inode(r.attempt(1)) != 0 {
			t.Errorf("the second task has inode %d; the first had %d and has %d, want it passed on", got, first, r.inode(r.attempt(1)))
		}
		if text, err := r.log(second.Attempt, 0, true); err != nil || !strings.HasPrefix(text, r.d.dir.Scratch(second.Attempt)+"\n") {
			t.Errorf("log %q, %v, want no error and prefix %v", text, err, r.d.dir.Scratch(second.Attempt)+"\n")
		}
		if third := r.finish(r.task(3, "/bin/true")); third == first || r.inode(second.Attempt) != first {
			t.Error("a task took the directory of one that has output")
		}
		later := r
		for range 2 {
			for _, follow := range []bool{false, true} {
				for _, offset := range []int64{0, -5, 7} {
					if text, err := later.log(r.attempt(1), offset, follow); text != "" || err != nil {
						t.Errorf("log of the first task from %d: %q, %v, want none and no error", offset, text, err)
					}
				}
				if _, err := later.log(r.attempt(9), 0, follow); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("log of an attempt that never was: %v, want os.ErrNotExist", err)
				}
			}
			if later == r {
				r.stop()
				later = newRig(t, mode, r.dir, "1")
			}
		}
		if fourth := later.finish(later.task(4, "/bin/true")); later.inode(r.attempt(3)) == 0 || fourth == 0 {
			t.Error("a daemon passed on a directory though it did not see its task leave it")
		}
	})
}

// Without this, ten thousand silent tasks would leave as many directories. A hundred leave a few.
func TestDirectoriesOfSilentTasksStayFew(t *testing.T) {
	t.Parallel()
	r := newRig(t, "nogroups", testDir(t), "1")
	for n := range 100 {
		r.finish(r.task(n, "/bin/true"))
	}
	if left, err := r.d.dir.Attempts(); err != nil || len(left) != 1 {
		t.Errorf("%d directories: %v, want no error and 1", len(left), err)
	}
}

// The directory of an attempt whose exit is still needed shows that it was started.
func TestDirectoryStaysUntilItsExitIsForgotten(t *testing.T) {
	t.Parallel()
	r := newRig(t, "nogroups", testDir(t), "1")
	r.run(r.task(1, "/bin/true"))
	r.finish(r.task(2, "/bin/true"))
	r.finish(r.task(3, "/bin/true"))
	if r.inode(r.attempt(1)) == 0 || r.inode(r.attempt(2)) != 0 {
		t.Errorf("inodes %d and %d, want the first kept and the second passed on", r.inode(r.attempt(1)), r.inode(r.attempt(2)))
	}
}

// A task of the runner's own user may change its own directory. The next task does not see that.
func TestChangedDirectoryIsNotPassedOn(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"planted output": `echo forged > ../out-0-0`,
		"directory":      `mkdir ../files`,
		"link":           `ln -s / ../hostfile`,
		"mode":           `chmod 777 ..`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, "nogroups", testDir(t), "1")
			k := r.task(1, "/bin/sh", "-c", script)
			first := r.finish(k)
			if second := r.finish(r.task(2, "/bin/true")); second == first || r.inode(k.Attempt) != first {
				t.Error("the changed directory was passed on")
			}
			if text, err := r.log(r.attempt(2), 0, false); text != "" || err != nil {
				t.Errorf("log of the second task: %q, %v, want none and no error", text, err)
			}
		})
	}
}

// If a task may have left anything in its directory besides its output, the directory is not passed on.
func TestTasksWithFilesKeepTheirDirectories(t *testing.T) {
	t.Parallel()
	r := newRig(t, "nogroups", testDir(t), "1")
	r.finish(r.shell(1, "true"))
	download := r.task(2, "/bin/true")
	download.Spec.Download = []string{"*"}
	if exit := r.run(download); exit.State != job.Succeeded {
		t.Fatalf("exit %+v, want State %v", exit, job.Succeeded)
	}
	if err := r.d.Forget(download.Attempt); err != nil {
		t.Fatal(err)
	}
	r.finish(r.task(3, "/bin/true"))
	for n := 1; n <= 3; n++ {
		if r.inode(r.attempt(n)) == 0 {
			t.Errorf("the directory of task %d was passed on", n)
		}
	}
}

// If the runner dies, each directory has either its old name or its new one, and the next runner continues.
func TestDirectoriesSurviveTheDeathOfARunner(t *testing.T) {
	t.Parallel()
	r := newRig(t, "nogroups", testDir(t), "1")
	r.finish(r.task(1, "/bin/true"))
	first := r.inode(r.attempt(1))
	r.start(r.task(2, "/bin/sleep", "1000"))
	r.expect(driver.Started)
	info, err := r.d.dir.ReadInfo(1)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(info.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	r.expect(driver.Lost)
	if r.inode(r.attempt(2)) != first {
		t.Error("the second task did not get the directory of the first")
	}
	if err := r.d.Forget(r.attempt(2)); err != nil {
		t.Fatal(err)
	}
	r.finish(r.task(3, "/bin/true"))
	if r.inode(r.attempt(2)) != first {
		t.Error("a task got the directory of one that was lost")
	}
}

func sparesIn(t *testing.T) *spares {
	t.Helper()
	s := newSpares(protocol.Dir(t.TempDir()), slog.New(slog.DiscardHandler))
	t.Cleanup(s.close)
	return s
}

// TestSparesAgreeWithTheModel checks random histories: a directory is passed on once, after its attempt was forgotten, to
// the same user, never while it is followed. It is not swept before the attempt that gets it has started.
func TestSparesAgreeWithTheModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		s := sparesIn(t)
		users := map[job.Attempt]string{}
		ended, forgotten, given, pending := map[job.Attempt]bool{}, map[job.Attempt]bool{}, map[job.Attempt]bool{}, map[job.Attempt]job.Attempt{}
		watched := map[string]bool{}
		some := func(all map[job.Attempt]bool) (job.Attempt, bool) {
			keys := slices.SortedFunc(maps.Keys(all), func(a, b job.Attempt) int { return a.Task - b.Task })
			if len(keys) == 0 {
				return job.Attempt{}, false
			}
			return keys[rnd.IntN(len(keys))], true
		}
		for n := range 2000 {
			a := job.Attempt{Job: job.NewID(7, seed), Task: n, N: 1}
			users[a] = fmt.Sprint("user", rnd.IntN(3))
			switch rnd.IntN(5) {
			case 0, 1:
				s.ended(a, users[a])
				ended[a] = true
				if rnd.IntN(20) == 0 {
					watched[s.dir.Task(a)] = true
				}
			case 2:
				if old, ok := some(ended); ok {
					delete(ended, old)
					s.forgotten(old)
					forgotten[old] = true
				}
				s.forgotten(a) // an unknown attempt
			case 3:
				name := s.take(a, users[a], func(dir string) bool { return watched[dir] })
				if name == "" {
					continue
				}
				old, err := job.ParseAttempt(name)
				if err != nil || !forgotten[old] || given[old] || users[old] != users[a] || watched[s.dir.Task(old)] || !s.gave(old) {
					t.Fatalf("seed %d: %s was given to %s: %v", seed, name, a, err)
				}
				given[old], pending[a] = true, old
			case 4:
				for by := range pending {
					s.settled(by)
					delete(pending, by)
				}
			}
			names := map[job.Attempt]bool{}
			s.addTo(names)
			for _, old := range pending {
				if !names[old] {
					t.Fatalf("seed %d: the directory of %s may be swept while it is passed on", seed, old)
				}
			}
		}
		if len(given) < 20 {
			t.Errorf("seed %d: only %d directories were given, want at least 20", seed, len(given))
		}
	}
}

// What the daemon remembers of directories is bounded, whatever tasks do: for hours, and with an owner that never
// answers.
func TestSparesAreBounded(t *testing.T) {
	t.Parallel()
	s := sparesIn(t)
	attempt := func(n int) job.Attempt { return job.Attempt{Job: job.NewID(7, 1), Task: n, N: 1} }
	for n := range 3 * maxSilent {
		s.ended(attempt(n), "ada")
	}
	if len(s.silent) != maxSilent {
		t.Errorf("%d attempts that are not forgotten, want %v", len(s.silent), maxSilent)
	}
	for n := range 3 * maxSilent {
		s.forgotten(attempt(n))
	}
	if len(s.silent) != 0 || len(s.ready) != maxSpares {
		t.Errorf("%d attempts not forgotten, %d directories, want none and %v", len(s.silent), len(s.ready), maxSpares)
	}
	const all = 400_000
	for n := range all {
		a := attempt(n)
		s.ended(a, "ada")
		s.forgotten(a)
		if s.take(attempt(all+n), "ada", noFollower) == "" {
			t.Fatal("there is no directory to pass on")
		}
		s.settled(attempt(all + n))
	}
	if len(s.taking) != 0 {
		t.Errorf("%d directories are being taken, want none", len(s.taking))
	}
	files, err := filepath.Glob(filepath.Join(string(s.dir), "*"))
	if err != nil || len(files) != 2 {
		t.Fatalf("files %v, %v, want no error and 2 of them", files, err)
	}
	for _, path := range files {
		if info, err := os.Stat(path); err != nil || info.Size() > givenBytes+100 {
			t.Errorf("%s: %v, %v, want no error and Size() at most %v", path, info, err, givenBytes+100)
		}
	}
	for _, n := range []int{all - maxSpares - 1, all - 100_000} {
		if !s.gave(attempt(n)) {
			t.Errorf("task %d of %d wrote nothing, but that is unknown", n, all)
		}
	}
}

// If the list cannot be written, nothing is passed on: the log of the old attempt would become unknown.
func TestNoDirectoryIsPassedOnWithoutTheList(t *testing.T) {
	t.Parallel()
	s := sparesIn(t)
	if err := os.Mkdir(protocol.Silent(s.dir), 0o700); err != nil {
		t.Fatal(err)
	}
	s.ended(attemptIn("x", 1), "ada")
	s.forgotten(attemptIn("x", 1))
	if name := s.take(attemptIn("x", 2), "ada", noFollower); name != "" {
		t.Errorf("%s was given, want none", name)
	}
}

// After a power cut the list may end within a line.
func TestListWithAPartialLineIsRead(t *testing.T) {
	t.Parallel()
	s := sparesIn(t)
	if err := os.WriteFile(protocol.Silent(s.dir), []byte(attemptIn("x", 1).String()[:5]), 0o600); err != nil {
		t.Fatal(err)
	}
	s.ended(attemptIn("x", 2), "ada")
	s.forgotten(attemptIn("x", 2))
	s.take(attemptIn("x", 3), "ada", noFollower)
	if s.gave(attemptIn("x", 1)) || !s.gave(attemptIn("x", 2)) {
		t.Error("the list was not read")
	}
}

// A stranger who asks for outputs that never existed must not cost more than a read of the list.
func TestUnknownOutputIsCheap(t *testing.T) { //nolint:paralleltest // it counts allocations
	s := sparesIn(t)
	var list strings.Builder
	for n := range 50_000 {
		list.WriteString(job.Attempt{Job: job.NewID(7, 1), Task: n, N: 1}.String() + "\n")
	}
	for _, path := range []string{protocol.Silent(s.dir), protocol.OlderLog(protocol.Silent(s.dir))} {
		if err := os.WriteFile(path, []byte(list.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if n := testing.AllocsPerRun(3, func() {
		if s.gave(attemptIn("x", 1)) {
			t.Error("an output that never existed was found")
		}
	}); n > 1000 {
		t.Errorf("%v allocations, want at most 1000", n)
	}
}
