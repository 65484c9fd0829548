package fleet

// What is left of a host: its word, less the claims on it.

import (
	"slices"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
)

// left is worked out when it is asked for, and kept until something changes.
type left struct {
	known  bool
	queues bool       // behind and last are known
	room   lease.Free // less all claims but the queued ones
	behind lease.Free // less the queued ones, too
	last   *Rank      // of the last of those that queue with what they need; nil if none does
}

// forget has all worked out again. The devices' memory is used again.
func (l *left) forget() { l.known, l.queues = false, false }

// Left is what is left of the host's word after all claims but the queued ones. It is valid until the host changes.
func (h *Host) Left() *lease.Free {
	l := &h.left
	if l.known {
		return &l.room
	}
	gpus := append(l.room.GPUs[:0], h.Free.GPUs...)
	l.room, l.known = h.Free, true
	l.room.GPUs = gpus
	for _, c := range h.claims.owed {
		take(c.need, &l.room, c.devices)
	}
	for _, c := range h.claims.all {
		if c.State == Direct {
			take(c.Need, &l.room, c.Devices)
		}
	}
	return &l.room
}

// LeftFor is what is left for the request: less all claims, but for the queued ones that rank behind it. It is valid
// until the host changes.
func (h *Host) LeftFor(r *Request) *lease.Free {
	if h.claims.queued == 0 {
		return h.Left()
	}
	l := &h.left
	if !l.queues {
		l.behind, l.last = h.lessQueued(nil)
		l.queues = true
	}
	if l.last == nil || l.last.Compare(&r.Rank) < 0 {
		return &l.behind
	}
	free, _ := h.lessQueued(&r.Rank)
	return &free
}

// lessQueued is what is left when all that queue before the rank have what they need, or as much of it as there is;
// nil is behind all. last is the last of them.
func (h *Host) lessQueued(before *Rank) (free lease.Free, last *Rank) {
	free = *h.Left()
	free.GPUs = slices.Clone(free.GPUs)
	for _, c := range h.claims.all {
		if c.State != Queued || before != nil && c.Rank.Compare(before) >= 0 {
			continue
		}
		if last == nil || last.Compare(&c.Rank) < 0 {
			last = &c.Rank
		}
		if h.sound(c.Need) {
			able := choose(c.Need, &free, h.devices.byUUID)
			take(c.Need, &free, able[:min(len(able), gpusOf(c.Need))])
		}
	}
	return free, last
}

// FitsNow says whether the request could be met now.
func (h *Host) FitsNow(r *Request) bool { return !h.full() && h.Suffices(r.Need, h.LeftFor(r)) }

// Fit says with which devices the need could be met from what is free of the host; what it lacks otherwise: "cpus",
// "memory" or "gpus".
func (h *Host) Fit(need job.Resources, free *lease.Free) (chosen []string, lack string) {
	return fits(need, free, h.devices.byUUID)
}

// Suffices says whether the need could be met from what is free of the host, as Fit does, without choosing devices.
// The devices of free are those that the host told last.
func (h *Host) Suffices(need job.Resources, free *lease.Free) bool {
	if free.CPUs < need.CPUs || free.Memory < need.Memory {
		return false
	}
	n := gpusOf(need)
	if n == 0 {
		return true
	}
	milli := shareMilli(need)
	like := h.devices.alike // the device that was looked at last, and what came of it
	meets := like != nil && lease.GPUMeets(*like, need)
	same := like != nil && h.devices.listed
	if same && !meets {
		return false
	}
	for i := range free.GPUs {
		g := &free.GPUs[i]
		if g.Milli < milli || g.Memory < need.GPUMemory {
			continue
		}
		if !same {
			d := h.devices.ofFree[i]
			if d == nil {
				continue
			}
			if like == nil || kindOf(d) != kindOf(like) {
				like, meets = d, lease.GPUMeets(*d, need)
			}
		}
		if meets {
			if n--; n == 0 {
				return true
			}
		}
	}
	return false
}

// Alike is a device that all of the host's are like, as far as a need can tell; nil if they differ.
func (h *Host) Alike() *gpu.Device { return h.devices.alike }

// sound says whether the host could meet the need with devices that are not in quarantine. Nothing is kept for a
// claim that waits for a repair.
func (h *Host) sound(need job.Resources) bool {
	n := gpusOf(need)
	if n == 0 || len(h.Free.Aside) == 0 {
		return true
	}
	return meeting(slices.DeleteFunc(slices.Clone(h.Profile.GPUs), func(d gpu.Device) bool {
		return slices.Contains(h.Free.Aside, d.UUID)
	}), need) >= n
}

// LacksQuarantined says whether the need does not fit, and would if the devices in quarantine were given away, too.
func (h *Host) LacksQuarantined(need job.Resources) bool {
	if len(h.Free.Aside) == 0 {
		return false
	}
	if _, lack := h.Fit(need, &h.Free); lack != "gpus" {
		return false
	}
	free := h.Free
	free.GPUs = slices.Clone(free.GPUs)
	for _, uuid := range free.Aside {
		free.GPUs = append(free.GPUs, lease.FreeGPU{UUID: uuid, Memory: h.devices.byUUID[uuid].Memory, Milli: wholeMilli})
	}
	_, lack := h.Fit(need, &free)
	return lack == ""
}

// OverQuota is why the host would refuse the shape for what its user holds there; empty if it is not known to, or if
// a task may find out.
func (h *Host) OverQuota(s *Shape) string {
	if len(h.Quotas.users) == 0 {
		return ""
	}
	return h.Quotas.over(s.User, s.Need)
}

// Claim adds a claim that is direct or queued.
func (h *Host) Claim(c *Claim) {
	h.claims.add(c)
	h.Quotas.ask(c)
	h.Touch()
}

// Unclaim takes a claim away. What the host has committed itself to stays taken until it next says what is free.
func (h *Host) Unclaim(c *Claim) {
	if h.claims.remove(c) {
		h.Touch()
	}
}

// Hold turns a claim into one that the host has committed itself to, with these devices.
func (h *Host) Hold(c *Claim, devices []string) {
	h.claims.hold(c, devices)
	h.pauses.misses, h.pauses.refusals = 0, 0
	h.Touch()
}

// SetUnleased says how many tasks wait, besides the claims, until the host has a lease.
func (h *Host) SetUnleased(n int) {
	h.claims.unleased = n
	h.Touch()
}

// Claims lists the ids of the claims on the host, oldest first.
func (h *Host) Claims() []uint64 {
	ids := make([]uint64, len(h.claims.all))
	for i, c := range h.claims.all {
		ids[i] = c.ID
	}
	return ids
}

// Queued counts the claims that queue.
func (h *Host) Queued() int { return h.claims.queued }

// LastQueued is the claim that gives way to one that ranks before it; nil if there is a place in the queue.
func (h *Host) LastQueued() *Claim { return h.claims.last() }

// Idle says whether no claim is on the host, and nothing waits for its lease.
func (h *Host) Idle() bool { return len(h.claims.all)+h.claims.unleased == 0 }

// full says whether there are as many claims as may be.
func (h *Host) full() bool { return len(h.claims.all)+h.claims.unleased >= MaxClaims }
