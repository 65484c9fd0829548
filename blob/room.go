package blob

// How much of the store is taken, and by whom.

import (
	"encoding/hex"
	"fmt"
	"time"
)

const (
	// keepShare is the part of the file system that the store may take: a tenth.
	keepShare = 10
	// shareOfFree is how many times what is left free a user may take: alone
	// eight ninths of the store, two of them eight seventeenths each. However
	// many there are, there is room for one more.
	shareOfFree = 8
	// sweepAgain is the least time after an attempt to make room that did not
	// make enough.
	sweepAgain = 10 * time.Second
)

// by stands for a user in the names of packs; empty: what came from another
// daemon.
type by string

// uploader is what stands for a user.
func uploader(user string) by {
	const letters = 8
	h := Sum([]byte(user))
	return by(hex.EncodeToString(h[:letters]))
}

// count notes that the files of a user have become n bytes longer.
func (s *Store) count(whose by, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.countLocked(whose, n)
}

func (s *Store) countLocked(whose by, n int64) {
	s.size.Add(n)
	if whose == "" {
		return
	}
	if s.shares[whose] += n; s.shares[whose] == 0 {
		delete(s.shares, whose)
	}
}

// reserve counts bytes that are about to be written, if there is room.
func (s *Store) reserve(whose by, n int64) error {
	if s.fits(whose, n) == nil {
		return nil
	}
	s.makeRoom()
	return s.fits(whose, n)
}

// fits counts n bytes more, or says why they are too many.
func (s *Store) fits(whose by, n int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, own := s.size.Load(), s.shares[whose]
	switch {
	case now+n > s.cfg.Most:
		return fmt.Errorf("blob: %w: it has %d of at most %d bytes, all of live jobs or less than an hour old", ErrFull, now, s.cfg.Most)
	case whose != "" && own+n > shareOfFree*(s.cfg.Most-now-n):
		return fmt.Errorf("blob: %w: %d of its %d bytes are uploads of this user, the %d that are free are left for others; an hour after the jobs that need them have ended there is room",
			ErrFull, own, s.cfg.Most, s.cfg.Most-now)
	}
	s.countLocked(whose, n)
	return nil
}

// makeRoom frees at least a fifth of the store if it can.
func (s *Store) makeRoom() {
	s.sweeping.Lock()
	defer s.sweeping.Unlock()
	now := time.Now()
	if now.Sub(s.swept) < sweepAgain {
		return
	}
	if err := s.sweep(now); err != nil {
		s.log.Warn("no room made for uploads", "error", err)
	}
	if s.size.Load() > s.enough() {
		s.swept = now
	}
}

// enough is how many bytes a sweep leaves, unless more have to stay.
func (s *Store) enough() int64 { return s.cfg.Most / 5 * 4 }
