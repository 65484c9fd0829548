package worker

// Leases: the newest owner of each journal group (R2), and the renewal of the lease with it (R3, R5).

import (
	"cmp"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
)

// leases are the journal groups that have tasks here or offered some.
type leases struct {
	cfg      *Config
	turn     *turn
	ledger   *ledger
	sessions *sessions
	reports  *reports
	chance   *rand.Rand
	groups   map[job.Group]*group

	renewals []lease.Renew            // sent after the events of this turn
	signals  []SignalTo               // wait until a newer epoch is on disk
	extends  map[job.Attempt]BootTime // likewise
}

// command admits a command under an epoch, or answers it with Stale (R2). A newer epoch is written down; what follows
// from it waits for that.
func (l *leases) command(now Moment, from job.Peer, id job.Group, epoch lease.Epoch) (*group, bool) {
	g := l.groups[id]
	if g == nil {
		if len(l.groups) >= maxGroups {
			l.turn.log(slog.LevelWarn, "command of a group beyond the bound", slog.String("group", id.String()), slog.String("peer", string(from)))
			return nil, false
		}
		g = newGroup(id)
		l.groups[id] = g
	}
	switch {
	case epoch.Less(g.epoch):
		l.stale(from, g)
		return nil, false
	case g.epoch.Less(epoch):
		g.epoch = epoch
		l.sessions.own(g, from)
		l.ledger.epoch(g)
		l.greet(now, g)
	case g.owner == "":
		l.sessions.own(g, from)
		l.greet(now, g)
	}
	return g, true
}

// stale answers a command under an older epoch.
func (l *leases) stale(to job.Peer, g *group) {
	l.turn.send(to, lease.Stale{Group: g.id, Epoch: g.epoch, Owner: g.owner})
}

// owns takes which groups a scheduler owns.
func (l *leases) owns(now Moment, from job.Peer, m lease.Owns) {
	for _, ge := range m.Groups {
		g, ok := l.command(now, from, ge.Group, ge.Epoch)
		if !ok {
			continue
		}
		if g.owner != from { // an epoch has one owner: the one that came first
			l.turn.log(slog.LevelWarn, "another member claims the epoch of a group's owner",
				slog.String("group", ge.Group.String()), slog.String("peer", string(from)))
			continue
		}
		l.greet(now, g)
	}
}

// of are the groups that a peer is known to own, in order.
func (l *leases) of(p job.Peer) []*group {
	var out []*group
	for _, g := range l.groups {
		if g.owner == p {
			out = append(out, g)
		}
	}
	slices.SortFunc(out, func(a, b *group) int { return cmp.Compare(a.id, b.id) })
	return out
}

// greet tells the owner of a group, once in a session, what it has not acknowledged, and asks for renewal.
func (l *leases) greet(now Moment, g *group) {
	if g.greeted || !l.sessions.connected(g.owner) {
		return
	}
	g.greeted = true
	for _, a := range inOrder(g.kept) {
		a.told = a.rec.AckedN
		l.reports.tell(a)
	}
	l.renew(now, g)
}

// renew asks the owner of a group to extend the lease. Without a live lease the session is drawn anew, so that no answer
// to an earlier request and no Start of an earlier session can count (R5).
func (l *leases) renew(now Moment, g *group) {
	if !l.sessions.connected(g.owner) {
		return // greet asks as soon as it is
	}
	s := &g.session
	pause := l.pace(g)
	if !g.holds(now) {
		s.id = l.draw(s.id)
		s.outstanding = s.outstanding[:0]
		pause = min(pause, retryRenew)
	}
	live := make([]job.Attempt, 0, len(g.running))
	for id := range g.running {
		live = append(live, id)
	}
	slices.SortFunc(live, compareAttempts)
	if n := len(s.outstanding); n == 0 || s.outstanding[n-1] != now.Boot {
		if n == maxOutstanding {
			s.outstanding = slices.Delete(s.outstanding, 0, 1)
		}
		s.outstanding = append(s.outstanding, now.Boot)
	}
	s.asked = now.Boot
	l.renewals = append(l.renewals, lease.Renew{
		Group: g.id, Store: l.cfg.Profile.Store, Clock: int64(now.Boot), Session: s.id, Live: live,
	})
	l.renewIn(now, g, pause)
}

