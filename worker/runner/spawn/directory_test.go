package spawn

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/runner/protocol"
)

// TestStartTakesAnUnusedDirectory checks when a start takes the directory of an ended attempt. In every other case it
// makes one, and leaves the other as it is.
func TestStartTakesAnUnusedDirectory(t *testing.T) {
	t.Parallel()
	in := func(dir string, name string) string { return filepath.Join(dir, name) }
	for name, c := range map[string]struct {
		change func(path string) error // nil: as it was left
		taken  bool
	}{
		"as left":             {taken: true},
		"gone":                {change: os.Remove},
		"scratch still there": {change: func(path string) error { return os.Mkdir(in(path, "scratch"), 0o700) }},
		"file":                {change: func(path string) error { return os.WriteFile(in(path, "script"), nil, 0o700) }},
		"mode":                {change: func(path string) error { return os.Chmod(path, 0o755) }},
		"sticky":              {change: func(path string) error { return os.Chmod(path, 0o711|os.ModeSticky) }},
		"attribute":           {change: func(path string) error { return unix.Setxattr(path, "user.muster", []byte("x"), 0) }},
		"other owner":         {change: func(path string) error { return os.Chown(path, 20001, 20001) }},
		"other group":         {change: func(path string) error { return os.Chown(path, -1, 20001) }},
		"grown": {change: func(path string) error {
			for range 400 { // the names alone need more than a block
				f, err := os.CreateTemp(path, "a-name-that-needs-some-space-in-the-directory-*")
				if err != nil {
					return err
				}
				_ = f.Close()
			}
			names, err := filepath.Glob(in(path, "*"))
			for _, n := range names {
				err = errors.Join(err, os.Remove(n))
			}
			if is := new(unix.Stat_t); unix.Lstat(path, is) != nil || is.Size <= maxSpareBytes {
				return errors.New("this file system gives the space of names back")
			}
			return err
		}},
		"file instead": {change: func(path string) error {
			return errors.Join(os.Remove(path), os.WriteFile(path, nil, 0o711))
		}},
		"link instead": {change: func(path string) error {
			return errors.Join(os.Rename(path, path+"-moved"), os.Symlink(path+"-moved", path))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &Spawner{dir: protocol.Dir(t.TempDir())}
			if err := s.dir.Make(); err != nil {
				t.Fatal(err)
			}
			start := func(n int, spare string) error {
				return s.makeDir(&Order{Attempt: attemptOf(n), Start: &protocol.Start{Spare: spare}})
			}
			if err := start(1, ""); err != nil {
				t.Fatal(err)
			}
			old, path := s.dir.Task(attemptOf(1)), s.dir.Task(attemptOf(2))
			first := inodeOf(t, old)
			kept, err := os.Open(old) // no other directory gets its number while it is open
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = kept.Close() }()
			if c.change != nil {
				if err := c.change(old); err != nil {
					t.Skip(err) // for instance only root may do this
				}
			}
			if err := start(2, attemptOf(1).String()); err != nil {
				t.Fatal(err)
			}
			second := inodeOf(t, path)
			if (second.Ino == first.Ino) != c.taken {
				t.Errorf("taken: %v, want the opposite", !c.taken)
			}
			if second.Mode != first.Mode || second.Uid != first.Uid || second.Gid != first.Gid || second.Nlink != 2 {
				t.Errorf("%+v is not like a new directory: %+v", second, first)
			}
			if _, err := os.Lstat(old); (err == nil) == (c.taken || name == "gone") {
				t.Errorf("the old directory: %v, want it gone only if it was taken", err)
			}
			if err := start(2, attemptOf(1).String()); !errors.Is(err, os.ErrExist) {
				t.Errorf("the attempt began twice: %v, want os.ErrExist", err)
			}
			if err := start(3, attemptOf(3).String()); err != nil {
				t.Errorf("under its own name: %v", err)
			}
		})
	}
}

// TestStartedAttemptTakesNoSpareDirectory checks that an attempt that was started before does not take a directory.
func TestStartedAttemptTakesNoSpareDirectory(t *testing.T) {
	t.Parallel()
	s := &Spawner{dir: protocol.Dir(t.TempDir())}
	if err := s.dir.Make(); err != nil {
		t.Fatal(err)
	}
	for n := 1; n <= 2; n++ {
		if err := s.makeDir(&Order{Attempt: attemptOf(n), Start: &protocol.Start{}}); err != nil {
			t.Fatal(err)
		}
	}
	before := inodeOf(t, s.dir.Task(attemptOf(1))).Ino
	err := s.makeDir(&Order{Attempt: attemptOf(2), Start: &protocol.Start{Spare: attemptOf(1).String()}})
	if !errors.Is(err, os.ErrExist) || inodeOf(t, s.dir.Task(attemptOf(1))).Ino != before {
		t.Errorf("start again: %v, want os.ErrExist and the same directory", err)
	}
}

func attemptOf(n int) job.Attempt { return job.Attempt{Job: job.NewID(7, 1), Task: n, N: 1} }
