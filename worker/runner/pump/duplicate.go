package pump

// Copies of a task's output in files that its user named. They may lie on a file
// server that hangs: only their task waits for them.

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/worker/output"
)

// copyWait is how long the end of a task waits for its copies. Afterwards its exit
// is recorded without the end of its stderr.
const copyWait = 2 * time.Second

// Copy is a file that gets a copy of one or both streams.
type Copy struct {
	Path   string
	FD     int
	failed bool // a write failed, and the log says so
}

// CloseCopies closes each file once.
func CloseCopies(all map[output.Stream]*Copy) {
	closed := map[*Copy]bool{}
	for _, d := range all {
		if !closed[d] {
			closed[d] = true
			_ = unix.Close(d.FD) // what a write could not do was noted
		}
	}
}

// write adds to a copy. What fails is noted in the log once.
func (d *Copy) write(w *output.Writer, p []byte) {
	for len(p) > 0 {
		n, err := unix.Write(d.FD, p)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			if !d.failed {
				d.failed = true
				w.Note(fmt.Sprintf("%s: %v; it lacks output from here on", strings.ToValidUTF8(d.Path, "?"), err))
			}
			return
		default:
			p = p[n:]
		}
	}
}

// alone has the pipes of one task read by a goroutine of its own.
func (o *Outlet) alone() error {
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

// tailSoon waits for the copies to end, at most for copyWait.
func (o *Outlet) tailSoon() string {
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
