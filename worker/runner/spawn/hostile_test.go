package spawn

// Each way in which a user can name a file, with each path that must not be opened.

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/internal/testkit/exetest"
	"github.com/musterhq/muster/worker/runner/protocol"
	"github.com/musterhq/muster/worker/runner/pump"
	"github.com/musterhq/muster/worker/userfile"
)

// hostile are paths by which no task of a user may reach anything. Each leads to a file, or to the directory of one,
// that belongs to the kernel, another user or the runner.
type hostile struct {
	mine  string   // a directory of the user
	files []string // paths of files
	dirs  []string // paths of directories
}

// newHostile makes them. Everything behind them is open to all, except for the directories that lead there.
func newHostile(t *testing.T, who Account) hostile {
	t.Helper()
	dir, err := os.MkdirTemp("", "muster-hostile-") //nolint:usetesting // t.TempDir is closed to others
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	h := hostile{mine: filepath.Join(dir, "mine")}
	closed := filepath.Join(dir, "closed")
	inner := filepath.Join(closed, "inner")
	secret := filepath.Join(inner, "secret")
	err = errors.Join(os.Chmod(dir, 0o755), os.Mkdir(h.mine, 0o755), os.Chown(h.mine, who.UID, who.GID), //nolint:gosec // open on purpose
		os.Mkdir(filepath.Join(h.mine, "sub"), 0o755), os.MkdirAll(inner, 0o755), exetest.Write(secret, []byte("#!/bin/sh\n"), 0o777), os.Chmod(secret, 0o777)) //nolint:gosec // as above
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(secret, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	inside, err := os.Open(inner)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { inside.Close() })
	// A process of root with a closed directory, and one with its own mounts.
	process := exec.Command("unshare", "--mount", "--propagation", "private", "sh", "-c", `mount -t tmpfs -o mode=755 none /mnt && echo >/mnt/secret && chmod 777 /mnt/secret && echo && exec sleep 1000`)
	process.Dir = inner
	out, err := process.StdoutPipe()
	if err == nil {
		err = process.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { process.Process.Kill(); process.Wait() })
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatalf("no mounts: %v", err)
	}
	if err := os.Chmod(closed, 0o700); err != nil { //nolint:gosec // a directory
		t.Fatal(err)
	}
	pid := process.Process.Pid
	h.files = []string{
		"/proc/sys/kernel/core_pattern", "/proc/sys/net/ipv4/ip_forward", "/proc/self/oom_score_adj", "/proc/self/comm", "/proc/self/attr/current", "/sys/kernel/uevent_helper", "/sys/power/state",
		"/dev/stdout", "/dev/random", "/dev/kmsg", "/dev/ptmx",
		fmt.Sprintf("/proc/self/fd/%d", file.Fd()), fmt.Sprintf("/proc/thread-self/fd/%d", file.Fd()), fmt.Sprintf("/dev/fd/%d", file.Fd()),
		fmt.Sprintf("/proc/self/fd/%d/secret", inside.Fd()), fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), file.Fd()),
		fmt.Sprintf("/proc/%d/cwd/secret", pid), fmt.Sprintf("/proc/%d/root/mnt/secret", pid), fmt.Sprintf("/proc/%d/root%s", pid, secret), secret,
	}
	h.dirs = []string{
		"/proc", "/proc/sys/kernel", "/sys", "/sys/kernel", "/dev", "/dev/pts", fmt.Sprintf("/proc/self/fd/%d", inside.Fd()), fmt.Sprintf("/proc/thread-self/fd/%d", inside.Fd()),
		fmt.Sprintf("/proc/%d/cwd", pid), fmt.Sprintf("/proc/%d/root", pid), fmt.Sprintf("/proc/%d/root/mnt", pid), inner, closed + "/.", closed + "/../closed/..",
	}
	for _, list := range []*[]string{&h.files, &h.dirs} {
		for i, path := range *list { // the same by a link of the user
			link := filepath.Join(h.mine, fmt.Sprintf("link-%p-%d", list, i))
			if err := os.Symlink(path, link); err != nil {
				t.Fatal(err)
			}
			*list = append(*list, link)
		}
	}
	return h
}

