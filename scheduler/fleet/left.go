package fleet

// What is left of a host: what is free by its last message, less the claims on it.

import (
	"slices"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
)

// left is what is left of a host. It is worked out on demand, and kept until the host changes.
type left struct {
	known  bool          // room is worked out
	queues bool          // behind and last are worked out
	room   contract.Free // what is free less all claims but the queued ones
	behind contract.Free // room less the queued claims
	last   *Rank         // of the last queued claim; nil if none is queued
}

// forget discards what was worked out.
func (l *left) forget() { l.known, l.queues = false, false }

// count subtracts all claims but the queued ones from what the host said.
func (l *left) count(told *contract.Free, cs *Claims) *contract.Free {
	if l.known {
		return &l.room
	}
	gpus := append(l.room.GPUs[:0], told.GPUs...)
	l.room, l.known = *told, true
	l.room.GPUs = gpus
	for _, c := range cs.owed {
		take(c.need, &l.room, c.devices)
	}
	for _, c := range cs.all {
		if c.State == Direct {
			take(c.Need, &l.room, c.Devices)
		}
	}
	return &l.room
}

// countFor also subtracts the queued claims that rank before r. It does not subtract claims for which other hosts keep
// what they need nor, if the host is idle, spare claims.
func (l *left) countFor(r *Rank, told *contract.Free, cs *Claims, d *Devices, idle bool) *contract.Free {
	room := l.count(told, cs)
	if cs.queued == 0 {
		return room
	}
	if !l.queues {
		l.behind, l.last = lessQueued(room, cs, d, nil, idle)
		l.queues = true
	}
	if l.last == nil || l.last.Compare(r) < 0 {
		return &l.behind
	}
	free, _ := lessQueued(room, cs, d, r, idle)
	return &free
}

// lessQueued returns what is left of room once the queued claims that rank before this rank have what they need, or as
// much of it as there is. If before is nil, all queued claims count. last is the rank of the last of them.
func lessQueued(room *contract.Free, cs *Claims, d *Devices, before *Rank, idle bool) (free contract.Free, last *Rank) {
	free = *room
	free.GPUs = slices.Clone(room.GPUs)
	for _, c := range cs.all {
		if c.State != Queued || c.Elsewhere || idle && c.Spare || before != nil && c.Rank.Compare(before) >= 0 {
			continue
		}
		if last == nil || last.Compare(&c.Rank) < 0 {
			last = &c.Rank
		}
		if d.sound(c.Need, room.Quarantined) {
			able := choose(c.Need, &free, d.byUUID)
			take(c.Need, &free, able[:min(len(able), gpu.Count(c.Need))])
		}
	}
	return free, last
}
