package blob

// Chunks that are read back.

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"
)

// trust is how long what was hashed when it was written is not hashed when
// it is read: it comes from memory then, not from the disk.
const trust = 10 * time.Minute

// Reader reads chunks of a store. What came together is read together, so it
// keeps the pack that it read last open. It is used by one goroutine.
type Reader struct {
	store *Store
	file  *os.File // of pack
	pack  *pack
}

// Reader begins to read; Close is to be called at the end.
func (s *Store) Reader() *Reader { return &Reader{store: s} }

// Close gives back what reading took.
func (r *Reader) Close() {
	if r.file != nil {
		_ = r.file.Close() // nothing was written
	}
	r.file, r.pack = nil, nil
}

// Append reads a chunk onto the end of buf. One that is damaged is dropped, so
// that it can be sent again, and is ErrMissing.
func (r *Reader) Append(buf []byte, c Ref) ([]byte, error) {
	s := r.store
	if err := s.open(); err != nil {
		return nil, err
	}
	for {
		s.mu.Lock()
		there := s.chunks[c.Hash]
		trusted := there.pack != nil && time.Since(there.pack.since) < trust
		s.mu.Unlock()
		if there.pack == nil || there.size != c.Size {
			return nil, fmt.Errorf("blob: chunk %s: %w", c.Hash, ErrMissing)
		}
		all, err := r.appendAt(buf, there)
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, io.EOF):
			s.drop(there.pack) // unless a sweep has moved its chunks and done so
		case err != nil:
			return nil, fmt.Errorf("blob: chunk: %w", err)
		case trusted || Sum(all[len(buf):]) == c.Hash:
			return all, nil
		default:
			s.damaged(c.Hash, there)
		}
	}
}

func (r *Reader) appendAt(buf []byte, there place) ([]byte, error) {
	if r.pack != there.pack {
		r.Close()
		f, err := os.Open(r.store.pack(there.pack.name))
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

// damaged forgets a chunk; its place on the disk is freed by a sweep.
func (s *Store) damaged(h Hash, there place) {
	s.log.Warn("chunk of an upload is damaged, dropped", "hash", h.String())
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.chunks[h] == there {
		delete(s.chunks, h)
	}
}
