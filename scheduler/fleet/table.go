package fleet

// The table of known hosts: what a search compares first lies together.

import (
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
)

// Table is the known hosts. A host keeps its slot for as long as it is known.
type Table struct {
	all     []*Host     // by slot; nil where a host was forgotten
	left    []Footprint // by slot: what is neither held nor promised; nothing if no offer may go there
	most    []Footprint // by slot: what the host could ever give
	queue   []int       // by slot: a task of this priority or above may queue there, if it ranks before the last that does
	vacant  []int       // slots without a host
	byPeer  map[job.Peer]*Host
	local   *Host // this daemon's own; nil if it is not known
	changed *changed
	pools   map[string]*Pool
	kinds   map[kind]*gpu.Device // a device of each kind, for all hosts that have such
}

// NewTable is a table without hosts.
func NewTable() Table {
	return Table{
		changed: &changed{}, byPeer: map[job.Peer]*Host{}, pools: map[string]*Pool{}, kinds: map[kind]*gpu.Device{},
	}
}

// maxKinds bounds the kinds of devices that hosts share a description of. Beyond it sharing begins anew, which costs
// time alone.
const maxKinds = 256

// nobody is above every priority, anybody below.
const (
	nobody  = job.MaxPriority + 1
	anybody = -1
)

// Add gives a host a slot; local is this daemon's own. No host of the peer is in the table.
func (t *Table) Add(p job.Peer, local bool) *Host {
	h := &Host{Peer: p, Local: local}
	h.row.changed = t.changed
	t.byPeer[p] = h
	if local {
		t.local = h
	}
	if n := len(t.vacant); n > 0 {
		h.row.slot = t.vacant[n-1]
		t.vacant = t.vacant[:n-1]
		t.all[h.row.slot] = h
		return h
	}
	h.row.slot = len(t.all)
	t.all = append(t.all, h)
	t.left = append(t.left, nothing)
	t.most = append(t.most, nothing)
	t.queue = append(t.queue, nobody)
	return h
}

// Hello begins a session of a host of the table: it says what it has and what is free.
func (t *Table) Hello(h *Host, m lease.Hello, now time.Time) {
	h.hello(m, now)
	if d := h.Devices.alike; d != nil {
		k := kindOf(d)
		if t.kinds[k] == nil {
			if len(t.kinds) >= maxKinds {
				clear(t.kinds)
			}
			t.kinds[k] = &gpu.Device{Model: d.Model, Class: d.Class, Memory: d.Memory}
		}
		h.Devices.alike = t.kinds[k]
	}
	slot := h.row.slot
	t.most[slot] = footprintOfProfile(&h.Profile)
	for _, p := range t.pools {
		p.has.set(slot, Meets(p.clauses, &h.Profile))
	}
}

// JoinPool is the pool of the clauses, made if there is none; its name is the PoolKey of their request. Each call is
// to be followed by a LeavePool in the end.
func (t *Table) JoinPool(key string, clauses []Clause) *Pool {
	p := t.pools[key]
	if p == nil {
		p = &Pool{key: key, clauses: withoutAmounts(clauses)}
		for slot, h := range t.all {
			if h != nil {
				p.has.set(slot, Meets(p.clauses, &h.Profile))
			}
		}
		t.pools[key] = p
	}
	p.shapes++
	return p
}

// LeavePool forgets a pool that no shape looks for hosts in any more.
func (t *Table) LeavePool(p *Pool) {
	if p.shapes--; p.shapes == 0 {
		delete(t.pools, p.key)
	}
}

// Remove forgets a host of the table.
func (t *Table) Remove(h *Host) {
	delete(t.byPeer, h.Peer)
	if h.Local {
		t.local = nil
	}
	slot := h.row.slot
	t.all[slot] = nil
	t.left[slot], t.most[slot], t.queue[slot] = nothing, nothing, nobody
	t.vacant = append(t.vacant, slot)
	for _, p := range t.pools {
		p.has.set(slot, false)
	}
	h.row.changed = nil
}

// Count brings the rows of the hosts that changed up to date. Searches go by what was counted last.
func (t *Table) Count(now time.Time) {
	for _, h := range t.changed.hosts {
		h.row.listed = false
		if h.row.changed == nil {
			continue // forgotten
		}
		slot := h.row.slot
		t.left[slot], t.queue[slot] = nothing, nobody
		if !h.Open() || h.Claims.full() || h.pauses.leaseless || h.pauses.until.After(now) {
			continue
		}
		t.left[slot] = footprintOfFree(h.Left())
		t.queue[slot] = anybody
		if h.row.lastOut = h.Claims.LastQueued(); h.row.lastOut != nil {
			t.queue[slot] = h.row.lastOut.Rank.Priority
		}
	}
	clear(t.changed.hosts)
	t.changed.hosts = t.changed.hosts[:0]
}

// Host is the known host of this peer id; nil if there is none.
func (t *Table) Host(p job.Peer) *Host { return t.byPeer[p] }

// Local is this daemon's own host; nil if it is not known.
func (t *Table) Local() *Host { return t.local }

// Slots is how many slots there are, those without a host included.
func (t *Table) Slots() int { return len(t.all) }

// Left is what no claim takes of the host as it was counted last; below any request if no offer may go there.
func (t *Table) Left(h *Host) Footprint { return t.left[h.row.slot] }

// Most is what the host could ever give.
func (t *Table) Most(h *Host) Footprint { return t.most[h.row.slot] }

// Queue says whether some tasks may queue at the host, and before which rank they must be; nil if any may.
func (t *Table) Queue(h *Host) (some bool, before *Rank) {
	if t.queue[h.row.slot] == nobody {
		return false, nil
	}
	if h.row.lastOut == nil {
		return true, nil
	}
	return true, &h.row.lastOut.Rank
}

// LongestAway is the host without a session that was last heard of before all others; nil if there is none. Those
// that are busy stay.
func (t *Table) LongestAway(busy func(job.Peer) bool) *Host {
	var oldest *Host
	for _, h := range t.all {
		if h == nil || h.Up || busy(h.Peer) {
			continue
		}
		if oldest == nil || h.Seen.Before(oldest.Seen) || h.Seen.Equal(oldest.Seen) && h.Peer < oldest.Peer {
			oldest = h
		}
	}
	return oldest
}

// AwaySince are the hosts without a session that were last heard of at the time or before.
func (t *Table) AwaySince(at time.Time) []*Host {
	var out []*Host
	for _, h := range t.all {
		if h != nil && !h.Up && !h.Seen.After(at) {
			out = append(out, h)
		}
	}
	return out
}

// Sorted are the known hosts by name, then by peer.
func (t *Table) Sorted() []*Host {
	out := make([]*Host, 0, len(t.all)-len(t.vacant))
	for _, h := range t.all {
		if h != nil {
			out = append(out, h)
		}
	}
	slices.SortFunc(out, func(a, b *Host) int {
		if d := strings.Compare(a.Name(), b.Name()); d != 0 {
			return d
		}
		return strings.Compare(string(a.Peer), string(b.Peer))
	})
	return out
}
