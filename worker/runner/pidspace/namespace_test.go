package pidspace

import (
	"io"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// maker returns a maker whose namespaces the test's thread can enter.
func maker(t testing.TB) *Maker {
	t.Helper()
	runtime.LockOSThread() // for ever: the thread has its own working directory, and ends with the test
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		t.Skipf("no working directory of a thread: %v", err)
	}
	m, err := New()
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(m.Close)
	return m
}

// start starts a shell in a namespace. What it writes to standard output comes out of the file.
func start(t testing.TB, m *Maker, s *Space, script string) (pid int, out *os.File) {
	t.Helper()
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Enter(s); err != nil {
		t.Fatal(err)
	}
	pid, err = syscall.ForkExec("/bin/sh", []string{"sh", "-c", script}, &syscall.ProcAttr{
		Env: []string{"PATH=/bin:/usr/bin"}, Files: []uintptr{0, in.Fd(), 2}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if back := m.Leave(); back != nil {
		t.Fatal(back)
	}
	if err != nil {
		t.Fatal(err)
	}
	_ = in.Close() // nothing was written to it
	return pid, out
}

// statusOf waits for a child.
func statusOf(t testing.TB, pid int) unix.WaitStatus {
	t.Helper()
	var status unix.WaitStatus
	for {
		_, err := unix.Wait4(pid, &status, 0, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		return status
	}
}

// endOf waits for the end of a pipe. It comes when all processes that could write to it have ended.
func endOf(t *testing.T, out *os.File) {
	t.Helper()
	if err := out.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if b, err := readAll(out); err != nil {
		t.Fatalf("a process still lives: %q, %v", b, err)
	}
}

const leavesFork = "(setsid sleep 1000 & setsid sh -c 'sleep 1000 & wait' &); echo ready; wait; sleep 1000"

// ready waits until the script has written its line.
func ready(t *testing.T, out *os.File) {
	t.Helper()
	var b [6]byte
	if n, err := out.Read(b[:]); err != nil || string(b[:n]) != "ready\n" {
		t.Fatalf(`%q, %v, want no error and "ready\n"`, b[:n], err)
	}
}

func TestProcessesEndWithTheInit(t *testing.T) {
	m := maker(t)
	s, err := m.Make()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	pid, out := start(t, m, s, leavesFork)
	ready(t, out)
	s.Kill()
	if status := statusOf(t, pid); !status.Signaled() || status.Signal() != unix.SIGKILL {
		t.Errorf("status %x, want killed", status)
	}
	endOf(t, out)
	statusOf(t, s.PID)
	if err := m.Enter(s); err == nil {
		t.Error("a namespace without an init can be entered")
	}
}

// A thread that was stopped just before it makes a process makes none in a namespace that has ended meanwhile.
func TestNothingStartsInAnEndedNamespace(t *testing.T) {
	m := maker(t)
	s, err := m.Make()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := m.Enter(s); err != nil {
		t.Fatal(err)
	}
	s.Kill()
	var info unix.Siginfo
	for {
		err := unix.Waitid(unix.P_PIDFD, s.init, &info, unix.WEXITED|unix.WNOWAIT, nil) // it is still a zombie
		if err == nil {
			break
		}
		if err != unix.EINTR {
			t.Fatalf("got %v, want %v", err, unix.EINTR)
		}
	}
	pid, err := syscall.ForkExec("/bin/true", []string{"true"}, &syscall.ProcAttr{Sys: &syscall.SysProcAttr{Setsid: true}})
	if back := m.Leave(); back != nil {
		t.Fatal(back)
	}
	if err == nil {
		t.Errorf("process %d was made in an ended namespace", pid)
	}
	statusOf(t, s.PID)
}

// A killed runner closes its end of the pipe, like Close.
func TestProcessesEndWithTheMaker(t *testing.T) {
	m := maker(t)
	s, err := m.Make()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	pid, out := start(t, m, s, leavesFork)
	ready(t, out)
	m.Close()
	m.program = nil
	m.home, m.alive = [2]int{-1, -1}, [2]int{-1, -1}
	statusOf(t, pid)
	endOf(t, out)
	statusOf(t, s.PID)
}

// A process sees its own namespace, and the exit status is its own.
func TestProcessSeesItsOwnNamespace(t *testing.T) {
	m := maker(t)
	dir := t.TempDir()
	s, err := m.Make()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		s.Kill()
		statusOf(t, s.PID)
		s.Close()
	}()
	pid, out := start(t, m, s, `cat /proc/1/comm; ls /proc | grep -c '^[0-9]'; [ -e /proc/$$/stat ] && echo own
		(sh -c 'exit 3' & ) ; mount -t tmpfs inside `+dir+` && : >`+dir+`/inside && echo mounted; kill -SEGV $$`)
	b, err := readAll(out)
	want := "muster-init\n4\nown\nmounted\n"
	if string(b) != want || err != nil {
		t.Errorf("%q, want %q, %v", b, want, err)
	}
	if status := statusOf(t, pid); !status.Signaled() || status.Signal() != unix.SIGSEGV {
		t.Errorf("status %x, want a segmentation fault", status)
	}
	if names, err := os.ReadDir(dir); err != nil || len(names) > 0 {
		t.Errorf("what was mounted inside is seen outside: %v, %v, want no error and none", names, err)
	}
	if text, err := os.ReadFile("/proc/self/mountinfo"); err != nil || strings.Contains(string(text), dir) {
		t.Errorf("mounts of the host are visible, %v:\n%s", err, text)
	}
}

// Tasks that run at the same time have different PIDs, and so do the processes that they start.
func TestPIDsOfConcurrentTasksDiffer(t *testing.T) {
	m := maker(t)
	if _, err := os.Stat("/proc/sys/kernel/ns_last_pid"); err != nil {
		t.Skip(err)
	}
	const children = 50
	seen := map[string]int{}
	for n := range 10 {
		s, err := m.Make()
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			s.Kill()
			statusOf(t, s.PID)
			s.Close()
		}()
		pid, out := start(t, m, s, "echo $$; for n in $(seq "+strconv.Itoa(children)+"); do sh -c 'echo $$; :'; done")
		b, err := readAll(out)
		all := strings.Fields(string(b))
		if err != nil || len(all) != children+1 || all[0] == "2" {
			t.Errorf("task %d: PIDs %q, %v, want one for each process", n, all, err)
		}
		for _, text := range all {
			if other, is := seen[text]; is && other != n {
				t.Errorf("task %d has the PID %s of task %d", n, text, other)
			}
			seen[text] = n
		}
		statusOf(t, pid)
	}
}

// However many tasks run at the same time, the PIDs with which they start are about as far apart as possible.
func TestFirstPIDsAreSpreadApart(t *testing.T) {
	t.Parallel()
	for _, pids := range []int64{leastPIDs, 1 << 22} {
		for _, tasks := range []int64{2, 4, 10, 100} {
			for first := int64(1); first < 1<<40; first = first*7 + 1 {
				var all []int64
				for n := range tasks {
					last := lastPID(first+n, pids)
					if last < lowestPID || last >= pids {
						t.Fatalf("%d of %d pids, want at least %v and less than %v", last, pids, lowestPID, pids)
					}
					all = append(all, last)
				}
				slices.Sort(all)
				for i, at := range all[1:] {
					if apart, want := at-all[i], (pids-lowestPID)/(3*tasks); apart < want {
						t.Fatalf("of %d tasks from the %d. on, two begin %d pids apart, want %d", tasks, first, apart, want)
					}
				}
			}
		}
	}
	if got := maxPID(); got < leastPIDs {
		t.Errorf("this host has %d pids, want at least %v", got, leastPIDs)
	}
}

func readAll(f *os.File) ([]byte, error) {
	defer f.Close()
	return io.ReadAll(f)
}

// BenchmarkStart compares a process in a namespace of its own with a bare one.
func BenchmarkStart(b *testing.B) {
	b.Run("bare", func(b *testing.B) {
		for b.Loop() {
			pid, err := syscall.ForkExec("/bin/true", []string{"true"}, &syscall.ProcAttr{Sys: &syscall.SysProcAttr{Setsid: true}})
			if err != nil {
				b.Fatal(err)
			}
			statusOf(b, pid)
		}
	})
	b.Run("inside", func(b *testing.B) {
		m := maker(b)
		for b.Loop() {
			s, err := m.Make()
			if err == nil {
				err = m.Enter(s)
			}
			if err != nil {
				b.Fatal(err)
			}
			pid, err := syscall.ForkExec("/bin/true", []string{"true"}, &syscall.ProcAttr{Sys: &syscall.SysProcAttr{Setsid: true}})
			if back := m.Leave(); back != nil || err != nil {
				b.Fatal(err, back)
			}
			statusOf(b, pid)
			s.Kill()
			statusOf(b, s.PID)
			s.Close()
		}
	})
}
