package protocol

// Commands in a running task, as a daemon and a runner speak of them.
//
// They have a socket of their own, and each command a connection of its own. The
// daemon sends one byte with the command's descriptors: those that become standard
// input, output and error, or that of a terminal that becomes all three. An Exec
// frame follows. The runner answers with an ExecReport that the command runs, or
// why it does not, and later with one that says how it ended. Closing the
// connection ends the command.

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/job"
)

const (
	// MaxUserExecs bounds the commands in the tasks of one user.
	MaxUserExecs = 32
	// execWait bounds the wait for a connection's request.
	execWait = 5 * time.Second
)

// Command asks for a command in a task, or in its container.
type Command struct {
	Command    []string
	TTY        bool // with a terminal of its own
	Term       string
	Rows, Cols uint16
}

// Exec asks a runner for it.
type Exec struct {
	Attempt string   `json:"attempt"`
	Command []string `json:"command"`
	TTY     bool     `json:"tty,omitempty"` // one descriptor, of a terminal, came along; else three
	Term    string   `json:"term,omitempty"`
}

// ExecReport says what became of an Exec: first that it runs, or why not; then
// how it ended.
type ExecReport struct {
	PID    int    `json:"pid,omitempty"`
	Exited bool   `json:"exited,omitempty"`
	Code   int    `json:"code"` // of its end, or of what cannot be executed, as a shell's
	Error  string `json:"error,omitempty"`
}

// Validate says what is wrong with the request.
func (m Exec) Validate() error {
	if len(m.Command) == 0 || m.Command[0] == "" || len(m.Command) > job.MaxArgs {
		return fmt.Errorf("runner: exec: a command of 1 to %d words", job.MaxArgs)
	}
	for _, w := range append([]string{m.Term}, m.Command...) {
		if strings.ContainsRune(w, 0) {
			return errors.New("runner: exec: a word holds a zero byte")
		}
	}
	return attempts(m.Attempt)
}

// Validate says what is wrong with the report.
func (m ExecReport) Validate() error {
	if m.PID < 0 || m.Code < 0 {
		return errors.New("runner: exec: numbers below 0")
	}
	return nil
}

// SendExec sends a request with its descriptors; the caller keeps his own.
func SendExec(conn *net.UnixConn, m Exec, files []*os.File) error {
	frame, err := Frame(m)
	if err != nil {
		return err
	}
	fds := make([]int, len(files))
	for i, f := range files {
		fds[i] = int(f.Fd())
	}
	if _, _, err = conn.WriteMsgUnix([]byte{0}, unix.UnixRights(fds...), nil); err == nil {
		_, err = conn.Write(frame)
	}
	if err != nil {
		return fmt.Errorf("runner: ask for command: %w", err)
	}
	return nil
}

// ReadExecReport reads what a runner says of a command.
func ReadExecReport(conn net.Conn) (ExecReport, error) {
	var m ExecReport
	if err := readFrame(conn, &m); err != nil {
		return m, err
	}
	return m, m.Validate()
}

// ReadExec reads a request and its descriptors, which are the caller's.
func ReadExec(conn *net.UnixConn) (Exec, []*os.File, error) {
	var m Exec
	_ = conn.SetReadDeadline(time.Now().Add(execWait)) // a broken connection shows when it is read
	first, rights := make([]byte, 1), make([]byte, unix.CmsgSpace(3*4))
	_, n, _, _, err := conn.ReadMsgUnix(first, rights)
	if err != nil {
		return m, nil, err
	}
	var files []*os.File
	messages, err := unix.ParseSocketControlMessage(rights[:n])
	for i := range messages {
		fds, _ := unix.ParseUnixRights(&messages[i]) // without any there are too few
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			files = append(files, os.NewFile(uintptr(fd), "exec"))
		}
	}
	if err == nil {
		err = readFrame(conn, &m)
	}
	_ = conn.SetReadDeadline(time.Time{}) // as above
	if err = errors.Join(err, m.Validate()); err == nil && len(files) != map[bool]int{true: 1, false: 3}[m.TTY] {
		err = fmt.Errorf("runner: exec: %d descriptors", len(files))
	}
	return m, files, err
}
