package fleet

// The table of known hosts. What a search compares first is in slices of its own, so that it reads little memory.

import (
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
)

// Table is the known hosts. A host keeps its slot for as long as it is known.
type Table struct {
	all    []*Host     // by slot; nil where a host was forgotten
	left   []Footprint // by slot: what is free less the claims that are not queued; nothing if no offer may go there
	most   []Footprint // by slot: what the host has
	queue  []int       // by slot: the least precedence that may queue there, if the task ranks before the last that does
	yields []int       // by slot: the least precedence of the preemptible tasks there; nobody if there are none
	near   []uint8     // by slot: the rank of its distance
	vacant []int       // slots without a host
	byPeer map[job.Peer]*Host
	local  *Host // this daemon's own; nil if it is not known
	rows   *rows
	pools  map[string]*Pool
	kinds  map[kind]*gpu.Device // a device of each kind, shared by the hosts with such devices
	limits sameLimits
}

// NewTable returns a table without hosts.
func NewTable() Table {
	return Table{
		rows: &rows{}, byPeer: map[job.Peer]*Host{}, pools: map[string]*Pool{}, kinds: map[kind]*gpu.Device{}, limits: sameLimits{},
	}
}

// maxKinds bounds the kinds that are remembered. Beyond it all are forgotten: hosts then share devices only with those
// that come later, which makes searches slower.
const maxKinds = 256

// Table.queue is nobody where no task may queue, and anybody where any task may.
const (
	nobody  = contract.MaxPrecedence + 1
	anybody = -1
)

// Add adds a host; local says that it is this daemon's own. The table must have no host of this peer id.
func (t *Table) Add(p job.Peer, local bool) *Host {
	h := &Host{Peer: p, Local: local}
	h.row.rows = t.rows
	t.byPeer[p] = h
	if local {
		t.local = h
	}
	if n := len(t.vacant); n > 0 {
		h.row.slot = t.vacant[n-1]
		t.vacant = t.vacant[:n-1]
		t.all[h.row.slot], t.near[h.row.slot] = h, nearRank(h)
		return h
	}
	h.row.slot = len(t.all)
	t.all = append(t.all, h)
	t.left = append(t.left, nothing)
	t.most = append(t.most, nothing)
	t.queue = append(t.queue, nobody)
	t.yields = append(t.yields, nobody)
	t.near = append(t.near, nearRank(h))
	t.rows.rooms = append(t.rows.rooms, Room{})
	return h
}

// Hello takes in the message that begins a session of a host: what the host has and what is free there.
func (t *Table) Hello(h *Host, m contract.Hello, now time.Time) {
	hello(h, m, now)
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
	h.Profile.Limits = t.limits.share(h.Profile.Limits)
	slot := h.row.slot
	t.most[slot] = footprintOfProfile(&h.Profile)
	for _, p := range t.pools {
		p.compare(slot, h)
	}
}

// JoinPool returns the pool of the clauses and preferences of a request, whose key is its PoolKey. It makes the pool if
// there is none. Each call needs a call of LeavePool later.
func (t *Table) JoinPool(key string, clauses []Clause, prefers ...job.Preference) *Pool {
	p := t.pools[key]
	if p == nil {
		p = &Pool{key: key, clauses: withoutAmounts(clauses), prefers: prefers, met: make([]bitset, len(prefers))}
		for _, x := range prefers {
			p.most += x.Weight
		}
		for slot, h := range t.all {
			if h != nil {
				p.compare(slot, h)
			}
		}
		t.pools[key] = p
	}
	p.shapes++
	return p
}

// LeavePool deletes the pool once no shape uses it.
func (t *Table) LeavePool(p *Pool) {
	if p.shapes--; p.shapes == 0 {
		delete(t.pools, p.key)
	}
}

// Expel notes that a host is no longer a member of the cluster: it can run nothing, and explanations leave it out. Its
// session must have ended. A Hello makes it a known host again.
func Expel(t *Table, h *Host, now time.Time) {
	p := h.Profile
	t.Hello(h, contract.Hello{Profile: contract.Profile{Name: p.Name, Version: p.Version, Store: p.Store}}, now)
	h.expelled = true
	h.Down(now)
}

