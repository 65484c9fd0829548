package daemon

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFallbackDirectoryMustBelongToTheUser(t *testing.T) {
	t.Parallel()
	shared := func(mode os.FileMode) string {
		dir := t.TempDir()
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	at := func(parent string, make func(path string) error) string {
		path := filepath.Join(parent, "muster-1")
		if make != nil {
			if err := make(path); err != nil {
				t.Fatal(err)
			}
		}
		return path
	}
	sticky := os.ModeSticky | 0o777
	dirOf := func(mode os.FileMode) func(string) error {
		return func(path string) error {
			if err := os.Mkdir(path, 0o700); err != nil {
				return err
			}
			return os.Chmod(path, mode)
		}
	}
	for name, c := range map[string]struct {
		path string
		want string // a part of the error; empty: the directory is accepted
	}{
		"none yet":              {at(shared(sticky), nil), ""},
		"its own":               {at(shared(sticky), dirOf(0o700)), ""},
		"of an earlier version": {at(shared(sticky), dirOf(0o755)), ""},
		"open to others":        {at(shared(sticky), dirOf(0o777)), "others may write to it (mode 0777)"},
		"a link":                {at(shared(sticky), func(path string) error { return os.Symlink(t.TempDir(), path) }), "not a directory of this user"},
		"a file":                {at(shared(sticky), func(path string) error { return os.WriteFile(path, nil, 0o600) }), "not a directory of this user"},
		"others may replace it": {at(shared(0o777), nil), "others may write to the directory"},
	} {
		err := claim(c.path)
		if c.want == "" {
			if info, errStat := os.Stat(c.path); err != nil || errStat != nil || info.Mode().Perm() != 0o700 {
				t.Errorf("%s: got %v, %v, want a directory with mode 0700", name, err, info)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
	if os.Geteuid() != 0 {
		return
	}
	others := at(shared(sticky), func(path string) error {
		if err := os.Mkdir(path, 0o700); err != nil {
			return err
		}
		return os.Chown(path, 65534, 65534)
	})
	if err := claim(others); err == nil || !strings.Contains(err.Error(), "belongs to user") {
		t.Errorf("the directory of another user: got %v, want that it belongs to the user", err)
	}
}
