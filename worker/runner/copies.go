package runner

// Copies of a task's output in files that its user named, which may lie on a
// file server that hangs: nobody but the task waits for them.

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/worker/output"
)

// copyWait is how long the end of a task waits for its copies. Its log is
// closed then without them.
const copyWait = 2 * time.Second

// duplicate is one such file.
type duplicate struct {
	path   string
	fd     int
	failed bool // said so in the log
}

// copies opens the files that a task names, as its user, and gives them by
// stream; nil for none.
func (s *starter) copies(t *task, l *launch) (map[output.Stream]*duplicate, error) {
	all := map[output.Stream]*duplicate{}
	for stream, path := range map[output.Stream]string{output.Stdout: t.start.Stdout, output.Stderr: t.start.Stderr} {
		if path == "" {
			continue
		}
		if !filepath.IsAbs(path) {
			path = filepath.Join(l.where, path)
		}
		if first := all[stream.Other()]; first != nil && first.path == path {
			all[stream] = first
			continue
		}
		flags := unix.O_WRONLY | unix.O_CREAT | unix.O_APPEND | unix.O_CLOEXEC | unix.O_NOCTTY | unix.O_NONBLOCK
		if t.attempt.N == 1 {
			flags |= unix.O_TRUNC
		}
		fd, err := l.who.open(path, flags)
		if err != nil {
			closeCopies(all)
			return nil, refuse(codeNotExecutable, "output file %s: %v", path, err)
		}
		all[stream] = &duplicate{path: path, fd: fd}
	}
	return all, nil
}

func closeCopies(all map[output.Stream]*duplicate) {
	closed := map[*duplicate]bool{}
	for _, d := range all {
		if !closed[d] {
			closed[d] = true
			_ = unix.Close(d.fd) // what a write could not do was noted
		}
	}
}

// open opens a file as this user would: with his rights, and as his.
func (id identity) open(path string, flags int) (fd int, err error) {
	const mode = 0o644
	if id.cred == nil {
		return unix.Open(path, flags, mode)
	}
	own, err := unix.Getgroups()
	if err != nil {
		return -1, err
	}
	groups := make([]int, len(id.cred.Groups))
	for i, g := range id.cred.Groups {
		groups[i] = int(g)
	}
	// These are the calling thread's alone, and starters keep their threads.
	if err := unix.Setgroups(groups); err != nil {
		return -1, err
	}
	_, err1 := unix.SetfsgidRetGid(id.gid)
	_, err2 := unix.SetfsuidRetUid(id.uid)
	if err = errors.Join(err1, err2); err == nil {
		fd, err = unix.Open(path, flags, mode)
	}
	_, err1 = unix.SetfsuidRetUid(0)
	_, err2 = unix.SetfsgidRetGid(0)
	if back := errors.Join(err1, err2, unix.Setgroups(own)); back != nil {
		panic(fmt.Sprintf("runner: thread keeps the rights of user %d: %v", id.uid, back)) // root may always go back
	}
	return fd, err
}

// write adds to a copy. What fails is noted in the log once.
func (d *duplicate) write(w *output.Writer, p []byte) {
	for len(p) > 0 {
		n, err := unix.Write(d.fd, p)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			if !d.failed {
				d.failed = true
				w.Note(fmt.Sprintf("%s: %v; it lacks output from here on", strings.ToValidUTF8(d.path, "?"), err))
			}
			return
		default:
			p = p[n:]
		}
	}
}

// alone has the pipes of one task read in a goroutine of its own.
func (o *outlet) alone() error {
	p, err := newPump(o.pump.log)
	if err != nil {
		return err
	}
	o.pump = p
	go func() {
		p.run()
		closeCopies(o.copies)
		p.close()
	}()
	return nil
}

// tailSoon waits for the end of the copies, but not for ever.
func (o *outlet) tailSoon() string {
	late := time.NewTimer(copyWait)
	defer late.Stop()
	select {
	case tail := <-o.tail:
		return tail
	case <-late.C:
		o.pump.log.Warn("a copy of a task's output hangs; the task's end does not wait for it")
		return ""
	}
}
