package runner

// Opening the files that get copies of a task's output, as the task's user.

import (
	"errors"
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/worker/output"
)

// copies opens the output files that a task names, as its user. They come by stream:
// an empty map if it names none.
func (s *starter) copies(t *Order, l *launch) (map[output.Stream]*duplicate, error) {
	all := map[output.Stream]*duplicate{}
	for stream, path := range map[output.Stream]string{output.Stdout: t.Start.Stdout, output.Stderr: t.Start.Stderr} {
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
		if t.Attempt.N == 1 {
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

// open opens a file with the rights of this user. What it creates belongs to the user.
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
