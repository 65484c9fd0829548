package docker

// Pins: bind mounts of the sources of a container's mounts.
// An engine takes a mount's source as a path, and resolves the path again when the container starts. A user could
// replace a directory of the path meanwhile. So the engine gets a path that no user can change: a bind mount, in a
// directory of root, of the very file that was checked.

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/runner/spawn"
)

// pins is a directory of bind mounts. It is mounted while at least one is in use. It is a tmpfs of its own for two
// reasons: an engine that does not see this process's mounts finds no file there, rather than an empty one; and
// unmounting it removes all of them.
type pins struct {
	dir string

	mu   sync.Mutex
	used int // guarded by mu; bind mounts in use
	n    int // guarded by mu; number of the newest
}

// pin bind-mounts an open file or directory and returns the new path.
func (p *pins) pin(f *os.File) (string, error) {
	at, err := p.place()
	if err != nil {
		return "", err
	}
	info, err := f.Stat()
	switch {
	case err != nil:
	case info.IsDir():
		err = os.Mkdir(at, 0o700)
	default:
		err = os.WriteFile(at, nil, 0o600)
	}
	if err == nil {
		err = unix.Mount(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), at, "", unix.MS_BIND|unix.MS_REC, "")
	}
	if err != nil {
		_ = os.Remove(at) // nothing is mounted on it
		return "", errors.Join(cause(err), p.leave())
	}
	return at, nil
}

// place returns a new path, and mounts the directory for the first one.
func (p *pins) place() (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.used == 0 {
		if err := os.Mkdir(p.dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return "", cause(err)
		}
		if err := unix.Mount("muster", p.dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=0700,size=1m"); err != nil {
			return "", err
		}
	}
	p.used++
	p.n++
	return filepath.Join(p.dir, strconv.Itoa(p.n)), nil
}

// leave counts one path less, and unmounts the directory after the last one.
func (p *pins) leave() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.used--; p.used > 0 {
		return nil
	}
	return errors.Join(unix.Unmount(p.dir, unix.MNT_DETACH), os.Remove(p.dir))
}

// unpin unmounts paths. Containers that have started keep their mounts.
func (p *pins) unpin(places []string) error {
	var errs []error
	for _, at := range places {
		errs = append(errs, unix.Unmount(at, unix.MNT_DETACH), os.Remove(at), p.leave())
	}
	return errors.Join(errs...)
}

// show returns the path that the engine is given for each of a container's mounts, and the bind mounts among them,
// which are unmounted once the container has started. Without root, and for a rootless engine, the engine gets the
// original path: without root, no user gains access to files of others, and a rootless engine does not see root's bind
// mounts.
func (p *pins) show(b spawn.Container, f facts) (paths, places []string, err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, p.unpin(places))
			places = nil
		}
	}()
	for i, text := range b.Mounts {
		m, err := job.ParseMount(text)
		if err != nil {
			return nil, places, err
		}
		path, err := allowed(m, b.Sources[i], b.Allowed)
		if err != nil {
			return nil, places, err
		}
		if os.Geteuid() == 0 && !f.rootless {
			if path, err = p.pin(b.Sources[i]); err != nil {
				return nil, places, fmt.Errorf("mount %s: cannot be held for the engine: %w", m.Source, err)
			}
			places = append(places, path)
		}
		paths = append(paths, path)
	}
	return paths, places, nil
}

// unseen explains the error of an engine that does not see a bind mount. In all other errors it names the directory or
// file of the host in place of the bind mount, which users do not know.
func unseen(err error, places, mounts []string) error {
	if err == nil {
		return nil
	}
	for _, at := range places {
		if strings.Contains(err.Error(), "bind source path does not exist: "+at) {
			return fmt.Errorf("the Docker engine does not see the mounts of this node's daemon: it needs the same file systems: %w", err)
		}
	}
	for i, at := range places {
		m, errMount := job.ParseMount(mounts[i])
		if errMount == nil && strings.Contains(err.Error(), strconv.Quote(at)) {
			return fmt.Errorf("mount %s: the Docker engine cannot mount it at %s: %w", m.Source, m.Target, &mountError{err})
		}
	}
	return err
}

// mountError is an engine's error about a mount. Its text is the reason alone, without the paths of the engine.
type mountError struct{ err error }

func (m *mountError) Unwrap() error { return m.err }

func (m *mountError) Error() string {
	text := strings.TrimSuffix(m.err.Error(), ": unknown")
	switch {
	case strings.Contains(text, "not a directory"):
		return "one of them is a directory, and the other a file"
	case strings.Contains(text, "read-only file system"):
		return "the target is in a part of the container that cannot be written"
	}
	return text
}
