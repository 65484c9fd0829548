package protocol

// The input of a task from its client, between a daemon and a runner.
//
// It uses the socket of commands (muster exec): the daemon sends an Exec with Attach, and the runner answers with an
// Intake. From then on the daemon sends input frames: one byte that says what it is, the length in four bytes,
// big-endian, and that number of bytes. The runner answers each frame with bytes, and the one that ends the input,
// with an Intake. Before that the daemon sends no further bytes, so the runner never holds more than one frame. Only
// one connection per task is open: a new one closes the older.

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
)

// The kinds of input frames.
const (
	InputBytes byte = 1 // for the task
	InputEnd   byte = 2 // the task reads end of file
	InputSize  byte = 3 // rows and columns of the terminal, two bytes each
)

// MaxInput bounds the bytes of one input frame.
const MaxInput = 32 << 10

// Intake says how much of its input a task has got. Taken counts bytes since its start, over all connections. A pipe
// may hold some that the task has not read.
type Intake struct {
	Taken int64 `json:"taken"`
	// Over says that the task gets no more input: it ended, or the task has closed it.
	Over  bool   `json:"over,omitempty"`
	Error string `json:"error,omitempty"` // why the task gets no input from this connection
}

// Validate returns an error if the message is not valid.
func (m Intake) Validate() error {
	if m.Taken < 0 {
		return errors.New("runner: intake: a number below 0")
	}
	return nil
}

// ReadIntake reads and checks an Intake.
func ReadIntake(conn net.Conn) (Intake, error) {
	var m Intake
	if err := readFrame(conn, &m); err != nil {
		return m, err
	}
	return m, m.Validate()
}

// WriteInput writes an input frame.
func WriteInput(w io.Writer, kind byte, p []byte) error {
	if len(p) > MaxInput {
		return fmt.Errorf("runner: input frame of %d bytes; at most %d", len(p), MaxInput)
	}
	frame := make([]byte, 5, 5+len(p))
	frame[0] = kind
	binary.BigEndian.PutUint32(frame[1:], uint32(len(p))) //nolint:gosec // bounded above
	_, err := w.Write(append(frame, p...))
	return err
}

// ReadInput reads an input frame into buf, which has MaxInput bytes.
func ReadInput(r io.Reader, buf []byte) (kind byte, p []byte, err error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n > MaxInput {
		return 0, nil, fmt.Errorf("runner: input frame of %d bytes; at most %d", n, MaxInput)
	}
	if _, err := io.ReadFull(r, buf[:n]); err != nil {
		return 0, nil, errors.Join(io.ErrUnexpectedEOF, err)
	}
	return head[0], buf[:n], nil
}

// SizeBytes and SizeOf convert the size of a terminal to the bytes of a frame and back.
func SizeBytes(rows, cols uint16) []byte {
	return binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, rows), cols)
}

// SizeOf is the inverse of SizeBytes. A size that is not valid is 0.
func SizeOf(p []byte) (rows, cols uint16) {
	if len(p) != 4 {
		return 0, 0
	}
	return binary.BigEndian.Uint16(p), binary.BigEndian.Uint16(p[2:])
}
