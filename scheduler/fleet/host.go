package fleet

// One host: what it said last, and when nothing is offered to it.

import (
	"slices"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
)

// Host is one host as this scheduler knows it. Other packages read its exported fields and change them by methods only.
type Host struct {
	// The fields that a placement reads come first, so that they share few cache lines.
	Local   bool // this daemon's own host
	Up      bool // has a session and has said Hello in it
	Quotas  Quotas
	left    left
	Claims  Claims
	Devices Devices

	Peer     job.Peer
	Profile  contract.Profile
	Free     contract.Free // as the host said last
	Draining bool
	Detail   string    // why it is draining, for people
	Seen     time.Time // when a message of the host came last
	Address  string    // at which its session reaches it directly; empty if a relay carries the session, and for the own host
	Leases   uint64    // counts the answered renewals of its leases
	Distance Distance  // of the path to it; changed by SetDistance

	rest rest

	expelled bool // see Expel
	told     reported
	pauses   pauses
	row      row
}

// reported is what follows from the messages of a host.
type reported struct {
	facts  job.Facts // of Profile
	signed job.Facts // facts, with only the labels that are signed
	seq    uint64    // of the last Availability in this session
	hellos uint64    // counts the sessions
	kept   []kept    // what the host keeps of what is free; see KeptFrom
}

// of returns the facts that constraints compare. If trusted is set, only signed labels count.
func (t *reported) of(trusted bool) *job.Facts {
	if trusted {
		return &t.signed
	}
	return &t.facts
}

// rest says whether what is free has stayed the same, and how often it has changed.
type rest struct {
	idle    bool   // see Idle
	changes uint64 // how often what is free has changed
}

// pauses say when nothing is offered to a host although it is open.
type pauses struct {
	misses    int       // direct claims in a row that the host declined for lack of room that it had reported
	refusals  int       // claims in a row that the host did not let queue
	leaseless bool      // the host committed without a live lease: nothing is offered to it before it has one
	until     time.Time // nothing is offered to it before this
}

// row is the place of the host in its table.
type row struct {
	slot   int
	rows   *rows    // of the table; nil once the host is forgotten
	listed bool     // in rows.stale
	last   leaver   // the queued claim that gives up its place, among all
	kinds  []leaver // the same for the kinds of claims of which no more may queue
}

// rows is the part of a table that its hosts change.
type rows struct {
	stale []*Host // the hosts whose rows are out of date
	rooms []Room  // by slot
}

// Name returns the name of the host for people: a short form of its peer id if it has none.
func (h *Host) Name() string {
	if h.Profile.Name != "" {
		return h.Profile.Name
	}
	return h.Peer.Short()
}

// Slot returns the slot of the host in its table.
func (h *Host) Slot() int { return h.row.slot }

// Open says whether the host takes new tasks, by what it said last.
func (h *Host) Open() bool { return h.Up && !h.Draining && h.Profile.Worker }

// hello takes in the message that begins a session.
func hello(h *Host, m contract.Hello, now time.Time) {
	m.Profile.Peer = h.Peer
	h.Profile, h.Up, h.Draining, h.Detail, h.told.seq, h.Seen = m.Profile, true, false, "", 0, now
	h.told.hellos++
	h.told.kept = nil
	h.expelled = false
	h.told.facts = contract.FactsOf(&h.Profile)
	h.told.signed = h.told.facts.Trusted()
	h.Devices = devicesOf(h.Profile.GPUs)
	h.SetFree(m.Free)
}

// Availability takes in what is free. Heard must have been called for the message. It returns false if a newer message
// has come before.
func (h *Host) Availability(m contract.Availability) bool {
	if m.Seq != 0 && m.Seq <= h.told.seq {
		return false
	}
	h.told.seq, h.Draining, h.Detail, h.told.kept = m.Seq, m.Draining, m.Detail, keptOf(&m, h.Seen)
	h.SetFree(m.Free)
	return true
}

// keptOf returns what a host says that it keeps.
func keptOf(m *contract.Availability, now time.Time) []kept {
	if len(m.Kept) == 0 {
		return nil
	}
	out := make([]kept, len(m.Kept))
	for i, k := range m.Kept {
		out[i] = kept{Kept: k}
		if k.For > 0 {
			out[i].until = now.Add(k.For)
		}
		for _, n := range k.GPUs {
			if n < len(m.Free.GPUs) {
				out[i].devices = append(out[i].devices, m.Free.GPUs[n].UUID)
			}
		}
	}
	return out
}

// Heard notes that a message of the host came.
func (h *Host) Heard(now time.Time) { h.Seen = now }

// Down ends the session. Nothing counts as free there any more.
func (h *Host) Down(now time.Time) {
	h.Up, h.Seen, h.told.kept = false, now, nil
	h.SetFree(contract.Free{})
}

