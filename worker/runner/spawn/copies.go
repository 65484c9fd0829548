package spawn

// Opening the files that get copies of a task's output, as the task's user.

import (
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/worker/output"
	"github.com/musterhq/muster/worker/runner/protocol"
	"github.com/musterhq/muster/worker/runner/pump"
)

// copiesIn returns the directory of this host to which the paths of a task's output files are relative. It is "" for the
// scratch directory, with which they would be deleted.
func (l *launch) copiesIn(s *protocol.Start) string {
	if s.Workdir == "" && l.where != s.SubmitDir {
		return ""
	}
	return l.where
}

// copies opens the output files that a task's spec names, as this user. The map has an entry for each stream that has
// such a file. Without a directory dir, relative paths have none.
func copies(t *Order, who Account, dir string) (map[output.Stream]*pump.Copy, error) {
	all := map[output.Stream]*pump.Copy{}
	for stream, path := range map[output.Stream]string{output.Stdout: t.Start.Stdout, output.Stderr: t.Start.Stderr} {
		if path == "" {
			continue
		}
		if !filepath.IsAbs(path) {
			if dir == "" {
				continue
			}
			path = filepath.Join(dir, path)
		}
		if first := all[stream.Other()]; first != nil && first.Path == path {
			all[stream] = first
			continue
		}
		flags := unix.O_WRONLY | unix.O_CREAT | unix.O_APPEND | unix.O_CLOEXEC | unix.O_NOCTTY | unix.O_NONBLOCK
		if t.Attempt.N == 1 {
			flags |= unix.O_TRUNC
		}
		fd := -1
		err := who.As(func() (err error) {
			fd, err = unix.Open(path, flags, 0o644)
			return err
		})
		if err != nil {
			pump.CloseCopies(all)
			return nil, Refuse(CodeNotExecutable, "output file %s: %v", path, err)
		}
		all[stream] = &pump.Copy{Path: path, FD: fd}
	}
	return all, nil
}
