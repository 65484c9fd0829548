package upload

// The index: the packs of a store, and which chunk lies where.
//
// A chunk that several users have uploaded lies in the pack of the first of them; doubles records who else has uploaded it. A
// user who asks which chunks are missing must not learn what others have, so a chunk is there only for those who have shown
// that they have it.

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// syncers is how many packs are synced at the same time. They share commits of the file system's journal.
const syncers = 8

// packs are the packs of a store.
type packs struct {
	dir   string
	quota *quota
	log   *slog.Logger

	mu    sync.Mutex
	all   map[string]*pack    // guarded by mu; by name
	index map[Hash]indexEntry // guarded by mu; of chunks
}

// indexEntry says where a chunk lies.
type indexEntry struct {
	pack *pack
	at   uint32 // offset in the pack
	size uint32
}

// path returns the path of a pack's file.
func (ps *packs) path(name string) string { return filepath.Join(ps.dir, name) }

// add adds a pack and its chunks to the index.
func (ps *packs) add(p *pack) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.all[p.name] = p
	at := uint32(0)
	for _, r := range p.refs {
		ps.index[r.Hash] = indexEntry{p, at, r.Size}
		at += r.Size
	}
}

// find returns where a chunk lies. Trusted says that its pack may be read without checking hashes.
func (ps *packs) find(h Hash) (there indexEntry, trusted bool) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	there = ps.index[h]
	return there, there.pack != nil && time.Since(there.pack.written) < trustFor
}

// has reports whether a chunk is there, and marks its pack as used.
func (ps *packs) has(r Ref) bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	there := ps.index[r.Hash]
	if there.pack == nil || there.size != r.Size {
		return false
	}
	if now := time.Now(); now.Sub(there.pack.used) > touchAfter {
		there.pack.used = now
		_ = os.Chtimes(ps.path(there.pack.name), now, now) // an error only lets it be pruned sooner
	}
	return true
}

// hasOf is like has, but only for a chunk that lies in a pack of the user.
func (ps *packs) hasOf(user userID, r Ref) bool {
	there, _ := ps.find(r.Hash)
	return there.pack != nil && there.pack.user == user && ps.has(r)
}

// damaged removes a chunk from the index. Pruning frees its disk space.
func (ps *packs) damaged(h Hash, there indexEntry) {
	ps.log.Warn("chunk of an upload is damaged, removed", "hash", h.String())
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.index[h] == there {
		delete(ps.index, h)
	}
}

// drop removes a pack, unless it was removed already.
func (ps *packs) drop(p *pack) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.dropLocked(p)
}

func (ps *packs) dropLocked(p *pack) {
	if ps.all[p.name] != p {
		return
	}
	delete(ps.all, p.name)
	for _, r := range p.refs {
		if ps.index[r.Hash].pack == p {
			delete(ps.index, r.Hash)
		}
	}
	ps.quota.count(p.user, -p.size)
	if err := os.Remove(ps.path(p.name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		ps.log.Warn("pack of uploads not removed", "pack", p.name, "error", err)
	}
}

// old lists the packs that were not used lately, grouped by user.
func (ps *packs) old(now time.Time) []*pack {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	old := slices.DeleteFunc(slices.Collect(maps.Values(ps.all)), func(p *pack) bool { return now.Sub(p.used) <= minAge })
	slices.SortFunc(old, func(a, b *pack) int { return cmp.Or(cmp.Compare(a.user, b.user), cmp.Compare(a.name, b.name)) })
	return old
}

// used lists the chunks of a pack that are kept. Unused is the number of bytes of its other chunks.
func (ps *packs) used(p *pack, kept map[Hash]bool) (used []Ref, unused int64) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, r := range p.refs {
		if kept[r.Hash] && ps.index[r.Hash].pack == p {
			used = append(used, r)
		} else {
			unused += int64(r.Size)
		}
	}
	return used, unused
}

// dropOld removes a pack, unless it was used meanwhile.
func (ps *packs) dropOld(p *pack, now time.Time) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if now.Sub(p.used) > minAge {
		ps.dropLocked(p)
	}
}

// unsynced lists the packs that hold chunks and that this process has not synced yet.
func (ps *packs) unsynced(chunks []Ref) []*pack {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	var all []*pack
	seen := map[*pack]bool{}
	for _, c := range chunks {
		if p := ps.index[c.Hash].pack; p != nil && !p.synced && !seen[p] {
			seen[p] = true
			all = append(all, p)
		}
	}
	return all
}

// sync syncs packs and their directory entries to disk.
func (ps *packs) sync(some []*pack) error {
	if len(some) == 0 {
		return nil
	}
	var g errgroup.Group
	g.SetLimit(syncers)
	for _, p := range some {
		g.Go(func() error {
			err := syncPath(ps.path(p.name))
			if errors.Is(err, fs.ErrNotExist) {
				ps.drop(p)
				err = ErrMissing
			}
			return err
		})
	}
	if err := errors.Join(g.Wait(), syncPath(ps.dir)); err != nil {
		return fmt.Errorf("blob: sync chunks: %w", err)
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, p := range some {
		p.synced = true
	}
	return nil
}

// maxDoubles bounds the entries of one generation, of about 60 bytes each. The older generation is forgotten when the
// newer one is full. Then, and after a restart, a user uploads such a chunk once more.
const maxDoubles = 1 << 17

// doubles remembers which users have uploaded chunks that the store had already. It is safe for concurrent use.
type doubles struct {
	mu         sync.Mutex
	newer, old map[double]struct{} // guarded by mu
}

type double struct {
	user  userID
	chunk Hash
}

func (d *doubles) note(user userID, chunk Hash) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.newer) >= maxDoubles {
		d.newer, d.old = nil, d.newer
	}
	if d.newer == nil {
		d.newer = map[double]struct{}{}
	}
	d.newer[double{user, chunk}] = struct{}{}
}

func (d *doubles) has(user userID, chunk Hash) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	x := double{user, chunk}
	_, is := d.newer[x]
	if !is {
		_, is = d.old[x]
	}
	return is
}
