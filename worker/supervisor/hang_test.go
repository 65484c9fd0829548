package supervisor

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/driver"
	"github.com/musterhq/muster/worker/runner/protocol"
)

// hungDir returns a directory in which every access hangs until answer is called: a FUSE file system without a server.
func hungDir(t *testing.T) (dir string, answer func()) {
	t.Helper()
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skipf("needs /dev/fuse: %v", err)
	}
	dir = t.TempDir()
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", fd)
	if err := unix.Mount("hung", dir, "fuse", 0, options); err != nil {
		_ = unix.Close(fd)
		t.Skipf("needs the right to mount: %v", err)
	}
	closed := false
	answer = func() {
		if !closed {
			closed = true
			_ = unix.Close(fd) // pending requests fail
		}
	}
	t.Cleanup(func() {
		answer()
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir, answer
}

// hangs returns tasks that hang at their start, each at another step.
func hangs(r *rig, dir string) []driver.Task {
	all := make([]driver.Task, 4)
	for i := range all {
		all[i] = r.task(i+1, "true")
	}
	all[0].Spec.Workdir = dir
	all[1].Spec.Workdir = filepath.Join(dir, "below")
	all[2].Spec.Command = []string{filepath.Join(dir, "program")}
	all[3].Spec.Output = filepath.Join(dir, "output")
	return all
}

func sum(counts map[string]int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}

// More starts hang than there are spawners. Other tasks still start.
func TestHungStartsDoNotDelayOthers(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, mode string) {
		dir, answer := hungDir(t)
		r := newRig(t, mode, testDir(t), "1")
		waiting := map[job.Attempt]bool{}
		hang := func(n int) {
			k := hangs(r, dir)[(n-1)%4]
			k.Attempt = r.attempt(n)
			r.start(k)
			waiting[k.Attempt] = true
		}
		for n := range 7 { // once eight are known to hang, every other start of the user is refused
			hang(1 + n)
		}
		healthy := r.task(100, "true")
		r.start(healthy)
		ended, cancelled := false, false
		reasons := map[string]int{}
		fail := func(e driver.Event) {
			what, _, timely := strings.Cut(e.Exit.Reason, " did not answer within "+answerIn.String())
			if !timely || e.Exit.State != job.NodeFail || e.Exit.Started || e.Exit.Code != 126 {
				t.Errorf("got %+v, want NODE_FAIL with code 126 in time", e)
			}
			reasons[what]++
		}
		for !ended || len(waiting) > 0 {
			switch e := r.next(); {
			case e.Attempt == healthy.Attempt && e.Kind == driver.Exited && e.Exit.State == job.Succeeded:
				ended = true
				hang(8)
			case e.Attempt == healthy.Attempt && (e.Kind == driver.Started || e.Kind == driver.Starting):
			case e.Kind == driver.Starting && strings.Contains(e.Detail, "which does not answer"):
				delete(waiting, e.Attempt)
				if e.Attempt == r.attempt(1) { // a cancelled attempt ends at once
					if err := r.d.Stop(e.Attempt, time.Minute, "enough"); err != nil {
						t.Fatal(err)
					}
				}
			case e.Kind == driver.Failed && e.Exit.State == job.Cancelled:
				cancelled = e.Attempt == r.attempt(1) && e.Exit.Reason == "enough"
			case e.Kind == driver.Failed:
				fail(e)
			default:
				t.Fatalf("unexpected event %+v, want the failed starts and the end of the cancelled one", e)
			}
		}
		if !cancelled {
			t.Error("the cancelled attempt has not ended before the others")
		}
		// Another start of the same user is refused. The others fail after answerIn.
		k := r.task(9, "true")
		k.Spec.Workdir = dir
		r.start(k)
		refused := false
		for !refused || sum(reasons) < 7 {
			e := r.expect(driver.Failed)
			if e.Attempt == k.Attempt {
				refused = e.Exit.Code == 126 && strings.Contains(e.Exit.Reason, "8 starts of user root hang")
				if !refused {
					t.Fatalf("got %+v, want the start refused", e)
				}
				continue
			}
			fail(e)
		}
		for what, n := range map[string]int{
			"workdir " + dir: 1, "workdir " + dir + "/below": 2, "command " + dir + "/program": 2, "output file " + dir + "/output": 2,
		} {
			if reasons[what] != n {
				t.Errorf("%d starts waited for %s, want %d: %v", reasons[what], what, n, reasons)
			}
		}
		// An answer that comes too late starts nothing. Afterwards the user's next tasks start again.
		answer()
		tries := 0
		await(t, "starts of the user", func() bool {
			tries++
			r.start(r.task(200+tries, "true"))
			e := r.next()
			if e.Kind == driver.Started {
				e = r.next()
			}
			return e.Kind == driver.Exited && e.Exit.State == job.Succeeded
		})
	})
}

// A command that hangs in a task does not delay another command.
func TestHungCommandDoesNotDelayOthers(t *testing.T) {
	t.Parallel()
	dir, _ := hungDir(t)
	r := newRig(t, "groups", testDir(t), "1")
	k := r.task(1, "sleep", "1000")
	r.start(k)
	r.expect(driver.Started)
	beside := func(command ...string) error {
		s, err := r.d.Exec(t.Context(), k.Attempt, protocol.Command{Command: command}, 0)
		if err == nil {
			defer s.Close()
			_, err = s.Wait()
		}
		return err
	}
	hung := make(chan error, 1)
	go func() { hung <- beside(dir + "/program") }()
	if err := beside("true"); err != nil {
		t.Errorf("a command waits for another: %v", err)
	}
	if err := <-hung; CodeOf(err) != 126 || !strings.Contains(err.Error(), "did not answer within "+answerIn.String()) {
		t.Errorf("%v, want code 126 because there was no answer", err)
	}
}

// A user cannot have more than MaxUserExecs commands open.
func TestCommandsOfAUserAreBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t, "groups", testDir(t), "1")
	k := r.task(1, "sleep", "1000")
	r.start(k)
	r.expect(driver.Started)
	open := func(command ...string) (*Session, error) {
		return r.d.Exec(t.Context(), k.Attempt, protocol.Command{Command: command}, 0)
	}
	var all []*Session
	for range protocol.MaxUserExecs {
		s, err := open("sleep", "1000")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		all = append(all, s)
	}
	if _, err := open("true"); err == nil || !strings.Contains(err.Error(), "user root has 32 commands open") {
		t.Errorf(`%v, want an error and "user root has 32 commands open" in it`, err)
	}
	all[0].Close()
	await(t, "room for another command", func() bool {
		s, err := open("true")
		if err == nil {
			s.Close()
		}
		return err == nil
	})
}

// A task whose output file is a pipe without a reader fails at once.
func TestOutputToAPipeWithoutAReaderFails(t *testing.T) {
	t.Parallel()
	r := newRig(t, "nogroups", testDir(t), "1")
	k := r.task(1, "true")
	k.Spec.Output = filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(k.Spec.Output, 0o600); err != nil {
		t.Fatal(err)
	}
	r.start(k)
	if e := r.expect(driver.Failed); !strings.Contains(e.Exit.Reason, "output file "+k.Spec.Output) {
		t.Errorf("%+v, want Exit.Reason %v in it", e, "output file "+k.Spec.Output)
	}
}
