package api

// The client's side of the input of a task. It survives broken connections and restarts of daemons.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/coder/websocket"

	"github.com/musterhq/muster/job"
)

// Input is what a client sends to a task.
type Input struct {
	From    io.Reader
	Began   func()                     // called once, when the task takes input for the first time; may be nil
	Size    func() (rows, cols uint16) // of the client's terminal; nil: From is not a terminal
	Resized <-chan struct{}            // receives when Size has changed; may be nil
}

// ErrHungUp says that the client's terminal is gone.
var ErrHungUp = errors.New("the terminal is gone")

// InputEnd says how much of the input was sent.
type InputEnd struct {
	Read  int64 // bytes read from the client
	Whole bool  // the task has read all input, or reads no more
}

// lastWord bounds the wait for the answer when a client that ends sends the end of its input.
const lastWord = 2 * time.Second

// SendInput sends input to a task, from the start of the task until the input or the task ends. It connects again when a
// connection breaks. If ctx ends before anything was read from the client, the task reads end of file, so that it can go on
// without its client. The InputEnd is also correct after an error.
func (c *Client) SendInput(ctx context.Context, id job.ID, task int, in Input) (InputEnd, error) {
	s := &inputSender{in: in, chunks: make(chan []byte), job: id}
	over := make(chan struct{})
	defer close(over)
	go readInput(in.From, s.chunks, over)
	for breaks := 0; ; breaks++ {
		conn, err := c.dialTask(ctx, id, task, "/attach?follow=true")
		if err == nil {
			var some bool
			some, err = s.run(ctx, conn)
			if some {
				breaks = 0
			}
		}
		switch {
		case err == nil, ctx.Err() != nil:
			return s.end(), ctx.Err()
		case errors.Is(err, errInputLost), errors.Is(err, ErrHungUp):
			return s.end(), err
		}
		again, err := c.attachAgain(ctx, id, task, breaks, err)
		if !again {
			return s.end(), err
		}
		pause(ctx, min(breaks, 6))
	}
}

// attachAgain decides whether to connect again after an error. It returns false and no error if the task has ended.
func (c *Client) attachAgain(ctx context.Context, id job.ID, task, breaks int, err error) (again bool, _ error) {
	t, asked := c.oneTask(ctx, id, task)
	switch {
	case asked == nil && t.State.Ended():
		return false, nil
	case ctx.Err() != nil:
		return false, ctx.Err()
	case errors.Is(err, ErrConflict), asked == nil && mayReturn(err): // the task may have just ended, or not have started
		return true, nil
	case mayReturn(err) && breaks < maxBreaks:
		return true, nil
	}
	return false, err
}

// oneTask returns one task of a job.
func (c *Client) oneTask(ctx context.Context, id job.ID, task int) (Task, error) {
	l, err := c.Tasks(ctx, id, TaskFilter{Tasks: []job.Range{{First: task, Last: task}}})
	if err == nil && len(l.Items) == 0 {
		err = ErrNotFound
	}
	if err != nil {
		return Task{}, err
	}
	return l.Items[0], nil
}

