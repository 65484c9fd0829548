package upload

// Reading chunks from the store.

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"
)

// trustFor is how long after it was written a pack is read without checking hashes: its bytes come from the page
// cache then, and not from the disk.
const trustFor = 10 * time.Minute

// Reader reads chunks of a store. Chunks that were uploaded together are usually read together, so it keeps the last
// pack open. It is not safe for concurrent use.
type Reader struct {
	store *Store
	file  *os.File // of pack
	pack  *pack
}

// Reader returns a reader. The caller closes it.
func (s *Store) Reader() *Reader { return &Reader{store: s} }

// Close closes the open pack.
func (r *Reader) Close() {
	if r.file != nil {
		_ = r.file.Close() // nothing was written
	}
	r.file, r.pack = nil, nil
}

// Append appends a chunk to buf. A damaged chunk gives ErrMissing and is removed from the index, so that it can be
// sent again.
func (r *Reader) Append(buf []byte, c Ref) ([]byte, error) {
	s := r.store
	if err := s.open(); err != nil {
		return nil, err
	}
	for {
		there, trusted := s.packs.find(c.Hash)
		if there.pack == nil || there.size != c.Size {
			return nil, fmt.Errorf("blob: chunk %s: %w", c.Hash, ErrMissing)
		}
		all, err := r.appendAt(buf, there)
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, io.EOF):
			s.packs.drop(there.pack) // does nothing if pruning has removed the pack
		case err != nil:
			return nil, fmt.Errorf("blob: chunk: %w", err)
		case trusted || Sum(all[len(buf):]) == c.Hash:
			return all, nil
		default:
			s.packs.damaged(c.Hash, there)
		}
	}
}

func (r *Reader) appendAt(buf []byte, there indexEntry) ([]byte, error) {
	if r.pack != there.pack {
		r.Close()
		f, err := os.Open(r.store.packs.path(there.pack.name))
		if err != nil {
			return nil, err
		}
		r.file, r.pack = f, there.pack
	}
	n := int(there.size)
	buf = slices.Grow(buf, n)[:len(buf)+n]
	_, err := r.file.ReadAt(buf[len(buf)-n:], int64(there.at))
	return buf, err
}
