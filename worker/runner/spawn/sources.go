package spawn

// What a container's mounts show: looked up once, with the eyes of the task's
// user, and held from then on, so that nothing else is put in its place.

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/job"
)

// Sources are the files and directories of mounts, in the order of those, opened
// for their place alone; nil where there is none.
type Sources []*os.File

// Close lets go of them.
func (all Sources) Close() {
	for _, f := range all {
		if f != nil {
			_ = f.Close() // nothing was written
		}
	}
}

// sources looks the mounts up, and says which of them the user could not reach
// by himself: inside, the directories above it would not be there to keep him
// out. What does not answer is not waited for beyond ctx, or for long.
func (s *Spawner) sources(ctx context.Context, who Account, mounts []string) (Sources, error) {
	if len(mounts) == 0 {
		return nil, nil
	}
	type found struct {
		all Sources
		err error
	}
	answer := make(chan found)
	over := make(chan struct{})
	defer close(over)
	go func() {
		all, err := openSources(who, mounts)
		select {
		case answer <- found{all, err}:
		case <-over:
			all.Close()
		}
	}()
	late := time.NewTimer(s.answer)
	defer late.Stop()
	select {
	case f := <-answer:
		return f.all, f.err
	case <-ctx.Done():
		return nil, Refuse(CodeNotExecutable, "ended while its mounts did not answer on this node")
	case <-late.C:
		return nil, Refuse(CodeNotExecutable, "a mount did not answer within %s on this node: %q", s.answer, mounts)
	}
}

func openSources(who Account, mounts []string) (all Sources, err error) {
	defer func() {
		if err != nil {
			all.Close()
			all = nil
		}
	}()
	for _, text := range mounts {
		m, err := job.ParseMount(text)
		if err != nil {
			return all, err
		}
		fd := -1
		err = who.As(func() (err error) {
			fd, err = unix.Open(m.Source, unix.O_PATH|unix.O_CLOEXEC, 0)
			return err
		})
		switch {
		case err == nil:
			all = append(all, os.NewFile(uintptr(fd), m.Source))
		case errors.Is(err, unix.ENOENT):
			all = append(all, nil)
		case errors.Is(err, unix.EACCES):
			return all, Refuse(CodeNotExecutable, "mount %s: user %s may not see it on this node", m.Source, UserName(who))
		default:
			return all, Refuse(CodeNotExecutable, "mount %s: %v", m.Source, err)
		}
	}
	return all, nil
}
