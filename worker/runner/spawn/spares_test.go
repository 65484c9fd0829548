package spawn

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// self is the account of tasks that run as the runner's own user.
func self() Account { return Account{UID: os.Geteuid(), GID: os.Getegid()} }

// other is the account of another user.
func other(uid uint32) Account {
	return Account{UID: int(uid), GID: int(uid), cred: &syscall.Credential{Uid: uid, Gid: uid}}
}

// scratchOf makes a scratch directory like a start does.
func scratchOf(t *testing.T, path string, who Account) string {
	t.Helper()
	if err := makeScratch(path, ""); err != nil {
		t.Fatal(err)
	}
	if err := who.own(path); err != nil {
		t.Fatal(err)
	}
	return path
}

func inodeOf(t *testing.T, path string) (is unix.Stat_t) {
	t.Helper()
	if err := unix.Lstat(path, &is); err != nil {
		t.Fatal(err)
	}
	return is
}

func sparesIn(t *testing.T, dir string) *spares {
	t.Helper()
	s, err := newSpares(filepath.Join(dir, "spare"))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestSpareServesTheNextTask checks that an unused directory goes from one task to the next, once.
func TestSpareServesTheNextTask(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := sparesIn(t, dir)
	first := scratchOf(t, filepath.Join(dir, "first"), self())
	inode := inodeOf(t, first).Ino
	if !s.keep(first, self()) {
		t.Fatal("an empty directory was not kept")
	}
	if _, err := os.Lstat(first); err == nil {
		t.Fatal("the directory is still at its old path")
	}
	second := filepath.Join(dir, "second")
	if !s.give(second, self()) {
		t.Fatal("no directory was given")
	}
	if is := inodeOf(t, second); is.Ino != inode || is.Mode&0o7777 != scratchMode {
		t.Errorf("inode %d, mode %o, want inode %d and the usual mode", is.Ino, is.Mode, inode)
	}
	if s.give(filepath.Join(dir, "third"), self()) {
		t.Error("one directory was given twice")
	}
}

// TestChangedDirectoryIsNotKept checks that a directory that its task has changed is not kept.
func TestChangedDirectoryIsNotKept(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(path string) error{
		"file":      func(path string) error { return os.WriteFile(filepath.Join(path, "f"), nil, 0o600) },
		"directory": func(path string) error { return os.Mkdir(filepath.Join(path, "d"), 0o700) },
		"link":      func(path string) error { return os.Symlink("/", filepath.Join(path, "l")) },
		"mode":      func(path string) error { return os.Chmod(path, 0o755) },
		"sticky":    func(path string) error { return os.Chmod(path, 0o700|os.ModeSticky) },
		"attribute": func(path string) error { return unix.Setxattr(path, "user.muster", []byte("x"), 0) },
		"replaced by a link": func(path string) error {
			return os.Rename(path, path+"-moved")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			s := sparesIn(t, dir)
			path := scratchOf(t, filepath.Join(dir, "task"), self())
			if err := change(path); err != nil {
				t.Skip(err) // for instance a file system without attributes
			}
			if name == "replaced by a link" {
				if err := os.Symlink(path+"-moved", path); err != nil {
					t.Fatal(err)
				}
			}
			if s.keep(path, self()) {
				t.Error("the directory was kept")
			}
			if s.give(filepath.Join(dir, "next"), self()) {
				t.Error("the directory was given to the next task")
			}
		})
	}
}

// TestSpareStaysWithItsUser checks that no user gets a directory that another user had, and that a spare directory
// belongs to the runner, so that nobody can change it meanwhile.
func TestSpareStaysWithItsUser(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root runs tasks for others")
	}
	dir := t.TempDir()
	s := sparesIn(t, dir)
	ada, bob := other(20001), other(20002)
	path := scratchOf(t, filepath.Join(dir, "task"), ada)
	if !s.keep(path, ada) {
		t.Fatal("an empty directory was not kept")
	}
	if is := inodeOf(t, s.all[0].path); is.Uid != 0 || is.Gid != uint32(os.Getegid()) {
		t.Errorf("a spare directory belongs to %d:%d, want 0 and %v", is.Uid, is.Gid, uint32(os.Getegid()))
	}
	for _, who := range []Account{bob, self(), {UID: ada.UID, GID: bob.GID, cred: ada.cred}} {
		if s.give(filepath.Join(dir, "next"), who) {
			t.Fatalf("user %d:%d got the directory of %d", who.UID, who.GID, ada.UID)
		}
	}
	if s.keep(scratchOf(t, filepath.Join(dir, "foreign"), bob), ada) {
		t.Error("a directory of another user was kept")
	}
	if !s.give(filepath.Join(dir, "next"), ada) {
		t.Error("its user did not get the directory")
	}
}

// TestSparesAreBounded checks that a user has few spare directories, and that those of a user who has gone make room.
func TestSparesAreBounded(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root runs tasks for others")
	}
	dir := t.TempDir()
	s := sparesIn(t, dir)
	keep := func(who Account, n int) bool {
		return s.keep(scratchOf(t, filepath.Join(dir, fmt.Sprintf("%d-%d", who.UID, n)), who), who)
	}
	for i := range maxSpares + 5 {
		if kept := keep(other(20001), i); kept != (i < maxSpares) {
			t.Fatalf("directory %d kept: %v, want %v", i, kept, (i < maxSpares))
		}
	}
	for i := range 10 * maxSpares {
		if kept := keep(other(20002), i); kept != (i < maxSpares) {
			t.Fatalf("directory %d of the second user kept: %v, want %v", i, kept, (i < maxSpares))
		}
	}
	entries, err := os.ReadDir(s.dir)
	if err != nil || len(entries) != maxSpares {
		t.Errorf("%d directories on disk, %v, want no error and %v", len(entries), err, maxSpares)
	}
	again, err := newSpares(s.dir) // as after the death of the runner
	if entries, _ := os.ReadDir(s.dir); err != nil || len(entries) != 0 || again.give(filepath.Join(dir, "next"), other(20002)) {
		t.Errorf("a new runner has %d spare directories, %v, want none", len(entries), err)
	}
}
