package picture

// Packing: what is said of jobs takes an eighth of its length.

import (
	"encoding/binary"
	"sync"

	"github.com/klauspost/compress/zstd"
)

const (
	packWindow  = 64 << 10 // bytes: beyond it a text is not found in the other
	maxUnpacked = 16 << 20 // bytes of two texts: those of a node have 1 MB each
	keepWork    = 64 << 10 // bytes: a larger one is not kept for the next
	packDict    = 1        // the number of the dictionary; there is one
)

// Packer compresses what is said of an object: a text for everybody, and one for those who may see more. Such texts look
// alike: most of one is in a typical text, and nearly all of the second is in the first.
type Packer struct {
	enc *zstd.Encoder
	dec *zstd.Decoder

	mu   sync.Mutex
	work []byte // guarded by mu: what is packed, and then the packed
}

// NewPacker returns a Packer of texts that have much of a typical one, of 8 bytes or more. It takes about 1 MB.
func NewPacker(typical []byte) *Packer {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true),
		zstd.WithWindowSize(packWindow), zstd.WithEncoderCRC(false), zstd.WithEncoderDictRaw(packDict, typical))
	if err != nil {
		panic(err) // no such options are given
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(packWindow), zstd.WithDecoderMaxMemory(maxUnpacked), zstd.WithDecoderDictRaw(packDict, typical))
	if err != nil {
		panic(err)
	}
	return &Packer{enc: enc, dec: dec}
}

// Pack compresses the text for everybody and the one for those who may see more; nil: they are the same.
func (p *Packer) Pack(text, more []byte) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	work := append(append(p.work[:0], text...), more...)
	both := len(work)
	work = binary.AppendUvarint(work, uint64(len(text)))
	work = p.enc.EncodeAll(work[:both], work)
	if cap(work) <= keepWork {
		p.work = work
	}
	return append(make([]byte, 0, len(work)-both), work[both:]...)
}

// Length returns the length of the text for everybody that was packed.
func Length(packed []byte) int {
	n, _ := binary.Uvarint(packed)
	return int(n) //nolint:gosec // of a text in memory
}

// Append adds a text that was packed to b: with more, the one for those who may see more.
func (p *Packer) Append(b, packed []byte, more bool) []byte {
	n, head := binary.Uvarint(packed)
	both, err := p.dec.DecodeAll(packed[max(head, 0):], b)
	if err != nil || n > uint64(len(both)-len(b)) { // Pack has made it
		return b
	}
	end := len(b) + int(n) //nolint:gosec // checked above
	if more && end < len(both) {
		return append(both[:len(b)], both[end:]...)
	}
	return both[:end]
}