// readInput passes on what it reads until the end of the input, then closes chunks.
func readInput(from io.Reader, chunks chan<- []byte, over <-chan struct{}) {
	defer close(chunks)
	for {
		buf := make([]byte, execChunk)
		n, err := from.Read(buf)
		if n > 0 {
			select {
			case chunks <- buf[:n]:
			case <-over:
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// errInputLost says that the task was restarted: the new attempt lacks input that the earlier one has read, and that the
// client no longer has.
var errInputLost = errors.New("its task was started anew, and input that it had is gone")

// inputSender holds the input that was read from the client and that the task has not read.
type inputSender struct {
	in     Input
	job    job.ID
	chunks chan []byte
	buf    []byte
	base   int64 // offset of buf in the input
	read   int64
	ended  bool // the input ends after buf
	over   bool // the task has read all input, or reads no more
	began  bool
}

func (s *inputSender) end() InputEnd { return InputEnd{Read: s.read, Whole: s.over} }

// feeding is the state of one connection.
type feeding struct {
	*inputSender

	conn     *websocket.Conn
	attached bool  // the host has said how much the task has read
	some     bool  // the host has answered again since: the connection works
	sent     int64 // offset of the next byte to send
	endSent  bool
}

// run sends input over one connection. It returns nil if the task needs no more input. some says whether the host has
// confirmed input over this connection.
func (s *inputSender) run(ctx context.Context, conn *websocket.Conn) (some bool, err error) {
	defer conn.CloseNow() //nolint:errcheck // after a close it does nothing
	conn.SetReadLimit(maxExecInput)
	on, cancel := context.WithCancel(context.WithoutCancel(ctx)) // lastWord still sends after ctx has ended
	defer cancel()
	states, broken := make(chan attachState), make(chan error, 1)
	go func() { broken <- readStates(on, conn, states) }()
	f := &feeding{inputSender: s, conn: conn}
	for !s.over && err == nil {
		if err = f.send(on); err != nil {
			break
		}
		chunks, resized := s.wants(f.attached)
		select {
		case p, ok := <-chunks:
			err = s.add(p, ok)
		case <-resized:
			err = f.sendSize(on)
		case state := <-states:
			err = f.hear(on, state)
		case err = <-broken:
		case <-ctx.Done():
			return f.some, f.lastWord(on, states, ctx.Err())
		}
	}
	if err == nil {
		_ = conn.Close(websocket.StatusNormalClosure, "") // the exchange is complete
	}
	return f.some, err
}

// wants returns the channels to receive from now: chunks while buf has room, and resized once attached.
func (s *inputSender) wants(attached bool) (chunks <-chan []byte, resized <-chan struct{}) {
	if !s.ended && len(s.buf) <= InputWindow-execChunk {
		chunks = s.chunks
	}
	if attached {
		resized = s.in.Resized
	}
	return chunks, resized
}

// add adds a chunk to buf, or notes the end of the input.
func (s *inputSender) add(p []byte, more bool) error {
	s.buf, s.ended, s.read = append(s.buf, p...), !more, s.read+int64(len(p))
	if s.ended && s.in.Size != nil {
		return ErrHungUp
	}
	return nil
}

// lastWord ends the input of a task if its client ends before anything was read, and waits for the answer.
func (f *feeding) lastWord(ctx context.Context, states <-chan attachState, why error) error {
	if !f.attached || f.read > 0 || f.in.Size != nil {
		return why
	}
	f.ended = true
	late := time.NewTimer(lastWord)
	defer late.Stop()
	for err := f.send(ctx); err == nil && !f.over; {
		select {
		case state := <-states:
			err = f.hear(ctx, state)
		case <-late.C:
			return why
		}
	}
	return why
}

// hear handles a message of the host.
func (f *feeding) hear(ctx context.Context, state attachState) error {
	f.some = f.some || f.attached
	if err := f.taken(state); err != nil || f.attached {
		return err
	}
	f.attached, f.sent = true, f.base
	return f.sendSize(ctx)
}

// send sends the part of buf that was not sent over this connection yet.
func (f *feeding) send(ctx context.Context) error {
	if !f.attached {
		return nil
	}
	for int(f.sent-f.base) < len(f.buf) {
		p := f.buf[f.sent-f.base:]
		p = p[:min(len(p), execChunk)]
		if err := f.conn.Write(ctx, websocket.MessageBinary, append([]byte{execStdin}, p...)); err != nil {
			return brokenInput(err)
		}
		f.sent += int64(len(p))
	}
	if !f.ended || f.endSent {
		return nil
	}
	f.endSent = true
	if err := f.conn.Write(ctx, websocket.MessageBinary, []byte{execStdin}); err != nil {
		return brokenInput(err)
	}
	return nil
}

func brokenInput(err error) error {
	return &unreachable{text: "the connection that brings input broke: " + cause(err), cause: err}
}

// sendSize sends the present size of the client's terminal.
func (f *feeding) sendSize(ctx context.Context) error {
	if f.in.Size == nil {
		return nil
	}
	rows, cols := f.in.Size()
	return send(ctx, f.conn, execResize, execSize{rows, cols})
}

// taken drops the input that the task has read.
func (s *inputSender) taken(state attachState) error {
	n := state.Taken - s.base
	if n < 0 || n > int64(len(s.buf)) {
		return fmt.Errorf("input of job %s: %w", s.job, errInputLost)
	}
	s.buf, s.base, s.over = s.buf[n:], state.Taken, state.Over
	if !s.began && s.in.Began != nil {
		s.in.Began()
	}
	s.began = true
	return nil
}

// readStates passes on the host's messages until the connection breaks.
func readStates(ctx context.Context, conn *websocket.Conn, states chan<- attachState) error {
	for {
		_, m, err := conn.Read(ctx)
		if err != nil {
			return brokenInput(err)
		}
		var state attachState
		switch {
		case len(m) > 1 && m[0] == execEnd:
			var over execOver
			if err := json.Unmarshal(m[1:], &over); err != nil {
				return fmt.Errorf("attach: %w", err)
			}
			return fmt.Errorf("%w: %s", ErrConflict, over.Error)
		case len(m) > 1 && m[0] == attachTaken:
			if err := json.Unmarshal(m[1:], &state); err != nil {
				return fmt.Errorf("attach: %w", err)
			}
		default:
			continue
		}
		select {
		case states <- state:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
