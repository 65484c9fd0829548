package store

// The keys and values of the daemon itself.

import (
	"fmt"
	"sync"
)

const (
	ownPrefix = "n/"
	// MaxKeyBytes bounds a key: a word and an id.
	MaxKeyBytes = 256
	// MaxValueBytes bounds a value: a list of a few thousand peers.
	MaxValueBytes = 1 << 20
	// MaxKeys bounds the number of keys. Peers can make it grow: one key for each group of a large cluster, over
	// years.
	MaxKeys = 1<<16 + 1<<10
)

// keyCount is the number of keys. It may be off by one if the same key is written and deleted at the same moment. A
// restart counts again.
type keyCount struct {
	mu sync.Mutex
	n  int // guarded by mu
}

// countOwn counts the keys at start.
func (s *Store) countOwn() error {
	n := 0
	if err := s.ReadPrefix([]byte(ownPrefix), func(_, _ []byte) error { n++; return nil }); err != nil {
		return fmt.Errorf("store: count the daemon's keys: %w", err)
	}
	s.own.mu.Lock()
	s.own.n = n
	s.own.mu.Unlock()
	return nil
}

// take counts one more key. It returns false if there are too many.
func (c *keyCount) take() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n >= MaxKeys {
		return false
	}
	c.n++
	return true
}

func (c *keyCount) giveBack() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n--
}

// Put stores a value under a key. The value survives a power cut once Put returns. The error is ErrTooLarge, ErrFull
// or ErrNoRoom if a limit is reached.
func (s *Store) Put(key string, val []byte) error {
	if key == "" || len(key) > MaxKeyBytes || len(val) > MaxValueBytes {
		return fmt.Errorf("store: put %.60q of %d bytes: %w: keys of 1 to %d bytes, values to %d",
			key, len(val), ErrTooLarge, MaxKeyBytes, MaxValueBytes)
	}
	if err := s.CheckSpace(); err != nil {
		return err
	}
	k := []byte(ownPrefix + key)
	old, err := s.Read(k)
	if err != nil {
		return fmt.Errorf("store: put %q: %w", key, err)
	}
	if old == nil && !s.own.take() {
		return fmt.Errorf("store: put %q: %w: %d keys", key, ErrFull, MaxKeys)
	}
	if err := s.WriteSync(func(b Batch) error { return b.Set(k, val) }); err != nil {
		if old == nil {
			s.own.giveBack()
		}
		return fmt.Errorf("store: put %q: %w", key, err)
	}
	return nil
}

// Get reads a value, or nil if there is none.
func (s *Store) Get(key string) ([]byte, error) {
	v, err := s.Read([]byte(ownPrefix + key))
	if err != nil {
		return nil, fmt.Errorf("store: get %q: %w", key, err)
	}
	return v, nil
}

// Delete deletes a key, if it is there. The deletion survives a power cut once Delete returns.
func (s *Store) Delete(key string) error {
	k := []byte(ownPrefix + key)
	old, err := s.Read(k)
	if err != nil {
		return fmt.Errorf("store: delete %q: %w", key, err)
	}
	if old == nil {
		return nil
	}
	if err := s.WriteSync(func(b Batch) error { return b.Delete(k) }); err != nil {
		return fmt.Errorf("store: delete %q: %w", key, err)
	}
	s.own.giveBack()
	return nil
}

// Scan returns all keys that begin with prefix, with their values.
func (s *Store) Scan(prefix string) (map[string][]byte, error) {
	found := map[string][]byte{}
	err := s.ReadPrefix([]byte(ownPrefix+prefix), func(k, v []byte) error {
		found[string(k[len(ownPrefix):])] = append([]byte{}, v...)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("store: scan %q: %w", prefix, err)
	}
	return found, nil
}
