package spawn

// The sources of a container's mounts. They are opened once, with the rights of the task's user, and kept open, so
// that nobody can put another file in their place.

import (
	"context"
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/userfile"
)

// Sources are the files and directories to mount, in the order of the mounts, opened with O_PATH. An entry is nil if
// its path does not exist.
type Sources []*os.File

// Close closes the files.
func (all Sources) Close() {
	for _, f := range all {
		if f != nil {
			_ = f.Close() // nothing was written
		}
	}
}

// sources opens the mounts' sources. It returns an error if the user may not reach one: inside a container the parent
// directories, which keep the user out on the host, do not protect it. It waits at most until ctx ends or s.answer
// has passed.
func (s *Spawner) sources(ctx context.Context, who Account, mounts []string) (Sources, error) {
	if len(mounts) == 0 {
		return nil, nil
	}
	return look(ctx, s, UserName(who), func() (Sources, error) { return openSources(who, mounts) }, Sources.Close,
		Refuse(CodeNotExecutable, "ended while its mounts did not answer on this node"),
		RefuseHere("a mount did not answer within %s on this node: %q", s.answer, mounts))
}

func openSources(who Account, mounts []string) (all Sources, err error) {
	err = who.As(func(t userfile.Thread) (err error) {
		all, err = sourcesOf(t, who, mounts)
		return err
	})
	if err != nil {
		all.Close()
		return nil, err
	}
	return all, nil
}

// sourcesOf opens the sources as this user. The caller closes what was opened before an error.
func sourcesOf(t userfile.Thread, who Account, mounts []string) (all Sources, err error) {
	for _, text := range mounts {
		m, err := job.ParseMount(text)
		if err != nil {
			return all, err
		}
		fd, err := t.Open(unix.AT_FDCWD, m.Source, unix.O_PATH, 0)
		switch {
		case err == nil:
			all = append(all, os.NewFile(uintptr(fd), m.Source))
		case errors.Is(err, unix.ENOENT):
			all = append(all, nil)
		case errors.Is(err, unix.EACCES):
			return all, Refuse(CodeNotExecutable, "mount %s: user %s may not see it on this node", m.Source, UserName(who))
		default:
			return all, refuseFor(err, "mount %s: %v", m.Source, err)
		}
	}
	return all, nil
}
