// Package upload stores the files that jobs upload, addressed by content, so that nothing is sent twice.
//
// A file is split into chunks at boundaries that depend on its content (FastCDC). A chunk is named by its BLAKE3
// hash. A Tree lists paths, modes and chunks, as a snapshot of restic does, and is named by the hash of its encoding.
// On disk many chunks lie in one pack. Whoever knows the hash of a tree can read the tree, so only the job's user is
// shown the hash.
//
// Scan and Send are the client's side, Store is the daemon's, Fetch copies a tree between daemons, and Unpack makes a
// private copy for one task. All trees from outside go through ParseTree, which refuses every path and link that
// could lead out of the tree.
package upload

import (
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/zeebo/blake3"
)

var (
	// ErrMissing says that a tree or chunk is not in the store. Send it again, or ask another holder.
	ErrMissing = errors.New("not in the store")
	// ErrInvalid says that a tree, a path or a chunk is malformed.
	ErrInvalid = errors.New("not a valid tree")
	// ErrFull says that the store has no space left. Wait for jobs to end, or send less.
	ErrFull = errors.New("the store for uploads is full")
	// ErrTooLarge says that an upload exceeds its limit. Leave files out with .musterignore, or raise the limit.
	ErrTooLarge = errors.New("too large")
)

// The limits of chunks, trees and requests.
const (
	MinChunk     = 64 << 10 // bytes; a smaller file is one chunk
	AverageChunk = 256 << 10
	MaxChunk     = 1 << 20

	MaxTreeBytes = 32 << 20 // of a tree's encoding: half a million files
	maxEntries   = 1 << 20
	maxPath      = 4096
	maxName      = 255
	maxTreeSize  = 1 << 44 // bytes of all files; no store is that large

	// MaxBatch bounds the chunks in one request, in bytes, and MaxAsk their number.
	MaxBatch = 8 << 20
	MaxAsk   = 4096
)

// Hash names a chunk or a tree.
type Hash [32]byte

// Sum returns the hash of data.
func Sum(data []byte) Hash { return blake3.Sum256(data) }

// String returns the hash as 64 hexadecimal digits.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// ParseHash parses the result of Hash.String.
func ParseHash(s string) (Hash, error) {
	var h Hash
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != len(h) || hex.EncodeToString(b) != s {
		return h, fmt.Errorf("blob: hash %.80q: want 64 hexadecimal digits", s)
	}
	copy(h[:], b)
	return h, nil
}

// Ref names a chunk by its hash and its length in bytes.
type Ref struct {
	Hash Hash
	Size uint32
}
