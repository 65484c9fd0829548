package blob

// Chunks on their way: each after its length, in four bytes, big-endian. A
// length of 0 stands for one that the sender does not have.

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// headBytes is the length of a chunk's length.
const headBytes = 4

// AppendHead begins a chunk of n bytes; its data follows. 0 stands for one that
// is missing.
func AppendHead(b []byte, n uint32) []byte { return binary.BigEndian.AppendUint32(b, n) }

// ReadChunk reads one chunk into buf, which has room for MaxChunk, and gives
// the part that it fills. io.EOF is the end of the stream.
func ReadChunk(r io.Reader, buf []byte) ([]byte, error) {
	var head [headBytes]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > MaxChunk {
		return nil, fmt.Errorf("blob: chunk of %d bytes: %w: at most %d", n, ErrInvalid, MaxChunk)
	}
	if _, err := io.ReadFull(r, buf[:n]); err != nil {
		return nil, errors.Join(io.ErrUnexpectedEOF, err)
	}
	return buf[:n], nil
}

// EncodeRefs gives the names of chunks as they travel.
func EncodeRefs(refs []Ref) []byte { return Refs(refs).bytes() }

// ParseRefs reads what EncodeRefs wrote: at most MaxAsk names.
func ParseRefs(b []byte) ([]Ref, error) {
	if len(b) > MaxAsk*refBytes {
		return nil, fmt.Errorf("blob: %d bytes of chunk names: %w: at most %d names", len(b), ErrTooLarge, MaxAsk)
	}
	return parseRefs(b)
}

// batches splits refs so that each part fits one request.
func batches(refs []Ref) [][]Ref {
	var all [][]Ref
	from, bytes := 0, 0
	for i, r := range refs {
		if i > from && (bytes+int(r.Size) > MaxBatch || i-from == MaxAsk) {
			all = append(all, refs[from:i])
			from, bytes = i, 0
		}
		bytes += int(r.Size)
	}
	if from < len(refs) {
		all = append(all, refs[from:])
	}
	return all
}
