package view

// Packing: the texts of rows, nodes and events are kept compressed.

import (
	"encoding/binary"
	"hash/maphash"
	"math"
	"slices"
	"sync"

	"github.com/klauspost/compress/zstd"
)

const (
	packWindow  = 64 << 10 // bytes: beyond it a text is not found in the other
	maxUnpacked = 16 << 20 // bytes of two texts: of 1 MB that a member tells of a node, JSON makes 6 at most
	beside      = 64       // bytes that the decoder wants beside what it decodes
	keepWork    = 64 << 10 // bytes: a larger one is not kept for the next
	packDict    = 1        // the number of the dictionary; there is one
	leastPart   = 16       // a packed text counts for this part of its length at least
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
	h := head{text: len(text), all: both, sum: Sum(text)}
	if h.more = h.sum; more != nil {
		h.more = Sum(more)
	}
	work = p.enc.EncodeAll(work[:both], h.appendTo(work))
	if cap(work) <= keepWork {
		p.work = work
	}
	return append(make([]byte, 0, len(work)-both), work[both:]...)
}

// Append adds a text that was packed to b: with more, the one for those who may see more.
func (p *Packer) Append(b, packed []byte, more bool) []byte {
	h, frame := headOf(packed)
	if h.all > maxUnpacked { // Pack has made it
		return b
	}
	b = slices.Grow(b, h.all+beside)
	both, err := p.dec.DecodeAll(frame, b[len(b):]) // the bound of the decoder counts what is there before
	if err != nil || h.text > len(both) {
		return b
	}
	if more && h.text < len(both) {
		return append(b, both[h.text:]...)
	}
	return append(b, both[:h.text]...)
}

// Length returns the length of the text for everybody that was packed.
func Length(packed []byte) int {
	h, _ := headOf(packed)
	return h.text
}

// Weight returns for how many bytes a packed text counts in the bounds of what is kept. What packs to nearly nothing counts for
// more than it takes, because it is sent as it was.
func Weight(packed []byte) int { return max(len(packed), Length(packed)/leastPart) }

// seed makes the sums of this process unlike those of others.
var seed = maphash.MakeSeed()

// Sum returns a sum of a text, by which texts of this process are told apart.
func Sum(text []byte) uint64 { return maphash.Bytes(seed, text) }

// SumOf returns Sum of a text that was packed, as Append would add it.
func SumOf(packed []byte, more bool) uint64 {
	h, _ := headOf(packed)
	if more {
		return h.more
	}
	return h.sum
}

// Same reports whether the same texts were packed.
func Same(a, b []byte) bool {
	return SumOf(a, false) == SumOf(b, false) && SumOf(a, true) == SumOf(b, true)
}

// head is what is packed, before the compressed texts.
type head struct {
	text, all int    // bytes of the first text, and of both
	sum, more uint64 // of the texts
}

func (h head) appendTo(b []byte) []byte {
	b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(h.text)), uint64(h.all)) //nolint:gosec // lengths
	b = binary.LittleEndian.AppendUint64(b, h.sum)
	if h.text < h.all {
		b = binary.LittleEndian.AppendUint64(b, h.more)
	}
	return b
}

// headOf returns the head and the rest; zero and nothing for what Pack has not made.
func headOf(packed []byte) (h head, frame []byte) {
	text, n := binary.Uvarint(packed)
	if n <= 0 {
		return head{}, nil
	}
	all, m := binary.Uvarint(packed[n:])
	frame = packed[max(n+m, 0):]
	sums := 8
	if text < all {
		sums = 16
	}
	if m <= 0 || text > all || all > math.MaxInt32 || len(frame) < sums {
		return head{}, nil
	}
	h = head{text: int(text), all: int(all), sum: binary.LittleEndian.Uint64(frame)} //nolint:gosec // checked above
	if h.more = h.sum; text < all {
		h.more = binary.LittleEndian.Uint64(frame[8:])
	}
	return h, frame[sums:]
}
