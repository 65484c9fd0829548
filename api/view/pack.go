package view

// Compression of the texts of rows, nodes and events in memory, by zstd with a dictionary: the two documents of a running
// job take 1.8 kB, and compressed 190 bytes. S2 of the same library needs 64 KB of stack for each call, which each feed
// would keep. The zstd in C that the database links takes 8 µs for each call instead of 0.3.

import (
	"encoding/binary"
	"hash/maphash"
	"math"
	"slices"
	"sync"

	"github.com/klauspost/compress/zstd"
)

const (
	packWindow  = 64 << 10 // bytes: repetitions further back than this are not found
	maxUnpacked = 16 << 20 // bytes of both texts: a member sends 1 MB about a node, which escaping in JSON makes 6 MB at most
	beside      = 64       // bytes that the decoder needs besides its output
	keepWork    = 64 << 10 // bytes: a larger buffer is not kept for the next call
	packDict    = 1        // the number of the only dictionary
	leastPart   = 16       // a packed text counts at least 1/16 of its length
)

// Packer compresses two texts about an object: one for everybody, and one for those who may see more. Such texts look
// alike: most of the first occurs in a typical text, and nearly all of the second occurs in the first.
type Packer struct {
	enc *zstd.Encoder
	dec *zstd.Decoder

	mu   sync.Mutex
	work []byte // guarded by mu: the texts, then their compressed form
}

// NewPacker returns a Packer for texts that resemble a typical one, which has 8 bytes or more. A Packer takes about 1 MB.
func NewPacker(typical []byte) *Packer {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true),
		zstd.WithWindowSize(packWindow), zstd.WithEncoderCRC(false), zstd.WithEncoderDictRaw(packDict, typical))
	if err != nil {
		panic(err) // our options are valid
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(packWindow), zstd.WithDecoderMaxMemory(maxUnpacked), zstd.WithDecoderDictRaw(packDict, typical))
	if err != nil {
		panic(err)
	}
	return &Packer{enc: enc, dec: dec}
}

// Pack compresses the text for everybody, and more, the text for those who may see more. If more is nil both are the same.
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

// Append unpacks a text and appends it to b: if more is true the text for those who may see more, else the text for
// everybody.
func (p *Packer) Append(b, packed []byte, more bool) []byte {
	h, frame := headOf(packed)
	if h.all > maxUnpacked {
		return b
	}
	b = slices.Grow(b, h.all+beside)
	both, err := p.dec.DecodeAll(frame, b[len(b):]) // not into b: the decoder's bound would count what b already has
	if err != nil || h.text > len(both) {
		return b
	}
	if more && h.text < len(both) {
		return append(b, both[h.text:]...)
	}
	return append(b, both[:h.text]...)
}

// Length returns the unpacked length of the text for everybody.
func Length(packed []byte) int {
	h, _ := headOf(packed)
	return h.text
}

// Weight returns how many bytes a packed text counts in the bounds of memory. A text that is nearly all redundant counts
// more than its packed size, because it is sent unpacked.
func Weight(packed []byte) int { return max(len(packed), Length(packed)/leastPart) }

// seed makes the sums of this process differ from those of other processes.
var seed = maphash.MakeSeed()

// Sum returns a hash of a text. Within this process, texts with the same Sum are taken to be equal.
func Sum(text []byte) uint64 { return maphash.Bytes(seed, text) }

// SumOf returns the Sum of the text that Append would append.
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

// head precedes the compressed texts.
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

// headOf returns the head and the rest of a packed text; a zero head and nil if Pack did not make it.
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