// Idle notes that what is free has not changed for a while, so none of the queued claims fits. Until what is free
// changes, any request may then have what is not kept for one of them. It returns false if that was noted before.
func (h *Host) Idle() (news bool) {
	if h.rest.idle {
		return false
	}
	h.rest.idle = true
	h.Touch()
	return true
}

// Changes returns how often what is free has changed.
func (h *Host) Changes() uint64 { return h.rest.changes }

// SetFree takes in what is free. What the host has reserved is not part of it.
func (h *Host) SetFree(f contract.Free) {
	o := &h.Free
	changed := f.CPUs != o.CPUs || f.Memory != o.Memory || f.Tasks != o.Tasks || f.Exclusive != o.Exclusive || !slices.Equal(f.GPUs, o.GPUs)
	if changed {
		h.rest.idle = false
		h.rest.changes++
	}
	h.Free, h.Claims.owed = f, nil
	h.Devices.setFree(f.GPUs)
	h.Touch()
}

// Touch marks the row of the host in the table as out of date. It is called when anything that the row depends on has
// changed, and when a pause is over.
func (h *Host) Touch() {
	h.left.forget()
	if h.row.rows == nil {
		return
	}
	h.row.rows.rooms[h.row.slot].plain = false
	if !h.row.listed {
		h.row.listed = true
		h.row.rows.stale = append(h.row.rows.stale, h)
	}
}

// Left returns what is free less all claims but the queued ones. It is valid until the host changes.
func (h *Host) Left() *contract.Free { return h.left.count(&h.Free, &h.Claims) }

// LeftFor returns what is free for a request of this rank: Left less the queued claims that rank before it. It is valid
// until the host changes.
func (h *Host) LeftFor(r *Rank) *contract.Free {
	return h.left.countFor(r, &h.Free, &h.Claims, &h.Devices, h.rest.idle)
}

// RefuseQuota notes that the host refused the need to the user; see Quotas.
func (h *Host) RefuseQuota(user string, need job.Resources, why string) (times int, forgotten string) {
	if h.row.rows != nil {
		h.row.rows.rooms[h.row.slot].plain = false
	}
	return h.Quotas.refuse(user, need, why)
}

// RefuseUser notes that the host has no account of the user; see Quotas.
func RefuseUser(h *Host, user string) (times int, forgotten string) {
	if h.row.rows != nil {
		h.row.rows.rooms[h.row.slot].plain = false
	}
	return h.Quotas.refuseUser(user)
}

// Claim adds a direct or queued claim.
func (h *Host) Claim(c *Claim) {
	h.Claims.add(c)
	h.Quotas.ask(c)
	h.Touch()
}

// Unclaim removes a claim. What the host has reserved for it counts as taken until the host next says what is free.
func (h *Host) Unclaim(c *Claim) {
	if h.Claims.remove(c) {
		h.Touch()
	}
}

// Hold notes that the host has reserved these devices for the claim: it has committed.
func (h *Host) Hold(c *Claim, devices []string) {
	h.Claims.hold(c, devices)
	h.pauses.misses, h.pauses.refusals = 0, 0
	h.Touch()
}

// Gather notes whether the gang of the claim holds places at hosts, and lacks others.
func Gather(h *Host, c *Claim, gathers bool) {
	if c.Gathers != gathers {
		c.Gathers = gathers
		h.Touch()
	}
}

// SetUnleased sets how many tasks without a claim wait until the host has a lease.
func (h *Host) SetUnleased(n int) {
	h.Claims.unleased = n
	h.Touch()
}

// Missed notes that the host declined a direct claim for lack of room that it had reported, or that it did not let a
// claim queue. It returns how often in a row that has happened.
func (h *Host) Missed(c *Claim) (times int) {
	if c.State == Queued {
		h.pauses.refusals++
		return h.pauses.refusals
	}
	h.pauses.misses++
	return h.pauses.misses
}

// Pause keeps offers from the host until this time.
func (h *Host) Pause(until time.Time) {
	h.pauses.until = until
	h.Touch()
}

// PausedUntil returns when the host may be offered something again. The time is in the past if it may be now.
func (h *Host) PausedUntil() time.Time { return h.pauses.until }

// Leaseless keeps offers from the host until Leased is called, because it has committed without a live lease.
func (h *Host) Leaseless() {
	h.pauses.leaseless = true
	h.Touch()
}

// Leased ends the pause that Leaseless began. It returns false if there was none.
func (h *Host) Leased() bool {
	was := h.pauses.leaseless
	if was {
		h.pauses.leaseless = false
		h.Touch()
	}
	return was
}

// Renewed counts an answered renewal of the host's lease.
func (h *Host) Renewed() { h.Leases++ }

// nearRank returns the rank of the host by the cost of the path to it. This daemon's own host has rank 0.
func nearRank(h *Host) uint8 {
	if h.Local {
		return 0
	}
	return uint8(h.Distance.Rank())
}
