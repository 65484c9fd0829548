package rogue

// A session as raw frames.

import (
	"bufio"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/p2p/session"
	"github.com/musterhq/muster/p2p/wirepb"
)

var (
	errNotAccepted = errors.New("rogue: the session was not accepted")
	boolTrue       = protoreflect.ValueOfBool(true)
)

// Session is a session with another daemon, after the greeting. One goroutine may read while others send.
type Session struct {
	Peer   job.Peer // the other daemon
	stream network.Stream
	in     *bufio.Reader
	mu     sync.Mutex // one writer at a time
}

func newSession(p job.Peer, stream network.Stream) *Session {
	return &Session{Peer: p, stream: stream, in: bufio.NewReader(stream)}
}

// Frame returns the frame of a message: a *wirepb.Offer, for example.
func Frame(m proto.Message) *wirepb.Frame {
	f := &wirepb.Frame{}
	body := f.ProtoReflect().Descriptor().Oneofs().ByName("body").Fields()
	for i := range body.Len() {
		if of := body.Get(i); of.Message().FullName() == m.ProtoReflect().Descriptor().FullName() {
			f.ProtoReflect().Set(of, protoreflect.ValueOfMessage(m.ProtoReflect()))
			return f
		}
	}
	panic(fmt.Sprintf("rogue: %T is no message of a session", m)) // a mistake of the test
}

// Send sends messages, in order and unchecked.
func (s *Session) Send(messages ...proto.Message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range messages {
		if err := s.stream.SetWriteDeadline(time.Now().Add(patience)); err != nil {
			return err
		}
		if _, err := protodelim.MarshalTo(s.stream, Frame(m)); err != nil {
			return fmt.Errorf("rogue: send to %s: %w", s.Peer, err)
		}
	}
	return nil
}

// Write writes any bytes, as a frame or not.
func (s *Session) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stream.Write(b)
}

// Next returns the next frame that is no Ping. It answers Pings on the way.
func (s *Session) Next(within time.Duration) (*wirepb.Frame, error) {
	if err := s.stream.SetReadDeadline(time.Now().Add(within)); err != nil {
		return nil, err
	}
	for {
		f := &wirepb.Frame{}
		if err := (protodelim.UnmarshalOptions{MaxSize: session.MaxFrame}).UnmarshalFrom(s.in, f); err != nil {
			return nil, fmt.Errorf("rogue: read from %s: %w", s.Peer, err)
		}
		if ping := f.GetPing(); ping != nil {
			if err := s.Send(&wirepb.Pong{Number: ping.GetNumber()}); err != nil {
				return nil, err
			}
			continue
		}
		return f, nil
	}
}

// Until reads until is returns true for a frame, and returns the frame.
func (s *Session) Until(within time.Duration, is func(*wirepb.Frame) bool) (*wirepb.Frame, error) {
	for late := time.Now().Add(within); ; {
		f, err := s.Next(time.Until(late))
		if err != nil || is(f) {
			return f, err
		}
	}
}

// Ended reports whether the other daemon ends the session within that time. It reads everything until then.
func (s *Session) Ended(within time.Duration) bool {
	late := time.Now().Add(within)
	_, err := s.Until(within, func(*wirepb.Frame) bool { return false })
	return err != nil && time.Now().Before(late)
}

// Reset ends the session without a word.
func (s *Session) Reset() { _ = s.stream.Reset() }
