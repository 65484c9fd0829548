package session

// Frames on a stream: a length as a varint, then a protobuf message.
//
// go-msgio has the same framing, but it writes each message with its own Write, and reads each into a buffer from its
// pool. Here one Write carries many frames, and frames are parsed in the reader's buffer.

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"google.golang.org/protobuf/proto"

	"github.com/musterhq/muster/p2p/wirepb"
)

const (
	readBuffer = 32 << 10  // size for each session; a longer frame gets a temporary buffer
	keepBuffer = 256 << 10 // a writer's buffer that grew beyond this is not kept
)

// appendFrame appends a frame to buf. On an error it leaves buf unchanged.
func appendFrame(buf []byte, f *wirepb.Frame) ([]byte, error) {
	n := proto.Size(f)
	if n > MaxFrame {
		return buf, fmt.Errorf("%w: %d bytes; at most %d", ErrInvalid, n, MaxFrame)
	}
	out, err := proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(binary.AppendUvarint(buf, uint64(n)), f)
	if err != nil {
		return buf, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return out, nil
}

// frameReader reads frames. A returned frame is valid until the next call.
type frameReader struct {
	r     *bufio.Reader
	frame wirepb.Frame
}

func newFrameReader(r io.Reader) *frameReader {
	return &frameReader{r: bufio.NewReaderSize(r, readBuffer)}
}

func (r *frameReader) next() (*wirepb.Frame, error) {
	size, err := r.size()
	if err != nil {
		return nil, err
	}
	if size > readBuffer {
		return r.long(int64(size))
	}
	b, err := r.r.Peek(size)
	if err != nil {
		return nil, midFrame(err)
	}
	err = r.parse(b)
	if _, err := r.r.Discard(len(b)); err != nil {
		return nil, err
	}
	return &r.frame, err
}

// size reads the length of a frame, which has at most three bytes.
func (r *frameReader) size() (int, error) {
	size := 0
	for shift := 0; shift < 21; shift += 7 {
		b, err := r.r.ReadByte()
		if err != nil {
			if shift > 0 {
				err = midFrame(err)
			}
			return 0, err
		}
		size |= int(b&0x7f) << shift
		if b >= 0x80 {
			continue
		}
		if size == 0 || size > MaxFrame {
			return 0, fmt.Errorf("%w: a frame of %d bytes; at most %d", ErrInvalid, size, MaxFrame)
		}
		return size, nil
	}
	return 0, fmt.Errorf("%w: the length of a frame has more than three bytes", ErrInvalid)
}

// long reads a frame into a buffer that grows as bytes arrive.
func (r *frameReader) long(size int64) (*wirepb.Frame, error) {
	var buf bytes.Buffer
	if _, err := io.CopyN(&buf, r.r, size); err != nil {
		return nil, midFrame(err)
	}
	return &r.frame, r.parse(buf.Bytes())
}

func (r *frameReader) parse(b []byte) error {
	if err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(b, &r.frame); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return nil
}

func midFrame(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
