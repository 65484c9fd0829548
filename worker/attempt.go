package worker

// What this host knows about an offer, the attempt at a task that comes of it, and the journal group that both belong to.
// Rooms in other files change them.

import (
	"cmp"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
)

// attempt is what a worker knows about one try at one task.
type attempt struct {
	rec      lease.Record
	phase    phase
	group    *group
	offer    *offer          // that its reservation answered; nil after a restart
	dirty    bool            // rec is newer than on disk
	saved    bool            // some rec is, or may be, on disk
	lapse    *timer          // that ends the reservation
	start    *lease.Start    // that made it asked
	known    bool            // to the driver: it was asked for the process, maybe in an earlier life of the daemon
	began    BootTime        // when its process was asked for, then when that began; 0 after a restart
	told     uint64          // number of the newest event that was sent in this session
	deadline BootTime        // the driver ends it then; 0: none, or not known after a restart
	stop     *stopping       // nil: it may go on
	detail   string          // what it waits for before it starts, for people
	waits    map[string]bool // devices whose memory is not back
}

// stopping says that an attempt is to end, and why.
type stopping struct {
	grace  time.Duration
	reason string
	retry  *timer // of a Stop that the driver did not take
}

// runs says whether the attempt has a process, or is about to.
func (a *attempt) runs() bool { return a.phase == starting || a.phase == launched }

// ended says whether nothing can happen to the attempt any more but that its owner acknowledges it.
func (a *attempt) ended() bool { return a.phase == done || a.phase == refused }

// fast says whether an attempt that ends now began a moment ago. About one that began in an earlier life of the daemon
// nothing is known, and nothing is held against anybody.
func (a *attempt) fast(now Moment) bool { return a.began != 0 && now.Boot.Sub(a.began) < fastFailure }

// lasting says whether a restart must not find an older record than this one: its process is to be started now, or never
// was and never will be.
func (a *attempt) lasting() bool {
	return a.phase == starting || a.phase == refused ||
		a.phase == done && !a.rec.Exit.Started // the driver may never have heard of it
}

// move changes the phase. A move that is not in the table is a defect, which is logged.
func (a *attempt) move(t *turn, to phase) {
	if !slices.Contains(moves[a.phase], to) {
		t.log(slog.LevelError, "defect: illegal move of an attempt", slog.String("attempt", a.rec.Attempt.String()),
			slog.String("from", a.phase.String()), slog.String("to", to.String()))
	}
	a.phase, a.rec.Phase = to, to.onDisk()
}

// offerKey names an offer among those of all schedulers.
type offerKey struct {
	peer job.Peer
	id   uint64
}

// offerState is where an offer is.
type offerState int

const (
	offerQueued   offerState = iota // it waits
	offerReserved                   // an attempt holds what it asks for
	offerLapsed                     // its reservation has lapsed
	offerGone                       // it was answered or taken back
)

// offer is an offer of a scheduler.
type offer struct {
	key       offerKey
	msg       lease.Offer
	group     *group
	submitted BootTime // when its job was submitted, as its age said on arrival
	until     BootTime // how long it may wait
	timer     *timer   // ends the wait, once that has begun
	state     offerState
}

// rank is the one order of offers, the same on all hosts but for how long each offer travelled: priority, then the age
// of the job, then names.
func rank(a, b *offer) int {
	if n := cmp.Or(cmp.Compare(b.msg.Priority, a.msg.Priority), cmp.Compare(a.submitted, b.submitted)); n != 0 {
		return n
	}
	return cmp.Or(
		compareAttempts(a.msg.Attempt, b.msg.Attempt),
		cmp.Compare(a.key.peer, b.key.peer), cmp.Compare(a.key.id, b.key.id),
	)
}

// group is what a worker knows about one journal group.
type group struct {
	id      job.Group
	epoch   lease.Epoch // the newest seen
	unsaved bool        // epoch is newer than on disk
	owner   job.Peer    // under that epoch; empty after a restart without attempts of it
	hint    job.Peer    // the owner under an older epoch, from a restart
	sought  job.Peer    // with whom a session is wanted for it
	greeted bool        // events and a renewal were sent in this session of the owner

	session session
	late    []*attempt // asked; they wait for a renewal
	next    BootTime   // when the next Renew is due
	timer   *timer     // for next

	running map[job.Attempt]*attempt // started and not ended
	kept    map[job.Attempt]*attempt // all that have events to tell
}

func newGroup(id job.Group) *group {
	return &group{id: id, running: map[job.Attempt]*attempt{}, kept: map[job.Attempt]*attempt{}}
}

// session is the lease between this host and a group: live until anchor + SessionLease.
type session struct {
	id          lease.Session
	live        bool
	anchor      BootTime   // clock of the newest Renew that was answered
	outstanding []BootTime // clocks of Renews of this session, not answered
	asked       BootTime   // the newest of them
}

// holds says whether the lease with the group is live, and ends it for good if it has run out: no timer is trusted with
// that (R5).
func (g *group) holds(now Moment) bool {
	s := &g.session
	if s.live && now.Boot >= s.anchor.Add(SessionLease) {
		s.live, s.id, s.outstanding = false, 0, nil
	}
	return s.live
}

// answered takes the answer to the Renew with that clock, and says whether it counts: it belongs to the session that is
// current now and to a request that is still open. Deadlines are anchored at the request (R3).
func (g *group) answered(now Moment, id lease.Session, clock BootTime) bool {
	g.holds(now)
	s := &g.session
	i := slices.Index(s.outstanding, clock)
	if id != s.id || i < 0 || now.Boot >= clock.Add(SessionLease) {
		return false
	}
	s.outstanding = slices.Delete(s.outstanding, 0, i+1)
	return true
}

// inOrder are attempts by name.
func inOrder(attempts map[job.Attempt]*attempt) []*attempt {
	return slices.SortedFunc(maps.Values(attempts), func(a, b *attempt) int { return compareAttempts(a.rec.Attempt, b.rec.Attempt) })
}

func compareAttempts(a, b job.Attempt) int {
	return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Task, b.Task), cmp.Compare(a.N, b.N))
}
