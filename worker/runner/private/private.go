// Package private gives a task a /tmp and a /dev/shm of its own. What a task leaves there is not in the way of others,
// and is gone with the task.
//
// Both are mounts in the mount namespace of the task (package pidspace): a directory that the caller provides is the task's
// /tmp, and a new tmpfs its /dev/shm. The kernel frees that tmpfs with the last process of the namespace, and charges
// each file in it to the control group of the process that wrote it.
//
// Some of what lies in the host's directories has to stay reachable, such as the working directory of the task, or a
// socket that its environment names. Kept says what, and Mount mounts it at the same path in the task's directory.
//
// See docs/adr, ADR 173.
package private

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// The directories of the host that a task has its own of.
const (
	tmp = iota
	shm
	places
)

var paths = [places]string{tmp: "/tmp", shm: "/dev/shm"}

// place is one of these directories on this host.
type place struct {
	path  string   // without symbolic links; empty: this host has none
	names []string // paths by which it is named
	flags uintptr  // of its mount, as far as they restrict what can be done there
	size  int64    // of its file system, in bytes
}

// restrictions are the flags of the host's mount that the task's own mount gets, too.
const restrictions = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC

// Mounter mounts the directories of tasks. Its methods are safe for concurrent use.
type Mounter struct{ places [places]place }

// New returns a Mounter for tasks whose files lie below dir. The error says why tasks on this host share its directories.
// It does not say whether the kernel permits the mounts: the caller tries one.
func New(dir string) (*Mounter, error) {
	m := &Mounter{}
	for i, path := range paths {
		p, err := placeAt(path)
		if errors.Is(err, os.ErrNotExist) && i != tmp {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("private /tmp: %w", err)
		}
		m.places[i] = p
	}
	abs, err := filepath.Abs(dir)
	if err == nil {
		abs, err = filepath.EvalSymlinks(abs)
	}
	if err != nil {
		return nil, fmt.Errorf("private /tmp: data directory: %w", err)
	}
	own, err := flagsOf(abs) // a task's /tmp is mounted from there
	if err != nil {
		return nil, fmt.Errorf("private /tmp: data directory: %w", err)
	}
	m.places[tmp].flags |= own
	for _, p := range m.places {
		if _, in := p.below(abs); in {
			return nil, fmt.Errorf("the data directory lies in %s", p.path)
		}
	}
	return m, nil
}

func placeAt(path string) (p place, err error) {
	if p.path, err = filepath.EvalSymlinks(path); err != nil {
		return place{}, err
	}
	if p.names = []string{path}; p.path != path {
		p.names = append(p.names, p.path)
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(p.path, &fs); err != nil {
		return place{}, &os.PathError{Op: "statfs", Path: p.path, Err: err}
	}
	p.flags = unix.MS_NOSUID | unix.MS_NODEV
	if more, err := flagsOf(p.path); err == nil {
		p.flags |= more
	}
	p.size = int64(fs.Blocks) * fs.Bsize //nolint:gosec // no memory has 2^63 bytes
	return p, nil
}

// flagsOf returns the restrictions of the mount that a path is in.
func flagsOf(path string) (uintptr, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(path, &fs); err != nil {
		return 0, &os.PathError{Op: "statfs", Path: path, Err: err}
	}
	return uintptr(fs.Flags) & restrictions, nil //nolint:gosec // ST_NOSUID and so on have the numbers of MS_NOSUID and so on
}

// below returns the first name in a path below the place; empty: it is the place itself.
func (p *place) below(path string) (name string, in bool) {
	for _, at := range p.names {
		rest, ok := strings.CutPrefix(path, at)
		if ok && (rest == "" || rest[0] == '/') {
			name, _, _ = strings.Cut(strings.TrimLeft(rest, "/"), "/")
			return name, true
		}
	}
	return "", false
}
