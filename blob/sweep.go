package blob

// Making room: trees that nobody needs go, those used least lately first, and
// with them the chunks that no tree is made of.

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// makeRoom frees at least a fifth of the store if it can; not again within a
// moment.
func (s *Store) makeRoom() {
	s.sweeping.Lock()
	defer s.sweeping.Unlock()
	now := time.Now()
	if now.Sub(s.swept) < sweepAgain {
		return
	}
	s.swept = now
	if err := s.sweep(now); err != nil {
		s.log.Warn("no room made for uploads", "error", err)
	}
}

type keptTree struct {
	hash Hash
	used time.Time
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
	kept := keeping{chunks: map[Hash]bool{}, most: s.cfg.Most * 4 / 5}
	for _, t := range trees {
		stays := live[t.hash] || now.Sub(t.used) <= young
		if tree, err := s.unused(t.hash); err == nil && kept.add(tree, stays) {
			continue
		}
		if err := os.Remove(s.tree(t.hash)); err != nil {
			return err
		}
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

func (s *Store) dropChunks(kept map[Hash]bool, now time.Time) error {
	var failed error
	err := s.eachChunk(func(h Hash, info fs.FileInfo) {
		if kept[h] || now.Sub(info.ModTime()) <= young {
			return
		}
		if err := os.Remove(s.chunk(h)); err != nil {
			failed = err
			return
		}
		s.size.Add(-info.Size())
	})
	return errors.Join(err, failed)
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
			all = append(all, keptTree{h, info.ModTime()})
		}
	}
	return all, nil
}

func (s *Store) eachChunk(f func(Hash, fs.FileInfo)) error {
	return filepath.WalkDir(filepath.Join(s.cfg.Dir, "chunks"), func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		h, err := ParseHash(e.Name())
		if err != nil {
			return nil //nolint:nilerr // not one of ours
		}
		if info, err := e.Info(); err == nil {
			f(h, info)
		}
		return nil
	})
}
