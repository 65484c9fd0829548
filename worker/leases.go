package worker

// Leases: the newest owner of each journal group (R2), and the renewal of the lease with that owner (R3, R5).

import (
	"cmp"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/admission"
	"github.com/musterhq/muster/worker/driver"
	"github.com/musterhq/muster/worker/leaseclock"
	"github.com/musterhq/muster/worker/step"
)

// leases renews the leases of the journal groups with their owners.
type leases struct {
	cfg      *Config
	turn     *step.Turn
	ledger   *ledger
	sessions *sessions
	reports  *reports
	random   *rand.Rand
	claims   *claims

	renewals []contract.Renew                    // to send at the end of this turn
	signals  []step.SignalTo                     // to send when a newer epoch is on disk
	extends  map[job.Attempt]leaseclock.BootTime // to carry out when a newer epoch is on disk
}

// checkEpoch returns the group of a command. It returns false if the sender does not own the group, or if the epoch of the
// command is old; then it answers the owner with Stale (R2). A newer epoch is written to disk, and the effects of the
// command wait for that.
func (l *leases) checkEpoch(now leaseclock.Moment, from job.Peer, id job.Group, epoch contract.Epoch) (*group, bool) {
	return l.checkClaim(now, from, contract.GroupEpoch{Group: id, Epoch: epoch})
}

func (l *leases) checkClaim(now leaseclock.Moment, from job.Peer, m contract.GroupEpoch) (*group, bool) {
	g, isNew := l.claims.take(now, from, m)
	switch {
	case g == nil:
		return nil, false
	case isNew:
		l.resync(now, g)
	case m.Epoch.Less(g.epoch):
		l.stale(from, g)
		return nil, false
	case g.epoch.Less(m.Epoch):
		g.epoch = m.Epoch
		l.ledger.claim(g)
		g.resynced = false
		l.resync(now, g)
	}
	return g, true
}

// stale answers a command with an old epoch.
func (l *leases) stale(to job.Peer, g *group) {
	l.turn.Send(to, contract.Stale{Group: g.id, Epoch: g.epoch, Owner: g.owner})
}

// owns handles an Owns: the groups that a scheduler owns.
func (l *leases) owns(now leaseclock.Moment, from job.Peer, m contract.Owns) {
	for _, ge := range m.Groups {
		if g, ok := l.checkClaim(now, from, ge); ok {
			l.resync(now, g)
		}
	}
}

// of returns the groups that a peer owns, sorted.
func (l *leases) of(p job.Peer) []*group {
	var out []*group
	for _, g := range l.claims.groups {
		if g.owner == p {
			out = append(out, g)
		}
	}
	slices.SortFunc(out, func(a, b *group) int { return cmp.Compare(a.id, b.id) })
	return out
}

// resync sends the owner of a group all events that it has not acknowledged, and a Renew. It does so once per session.
func (l *leases) resync(now leaseclock.Moment, g *group) {
	if g.resynced || !l.sessions.connected(g.owner) {
		return
	}
	g.resynced = true
	for _, a := range inOrder(g.kept) {
		a.sentEvent = a.rec.AckedN
		l.reports.tell(a)
	}
	l.renew(now, g)
}

// renew asks the owner of a group to extend the lease. If no lease is live, it uses a new session id. So neither an
// answer to an earlier request nor a Start of an earlier session can count (R5).
func (l *leases) renew(now leaseclock.Moment, g *group) {
	if !l.sessions.connected(g.owner) {
		return // resync asks once there is a session
	}
	s := &g.session
	pause := l.renewInterval(g)
	if !g.holds(now) {
		s.id = l.newSession(s.id)
		s.outstanding = s.outstanding[:0]
		pause = min(pause, retryRenew)
	}
	live := make([]job.Attempt, 0, len(g.running))
	for id := range g.running {
		live = append(live, id)
	}
	slices.SortFunc(live, admission.CompareAttempts)
	if n := len(s.outstanding); n == 0 || s.outstanding[n-1] != now.Boot {
		if n == maxOutstanding {
			s.outstanding = slices.Delete(s.outstanding, 0, 1)
		}
		s.outstanding = append(s.outstanding, now.Boot)
	}
	s.asked = now.Boot
	l.renewals = append(l.renewals, contract.Renew{
		Group: g.id, Store: l.cfg.Profile.Store, Clock: int64(now.Boot), Session: s.id, Live: live,
	})
	l.renewIn(now, g, pause)
}

