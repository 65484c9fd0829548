package worker

// What this host knows about an offer, about the attempt that it leads to, and about the journal group of both. The
// parts in other files change them.

import (
	"cmp"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/internal/fairshare"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/leaseclock"
	"github.com/musterhq/muster/worker/step"
)

// attempt is what a worker knows about one attempt at one task.
type attempt struct {
	rec      contract.Record
	phase    phase
	group    *group
	offer    *offer              // the offer that led to it; nil after a restart
	dirty    bool                // rec is newer than on disk
	saved    bool                // a version of rec is on disk, or may be
	lapse    *step.Timer         // ends the reservation
	start    *contract.Start     // the Start that waits in phase asked
	known    bool                // the driver was asked to start it, maybe by an earlier run of the daemon
	began    leaseclock.BootTime // when the driver was asked to start it, then when its process began; 0 after a restart
	told     uint64              // number of the newest event that was sent in this session
	deadline leaseclock.BootTime // when the driver ends it; 0: never, or not known after a restart
	stop     *stopping           // nil: it was not told to end
	detail   string              // what it waits for before it starts, for people
	stay

	preemptible bool // account.Yield counts it
	yielding
	victimOf *offer          // the offer that it was preempted for, or to which its room is promised
	waits    map[string]bool // devices whose memory is not free again
	port     int             // of the host, for rank 0 of a gang; 0: none
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

// offerKey identifies an offer among those of all schedulers.
type offerKey struct {
	peer job.Peer
	id   uint64
}

// account returns the account to which the usage of the offer's task is charged.
func (o *offer) account() fairshare.Account {
	return fairshare.Account{User: o.msg.User, Project: o.msg.Project}
}

// makesRoom reports whether tasks end for the offer, or are promised to it.
func (o *offer) makesRoom() bool { return o.preempted || o.conditional }

// offerState is the state of an offer.
type offerState int

const (
	offerQueued   offerState = iota // it waits in the queue
	offerReserved                   // an attempt holds its resources
	offerLapsed                     // its reservation has lapsed
	offerGone                       // it was answered or withdrawn
)

// offer is an offer of a scheduler.
type offer struct {
	key       offerKey
	msg       contract.Offer
	group     *group
	submitted leaseclock.BootTime // when its job was submitted, from the job's age when the offer arrived
	until     leaseclock.BootTime // how long it may wait
	timer     *step.Timer         // fires at until; nil: it has not had to wait yet
	state     offerState
	standing  fairshare.Standing
	turn      uint64 // when it got its turn, counted by the queue; 0: not yet
	preempted bool   // preemption has made room for it, or could not

	booked booking  // of the last pass
	turns  rota     // of setting aside; a gang skips the first one
	told   forecast // the last one that was sent to its scheduler

	// Of gangs only:
	lead        uint64              // the earliest turn of this offer and of those after it by rank; 0: none
	last        *offer              // the last one, by use, of this offer and those before it by rank
	since       leaseclock.BootTime // its first Commit; 0: there was none
	conditional bool                // that Commit was a conditional one, and the offer is still queued
	promised    []*attempt          // the tasks that the conditional Commit named
	firm        bool                // all members have committed: the promised tasks are to be ended, and no offer may revoke the reservation
}

// booking is the time and the devices for which an offer is booked; zero if it is not.
type booking struct {
	at      leaseclock.BootTime
	devices []string
}

// forecastKind is what is known of the start of an offer.
type forecastKind int

const (
	unforeseen forecastKind = iota // nothing
	startsBy                       // it is booked
	keptAside                      // what is free is set aside for it until a time
	sharedOut                      // other tasks may have what is free until a time
)

// keptFor is the part of the free resources that is kept for one offer.
type keptFor struct {
	offer  *offer
	below  bool // it is kept only from offers of a lower priority
	cpus   int
	memory job.Size
	milli  int                 // thousandths of each of the devices
	held   []string            // UUIDs of the devices
	until  leaseclock.BootTime // never: not known
	starts bool                // the offer is booked for that time
}

// forecast is what is known of the start of an offer.
type forecast struct {
	offer     *offer
	kind      forecastKind
	at        leaseclock.BootTime
	elsewhere bool // nothing is kept for it, because another host has booked it
}

// rank orders offers by priority, then by the age of the job, then by name. The order is nearly the same on all hosts:
// the age leaves out the time for which the offer travelled, which differs from host to host. For gangs the order is
// exactly the same; see gangs.Add.
func rank(a, b *offer) int {
	if n := cmp.Or(cmp.Compare(b.msg.Precedence(), a.msg.Precedence()), cmp.Compare(a.submitted, b.submitted)); n != 0 {
		return n
	}
	return cmp.Or(
		cmp.Compare(a.msg.Order, b.msg.Order), compareAttempts(a.msg.Attempt, b.msg.Attempt),
		cmp.Compare(a.key.peer, b.key.peer), cmp.Compare(a.key.id, b.key.id),
	)
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

	refused []buried                 // attempts that were refused, the oldest first; some of them may have been dropped since
	running map[job.Attempt]*attempt // started and not ended
	kept    map[job.Attempt]*attempt // attempts whose end is not acknowledged
}

// buried is an attempt that was refused, and when.
type buried struct {
	attempt *attempt
	at      leaseclock.BootTime
}

// there reports whether the attempt still exists.
func (b buried) there() bool { return b.attempt.group.kept[b.attempt.rec.Attempt] == b.attempt }

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
	return slices.SortedFunc(maps.Values(attempts), func(a, b *attempt) int { return compareAttempts(a.rec.Attempt, b.rec.Attempt) })
}

func compareAttempts(a, b job.Attempt) int {
	return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Task, b.Task), cmp.Compare(a.N, b.N))
}
