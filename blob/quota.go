package blob

// The store's size limit, and each user's share of it.

import (
	"encoding/hex"
	"fmt"
	"time"
)

const (
	// keepShare is the default limit: 1/keepShare of the file system.
	keepShare = 10
	// shareOfFree bounds a user to shareOfFree times the free space that is left: alone eight ninths of the store,
	// two users eight seventeenths each. However many users there are, there is space for one more.
	shareOfFree = 8
	// pruneAgain is the pause after a pruning that did not free enough.
	pruneAgain = 10 * time.Second
)

// userID stands for a user in the names of packs. It is empty for chunks from another daemon.
type userID string

// idOf returns the id of a user.
func idOf(user string) userID {
	const letters = 8
	h := Sum([]byte(user))
	return userID(hex.EncodeToString(h[:letters]))
}

// count adds n bytes to the usage of a user and of the store.
func (s *Store) count(user userID, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.countLocked(user, n)
}

func (s *Store) countLocked(user userID, n int64) {
	s.size.Add(n)
	if user == "" {
		return
	}
	if s.usage[user] += n; s.usage[user] == 0 {
		delete(s.usage, user)
	}
}

// reserve counts n bytes that are about to be written. It prunes the store if there is no space for them.
func (s *Store) reserve(user userID, n int64) error {
	if s.fits(user, n) == nil {
		return nil
	}
	s.freeSpace()
	return s.fits(user, n)
}

// fits counts n bytes, or returns the reason why there is no space for them.
func (s *Store) fits(user userID, n int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, own := s.size.Load(), s.usage[user]
	switch {
	case now+n > s.cfg.Most:
		return fmt.Errorf("blob: %w: it has %d of at most %d bytes, all of live jobs or less than an hour old", ErrFull, now, s.cfg.Most)
	case user != "" && own+n > shareOfFree*(s.cfg.Most-now-n):
		return fmt.Errorf("blob: %w: this user's uploads take %d of its %d bytes, and the %d free bytes are kept for other users; space is freed an hour after the jobs that need the uploads have ended",
			ErrFull, own, s.cfg.Most, s.cfg.Most-now)
	}
	s.countLocked(user, n)
	return nil
}

// freeSpace prunes the store down to target bytes if it can.
func (s *Store) freeSpace() {
	s.pruning.Lock()
	defer s.pruning.Unlock()
	now := time.Now()
	if now.Sub(s.pruned) < pruneAgain {
		return
	}
	if err := s.prune(now); err != nil {
		s.log.Warn("uploads not pruned", "error", err)
	}
	if s.size.Load() > s.pruneTarget() {
		s.pruned = now
	}
}

// pruneTarget is how many bytes pruning leaves, unless more must be kept.
func (s *Store) pruneTarget() int64 { return s.cfg.Most / 5 * 4 }
