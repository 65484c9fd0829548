package upload

// Pruning: removing trees that nobody needs, the least recently used first, and the chunks that no tree uses.

import (
	"errors"
	"os"
	"slices"
	"time"
)

// unusedShare decides about repacking: a pack is repacked once more than 1/unusedShare of it is unused.
const unusedShare = 8

func (s *Store) prune(now time.Time) error {
	live := map[Hash]bool{}
	if s.cfg.Live != nil {
		var err error
		if live, err = s.cfg.Live(); err != nil {
			return err
		}
	}
	trees, err := s.trees.list()
	if err != nil {
		return err
	}
	// Live trees come first, then the others, the most recently used first, until the store is full enough.
	slices.SortFunc(trees, func(a, b keptTree) int {
		if live[a.hash] != live[b.hash] {
			if live[a.hash] {
				return -1
			}
			return 1
		}
		return b.used.Compare(a.used)
	})
	kept := keeping{chunks: map[Hash]bool{}, most: s.quota.pruneTarget()}
	for _, t := range trees {
		stays := live[t.hash] || now.Sub(t.used) <= minAge
		if tree, err := s.trees.read(t.hash); err == nil && kept.add(tree, stays) {
			continue
		}
		if err := os.Remove(s.trees.path(t.hash)); err != nil {
			return err
		}
		s.trees.remove(t.hash)
	}
	return s.pruneChunks(kept.chunks, now)
}

// keeping adds up the chunks that are kept.
type keeping struct {
	chunks map[Hash]bool
	bytes  int64
	most   int64
}

// add keeps a tree's chunks if there is space for them, or if the tree must be kept. It returns false if there is
// not.
func (k *keeping) add(t Tree, stays bool) bool {
	chunks, more := t.Chunks(), int64(0)
	for _, c := range chunks {
		if !k.chunks[c.Hash] {
			more += int64(c.Size)
		}
	}
	if !stays && k.bytes+more > k.most {
		return false
	}
	k.bytes += more
	for _, c := range chunks {
		k.chunks[c.Hash] = true
	}
	return true
}

// pruneChunks removes packs that were not used lately. Chunks in them that are kept are repacked.
func (s *Store) pruneChunks(kept map[Hash]bool, now time.Time) error {
	var repacked []*pack
	var chunks []Ref
	to := s.Putter(false)
	defer to.Discard()
	for _, p := range s.packs.old(now) {
		used, unused := s.packs.used(p, kept)
		switch {
		case unused <= p.size/unusedShare:
			continue
		case len(used) == 0:
			s.packs.dropOld(p, now)
			continue
		}
		if err := to.setUser(p.user); err != nil {
			return err
		}
		if err := s.repack(used, to); err != nil {
			return err
		}
		repacked, chunks = append(repacked, p), append(chunks, used...)
	}
	if len(repacked) == 0 {
		return nil
	}
	err := to.Close()
	if err == nil {
		err = s.packs.sync(s.packs.unsynced(chunks)) // before the other copy is removed
	}
	if err != nil {
		return err
	}
	for _, p := range repacked {
		s.packs.dropOld(p, now)
	}
	return nil
}

// repack writes chunks of the store to another pack.
func (s *Store) repack(refs []Ref, to *Putter) error {
	from := s.Reader()
	defer from.Close()
	buf := make([]byte, 0, MaxChunk)
	for _, r := range refs {
		data, err := from.Append(buf[:0], r)
		if errors.Is(err, ErrMissing) {
			return nil // the chunk is damaged; its pack is removed with it
		}
		if err == nil {
			err = to.rewrite(r, data)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
