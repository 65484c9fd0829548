package upload

// Chunks on the wire: each follows its length, in four bytes, big-endian. A length of 0 stands for a chunk that the
// sender does not have.

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// headBytes is the size of the length field.
const headBytes = 4

// AppendHead appends the length of a chunk of n bytes; the data follows. 0 stands for a missing chunk.
func AppendHead(b []byte, n uint32) []byte { return binary.BigEndian.AppendUint32(b, n) }

// ReadChunk reads one chunk into buf, whose length must be at least MaxChunk, and returns the part of buf that holds
// it. The error is io.EOF at the end of the stream.
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

// EncodeRefs encodes refs for the wire.
func EncodeRefs(refs []Ref) []byte { return Refs(refs).bytes() }

// ParseRefs parses the result of EncodeRefs: at most MaxAsk refs.
func ParseRefs(b []byte) ([]Ref, error) {
	if len(b) > MaxAsk*refBytes {
		return nil, fmt.Errorf("blob: %d bytes of chunk names: %w: at most %d names", len(b), ErrTooLarge, MaxAsk)
	}
	return parseRefs(b)
}

// batches splits refs into parts of at most MaxBatch bytes and MaxAsk refs.
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
