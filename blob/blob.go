// Package blob keeps the trees of files that jobs bring along: content
// addressed, so that what was sent once is not sent again.
//
// A file is cut into chunks at places that its content decides (FastCDC), a
// chunk is named by its BLAKE3 hash, and a Tree lists paths, modes and chunks.
// A tree is named by the hash of its encoding. Who knows that hash may have the
// tree, so it is shown to nobody but the job's user.
//
// Scan and Send are the client's side, Store the daemon's, Fetch the way
// between daemons, Unpack the last step: a private copy for one task. Whatever
// comes from outside goes through ParseTree, which refuses every path and link
// that could leave the tree.
package blob

import (
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/zeebo/blake3"
)

var (
	// ErrMissing is a tree or chunk that is not in the store. Send it again, or
	// ask another holder.
	ErrMissing = errors.New("not in the store")
	// ErrInvalid is a tree, a path or a chunk that is not as it must be.
	ErrInvalid = errors.New("not a valid tree")
	// ErrFull is a store without room for more. Wait for jobs to end, or send
	// less.
	ErrFull = errors.New("the store for uploads is full")
	// ErrTooLarge is an upload above its bound. Leave files out with
	// .musterignore, or raise the bound.
	ErrTooLarge = errors.New("too large")
)

// The bounds of trees and of what carries them.
const (
	MinChunk     = 64 << 10 // bytes; a smaller file is one chunk
	AverageChunk = 256 << 10
	MaxChunk     = 1 << 20

	MaxTreeBytes = 32 << 20 // of a tree's encoding: half a million files
	maxEntries   = 1 << 20
	maxPath      = 4096
	maxName      = 255
	maxTreeSize  = 1 << 44 // bytes of all files: far above any store

	// MaxBatch bounds the chunks that travel in one request, in bytes, and
	// MaxAsk their number.
	MaxBatch = 8 << 20
	MaxAsk   = 4096
)

// Hash names a chunk or a tree.
type Hash [32]byte

// Sum is the hash of data.
func Sum(data []byte) Hash { return blake3.Sum256(data) }

// String is the hash in 64 hexadecimal digits.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// ParseHash reads what String wrote.
func ParseHash(s string) (Hash, error) {
	var h Hash
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != len(h) || hex.EncodeToString(b) != s {
		return h, fmt.Errorf("blob: hash %.80q: want 64 hexadecimal digits", s)
	}
	copy(h[:], b)
	return h, nil
}

// Ref is a chunk by name and length.
type Ref struct {
	Hash Hash
	Size uint32
}
