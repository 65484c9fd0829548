package fleet

// What is left of a host: its word, less the claims on it.

import (
	"slices"

	"github.com/musterhq/muster/lease"
)

// left is worked out when it is asked for, and kept until it is forgotten.
type left struct {
	known  bool       // room is
	queues bool       // behind and last are
	room   lease.Free // less all claims but the queued ones
	behind lease.Free // less the queued ones, too
	last   *Rank      // of the last queued claim; nil if none queues
}

// forget has all worked out again. The memory for the devices is used again.
func (l *left) forget() { l.known, l.queues = false, false }

// count takes all claims but the queued ones from what the host told.
func (l *left) count(told *lease.Free, cs *Claims) *lease.Free {
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

// countFor takes the queued claims that come before the rank as well.
func (l *left) countFor(r *Rank, told *lease.Free, cs *Claims, d *Devices) *lease.Free {
	room := l.count(told, cs)
	if cs.queued == 0 {
		return room
	}
	if !l.queues {
		l.behind, l.last = lessQueued(room, cs, d, nil)
		l.queues = true
	}
	if l.last == nil || l.last.Compare(r) < 0 {
		return &l.behind
	}
	free, _ := lessQueued(room, cs, d, r)
	return &free
}

// lessQueued is what is left when all that queue before the rank have what they need, or as much of it as there is;
// for nil, all that queue. last is the last of them.
func lessQueued(room *lease.Free, cs *Claims, d *Devices, before *Rank) (free lease.Free, last *Rank) {
	free = *room
	free.GPUs = slices.Clone(room.GPUs)
	for _, c := range cs.all {
		if c.State != Queued || before != nil && c.Rank.Compare(before) >= 0 {
			continue
		}
		if last == nil || last.Compare(&c.Rank) < 0 {
			last = &c.Rank
		}
		if d.sound(c.Need, room.Quarantined) {
			able := choose(c.Need, &free, d.byUUID)
			take(c.Need, &free, able[:min(len(able), gpusOf(c.Need))])
		}
	}
	return free, last
}