// renewIn sets when to ask for the next renewal, in place of what was set before. It subtracts up to a tenth at random,
// so that not all groups ask at once.
func (l *leases) renewIn(now leaseclock.Moment, g *group, after time.Duration) {
	after = time.Duration(float64(after) * (1 - l.random.Float64()/10))
	g.next = now.Boot.Add(after)
	l.turn.Timers.Stop(g.timer)
	g.timer = l.turn.Timers.Set(g.next, func(now leaseclock.Moment) { l.renew(now, g) })
}

// newSession returns a random session id that is neither zero nor the given one.
func (l *leases) newSession(before contract.Session) contract.Session {
	for {
		if s := contract.Session(l.random.Uint64()); s != 0 && s != before {
			return s
		}
	}
}

// renewed handles the owner's answer to a Renew. It returns the group, or nil if the answer does not count.
func (l *leases) renewed(now leaseclock.Moment, from job.Peer, m contract.Renewed) *group {
	g, ok := l.checkEpoch(now, from, m.Group, m.Epoch)
	if !ok {
		return nil
	}
	clock := leaseclock.BootTime(m.Clock)
	if !g.answered(now, m.Session, clock) {
		l.turn.Log(slog.LevelDebug, "renewal answered too late", slog.String("group", m.Group.String()), slog.String("peer", string(from)))
		return nil
	}
	s := &g.session
	if !s.live {
		s.live, s.anchor = true, clock
		l.renewIn(now, g, l.renewInterval(g))
	}
	s.anchor = max(s.anchor, clock)
	return g
}

// renewInterval returns how often a live lease of the group is renewed.
func (l *leases) renewInterval(g *group) time.Duration {
	pause := contract.RenewEvery
	for _, a := range g.running {
		if !a.rec.Hold {
			pause = min(pause, a.rec.Lease/3)
		}
	}
	return pause
}

// begin sets the deadline of an attempt that starts. The deadline counts from the last renewal, which may be some time
// ago. So begin makes the next renewal early enough that one answer may be lost before the task gets TERM.
func (l *leases) begin(now leaseclock.Moment, g *group, a *attempt) {
	if a.rec.Hold {
		return
	}
	a.deadline = g.session.anchor.Add(a.rec.Lease)
	left := a.deadline.Sub(now.Boot) - driver.FenceLead
	if pace := min(a.rec.Lease, left) / 3; now.Boot.Add(pace) < g.next {
		l.renewIn(now, g, pace)
	}
}

// keep extends the deadline of an attempt. The clock is that of the answered Renew. An answer that was read late, because
// this process stood still, counts until the deadline that it grants: until then the owner cannot have given the attempt
// up (R4, R7).
func (l *leases) keep(now leaseclock.Moment, g *group, a *attempt, clock leaseclock.BootTime) {
	until := clock.Add(a.rec.Lease)
	if a.rec.Hold || a.rec.Exit != nil || until <= now.Boot || until <= a.deadline {
		return
	}
	a.deadline = until
	switch {
	case a.phase == starting: // the driver gets the deadline with the start
	case g.unsaved:
		if l.extends == nil {
			l.extends = map[job.Attempt]leaseclock.BootTime{}
		}
		l.extends[a.rec.Attempt] = until
	default:
		l.turn.Extend(a.rec.Attempt, until)
	}
}

// signal sends a signal to a running attempt once the epoch of the command is on disk.
func (l *leases) signal(g *group, a *attempt, number int) {
	s := step.SignalTo{Attempt: a.rec.Attempt, Number: number}
	switch {
	case a.phase == launched && !g.unsaved:
		l.turn.Signal(s)
	case len(l.signals) < maxSignals:
		l.signals = append(l.signals, s)
	}
}

// saved does what had to wait until newer epochs were on disk.
func (l *leases) saved() {
	l.turn.Signal(l.signals...)
	for a, t := range l.extends {
		l.turn.Extend(a, t)
	}
	l.signals, l.extends = nil, nil
}

// send sends the renewals that were asked for in this turn.
func (l *leases) send() {
	for _, r := range l.renewals {
		if g := l.claims.groups[r.Group]; g != nil && l.sessions.connected(g.owner) {
			l.turn.Send(g.owner, r)
		}
	}
	l.renewals = nil
}