// Remove removes a host.
func (t *Table) Remove(h *Host) {
	delete(t.byPeer, h.Peer)
	if h.Local {
		t.local = nil
	}
	slot := h.row.slot
	t.all[slot] = nil
	t.left[slot], t.most[slot], t.queue[slot], t.yields[slot] = nothing, nothing, nobody, nobody
	t.vacant = append(t.vacant, slot)
	for _, p := range t.pools {
		p.has.set(slot, false)
	}
	t.rows.rooms[slot] = Room{}
	h.row.rows = nil
}

// Count brings the rows of changed hosts up to date. Searches see the rows as they were at the last Count.
func (t *Table) Count(now time.Time) {
	for _, h := range t.rows.stale {
		h.row.listed = false
		if h.row.rows == nil {
			continue // the host was removed
		}
		slot := h.row.slot
		t.left[slot], t.queue[slot], t.yields[slot] = nothing, nobody, nobody
		if !h.Open() || h.Claims.full() || h.pauses.leaseless || h.pauses.until.After(now) {
			continue
		}
		left := h.Left()
		t.left[slot], t.rows.rooms[slot] = footprintOfFree(left), RoomOf(&h.Profile, &h.Devices, left)
		t.rows.rooms[slot].plain = h.Claims.queued == 0 && h.Quotas.Users() == 0
		t.queue[slot], t.yields[slot] = anybody, leastYield(&h.Free)
		if h.row.last, h.row.kinds = h.Claims.leavers(h.row.kinds); h.row.last.claim != nil {
			t.queue[slot] = h.row.last.bar.Precedence()
		}
	}
	clear(t.rows.stale)
	t.rows.stale = t.rows.stale[:0]
}

// SetDistance notes what the path to the host costs. This daemon measures it: what a host says of itself does not
// count.
func SetDistance(t *Table, h *Host, d Distance) {
	h.Distance = d
	t.near[h.row.slot] = nearRank(h)
}

// Host returns the known host of this peer id; nil if there is none.
func (t *Table) Host(p job.Peer) *Host { return t.byPeer[p] }

// Local returns this daemon's own host; nil if it is not known.
func (t *Table) Local() *Host { return t.local }

// All iterates over the known hosts of a table.
func All(t *Table) func(yield func(*Host) bool) {
	return func(yield func(*Host) bool) {
		for _, h := range t.all {
			if h != nil && !yield(h) {
				return
			}
		}
	}
}

// Slots returns the number of slots, with and without a host.
func (t *Table) Slots() int { return len(t.all) }

// Row is what a search compares of one host.
type Row struct {
	Host *Host
	Left Footprint // as it was counted last. No request is within it if no offer may go there.
	// Room is what is left of the host, and is valid until Count. It is nil if what is left depends on the request,
	// because claims queue at the host or it has refused users. It is also nil if the host has changed since Count.
	Room *Room
	Free *contract.Free // Left of the host; only if there is a Room
}

// Row returns the row of a slot; see Host.Slot. It does not read the host.
func (t *Table) Row(slot int) Row {
	r := Row{Host: t.all[slot], Left: t.left[slot]}
	if room := &t.rows.rooms[slot]; room.plain {
		r.Room, r.Free = room, &r.Host.left.room
	}
	return r
}

// Most returns what the host has.
func (t *Table) Most(h *Host) Footprint { return t.most[h.row.slot] }

// Queue says whether some tasks may queue at the host, and before which rank they must be. A nil rank means that any
// may.
func (t *Table) Queue(h *Host) (some bool, before *Rank) {
	if t.queue[h.row.slot] == nobody {
		return false, nil
	}
	if h.row.last.claim == nil {
		return true, nil
	}
	return true, &h.row.last.bar
}

// LongestAway returns, of the hosts without a session, the one whose last message came longest ago. It leaves out busy
// hosts, and returns nil if there is no other.
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

// AwaySince returns the hosts without a session whose last message came at this time or before.
func (t *Table) AwaySince(at time.Time) []*Host {
	var out []*Host
	for _, h := range t.all {
		if h != nil && !h.Up && !h.Seen.After(at) {
			out = append(out, h)
		}
	}
	return out
}

// Sorted returns the known hosts by name, then by peer id.
func (t *Table) Sorted() []*Host {
	out := make([]*Host, 0, len(t.all)-len(t.vacant))
	for _, h := range t.all {
		if h != nil && !h.expelled {
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

// leastYield returns the least precedence of the preemptible tasks of a host; nobody if it has none.
func leastYield(f *contract.Free) int {
	if len(f.Preemptible) == 0 {
		return nobody
	}
	return f.Preemptible[0].Precedence()
}
