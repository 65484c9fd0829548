package spawn

// Opening the files that get copies of a task's output, as the task's user.

import (
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/worker/output"
	"github.com/musterhq/muster/worker/runner/pump"
	"github.com/musterhq/muster/worker/userfile"
)

// copies opens the output files of a process, as its user.
func (l *launch) copies(o *Order) (all map[output.Stream]*pump.Copy, err error) {
	if o.Start.Stdout == "" && o.Start.Stderr == "" {
		return nil, nil
	}
	err = l.who.As(func(t userfile.Thread) (err error) {
		all, err = openCopies(t, o, l.who, l.workdir)
		return err
	})
	return all, err
}

// openCopies opens the output files that a task's spec names, as this user. The map has an entry for each stream that
// has such a file. Relative paths are in the directory dir. In a scratch directory they have no file, because it would be
// deleted with the directory.
func openCopies(t userfile.Thread, o *Order, who Account, dir workdir) (map[output.Stream]*pump.Copy, error) {
	all := map[output.Stream]*pump.Copy{}
	for stream, path := range map[output.Stream]string{output.Stdout: o.Start.Stdout, output.Stderr: o.Start.Stderr} {
		if path == "" || dir.fd < 0 && !filepath.IsAbs(path) {
			continue
		}
		full := dir.abs(path)
		if first := all[stream.Other()]; first != nil && first.Path == full {
			all[stream] = first
			continue
		}
		flags := unix.O_WRONLY | unix.O_CREAT | unix.O_APPEND
		if o.Attempt.N == 1 {
			flags |= unix.O_TRUNC
		}
		fd, err := dir.open(t, path, flags, 0o644)
		if err != nil {
			pump.CloseCopies(all)
			return nil, refuseFor(err, "output file %s: %v", full, err)
		}
		all[stream] = &pump.Copy{Path: full, FD: fd, Rights: who.cred}
	}
	return all, nil
}
