package store

// Chunks: the parts of Pebble's logs.
//
// A log is a sequence of blocks. Each of its records is one chunk or several, and no chunk crosses the end of a block.
// A chunk begins with a checksum of what follows its length, the length of its data, and its kind. In a write-ahead log
// two fields follow: the number of the log, and the offset up to which the log was synced when the chunk was made. The
// first log of a new database, until its Flush, has an older format without the offset.

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"math/bits"
	"slices"
)

const (
	blockBytes = 32 << 10

	lengthAt = 4
	kindAt   = 6
	numberAt = 7
	syncedAt = 11

	manifestHeader = 7
	oldLogHeader   = 11
	logHeader      = 19
)

// Kinds of chunks. Of each four, the first is a whole record and the second the first chunk of a record.
const (
	firstManifestKind, lastManifestKind = 1, 4
	firstOldKind, lastOldKind           = 5, 8 // of a log
	firstLogKind, lastLogKind           = 9, 12
)

// chunkFormat is the format of the chunks of one file.
type chunkFormat struct {
	header      int
	first, last byte   // kinds
	number      uint32 // of the write-ahead log
}

// manifestFormat is that of the list of the database's files.
var manifestFormat = chunkFormat{header: manifestHeader, first: firstManifestKind, last: lastManifestKind}

// logFormats returns the possible formats of a write-ahead log. All chunks of a log have the same format, and no chunk
// is whole in the other format.
func logFormats(number uint32) []chunkFormat {
	return []chunkFormat{
		{header: logHeader, first: firstLogKind, last: lastLogKind, number: number},
		{header: oldLogHeader, first: firstOldKind, last: lastOldKind, number: number},
	}
}

func (f chunkFormat) isLog() bool { return f.header >= oldLogHeader }

// parse returns the length of the chunk at the beginning of b with its header, or 0 if it is not whole.
func (f chunkFormat) parse(b []byte) int {
	if len(b) < f.header || !f.known(b) {
		return 0
	}
	n := f.header + int(binary.LittleEndian.Uint16(b[lengthAt:]))
	if n > len(b) || binary.LittleEndian.Uint32(b) != cooked(crc32.Checksum(b[kindAt:n], polynomial)) {
		return 0
	}
	return n
}

// known reports whether a header has a kind and a number of this file.
func (f chunkFormat) known(b []byte) bool {
	return b[kindAt] >= f.first && b[kindAt] <= f.last && (!f.isLog() || binary.LittleEndian.Uint32(b[numberAt:]) == f.number)
}

// end reports whether b begins with the end of a log that was closed: an empty chunk with the next number.
func (f chunkFormat) end(b []byte) bool {
	return f.isLog() && len(b) >= oldLogHeader && binary.LittleEndian.Uint32(b) == 0 && binary.LittleEndian.Uint16(b[lengthAt:]) == 0 &&
		b[kindAt] == firstOldKind && binary.LittleEndian.Uint32(b[numberAt:]) == f.number+1
}

// proves reports whether a whole chunk shows that the log had been synced beyond an offset before the chunk was written.
// Each record of a manifest is synced before the next.
func (f chunkFormat) proves(chunk []byte, offset int64) bool {
	switch f.header {
	case logHeader:
		return binary.LittleEndian.Uint64(chunk[syncedAt:]) > uint64(offset) //nolint:gosec // at least 0
	case manifestHeader:
		return chunk[kindAt] <= f.first+1
	}
	return false
}

var polynomial = crc32.MakeTable(crc32.Castagnoli)

// A checksum is stored rotated, with a constant added.
const (
	sumTurn = 17
	sumPlus = 0xa282ead8
)

func cooked(sum uint32) uint32 { return bits.RotateLeft32(sum, sumTurn) + sumPlus }

func raw(sum uint32) uint32 { return bits.RotateLeft32(sum-sumPlus, -sumTurn) }

// oneByteOff reports whether a change of one byte would make the chunk at the beginning of b whole. Then the chunk was
// once written completely. A byte of 0 that only zeros follow does not count: the rest may never have been written.
func (f chunkFormat) oneByteOff(b []byte) bool {
	if len(b) < f.header {
		return false
	}
	written := len(bytes.TrimRight(b, "\x00"))
	return f.sumOff(b) || f.lengthOff(b) || f.restOff(b, written)
}

// chunk returns the bytes that the checksum covers if the chunk has this length of data; nil if b is too short.
func (f chunkFormat) chunk(b []byte, length int) []byte {
	if n := f.header + length; n <= len(b) {
		return b[kindAt:n]
	}
	return nil
}

// sumOff reports whether a change of one byte of the checksum makes the chunk whole.
func (f chunkFormat) sumOff(b []byte) bool {
	rest := f.chunk(b, int(binary.LittleEndian.Uint16(b[lengthAt:])))
	if rest == nil || !f.known(b) {
		return false
	}
	off := binary.LittleEndian.Uint32(b) ^ cooked(crc32.Checksum(rest, polynomial))
	for i := range lengthAt {
		if off&^(0xff<<(8*i)) == 0 {
			return true
		}
	}
	return false
}

// lengthOff reports whether a change of one byte of the length makes the chunk whole.
func (f chunkFormat) lengthOff(b []byte) bool {
	if !f.known(b) {
		return false
	}
	sum, length := binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint16(b[lengthAt:])
	for v := range 1 << 8 {
		for _, l := range []uint16{length&0xff00 | uint16(v), length&0x00ff | uint16(v)<<8} {
			if rest := f.chunk(b, int(l)); rest != nil && cooked(crc32.Checksum(rest, polynomial)) == sum {
				return true
			}
		}
	}
	return false
}

// restOff reports whether a change of one byte that the checksum covers, before written, makes the chunk whole. A
// checksum is linear: the difference between the written checksum and that of the chunk depends only on how the byte
// changed and on the number of bytes after it. So restOff traces the difference back from the end, byte by byte, until
// one value explains it.
func (f chunkFormat) restOff(b []byte, written int) bool {
	rest := f.chunk(b, int(binary.LittleEndian.Uint16(b[lengthAt:])))
	off := raw(binary.LittleEndian.Uint32(b)) ^ crc32.Checksum(rest, polynomial)
	for i := range slices.Backward(rest) {
		v := byteOf[off>>24]
		if polynomial[v] == off && kindAt+i < written {
			c := append([]byte{}, b[:f.header]...)
			if kindAt+i < f.header {
				c[kindAt+i] ^= v
			}
			return f.known(c)
		}
		off = (off^polynomial[v])<<8 | uint32(v)
	}
	return false
}

// byteOf gives the byte whose entry in the table of the polynomial begins with a byte. No two begin with the same.
var byteOf = func() (of [256]byte) {
	for v, sum := range polynomial {
		of[sum>>24] = byte(v)
	}
	return of
}()
