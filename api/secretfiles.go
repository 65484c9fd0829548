package api

// Files with secrets: only the user of this process may be able to read or replace them.

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	accounts "github.com/musterhq/muster/internal/osuser"
)

// ReadPrivate reads at most most bytes of a file with a secret. It returns an error if the file is not private: if it is a
// symbolic link or not a regular file, if its owner is not the user of this process, if other users may read or write it,
// or if they may replace it in its directory.
func ReadPrivate(path string, most int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0) // not blocked by a named pipe
	if errors.Is(err, unix.ELOOP) {
		return nil, fmt.Errorf("%s: it is a symbolic link; name the file itself", path)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	switch owner := ownerOf(info); {
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s: it is not a regular file", path)
	case owner != os.Geteuid():
		return nil, fmt.Errorf("%s: it belongs to user %s; a file with a secret must be %s's own", path, accounts.ForPeople(owner), accounts.ForPeople(os.Geteuid()))
	case info.Mode().Perm()&0o077 != 0:
		return nil, fmt.Errorf("%s: others may read or change it (mode %04o); run `chmod 600 %s`", path, info.Mode().Perm(), path)
	}
	if err := CheckDirectory(filepath.Dir(path)); err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(f, most))
}

// CheckDirectory returns an error if users can replace files of other users in a directory. Root and the user of this
// process may be able to.
func CheckDirectory(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	const othersWrite = 0o022
	switch owner := ownerOf(info); {
	case owner != 0 && owner != os.Geteuid():
		return fmt.Errorf("%s: the directory belongs to user %s, who could replace what is in it", path, accounts.ForPeople(owner))
	case info.Mode().Perm()&othersWrite != 0 && info.Mode()&os.ModeSticky == 0:
		return fmt.Errorf("%s: others may write to the directory (mode %04o) and could replace what is in it", path, info.Mode().Perm())
	}
	return nil
}

// ownerOf returns the uid of the owner of a file.
func ownerOf(info os.FileInfo) int {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(st.Uid)
	}
	return -1
}
