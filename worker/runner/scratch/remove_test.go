package scratch

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/worker/userfile"
)

// dig makes nested directories of so many levels, with a file in every hundredth.
func dig(t *testing.T, dir string, levels int) {
	t.Helper()
	at, err := unix.Open(dir, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	for i := range levels {
		if i%100 == 0 {
			fd, err := unix.Openat(at, "file", unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
			if err != nil {
				t.Fatal(err)
			}
			unix.Close(fd)
		}
		if err := unix.Mkdirat(at, "d", 0o700); err != nil {
			t.Fatal(err)
		}
		next, err := unix.Openat(at, "d", unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		unix.Close(at)
		if err != nil {
			t.Fatal(err)
		}
		at = next
	}
	unix.Close(at)
}

// TestDeepDirectoryIsRemoved allows the process few file descriptors, because a runner shares its own among all of its
// tasks.
func TestDeepDirectoryIsRemoved(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "scratch")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	dig(t, dir, 3000)
	outside := filepath.Join(filepath.Dir(dir), "outside")
	if err := os.Mkdir(outside, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"link": outside, "d/link": "../../outside", "d/d/.muster-1": "nowhere"} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	few := unix.Rlimit{Cur: 128, Max: before.Max}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	err := Remove(dir)
	if back := unix.Setrlimit(unix.RLIMIT_NOFILE, &before); back != nil {
		t.Fatal(back)
	}
	if err != nil {
		t.Fatalf("%.300s", err)
	}
	if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory is still there: %v, want os.ErrNotExist", err)
	}
	if _, err := os.Lstat(outside); err != nil {
		t.Errorf("the target of a link was removed: %v", err)
	}
	if err := Remove(dir); err != nil {
		t.Errorf("a second removal: %v", err)
	}
}

func TestWideAndClosedDirectoryIsRemoved(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "scratch")
	for i := range 20 {
		sub := filepath.Join(dir, strconv.Itoa(i), "a", "b")
		if err := os.MkdirAll(sub, 0o700); err != nil {
			t.Fatal(err)
		}
		for k := range 10 {
			if err := os.WriteFile(filepath.Join(sub, strconv.Itoa(k)), nil, 0o400); err != nil {
				t.Fatal(err)
			}
		}
		for _, closed := range []string{sub, filepath.Dir(sub)} {
			if err := os.Chmod(closed, 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := Remove(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory is still there: %v, want os.ErrNotExist", err)
	}
}

// TestMountedFilesAreNotRemoved checks that files on a file system that is mounted in the scratch directory are not deleted.
func TestMountedFilesAreNotRemoved(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: mounts")
	}
	dir := filepath.Join(t.TempDir(), "scratch")
	if err := os.MkdirAll(filepath.Join(dir, "busy"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("none", filepath.Join(dir, "busy"), "tmpfs", 0, "mode=0755"); err != nil {
		t.Skipf("no mounts here: %v", err)
	}
	defer unix.Unmount(filepath.Join(dir, "busy"), unix.MNT_DETACH)
	if err := os.WriteFile(filepath.Join(dir, "busy", "kept"), make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Remove(dir); err == nil {
		t.Fatal("a mount point was removed")
	}
	if _, err := os.Lstat(filepath.Join(dir, "file")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file beside the mount is still there: %v, want os.ErrNotExist", err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "busy", "kept")); err != nil {
		t.Errorf("a mounted file was removed: %v", err)
	}
	if size, _, _ := sizeOf(dir); size > 64<<10 {
		t.Errorf("mounted files count: %s, want at most %v", size, 64<<10)
	}
}

func TestDeepDirectoryIsReportedAsDeep(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "scratch")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	dig(t, dir, maxDepth)
	if err := os.WriteFile(filepath.Join(dir, "d", "some"), make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	size, _, deep := sizeOf(dir)
	if size < 1<<20 || size > 64<<20 || deep {
		t.Errorf("%d levels: %s, deep: %v, want 1 to 64 MiB and false", maxDepth, size, deep)
	}
	if err := Remove(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	dig(t, dir, 3*maxDepth)
	if _, _, deep := sizeOf(dir); !deep {
		t.Errorf("%d levels are not reported as deep", 3*maxDepth)
	}
	if err := Remove(dir); err != nil { // the cleanup of t.TempDir cannot remove it
		t.Fatal(err)
	}
}

// TestDirectoryInUseIsRemoved removes a directory in which another process of its user, with only the rights of this
// user, goes on to make files and to exchange names.
func TestDirectoryInUseIsRemoved(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: acts as another user")
	}
	const uid = 54321
	parent, err := os.MkdirTemp("", "muster-remove-") //nolint:usetesting // t.TempDir is closed to others
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(parent) })
	dir := filepath.Join(parent, "scratch")
	sub := filepath.Join(dir, "sub")
	err = errors.Join(os.Chmod(parent, 0o711), os.MkdirAll(filepath.Join(sub, "d"), 0o755), os.WriteFile(filepath.Join(sub, "f"), nil, 0o644), //nolint:gosec // the user's
		os.Chown(dir, uid, uid), os.Chown(sub, uid, uid), os.Chown(filepath.Join(sub, "d"), uid, uid), os.Chmod(sub, 0o777)) //nolint:gosec // as above
	if err != nil {
		t.Fatal(err)
	}
	stop, busy := make(chan struct{}), make(chan error, 4)
	var all sync.WaitGroup
	for i, path := range []string{dir, sub} {
		all.Go(func() {
			busy <- userfile.As(&syscall.Credential{Uid: uid, Gid: uid}, func(th userfile.Thread) error {
				at, err := th.Open(unix.AT_FDCWD, path, unix.O_RDONLY|unix.O_DIRECTORY, 0)
				if err != nil {
					return err
				}
				defer unix.Close(at)
				for n := 0; ; n++ {
					select {
					case <-stop:
						return nil
					default:
					}
					fd, err := unix.Openat(at, strconv.Itoa(n), unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
					if err == nil {
						_ = unix.Close(fd) // it is empty
					}
					if i == 1 {
						_ = unix.Renameat2(at, "d", at, "f", unix.RENAME_EXCHANGE) // while both exist
					}
					if n == 1000 {
						busy <- nil
					}
				}
			})
		})
	}
	for range 2 {
		if err := <-busy; err != nil {
			t.Fatal(err)
		}
	}
	if err := Remove(dir); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory is still there: %v, want os.ErrNotExist", err)
	}
	close(stop)
	all.Wait()
}
