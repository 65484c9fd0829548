package job

// Tasks that get input from a client: by a pipe, or by a terminal.

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Terminal is the size of a terminal, in characters.
type Terminal struct{ Rows, Cols uint16 }

// MinClientTimeout and MaxClientTimeout bound how long the client of a task may be gone before the task ends.
const (
	MinClientTimeout     = Duration(5 * time.Second) // a daemon may need some seconds to restart
	MaxClientTimeout     = Duration(24 * time.Hour)
	DefaultClientTimeout = Duration(5 * time.Minute)
)

// TakesInput reports whether the job's tasks get input from a client.
func (s Spec) TakesInput() bool { return s.Stdin || s.TTY != "" }

// String returns the text form: ROWSxCOLS.
func (t Terminal) String() string { return fmt.Sprintf("%dx%d", t.Rows, t.Cols) }

// ParseTerminal reads ROWSxCOLS, such as 24x80. Both numbers are at least 1.
func ParseTerminal(text string) (t Terminal, err error) {
	rows, cols, _ := strings.Cut(text, "x")
	r, errR := strconv.ParseUint(rows, 10, 16)
	c, errC := strconv.ParseUint(cols, 10, 16)
	if errR != nil || errC != nil || r == 0 || c == 0 {
		return t, fmt.Errorf("tty %.40q: want ROWSxCOLS, such as 24x80", text)
	}
	return Terminal{uint16(r), uint16(c)}, nil
}

// checkInput refuses what does not fit together with input. A task whose input was read cannot run again, because the
// input is gone.
func checkInput(s Spec) error {
	if !s.TakesInput() {
		return nil
	}
	if s.TTY != "" {
		if _, err := ParseTerminal(s.TTY); err != nil {
			return err
		}
	}
	switch {
	case s.TTY != "" && (s.Array != "" || len(s.EachLine) > 0 || s.Nodes > 1):
		return errors.New("tty: only for a job with one task")
	case s.Requeue:
		return errors.New("requeue: a job with stdin or tty cannot run again, because its input is gone; set requeue to false")
	case s.Retries > 0:
		return errors.New("retries: a job with stdin or tty cannot run again, because its input is gone")
	case s.CheckpointExitCode != 0:
		return errors.New("checkpoint_exit_code: a job with stdin or tty cannot run again, because its input is gone")
	}
	return nil
}