// ways are the ways to open the path of a file or of a directory. Each returns nil if the path was opened.
func (h hostile) ways(t *testing.T, who Account) (files, dirs map[string]func(path string) error) {
	t.Helper()
	s := &Spawner{answer: time.Minute}
	order := func() *Order { return &Order{Start: &protocol.Start{User: "nobody"}} }
	start := func() *launch { return &launch{who: who, workdir: workdir{h.mine, -1}} }
	files = map[string]func(string) error{
		"output": func(path string) error {
			o := order()
			o.Start.Stdout = path
			all, err := start().copies(o)
			pump.CloseCopies(all)
			return err
		},
		"error of a first attempt": func(path string) error {
			o := order()
			o.Start.Stderr, o.Attempt.N = path, 1
			all, err := start().copies(o)
			pump.CloseCopies(all)
			return err
		},
		"output of a container": func(path string) error {
			o := order()
			o.Start.Stdout = path
			all, err := s.containerCopies(t.Context(), o)
			pump.CloseCopies(all)
			return err
		},
		"relative output of a container": func(path string) error {
			o := order()
			o.Start.Stdout, o.Start.SubmitDir = filepath.Base(path), filepath.Dir(path)
			all, err := s.containerCopies(t.Context(), o)
			pump.CloseCopies(all)
			if err == nil && len(all) == 0 {
				return errors.New("without the directory there is no file")
			}
			return err
		},
		"command": func(path string) error {
			l := start()
			l.argv = []string{path}
			return who.As(func(t userfile.Thread) error { return l.find(t, nil) })
		},
		"PATH": func(path string) error {
			l := start()
			l.argv = []string{filepath.Base(path)}
			return who.As(func(t userfile.Thread) error { return l.find(t, []string{"PATH=" + filepath.Dir(path)}) })
		},
		"exec": func(path string) error {
			x := &ExecOrder{Exec: protocol.Exec{Command: []string{path}}, PID: os.Getpid(), Who: who, Where: h.mine, Files: []*os.File{os.Stdin}}
			x.claim.withdraw() // if it is found, nothing is started
			if r := new(Spawner).exec(x, thread{}); r.Err == nil || !strings.Contains(r.Err.Error(), "nobody waits") {
				return r.Err
			}
			return nil
		},
		"mount": func(path string) error { return mounted(who, path) },
	}
	dirs = map[string]func(string) error{
		"workdir": func(path string) error {
			o, l := order(), start()
			o.Start.Workdir = path
			err := l.findWorkdir(o)
			l.workdir.close()
			return err
		},
		"directory of the submit": func(path string) error {
			o, l := order(), start()
			o.Start.SubmitDir = path
			err := l.findWorkdir(o)
			l.workdir.close()
			if err == nil && l.workdir.path == h.mine {
				return errors.New("the task starts in its scratch directory")
			}
			return err
		},
		"exec in a workdir": func(path string) error {
			x := &ExecOrder{Exec: protocol.Exec{Command: []string{"/bin/true"}}, PID: os.Getpid(), Who: who, Where: path, Files: []*os.File{os.Stdin}}
			x.claim.withdraw()
			if r := new(Spawner).exec(x, thread{}); r.Err == nil || !strings.Contains(r.Err.Error(), "nobody waits") {
				return r.Err
			}
			return nil
		},
		"mount": func(path string) error { return mounted(who, path) },
	}
	return files, dirs
}

func mounted(who Account, path string) error {
	all, err := openSources(who, []string{path + ":/data"})
	all.Close()
	if err == nil && len(all) == 1 && all[0] == nil {
		return unix.ENOENT
	}
	return err
}

// No way leads to anything that a user must not reach. Each way leads to the user's own files and to the devices that
// all may name.
func TestHostilePathsAreNotOpened(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: acts as another user")
	}
	who, err := AccountOf("nobody", false)
	if err != nil {
		t.Skip(err)
	}
	h := newHostile(t, who)
	files, dirs := h.ways(t, who)
	refused := 0
	try := func(ways map[string]func(string) error, paths []string) {
		for _, path := range paths {
			for name, way := range ways {
				// PATH and the directory of a submit use the directory of a file that is a link of the user: a file
				// like any other.
				if err := way(path); err == nil {
					t.Errorf("%s: %s was opened", name, path)
				} else if text := err.Error(); strings.Contains(text, "\n") {
					t.Errorf("%s: %s: more than one line: %q", name, path, text)
				}
				refused++
			}
		}
	}
	try(files, h.files)
	// The directory closed/../closed/.. is its parent. All may enter that, but only through the closed directory.
	try(dirs, h.dirs)
	t.Logf("%d openings were refused", refused)

	good := filepath.Join(h.mine, "good")
	if err := errors.Join(exetest.Write(good, []byte("#!/bin/sh\n"), 0o600), os.Chmod(good, 0o755), os.Chown(good, who.UID, who.GID)); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	for name, way := range files {
		if err := way(good); err != nil {
			t.Errorf("%s: a file of the user: %v", name, err)
		}
	}
	for name, way := range dirs {
		for _, path := range []string{h.mine + "/sub", "/dev/shm", "/"} {
			if err := way(path); err != nil {
				t.Errorf("%s: %s: %v, want it open to all", name, path, err)
			}
		}
	}
	for _, name := range []string{"output", "error of a first attempt", "output of a container"} {
		for _, path := range []string{"/dev/null", "/dev/zero", "/dev/full"} {
			if err := files[name](path); err != nil {
				t.Errorf("%s: %s: %v, want it open to all", name, path, err)
			}
		}
	}
}
