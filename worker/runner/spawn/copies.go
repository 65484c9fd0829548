package spawn

// Opening the files that get copies of a task's output, as the task's user.

import (
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/worker/output"
	"github.com/musterhq/muster/worker/runner/pump"
)

// copies opens the output files that a task's spec names, as the task's user. The map has an entry for each stream
// that has such a file.
func (s *Spawner) copies(t *Order, l *launch) (map[output.Stream]*pump.Copy, error) {
	all := map[output.Stream]*pump.Copy{}
	for stream, path := range map[output.Stream]string{output.Stdout: t.Start.Stdout, output.Stderr: t.Start.Stderr} {
		if path == "" {
			continue
		}
		if !filepath.IsAbs(path) {
			if t.Start.Workdir == "" && l.where != t.Start.SubmitDir {
				continue // it would be deleted with the scratch directory
			}
			path = filepath.Join(l.where, path)
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
		err := l.who.As(func() (err error) {
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
