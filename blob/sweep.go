package blob

// Making room: trees that nobody needs go, those used least lately first, and
// with them the chunks that no tree is made of.

import (
	"cmp"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// deadShare is the part of a pack, an eighth, that may be of no use before what
// is of use is written anew.
const deadShare = 8

type keptTree struct {
	hash Hash
	used time.Time
	size int64 // of its encoding
}

func (s *Store) sweep(now time.Time) error {
	live := map[Hash]bool{}
	if s.cfg.Live != nil {
		var err error
		if live, err = s.cfg.Live(); err != nil {
			return err
		}
	}
	trees, err := s.trees()
	if err != nil {
		return err
	}
	// The live ones count first, then the rest as far as there is room.
	slices.SortFunc(trees, func(a, b keptTree) int {
		if live[a.hash] != live[b.hash] {
			if live[a.hash] {
				return -1
			}
			return 1
		}
		return b.used.Compare(a.used)
	})
	kept := keeping{chunks: map[Hash]bool{}, most: s.enough()}
	for _, t := range trees {
		stays := live[t.hash] || now.Sub(t.used) <= young
		if tree, err := s.unused(t.hash); err == nil && kept.add(tree, stays) {
			continue
		}
		if err := os.Remove(s.tree(t.hash)); err != nil {
			return err
		}
		s.unlist(t.hash)
	}
	return s.dropChunks(kept.chunks, now)
}

// keeping is what stays.
type keeping struct {
	chunks map[Hash]bool
	bytes  int64
	most   int64
}

// add keeps a tree's chunks if there is room for them, or if it stays anyway.
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

// unused reads a tree without noting a use.
func (s *Store) unused(h Hash) (Tree, error) {
	text, err := os.ReadFile(s.tree(h))
	if err != nil {
		return Tree{}, err
	}
	return ParseTree(text)
}

// dropChunks removes the packs that were not of use lately, less the chunks that
// are kept: those are written anew.
func (s *Store) dropChunks(kept map[Hash]bool, now time.Time) error {
	s.mu.Lock()
	old := slices.DeleteFunc(slices.Collect(maps.Values(s.packs)), func(p *pack) bool { return now.Sub(p.used) <= young })
	s.mu.Unlock()
	var moved []*pack
	var chunks []Ref
	slices.SortFunc(old, func(a, b *pack) int { return cmp.Or(cmp.Compare(a.by, b.by), cmp.Compare(a.name, b.name)) })
	to := s.Putter(false)
	defer to.Discard()
	for _, p := range old {
		stay, dead := s.stay(p, kept)
		switch {
		case dead <= p.size/deadShare:
			continue
		case len(stay) == 0:
			s.dropOld(p, now)
			continue
		}
		if err := to.turn(p.by); err != nil {
			return err
		}
		if err := s.move(stay, to); err != nil {
			return err
		}
		moved, chunks = append(moved, p), append(chunks, stay...)
	}
	if len(moved) == 0 {
		return nil
	}
	err := to.Close()
	if err == nil {
		err = s.syncPacks(s.unsynced(chunks)) // before the only other copy goes
	}
	if err != nil {
		return err
	}
	for _, p := range moved {
		s.dropOld(p, now)
	}
	return nil
}

// stay lists the chunks of a pack that are kept, and how many bytes are not.
func (s *Store) stay(p *pack, kept map[Hash]bool) (stay []Ref, dead int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range p.refs {
		if kept[r.Hash] && s.chunks[r.Hash].pack == p {
			stay = append(stay, r)
		} else {
			dead += int64(r.Size)
		}
	}
	return stay, dead
}

// dropOld removes a pack, unless it has come to be of use.
func (s *Store) dropOld(p *pack, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(p.used) > young {
		s.dropLocked(p)
	}
}

// move writes chunks that are here once more.
func (s *Store) move(refs []Ref, to *Putter) error {
	from := s.Reader()
	defer from.Close()
	buf := make([]byte, 0, MaxChunk)
	for _, r := range refs {
		data, err := from.Append(buf[:0], r)
		if errors.Is(err, ErrMissing) {
			return nil // it was damaged, and its pack is dropped
		}
		if err == nil {
			err = to.again(r, data)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) trees() ([]keptTree, error) {
	entries, err := os.ReadDir(filepath.Join(s.cfg.Dir, "trees"))
	if err != nil {
		return nil, err
	}
	var all []keptTree
	for _, e := range entries {
		h, err := ParseHash(e.Name())
		if err != nil {
			continue
		}
		if info, err := e.Info(); err == nil {
			all = append(all, keptTree{h, info.ModTime(), info.Size()})
		}
	}
	return all, nil
}
