package fabric

// Which paths the copies of files took.

import (
	"cmp"
	"encoding/binary"
	"slices"
)

// PathStats is how often a path between two leaves was taken.
type PathStats struct {
	Nodes  []int // the switches on it, in order; empty: a link joins the two hosts
	Copies int64
	Bytes  int64 // of these copies
}

// maxPaths bounds the different paths that are counted. Copies over further paths are not counted here.
const maxPaths = 1 << 16

// uses counts paths by the switches on them.
type uses struct {
	of  map[string]*PathStats
	key []byte
}

// add counts a copy that has ended.
func (u *uses) add(f *Fabric, path []int32, bytes int64) {
	u.key = u.key[:0]
	for _, l := range path[:max(len(path)-1, 0)] { // the last link leads to a host
		u.key = binary.BigEndian.AppendUint32(u.key, uint32(f.routes.ends[l]))
	}
	x := u.of[string(u.key)]
	if x == nil {
		if len(u.of) >= maxPaths {
			return
		}
		x = &PathStats{}
		for _, l := range path[:max(len(path)-1, 0)] {
			x.Nodes = append(x.Nodes, int(f.routes.ends[l]))
		}
		if u.of == nil {
			u.of = map[string]*PathStats{}
		}
		u.of[string(u.key)] = x
	}
	x.Copies++
	x.Bytes += bytes
}

// Paths returns at most this number of the paths that finished copies have taken, the one with the most bytes first.
func (f *Fabric) Paths(most int) []PathStats {
	all := make([]PathStats, 0, len(f.uses.of))
	for _, x := range f.uses.of {
		all = append(all, *x)
	}
	slices.SortFunc(all, func(a, b PathStats) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(b.Copies, a.Copies), slices.Compare(a.Nodes, b.Nodes))
	})
	return all[:min(most, len(all))]
}
