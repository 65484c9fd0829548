package upload

// The store's size limit, and each user's share of it.

import (
	"encoding/hex"
	"fmt"
	"sync"
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

// quota counts the bytes of a store, and bounds each user's share of them.
type quota struct {
	most int64 // set before the first use

	mu    sync.Mutex
	size  int64            // guarded by mu; bytes of all packs and trees, written or reserved
	usage map[userID]int64 // guarded by mu; bytes by the user who uploaded them
}

// total returns how many bytes the packs and trees take.
func (q *quota) total() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.size
}

// count adds n bytes to the usage of a user and of the store.
func (q *quota) count(user userID, n int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.countLocked(user, n)
}

func (q *quota) countLocked(user userID, n int64) {
	q.size += n
	if user == "" {
		return
	}
	if q.usage[user] += n; q.usage[user] == 0 {
		delete(q.usage, user)
	}
}

// fits counts n bytes, or returns the reason why there is no space for them.
func (q *quota) fits(user userID, n int64) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	now, own := q.size, q.usage[user]
	switch {
	case now+n > q.most:
		return fmt.Errorf("blob: %w: it has %d of at most %d bytes, all of live jobs or less than an hour old", ErrFull, now, q.most)
	case user != "" && own+n > shareOfFree*(q.most-now-n):
		return fmt.Errorf("blob: %w: this user's uploads take %d of its %d bytes, and the %d free bytes are kept for other users; space is freed an hour after the jobs that need the uploads have ended",
			ErrFull, own, q.most, q.most-now)
	}
	q.countLocked(user, n)
	return nil
}

// pruneTarget returns how many bytes pruning leaves, unless more must be kept.
func (q *quota) pruneTarget() int64 { return q.most / 5 * 4 }

// reserve counts n bytes that are about to be written. It prunes the store if there is no space for them.
func (s *Store) reserve(user userID, n int64) error {
	if s.quota.fits(user, n) == nil {
		return nil
	}
	s.freeSpace()
	return s.quota.fits(user, n)
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
	if s.quota.total() > s.quota.pruneTarget() {
		s.pruned = now
	}
}
