package daemon

// The directory in which a daemon without a home or a runtime directory keeps its socket and its data.

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/internal/osuser"
)

// fallbackDir returns the path of the directory. It is in a directory where everybody can create files, so it may already
// exist, made by someone else.
func fallbackDir() string { return filepath.Join(os.TempDir(), fmt.Sprintf("muster-%d", os.Getuid())) }

// claimFallback makes the fallback directory if one of the paths is in it. If the directory exists, it checks that the
// directory is this user's alone.
func claimFallback(paths ...string) error {
	dir := fallbackDir()
	for _, p := range paths {
		if strings.HasPrefix(filepath.Clean(p), dir+"/") {
			return claim(dir)
		}
	}
	return nil
}

// claim makes a directory for this user alone. If it already exists, it must be a directory of this user to which nobody
// else may write, in a directory where nobody else can replace it.
func claim(dir string) error {
	refused := func(why string, of ...any) error {
		return fmt.Errorf("%s: %s; remove it, or set --socket and --data-dir to directories of your own", dir, fmt.Sprintf(why, of...))
	}
	if err := api.CheckDirectory(filepath.Dir(dir)); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return refused("it is not a directory of this user: %v", err)
	}
	defer unix.Close(fd) //nolint:errcheck // nothing was written to it
	var is syscall.Stat_t
	if err := syscall.Fstat(fd, &is); err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	switch {
	case int(is.Uid) != os.Geteuid():
		return refused("it belongs to user %s", osuser.ForPeople(int(is.Uid)))
	case is.Mode&0o022 != 0:
		return refused("others may write to it (mode %04o)", is.Mode&0o777)
	}
	if err := unix.Fchmod(fd, 0o700); err != nil { // earlier versions let others enter
		return fmt.Errorf("%s: %w", dir, err)
	}
	return nil
}
