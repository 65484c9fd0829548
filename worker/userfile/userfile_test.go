package userfile

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// other is a user without a name, who owns only what a test gives.
func other(t *testing.T) Rights {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: acts as another user")
	}
	return &syscall.Credential{Uid: 54321, Gid: 54322, Groups: []uint32{54323}}
}

// ground is a directory that all users may enter.
func ground(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "muster-userfile-") //nolint:usetesting // t.TempDir is closed to others
	if err == nil {
		err = os.Chmod(dir, 0o755) //nolint:gosec // others are to enter it
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// status returns a line of /proc/thread-self/status.
func status(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("/proc/thread-self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "\n"+name+":")
	line, _, _ := strings.Cut(rest, "\n")
	return strings.Join(strings.Fields(line), " ")
}

// A thread has the user's effective ids and groups, and no capability. Its real and saved uid are root's, so that the
// user can neither signal nor trace it. After As it has what it had before.
func TestThreadHasTheRightsOfItsUser(t *testing.T) {
	r := other(t)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	names := []string{"Uid", "Gid", "Groups", "CapEff", "CapPrm"}
	before := map[string]string{}
	for _, name := range names {
		before[name] = status(t, name)
	}
	err := As(r, func(Thread) error {
		for name, want := range map[string]string{
			"Uid": "0 54321 0 54321", "Gid": "0 54322 0 54322", "Groups": "54323", "CapEff": "0000000000000000", "CapPrm": before["CapPrm"],
		} {
			if got := status(t, name); got != want {
				t.Errorf("%s is %s, want %s", name, got, want)
			}
		}
		return unix.ENOTTY
	})
	if !errors.Is(err, unix.ENOTTY) {
		t.Errorf("got %v, want unix.ENOTTY", err)
	}
	for _, name := range names {
		if got := status(t, name); got != before[name] {
			t.Errorf("afterwards %s is %s, want %s", name, got, before[name])
		}
	}
	if err := CheckKernel(); err != nil {
		t.Error(err)
	}
}

// Files are given to a user without the capability to exceed quotas, which the thread has again afterwards.
func TestFilesAreGivenWithinTheQuota(t *testing.T) {
	other(t)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	exceeds := func() bool {
		var bits uint64
		if _, err := fmt.Sscanf(status(t, "CapEff"), "%x", &bits); err != nil {
			t.Fatal(err)
		}
		return bits&(1<<unix.CAP_SYS_RESOURCE) != 0
	}
	before := exceeds()
	path := filepath.Join(t.TempDir(), "file")
	err := Charge(func() error {
		if exceeds() {
			t.Error("files are given away beyond the quota")
		}
		return errors.Join(os.WriteFile(path, nil, 0o600), os.Chown(path, 54321, 54321))
	})
	if err != nil {
		t.Error(err)
	}
	if after := exceeds(); after != before {
		t.Errorf("afterwards the capability is there: %t, want %v", after, before)
	}
}

// A user can do nothing to a thread that has the user's rights.
func TestUserCannotSignalOrTraceAThread(t *testing.T) {
	r := other(t)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	tid := strconv.Itoa(unix.Gettid())
	as := func(name string, args ...string) error {
		answer := make(chan error)
		go func() { // from a thread with root's rights
			cmd := exec.Command(name, args...)
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: r}
			answer <- cmd.Run()
		}()
		return <-answer
	}
	var failed *exec.ExitError
	err := As(r, func(Thread) error {
		for _, command := range [][]string{
			{"kill", "-0", tid},
			{"kill", "-KILL", tid},
			{"renice", "-n", "19", "-p", tid},
			{"chrt", "--batch", "-p", "0", tid},
			{"taskset", "-p", "1", tid},
			{"ionice", "-c", "3", "-p", tid},
			{"prlimit", "--nofile=10", "-p", tid},
			{"cat", "/proc/" + tid + "/environ"},
			{"ls", "/proc/" + tid + "/fd"},
		} {
			switch err := as(command[0], command[1:]...); {
			case errors.Is(err, exec.ErrNotFound):
				t.Log(err)
			case !errors.As(err, &failed):
				t.Errorf("%q by the user: %v, want it denied", command, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// Both ways to open a path find the same, and neither follows a magic link or opens a file of the kernel.
func TestHostileFilesAreNotOpened(t *testing.T) {
	r := other(t)
	dir := ground(t)
	closed, mine := filepath.Join(dir, "closed"), filepath.Join(dir, "mine")
	inner := filepath.Join(closed, "inner") // open to all except for the directory above
	if err := errors.Join(os.MkdirAll(inner, 0o755), os.Chmod(closed, 0o700), os.Mkdir(mine, 0o755), os.Chown(mine, int(r.Uid), int(r.Gid))); err != nil {
		t.Fatal(err)
	}
	secret := filepath.Join(inner, "secret")
	for _, path := range []string{secret, filepath.Join(mine, "file")} {
		if err := errors.Join(os.WriteFile(path, []byte("text"), 0o666), os.Chmod(path, 0o666)); err != nil { //nolint:gosec // open to all but for its directory
			t.Fatal(err)
		}
	}
	held, err := os.OpenFile(secret, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	inside, err := os.Open(inner)
	if err != nil {
		t.Fatal(err)
	}
	defer inside.Close()
	if err := unix.Mknod(filepath.Join(mine, "random"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 8))); err != nil {
		t.Logf("no device can be made: %v", err)
	}
	if err := errors.Join(unix.Mkfifo(filepath.Join(mine, "fifo"), 0o666), os.Chmod(filepath.Join(mine, "fifo"), 0o666), os.Mkdir(filepath.Join(mine, "sub"), 0o755)); err != nil {
		t.Fatal(err)
	}
	process := exec.Command("sleep", "1000")
	process.Dir = inner
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { process.Process.Kill(); process.Wait() }()
	proc := fmt.Sprintf("/proc/%d", process.Process.Pid)
	for link, to := range map[string]string{
		"to-file": "file", "to-sub": "sub/", "abs": mine + "/file", "up": "../mine/./sub/..//file", "loop": "loop", "out": secret,
		"magic": Name(int(held.Fd())), "cwd": proc + "/cwd", "sysctl": "/proc/sys/kernel/core_pattern", "null": "/dev/null", "new": "made",
		"dangling": "no/such",
	} {
		if err := os.Symlink(to, filepath.Join(mine, link)); err != nil {
			t.Fatal(err)
		}
	}
	denied := errors.New("it is a magic link, or a link of another's process")
	const write = unix.O_WRONLY | unix.O_CREAT | unix.O_APPEND
	for _, c := range []struct {
		path  string
		flags int
		want  error
	}{
		{"file", write, nil},
		{mine + "/file", unix.O_RDONLY, nil},
		{"to-file", write, nil},
		{"abs", write, nil},
		{"up", unix.O_RDONLY, nil},
		{"sub/../file", unix.O_PATH, nil},
		{"to-sub", unix.O_PATH | unix.O_DIRECTORY, nil},
		{"sub/", unix.O_PATH | unix.O_DIRECTORY, nil},
		{".", unix.O_PATH | unix.O_DIRECTORY, nil},
		{"/", unix.O_PATH | unix.O_DIRECTORY, nil},
		{"new", write, nil},
		{"made2", write, nil},
		{"null", write, nil},
		{"/dev/null", write, nil},
		{"/dev/full", write, nil},
		{"/dev/zero", unix.O_RDONLY, nil},
		{"/dev/shm", unix.O_PATH | unix.O_DIRECTORY, nil},
		{"file", unix.O_PATH | unix.O_DIRECTORY, unix.ENOTDIR},
		{"file/", unix.O_RDONLY, unix.ENOTDIR},
		{"file/x", unix.O_RDONLY, unix.ENOTDIR},
		{"absent", unix.O_RDONLY, unix.ENOENT},
		{"dangling", write, unix.ENOENT},
		{"", unix.O_RDONLY, unix.ENOENT},
		{"fifo", write, unix.ENXIO},
		{"loop", unix.O_RDONLY, ErrLink},
		{"out", unix.O_RDONLY, unix.EACCES},
		{secret, write, unix.EACCES},
		{"magic", write, ErrLink},
		{"magic", unix.O_PATH, ErrLink},
		{Name(int(held.Fd())), write, ErrLink},
		{fmt.Sprintf("/proc/thread-self/fd/%d", held.Fd()), write, ErrLink},
		{fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), held.Fd()), unix.O_RDONLY, ErrLink},
		{fmt.Sprintf("/dev/fd/%d", held.Fd()), write, ErrLink},
		{Name(int(inside.Fd())) + "/secret", unix.O_RDONLY, ErrLink},
		{"/dev/stdout", write, ErrLink},
		{"cwd/secret", unix.O_RDONLY, denied},
		{proc + "/cwd/secret", write, denied},
		{proc + "/cwd", unix.O_PATH | unix.O_DIRECTORY, denied},
		{proc + "/root" + secret, unix.O_RDONLY, denied},
		{proc + "/root", unix.O_PATH | unix.O_DIRECTORY, denied},
		{proc + "/exe", unix.O_PATH, denied},
		{"/proc/self/ns/mnt", unix.O_PATH, ErrLink},
		{fmt.Sprintf("/proc/%d/maps", os.Getpid()), unix.O_RDONLY, ErrKernel},
		{"/proc/version", unix.O_PATH, ErrKernel},
		{"/proc", unix.O_PATH | unix.O_DIRECTORY, ErrKernel},
		{"/sys", unix.O_PATH | unix.O_DIRECTORY, ErrKernel},
		{"/sys/kernel/uevent_seqnum", unix.O_RDONLY, ErrKernel},
		{"/dev", unix.O_PATH | unix.O_DIRECTORY, ErrKernel},
		{"/dev/random", unix.O_RDONLY, ErrKernel},
		{"/dev/pts", unix.O_PATH | unix.O_DIRECTORY, ErrKernel},
		{"random", unix.O_RDONLY, ErrKernel},
	} {
		if _, err := os.Lstat(c.path); strings.HasPrefix(c.path, "/dev/") && errors.Is(err, os.ErrNotExist) {
			continue // a container without it
		}
		for name, old := range map[string]bool{"openat2": false, "walk": true} {
			oldKernel.Store(old)
			err := As(r, func(thread Thread) error {
				at, err := thread.Directory(mine)
				if err != nil {
					return fmt.Errorf("directory: %w", err)
				}
				defer unix.Close(at)
				fd, err := thread.Open(at, c.path, c.flags, 0o644)
				if err == nil {
					unix.Close(fd)
				}
				return err
			})
			if !errors.Is(err, c.want) && (!errors.Is(c.want, denied) || !errors.Is(err, ErrLink) && !errors.Is(err, unix.EACCES)) {
				t.Errorf("%s: open %s with %#x: %v, want %v", name, c.path, c.flags, err, c.want)
			}
			os.Remove(filepath.Join(mine, "made"))
			os.Remove(filepath.Join(mine, "made2"))
		}
		oldKernel.Store(false)
	}
	// Sysctls are refused before the kernel is asked for more than the file: the effective uid is not root's.
	for _, path := range []string{"/proc/sys/kernel/core_pattern", mine + "/sysctl"} {
		err := As(r, func(thread Thread) error {
			_, err := thread.Open(unix.AT_FDCWD, path, write, 0o644)
			return err
		})
		if !errors.Is(err, unix.EACCES) {
			t.Errorf("%s: %v, want unix.EACCES", path, err)
		}
		err = As(nil, func(thread Thread) error {
			_, err := thread.Open(unix.AT_FDCWD, path, write, 0o644)
			return err
		})
		if !errors.Is(err, ErrKernel) {
			t.Errorf("%s by root's own task: %v, want ErrKernel", path, err)
		}
	}
	if _, err := (Thread{}).Open(unix.AT_FDCWD, mine+"/file", unix.O_RDONLY, 0); err == nil {
		t.Error("a path is opened without As")
	}
}

// A file is truncated only once it is known not to be a file of the kernel. A device is not truncated.
func TestOnlyPlainFilesAreTruncated(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{path, "/dev/null"} {
		err := As(nil, func(thread Thread) error {
			fd, err := thread.Open(unix.AT_FDCWD, p, unix.O_WRONLY|unix.O_TRUNC, 0)
			if err == nil {
				unix.Close(fd)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
	if text, err := os.ReadFile(path); err != nil || len(text) > 0 {
		t.Errorf("%q, %v, want no error and none", text, err)
	}
}

// A name that its user replaces all the time, by a magic link and by a file, leads to the file or nowhere.
func TestNameThatChangesMeanwhileIsSafe(t *testing.T) {
	r := other(t)
	dir := ground(t)
	secret, mine := filepath.Join(dir, "closed", "secret"), filepath.Join(dir, "mine")
	if err := errors.Join(os.Mkdir(filepath.Dir(secret), 0o700), os.WriteFile(secret, []byte("secret"), 0o600), os.Mkdir(mine, 0o755)); err != nil {
		t.Fatal(err)
	}
	held, err := os.OpenFile(secret, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	for name, to := range map[string]string{"a": Name(int(held.Fd())), "b": "file"} {
		if err := os.Symlink(to, filepath.Join(mine, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.WriteFile(mine+"/file", []byte("file"), 0o600), os.Chown(mine+"/file", int(r.Uid), int(r.Gid))); err != nil {
		t.Fatal(err)
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				unix.Renameat2(unix.AT_FDCWD, mine+"/a", unix.AT_FDCWD, mine+"/b", unix.RENAME_EXCHANGE)
			}
		}
	}()
	defer func() { close(stop); <-stopped }()
	opened := 0
	for i := range 4000 {
		oldKernel.Store(i%2 == 1)
		err := As(r, func(thread Thread) error {
			fd, err := thread.Open(unix.AT_FDCWD, mine+"/a", unix.O_RDONLY, 0)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			var text [16]byte
			if n, err := unix.Read(fd, text[:]); err != nil || string(text[:n]) != "file" {
				t.Errorf(`read %q, %v, want no error and "file"`, text[:n], err)
			}
			opened++
			return nil
		})
		if err != nil && !errors.Is(err, ErrLink) {
			t.Fatal(err)
		}
	}
	oldKernel.Store(false)
	t.Logf("%d of 4000 led to the file", opened)
}

func BenchmarkAs(b *testing.B) {
	if os.Geteuid() != 0 {
		b.Skip("needs root: acts as another user")
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	r := &syscall.Credential{Uid: 54321, Gid: 54322, Groups: []uint32{54323}}
	for b.Loop() {
		if err := As(r, func(Thread) error { return nil }); err != nil {
			b.Fatal(err)
		}
	}
}
