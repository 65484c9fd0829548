package protocol

// Commands in a running task (muster exec), between a daemon and a runner.
//
// They have a socket of their own, and each command a connection of its own. The daemon sends one byte with the
// command's descriptors: three that become standard input, output and error, or one of a terminal that becomes all
// three. An Exec frame follows. The runner answers with an ExecReport that the command runs, or why it does not, and
// later with one that says how it exited. Closing the connection ends the command.

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
	// MaxUserExecs bounds the commands that run in all tasks of one user at a time.
	MaxUserExecs = 32
	// execWait bounds the wait for the request on a new connection.
	execWait = 5 * time.Second
)

// Command is a command to run in a task or in its container.
type Command struct {
	Command    []string
	TTY        bool // it gets a terminal
	Term       string
	Rows, Cols uint16
}

// Exec asks a runner to run a command.
type Exec struct {
	Attempt string   `json:"attempt"`
	Command []string `json:"command"`
	TTY     bool     `json:"tty,omitempty"` // one descriptor, a terminal, was sent along; else three
	Term    string   `json:"term,omitempty"`
	// Attach asks to bring the input of the task instead; see Intake. No descriptor was sent along.
	Attach bool `json:"attach,omitempty"`
}

// ExecReport says what became of an Exec: first that it runs, or why not; then how it exited.
type ExecReport struct {
	PID    int    `json:"pid,omitempty"`
	Exited bool   `json:"exited,omitempty"`
	Code   int    `json:"code"` // exit code as a shell gives it, also for a command that cannot be executed
	Error  string `json:"error,omitempty"`
}

// Validate returns an error if the request is not valid.
func (m Exec) Validate() error {
	if m.Attach && len(m.Command) == 0 {
		return attempts(m.Attempt)
	}
	if m.Attach || len(m.Command) == 0 || m.Command[0] == "" || len(m.Command) > job.MaxArgs {
		return fmt.Errorf("runner: exec: want a command of 1 to %d words", job.MaxArgs)
	}
	for _, w := range append([]string{m.Term}, m.Command...) {
		if strings.ContainsRune(w, 0) {
			return errors.New("runner: exec: a word holds a zero byte")
		}
	}
	return attempts(m.Attempt)
}

// Validate returns an error if the report is not valid.
func (m ExecReport) Validate() error {
	if m.PID < 0 || m.Code < 0 {
		return errors.New("runner: exec: numbers below 0")
	}
	return nil
}

// SendExec sends a request with its descriptors. The caller still closes the files.
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

// descriptors is the number of descriptors that come with the request.
func (m Exec) descriptors() int {
	switch {
	case m.Attach:
		return 0
	case m.TTY:
		return 1
	}
	return 3
}

// ReadExecReport reads and checks a report.
func ReadExecReport(conn net.Conn) (ExecReport, error) {
	var m ExecReport
	if err := readFrame(conn, &m); err != nil {
		return m, err
	}
	return m, m.Validate()
}

// ReadExec reads and checks a request and its descriptors. The caller closes the files, also after an error.
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
		fds, _ := unix.ParseUnixRights(&messages[i]) // too few descriptors are an error below
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			files = append(files, os.NewFile(uintptr(fd), "exec"))
		}
	}
	if err == nil {
		err = readFrame(conn, &m)
	}
	_ = conn.SetReadDeadline(time.Time{}) // as above
	if err = errors.Join(err, m.Validate()); err == nil && len(files) != m.descriptors() {
		err = fmt.Errorf("runner: exec: %d descriptors", len(files))
	}
	return m, files, err
}
