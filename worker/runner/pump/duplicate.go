package pump

// Copies of a task's output in files that its user named (-o and -e). The log has the output as well, for muster logs, the
// tail of stderr and the bound. If the task wrote to the file itself, there would be no log. Such a file may lie on a file
// server that hangs; then only its own task waits, because that task has a goroutine of its own.

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/worker/userfile"

	"github.com/musterhq/muster/worker/output"
)

// copyWait is how long a task's exit waits for the copies of its output. After that the exit is recorded without the
// last lines of stderr.
const copyWait = 2 * time.Second

// Copy is a file that gets a copy of one or both streams.
type Copy struct {
	Path string
	FD   int
	// Rights are those of the user, with which it is written. Root's would write beyond the user's disk quota, and keep
	// the setuid bit of a file that somebody else owns.
	Rights userfile.Rights
	failed bool // a write failed, which the task's log says
}

// CloseCopies closes each file once.
func CloseCopies(all map[output.Stream]*Copy) {
	closed := map[*Copy]bool{}
	for _, d := range all {
		if !closed[d] {
			closed[d] = true
			_ = unix.Close(d.FD) // failed writes are noted in the log
		}
	}
}

// write appends p to the copy. The first error is passed to note, for the task's log.
func (d *Copy) write(note func(text string), p []byte) {
	err := userfile.As(d.Rights, func(userfile.Thread) error { return writeAll(d.FD, p) })
	if err != nil && !d.failed {
		d.failed = true
		note(fmt.Sprintf("%s: %v; it lacks output from here on", strings.ToValidUTF8(d.Path, "?"), err))
	}
}

func writeAll(fd int, p []byte) error {
	for len(p) > 0 {
		n, err := unix.Write(fd, p)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		p = p[max(n, 0):]
	}
	return nil
}

// ownPump gives the task a pump of its own, in a goroutine of its own.
func (o *Outlet) ownPump() error {
	p, err := New(o.pump.log)
	if err != nil {
		return err
	}
	o.pump = p
	go func() {
		p.Run()
		CloseCopies(o.copies)
		p.close()
	}()
	return nil
}

// awaitTail waits at most copyWait for the end of the output and returns the last lines of stderr, or "" if the wait
// was too long.
func (o *Outlet) awaitTail() string {
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
