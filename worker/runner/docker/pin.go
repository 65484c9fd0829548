package docker

// Pins: an engine takes a mount's source by its path, and looks the path up
// again when the container starts. So it is given one that no user can change:
// a place of root's, on which the very file is mounted that was looked at.

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

// pins is a directory of such places, which is there as long as one is in use. It
// is a file system of its own, so that an engine which does not see this
// process's mounts finds nothing there rather than an empty directory, and so
// that all places go with it.
type pins struct {
	dir string

	mu   sync.Mutex
	used int // guarded by mu: places
	n    int // guarded by mu: the newest place
}

// pin mounts an open file or directory on a new place.
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
		_ = os.Remove(at) // nothing is on it
		return "", errors.Join(cause(err), p.leave())
	}
	return at, nil
}

// place is the path of a new one.
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

// leave gives a place back, and with the last of them the directory.
func (p *pins) leave() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.used--; p.used > 0 {
		return nil
	}
	return errors.Join(unix.Unmount(p.dir, unix.MNT_DETACH), os.Remove(p.dir))
}

// unpin takes places away; containers that have started keep what they show.
func (p *pins) unpin(places []string) error {
	var errs []error
	for _, at := range places {
		errs = append(errs, unix.Unmount(at, unix.MNT_DETACH), os.Remove(at), p.leave())
	}
	return errors.Join(errs...)
}

// show gives each of a container's mounts the path that the engine is told,
// and the places among them, which are to be taken away once it has started.
// Who is not root can show nothing that is not his engine's user's anyway, and
// an engine without root does not see root's places: they get the path itself.
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

// unseen says better what an engine means that does not find a place.
func unseen(err error, places []string) error {
	for _, at := range places {
		if err != nil && strings.Contains(err.Error(), at) {
			return fmt.Errorf("the Docker engine does not see the mounts of this node's daemon: it needs the same file systems: %w", err)
		}
	}
	return err
}
