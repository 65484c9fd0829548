package worker

// What this host knows about an attempt, and about the journal group of it. The parts in other files change them.

import (
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/admission"
	"github.com/musterhq/muster/worker/leaseclock"
	"github.com/musterhq/muster/worker/step"
)

// attempt is what a worker knows about one attempt at one task.
type attempt struct {
	rec       contract.Record
	phase     phase
	group     *group
	offer     *admission.Offer    // the offer that led to it; nil after a restart
	dirty     bool                // rec is newer than on disk
	saved     bool                // a version of rec is on disk, or may be
	lapse     *step.Timer         // ends the reservation
	start     *contract.Start     // the Start that waits in phase asked
	known     bool                // the driver was asked to start it, maybe by an earlier run of the daemon
	began     leaseclock.BootTime // when the driver was asked to start it, then when its process began; 0 after a restart
	sentEvent uint64              // number of the newest event that was sent in this session
	deadline  leaseclock.BootTime // when the driver ends it; 0: never, or not known after a restart
	stop      *stopping           // nil: it was not told to end
	detail    string              // what it waits for before it starts, for people
	stay

	preemptible bool // account.Yield counts it
	yielding
	victimOf *admission.Offer // the offer that it was preempted for, or to which its room is promised
	waits    map[string]bool  // devices whose memory is not free again
	port     int              // of the host, for rank 0 of a gang; 0: none
}

// yielding decides which offers may end a preemptible attempt.
type yielding struct {
	priority int // of its job
	level    int // at present
	offered  int // the level of its offer
	width    int // by which its GPU-time grows; see contract.Width
	work     contract.Work
	relevel  *step.Timer // when its level changes
}

// precedence returns the present precedence of the attempt. Only offers of a higher precedence may end it.
func (y *yielding) precedence() int { return contract.Precedence(y.priority, y.level) }

// stay is how long an attempt holds what it has.
type stay struct {
	limit time.Duration       // the longest time from the start of its process; 0: no limit is known
	frees leaseclock.BootTime // when it has released all of that, at the latest; 0: not known. See freedBy.
}

// stopping says that an attempt was told to end, and why.
type stopping struct {
	grace  time.Duration
	reason string
	retry  *step.Timer // repeats a Stop that the driver could not take
}

// runs reports whether the attempt has a process or is about to get one.
func (a *attempt) runs() bool { return a.phase == starting || a.phase == launched }

// ended reports whether the attempt waits only for the owner's acknowledgement.
func (a *attempt) ended() bool { return a.phase == done || a.phase == refused }

// lasting reports whether the record must survive a power cut: before the process is started, and once it is certain that
// none was started and none will be.
func (a *attempt) lasting() bool {
	return a.phase == starting || a.phase == refused ||
		a.phase == done && !a.rec.Exit.Started // the driver may not know the attempt
}

// move changes the phase. A move that is not in the table is a bug, and is logged.
func (a *attempt) move(t *step.Turn, to phase) {
	if !slices.Contains(moves[a.phase], to) {
		t.Log(slog.LevelError, "defect: illegal move of an attempt", slog.String("attempt", a.rec.Attempt.String()),
			slog.String("from", a.phase.String()), slog.String("to", to.String()))
	}
	a.phase, a.rec.Phase = to, to.onDisk()
}

// group is what a worker knows about one journal group.
type group struct {
	id         job.Group
	epoch      contract.Epoch      // the newest of the owner
	unsaved    bool                // epoch or owner is newer than on disk
	owner      job.Peer            // the owner under epoch; empty after a restart with a ledger of an earlier version if no attempt has that epoch
	bound      bool                // only the owner's commands count
	used       leaseclock.BootTime // when the owner last sent a command
	lastOwner  job.Peer            // the newest owner that an attempt on disk names
	wantedPeer job.Peer            // the peer with which a session is wanted for this group
	resynced   bool                // resync was done in the present session with the owner

	session session
	late    []*attempt          // attempts in phase asked that wait for a renewal
	next    leaseclock.BootTime // when the next Renew is due
	timer   *step.Timer         // fires at next

	refused []refusedAttempt         // attempts that were refused, the oldest first; some of them may have been dropped since
	running map[job.Attempt]*attempt // started and not ended
	kept    map[job.Attempt]*attempt // attempts whose end is not acknowledged
}

// refusedAttempt is an attempt that was refused, and when.
type refusedAttempt struct {
	attempt *attempt
	at      leaseclock.BootTime
}

// there reports whether the attempt still exists.
func (b refusedAttempt) there() bool { return b.attempt.group.kept[b.attempt.rec.Attempt] == b.attempt }

// claim returns the record of the group and its owner that is written to disk.
func (g *group) claim() contract.Claim {
	c := contract.Claim{Group: g.id, Epoch: g.epoch}
	if g.bound {
		c.Owner = g.owner
	}
	return c
}

func newGroup(id job.Group) *group {
	return &group{id: id, running: map[job.Attempt]*attempt{}, kept: map[job.Attempt]*attempt{}}
}

// session is the lease between this host and a group. It is live until anchor + SessionLease.
type session struct {
	id          contract.Session
	live        bool
	anchor      leaseclock.BootTime   // clock of the newest Renew that was answered
	outstanding []leaseclock.BootTime // clocks of the unanswered Renews of this session
	asked       leaseclock.BootTime   // clock of the newest Renew
}

// holds reports whether the lease with the group is live. If the lease has run out, holds ends it for good. Every use of
// the lease calls holds, because a timer might fire too late (R5).
func (g *group) holds(now leaseclock.Moment) bool {
	s := &g.session
	if s.live && now.Boot >= s.anchor.Add(SessionLease) {
		s.live, s.id, s.outstanding = false, 0, nil
	}
	return s.live
}

// answered records the answer to the Renew with that clock. It returns false if the answer does not count, because it
// belongs to another session or to no unanswered Renew, or because the lease that it grants has run out. Deadlines count
// from the time of the request (R3). An answer that this process read late, because it stood still, counts as if it had
// been read in time.
func (g *group) answered(now leaseclock.Moment, id contract.Session, clock leaseclock.BootTime) bool {
	s := &g.session
	i := slices.Index(s.outstanding, clock)
	if id != s.id || i < 0 || now.Boot >= clock.Add(SessionLease) {
		g.holds(now)
		return false
	}
	s.outstanding = slices.Delete(s.outstanding, 0, i+1)
	return true
}

// inOrder returns attempts sorted by name.
func inOrder(attempts map[job.Attempt]*attempt) []*attempt {
	return slices.SortedFunc(maps.Values(attempts), func(a, b *attempt) int { return admission.CompareAttempts(a.rec.Attempt, b.rec.Attempt) })
}
