package spawn

// The input of a task whose client sends it some: a pipe, or a terminal that also takes its output.

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/worker/output"
	"github.com/musterhq/muster/worker/runner/protocol"
	"github.com/musterhq/muster/worker/runner/pump"
)

// pipedInput makes the pipe from which the task reads, as its standard input.
func (l *launch) pipedInput() error {
	var fds [2]int
	err := unix.Pipe2(fds[:], unix.O_CLOEXEC)
	if err == nil {
		l.ends = append(l.ends, fds[0])
		l.in, err = sinkOf(fds[1], "input")
	}
	if err == nil {
		err = l.who.give(fds[0]) // the task may open it as /dev/stdin
	}
	if err != nil {
		return fmt.Errorf("runner: make pipe for input: %w", err)
	}
	l.attr.Files[0] = uintptr(fds[0])
	return nil
}

// terminal makes the terminal that is the task's input and output.
func (s *Spawner) terminal(l *launch, w *output.Writer, in *protocol.Input, copies map[output.Stream]*pump.Copy) error {
	near, far, err := openTerminal(l.who.UID, in)
	if err != nil {
		pump.CloseCopies(copies)
		return fmt.Errorf("runner: make terminal: %w", err)
	}
	l.ends = []int{far}
	l.attr.Files = []uintptr{uintptr(far), uintptr(far), uintptr(far)}
	mine, err := unix.FcntlInt(uintptr(near), unix.F_DUPFD_CLOEXEC, 0)
	if err == nil {
		l.in, err = sinkOf(mine, "terminal")
	}
	if err != nil {
		pump.CloseCopies(copies)
		_ = unix.Close(near) // nothing was written
		return fmt.Errorf("runner: make terminal: %w", err)
	}
	l.out, err = s.Pump.OpenTerminal(w, near, copies)
	return err
}

// openTerminal opens a new terminal of this size, which user uid owns. It returns the descriptors of both ends.
func openTerminal(uid int, in *protocol.Input) (near, far int, err error) {
	near, err = unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, -1, fmt.Errorf("open /dev/ptmx: %w", err)
	}
	defer func() {
		if err != nil {
			_ = unix.Close(near) // nothing was written
		}
	}()
	n, err := unix.IoctlGetUint32(near, unix.TIOCGPTN)
	if err != nil {
		return -1, -1, err
	}
	if err := unix.IoctlSetPointerInt(near, unix.TIOCSPTLCK, 0); err != nil {
		return -1, -1, err
	}
	name := "/dev/pts/" + strconv.FormatUint(uint64(n), 10)
	far, err = unix.Open(name, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, -1, fmt.Errorf("open %s: %w", name, err)
	}
	if uid != os.Geteuid() {
		err = unix.Fchown(far, uid, -1) // so that the task can open it by its name
	}
	if err == nil {
		err = unix.IoctlSetWinsize(far, unix.TIOCSWINSZ, &unix.Winsize{Row: in.Rows, Col: in.Cols})
	}
	if err != nil {
		_ = unix.Close(far) // as above
	}
	return near, far, err
}

// sinkOf makes a file of the descriptor to which the input is written. A write that waits for the task to read can be
// ended by a deadline.
func sinkOf(fd int, name string) (*os.File, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		_ = unix.Close(fd) // nothing was written
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}
