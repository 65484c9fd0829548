package files

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/runner/spawn"
)

// Nothing is copied from a working directory that its user has replaced by a link to a directory that is closed to the
// user. Nothing is copied from a directory of the kernel that the user may name.
func TestNothingIsCopiedFromClosedDirectories(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: acts as another user")
	}
	who, err := spawn.AccountOf("nobody", false)
	if err != nil {
		t.Skip(err)
	}
	dir, err := os.MkdirTemp("", "muster-hostile-") //nolint:usetesting // t.TempDir is closed to others
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	closed, link := filepath.Join(dir, "closed"), filepath.Join(dir, "link")
	inner := filepath.Join(closed, "inner")                            // open to all except for the directory above
	err = errors.Join(os.Chmod(dir, 0o755), os.MkdirAll(inner, 0o755), //nolint:gosec // open on purpose
		os.WriteFile(filepath.Join(inner, "secret"), []byte("x"), 0o644)) //nolint:gosec // as above
	if err != nil {
		t.Fatal(err)
	}
	held, err := os.Open(inner)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	process := exec.Command("sleep", "1000")
	process.Dir = inner
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { process.Process.Kill(); process.Wait() }()
	if err := os.Chmod(closed, 0o700); err != nil { //nolint:gosec // a directory
		t.Fatal(err)
	}
	for _, path := range []string{inner, fmt.Sprintf("/proc/%d/cwd", process.Process.Pid), fmt.Sprintf("/proc/%d/root%s", process.Process.Pid, inner), fmt.Sprintf("/proc/self/fd/%d", held.Fd()), "/proc/self", "/sys/kernel"} {
		if err := os.Symlink(path, link); err != nil {
			t.Fatal(err)
		}
		for _, at := range []string{path, link} {
			if names, err := pack(t, Place{dir: at, account: who}, false, "."); !errors.Is(err, ErrNone) || names != "" {
				t.Errorf("from %s to %s: %q, %v, want ErrNone and none", at, path, names, err)
			}
		}
		if err := os.Remove(link); err != nil {
			t.Fatal(err)
		}
	}
	for _, glob := range []string{"proc/version", "proc/sys/kernel/*", "sys/kernel/*", "dev/null", fmt.Sprintf("proc/%d/maps", os.Getpid()), fmt.Sprintf("proc/%d/cwd/*", process.Process.Pid)} {
		names, err := pack(t, Place{dir: "/", account: who}, false, glob)
		if !errors.Is(err, ErrNone) || strings.Contains(names, "=") {
			t.Errorf("%s: %q, %v, want ErrNone and no files", glob, names, err)
		}
	}
}

// Files are kept with the rights of the task's user: even the directories that are made for them belong to the user.
func TestFilesAreKeptWithTheRightsOfTheUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: acts as another user")
	}
	const uid = 54321
	dir, err := os.MkdirTemp("", "muster-kept-") //nolint:usetesting // t.TempDir is closed to others
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	k := keeper{cfg: Config{Dir: dir}}
	a, err := job.ParseAttempt("k3v9x0q2mz-0000000000000.0.1")
	if err != nil {
		t.Fatal(err)
	}
	from := k.cfg.scratch(a)
	if err := errors.Join(os.MkdirAll(filepath.Join(from, "a", "b"), 0o755), os.WriteFile(filepath.Join(from, "a", "b", "c"), nil, 0o644)); err != nil { //nolint:gosec // a test
		t.Fatal(err)
	}
	err = filepath.WalkDir(dir, func(at string, _ os.DirEntry, err error) error {
		if strings.HasPrefix(at, from) {
			return errors.Join(err, os.Chown(at, uid, uid))
		}
		return errors.Join(err, os.Chmod(at, 0o711))
	})
	if err != nil {
		t.Fatal(err)
	}
	if n, missing, err := k.move(a, []string{"a/b/c", "no"}); n != 1 || len(missing) != 1 || err != nil {
		t.Fatalf("%d kept, %q missing, %v, want 1, 1 of them and no error", n, missing, err)
	}
	for _, name := range []string{".", "a", "a/b", "a/b/c"} {
		info, err := os.Lstat(filepath.Join(k.cfg.kept(a), name))
		if err != nil {
			t.Fatal(err)
		}
		if st, ok := info.Sys().(*syscall.Stat_t); !ok || st.Uid != uid {
			t.Errorf("%s is owned by %d, want the user", name, st.Uid)
		}
	}
}

// A FIFO in place of a directory is not opened. Without a writer the open would block the thread for ever, and with it
// the end of the task and the start of the next daemon.
func TestNoFIFOIsOpened(t *testing.T) {
	dir := t.TempDir()
	k := keeper{cfg: Config{Dir: dir}}
	a, err := job.ParseAttempt("k3v9x0q2mz-0000000000000.0.1")
	if err != nil {
		t.Fatal(err)
	}
	from := k.cfg.scratch(a)
	fifo := filepath.Join(from, "f")
	if err := errors.Join(os.MkdirAll(from, 0o755), syscall.Mkfifo(fifo, 0o666)); err != nil { //nolint:gosec // a test
		t.Fatal(err)
	}
	opened := make(chan error, 1)
	go func() { // waits until the FIFO is opened to read, which would have blocked without this
		f, err := os.OpenFile(fifo, os.O_WRONLY, 0)
		opened <- errors.Join(err, f.Close())
	}()
	for _, glob := range []string{"f/*", "f/**", "f/x", "{f,g}/x"} {
		if n, missing, err := k.move(a, []string{glob}); n != 0 || len(missing) != 1 || err != nil {
			t.Errorf("keep %s: %d kept, %q missing, %v, want 0, 1 of them and no error", glob, n, missing, err)
		}
		if names, err := pack(t, Place{dir: from}, false, glob); !errors.Is(err, ErrNone) {
			t.Errorf("copy %s: %q, %v, want ErrNone", glob, names, err)
		}
	}
	root, err := os.OpenRoot(from)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	// As if a directory had been there a moment before.
	if names, err := fs.ReadDir(listingOf(root), "f"); !errors.Is(err, syscall.ENOTDIR) {
		t.Errorf("list: %v, %v, want syscall.ENOTDIR", names, err)
	}
	if f, err := openDirectory(root, "f"); !errors.Is(err, syscall.ENOTDIR) {
		t.Errorf("open: %v, %v, want syscall.ENOTDIR", f, err)
	}
	select {
	case err := <-opened:
		t.Errorf("the FIFO was opened: %v", err)
	default:
		f, err := os.OpenFile(fifo, os.O_RDONLY|syscall.O_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := <-opened; err != nil {
			t.Error(err)
		}
	}
}