// renewIn sets when the next renewal is asked for, a little earlier by chance so that the groups do not all ask at once;
// it replaces what was set before.
func (l *leases) renewIn(now Moment, g *group, after time.Duration) {
	after = time.Duration(float64(after) * (1 - l.chance.Float64()/10))
	g.next = now.Boot.Add(after)
	l.turn.timers.stop(g.timer)
	g.timer = l.turn.timers.set(g.next, func(now Moment) { l.renew(now, g) })
}

// draw gives a session that is neither zero nor the one before.
func (l *leases) draw(before lease.Session) lease.Session {
	for {
		if s := lease.Session(l.chance.Uint64()); s != 0 && s != before {
			return s
		}
	}
}

// renewed takes the owner's answer. It returns the group, or nil if the answer does not count.
func (l *leases) renewed(now Moment, from job.Peer, m lease.Renewed) *group {
	g, ok := l.command(now, from, m.Group, m.Epoch)
	if !ok {
		return nil
	}
	clock := BootTime(m.Clock)
	if !g.answered(now, m.Session, clock) {
		l.turn.log(slog.LevelDebug, "renewal answered too late", slog.String("group", m.Group.String()), slog.String("peer", string(from)))
		return nil
	}
	s := &g.session
	if !s.live {
		s.live, s.anchor = true, clock
		l.renewIn(now, g, l.pace(g))
	}
	s.anchor = max(s.anchor, clock)
	return g
}

// pace is how often a live lease of the group is renewed.
func (l *leases) pace(g *group) time.Duration {
	pause := lease.RenewEvery
	for _, a := range g.running {
		if !a.rec.Hold {
			pause = min(pause, a.rec.Lease/3)
		}
	}
	return pause
}

// begin gives a started attempt its deadline. That counts from a renewal that may be old: the next is asked for well
// before the task would get its TERM, so that an answer may be lost.
func (l *leases) begin(now Moment, g *group, a *attempt) {
	if a.rec.Hold {
		return
	}
	a.deadline = g.session.anchor.Add(a.rec.Lease)
	left := a.deadline.Sub(now.Boot) - FenceLead
	if pace := min(a.rec.Lease, left) / 3; now.Boot.Add(pace) < g.next {
		l.renewIn(now, g, pace)
	}
}

// keep moves the deadline of an attempt whose own lease has not run out; clock is of the Renew that was answered.
func (l *leases) keep(now Moment, g *group, a *attempt, clock BootTime) {
	until := clock.Add(a.rec.Lease)
	lapsed := a.deadline != 0 && now.Boot >= a.deadline
	if a.rec.Hold || a.rec.Exit != nil || lapsed || until <= a.deadline {
		return
	}
	a.deadline = until
	switch {
	case a.phase == starting: // its Start will carry the deadline
	case g.unsaved:
		if l.extends == nil {
			l.extends = map[job.Attempt]BootTime{}
		}
		l.extends[a.rec.Attempt] = until
	default:
		l.turn.extend(a.rec.Attempt, until)
	}
}

// signal has a running attempt signalled, once the epoch of the command is on disk.
func (l *leases) signal(g *group, a *attempt, number int) {
	s := SignalTo{Attempt: a.rec.Attempt, Number: number}
	switch {
	case a.phase == launched && !g.unsaved:
		l.turn.out.Signal = append(l.turn.out.Signal, s)
	case len(l.signals) < maxSignals:
		l.signals = append(l.signals, s)
	}
}

// saved does what waited for newer epochs to be on disk.
func (l *leases) saved() {
	l.turn.out.Signal = append(l.turn.out.Signal, l.signals...)
	for a, t := range l.extends {
		l.turn.extend(a, t)
	}
	l.signals, l.extends = nil, nil
}

// send sends the renewals that were asked for in this turn.
func (l *leases) send() {
	for _, r := range l.renewals {
		if g := l.groups[r.Group]; g != nil && l.sessions.connected(g.owner) {
			l.turn.send(g.owner, r)
		}
	}
	l.renewals = nil
}
