package fleet

// One host: what it says of itself, and when this scheduler leaves it alone.

import (
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
)

// Host is one host as this scheduler knows it. Its exported fields are to be read; methods change them.
type Host struct {
	// What a placement reads stands first, so that it is in the same few cache lines.
	Local   bool // this daemon's own host
	Up      bool // has a session and said Hello in it
	Quotas  Quotas
	left    left
	Claims  Claims
	Devices Devices

	Peer     job.Peer
	Profile  lease.Profile
	Free     lease.Free // as it said last
	Draining bool
	Detail   string    // why it is draining, for people
	Seen     time.Time // last heard of
	Leases   uint64    // renewals of its leases that were answered

	seq    uint64 // of its last Availability in this session
	hellos uint64
	pauses pauses
	row    row
}

// pauses say when a host is offered nothing, though it is open.
type pauses struct {
	misses    int       // claims in a row that it declined for lack of the room that it had told
	refusals  int       // claims in a row that it did not let queue
	leaseless bool      // it committed itself without a live lease: it is offered nothing before it has one
	until     time.Time // it is offered nothing before
}

// row is the host's place in its table.
type row struct {
	slot    int
	changed *changed // of the table; nil once the host was forgotten
	listed  bool     // in changed
	lastOut *Claim   // the claim that gives way to one that ranks before it; nil if there is a place
}

// changed lists the hosts whose row in the table is to be counted again.
type changed struct{ hosts []*Host }

// Name is what people call the host: its peer id, shortened, if it has told no name.
func (h *Host) Name() string {
	if h.Profile.Name != "" {
		return h.Profile.Name
	}
	return h.Peer.Short()
}

// Open says whether the host takes new tasks, as far as it has told.
func (h *Host) Open() bool { return h.Up && !h.Draining && h.Profile.Worker }

// hello begins a session.
func (h *Host) hello(m lease.Hello, now time.Time) {
	m.Profile.Peer = h.Peer
	h.Profile, h.Up, h.Draining, h.Detail, h.seq, h.Seen = m.Profile, true, false, "", 0, now
	h.hellos++
	h.Devices = devicesOf(h.Profile.GPUs)
	h.SetFree(m.Free)
}

// Availability takes the host's word; false if a newer one has come before.
func (h *Host) Availability(m lease.Availability) bool {
	if m.Seq != 0 && m.Seq <= h.seq {
		return false
	}
	h.seq, h.Draining, h.Detail = m.Seq, m.Draining, m.Detail
	h.SetFree(m.Free)
	return true
}

// Heard notes that the host said something.
func (h *Host) Heard(now time.Time) { h.Seen = now }

// Down ends the session: nothing is free there.
func (h *Host) Down(now time.Time) {
	h.Up, h.Seen = false, now
	h.SetFree(lease.Free{})
}

// SetFree takes the host's word on what is free. All that it committed itself to is in it.
func (h *Host) SetFree(f lease.Free) {
	h.Free, h.Claims.owed = f, nil
	h.Devices.setFree(f.GPUs)
	h.Touch()
}

// Touch has the host's row in the table counted again: something that it rests on has changed, if only the time.
func (h *Host) Touch() {
	h.left.forget()
	if h.row.changed != nil && !h.row.listed {
		h.row.listed = true
		h.row.changed.hosts = append(h.row.changed.hosts, h)
	}
}

// Left is what is left of the host's word after all claims but the queued ones. It is valid until the host changes.
func (h *Host) Left() *lease.Free { return h.left.count(&h.Free, &h.Claims) }

// LeftFor is what is left for a request of the rank: less the queued claims that come before it, too. It is valid
// until the host changes.
func (h *Host) LeftFor(r *Rank) *lease.Free {
	return h.left.countFor(r, &h.Free, &h.Claims, &h.Devices)
}

// Claim adds a claim, which is direct or queued.
func (h *Host) Claim(c *Claim) {
	h.Claims.add(c)
	h.Quotas.ask(c)
	h.Touch()
}

// Unclaim takes a claim away. What the host has committed itself to stays taken until it next says what is free.
func (h *Host) Unclaim(c *Claim) {
	if h.Claims.remove(c) {
		h.Touch()
	}
}

// Hold turns a claim into one that the host has committed itself to, with these devices.
func (h *Host) Hold(c *Claim, devices []string) {
	h.Claims.hold(c, devices)
	h.pauses.misses, h.pauses.refusals = 0, 0
	h.Touch()
}

// SetUnleased says how many tasks wait, besides the claims, until the host has a lease.
func (h *Host) SetUnleased(n int) {
	h.Claims.unleased = n
	h.Touch()
}

// Missed notes that the host had no room for a claim where it had told some, or that it did not let the claim queue.
// It returns how often that happened in a row.
func (h *Host) Missed(c *Claim) (times int) {
	if c.State == Queued {
		h.pauses.refusals++
		return h.pauses.refusals
	}
	h.pauses.misses++
	return h.pauses.misses
}

// Pause has nothing offered to the host before then.
func (h *Host) Pause(until time.Time) {
	h.pauses.until = until
	h.Touch()
}

// PausedUntil is when the host may be offered something again; a time in the past if it may be now.
func (h *Host) PausedUntil() time.Time { return h.pauses.until }

// Leaseless has nothing offered to the host before Leased: it committed itself without a live lease.
func (h *Host) Leaseless() {
	h.pauses.leaseless = true
	h.Touch()
}

// Leased has the host offered tasks again; false if they were offered all along.
func (h *Host) Leased() bool {
	was := h.pauses.leaseless
	if was {
		h.pauses.leaseless = false
		h.Touch()
	}
	return was
}

// Renewed notes that a renewal of the host's lease was answered.
func (h *Host) Renewed() { h.Leases++ }
