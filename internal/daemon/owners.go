package daemon

// The owners of this daemon: a journal and a scheduler for each journal group that it keeps.

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/internal/fairshare"
	"github.com/musterhq/muster/internal/metrics"
	"github.com/musterhq/muster/internal/store"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/p2p"
	"github.com/musterhq/muster/scheduler"
	"github.com/musterhq/muster/scheduler/backlog"
	"github.com/musterhq/muster/scheduler/journal"
	schedulerloop "github.com/musterhq/muster/scheduler/loop"
	"github.com/musterhq/muster/scheduler/step"
	"github.com/musterhq/muster/worker/resources"
)

// owner is the scheduler and the journal of one group. It owns the group's jobs while its journal is the leader.
type owner struct {
	*schedulerloop.Loop
	journal  *journal.Journal
	parents  *parents // follows the jobs that this owner's jobs depend on
	allotter *allotter
	led      chan struct{} // closed when the owner first owns the jobs
}

var _ journal.Owner = (*owner)(nil)

// Deliver hands a committed entry to the scheduler.
func (o *owner) Deliver(c job.Committed) {
	o.Loop.Deliver(c)
	if c.Lead {
		select {
		case <-o.led:
		default:
			close(o.led) // only the journal's goroutine calls Deliver
		}
	}
}

// saveEvery is how long the rows of changed jobs wait, so that they are saved together. A restarting daemon applies the
// journal entries that are newer than the saved rows.
const saveEvery = 100 * time.Millisecond

// owners holds the owners by group. It is filled before the parts of the daemon run, and does not change afterwards.
// A daemon without the scheduler role has the zero value.
type owners struct {
	home *owner               // owner of the group for new jobs; nil without the scheduler role
	by   map[job.Group]*owner // home, and the owner of the previous version's group if that has jobs on disk
	// times says which time limit a job gets that has none; nil without the scheduler role.
	times *timeLimits
}

// add makes o the owner of a group; the last one is home.
func (s *owners) add(g job.Group, o *owner) {
	if s.by == nil {
		s.by = map[job.Group]*owner{}
	}
	s.home, s.by[g] = o, o
}

// except returns the other owners.
func (s owners) except(one *owner) (out []*owner) {
	for _, o := range s.by {
		if o != one {
			out = append(out, o)
		}
	}
	return out
}

// of returns the owner of a group: home if this daemon does not have the group, nil without the scheduler role.
func (s owners) of(g job.Group) *owner {
	if o := s.by[g]; o != nil {
		return o
	}
	return s.home
}

// sessionUp tells all owners that a session has been opened.
func (s owners) sessionUp(p job.Peer, path contract.Path) {
	for _, o := range s.by {
		o.SessionUp(p, path)
	}
}

// measured tells all owners the round-trip time to a daemon.
func (s owners) measured(p job.Peer, roundTrip time.Duration) {
	for _, o := range s.by {
		schedulerloop.TellMeasured(o.Loop, p, roundTrip)
	}
}

// sessionDown tells all owners that a session has ended.
func (s owners) sessionDown(p job.Peer) {
	for _, o := range s.by {
		o.SessionDown(p)
	}
}

// fromWorker passes a worker's message to the owner of the group that it is about. A message about the worker itself
// goes to all owners. It returns an error if an owner dropped the message.
func (s owners) fromWorker(p job.Peer, m contract.ToScheduler) error {
	switch m := m.(type) {
	case contract.Commit:
		return s.of(m.Group).FromWorker(p, m)
	case contract.Decline:
		return s.of(m.Attempt.Job.Group()).FromWorker(p, m)
	case contract.Event:
		return s.of(m.Group).FromWorker(p, m)
	case contract.Renew:
		return s.of(m.Group).FromWorker(p, m)
	case contract.Stale:
		return s.of(m.Group).FromWorker(p, m)
	}
	for _, o := range s.by { // contract.Hello and contract.Availability
		if err := o.FromWorker(p, m); err != nil {
			return err
		}
	}
	return nil
}

// load reads the jobs that the previous process of the daemon has stored.
func load(from *journal.Journal) (saved scheduler.Saved, err error) {
	saved.Applied = journal.Saved(from)
	save := func(all bool) error {
		rows := saved.Moved(all)
		if len(rows) == 0 {
			return nil
		}
		return from.Save(saved.Applied, rows, nil)
	}
	_, err = from.Load(func(r job.Row) error { return errors.Join(saved.Add(r), save(false)) })
	if err == nil {
		err = errors.Join(saved.End(), save(true))
	}
	return saved, err
}

// backlogOf returns the limits on waiting jobs.
func backlogOf(l resources.Limits) backlog.Limits {
	with := func(a backlog.Amount, l contract.Limit) backlog.Amount {
		if n, set := l[contract.LimitPendingJobs]; set {
			a.Jobs = n
		}
		if n, set := l[contract.LimitPendingBytes]; set {
			a.Bytes = n
		}
		return a
	}
	b := backlog.DefaultLimits()
	b.PerUser, b.All, b.Users = with(b.PerUser, l.PerUser), with(b.All, l.All), map[string]backlog.Amount{}
	for user, own := range l.Users {
		b.Users[user] = with(b.PerUser, own)
	}
	return b
}

// newOwners builds the owners of this daemon, and sets them in the router.
func newOwners(b base, net *overlay) (all owners, err error) {
	if b.cfg.NoScheduler {
		return owners{}, nil
	}
	commits := metrics.NewJournalSeconds()
	if err := b.registry.Register(commits); err != nil {
		return owners{}, fmt.Errorf("metrics: %w", err)
	}
	limits, err := resources.ParseLimits(b.cfg.Limits)
	if err != nil {
		return owners{}, err
	}
	all.times = newTimeLimits(b.cfg, limits)
	jc := journal.DefaultConfig()
	jc.Took = func(d time.Duration) { commits.Observe(d.Seconds()) }
	shared := newAnnouncements(net.topic)
	for i, h := range b.homes {
		why := forEarlier
		if i == len(b.homes)-1 {
			why = forScheduler
		}
		o, err := newOwner(b, net, h, why, jc, shared, limits)
		if err != nil {
			return owners{}, err
		}
		all.add(h.Group, o)
	}
	for _, o := range all.by {
		o.allotter.others = func() []*owner { return all.except(o) }
	}
	net.router.owners = all
	return all, nil
}

// newOwner builds the owner of a group. why is the reason for which the owner wants sessions.
func newOwner(b base, net *overlay, of store.Home, why reason, jc journal.Config, shared *announcements, limits resources.Limits) (_ *owner, err error) {
	// The journal needs the owner, to which it delivers. The owner's scheduler needs the rows that the journal loads, so it
	// is set afterwards.
	o := &owner{
		led: make(chan struct{}), parents: newParents(),
		allotter: newAllotter(b.host.Peer(), holding{net.table, b.host, p2p.RoleScheduler}.Members, b.part("scheduler")),
	}
	if o.journal, err = journal.New(jc, b.store, of.Group, o, b.part("journal")); err != nil {
		return nil, err
	}
	saved, err := load(o.journal)
	if err != nil {
		return nil, err
	}
	sc := step.DefaultConfig()
	if sc.Shares, err = fairshare.Parse(b.cfg.Shares); err != nil {
		return nil, err
	}
	sc.Self, sc.Group, sc.Seed, sc.LossLimit, sc.SaveEvery = b.host.Peer(), of.Group, draw(), b.cfg.LossLimit, saveEvery
	sc.Founding = of.Founding
	sc.Backlog, sc.Priorities, sc.Limits = new(backlogOf(limits)), prioritiesOf(b.cfg, limits), jobLimits(limits)
	sc.Policy = b.cfg.Policy
	sc.GangHold = b.cfg.GangHold.D()
	sc.MaxWait = b.cfg.MaxWait.D()
	sc.Private = b.cfg.Visibility == VisibleOwn
	sc.Order, _ = contract.ParseOrder(b.cfg.Order) // Validate has checked it
	o.Loop, err = schedulerloop.New(sc, saved, schedulerloop.Needs{
		Journal: o.journal, Sessions: toWorkers{net.router, why}, Finder: holding{net.table, b.host, p2p.RoleWorker}, Announcer: shared.of(of.Group),
		Parents: o.parents, Allotter: o.allotter,
	}, b.part("scheduler"))
	if err != nil {
		return nil, err
	}
	o.allotter.source = api.AskAllotments{HTTP: &http.Client{Transport: net.toPeers}}
	o.allotter.tell = func(e step.AllotmentsHeard) { schedulerloop.TellAllotted(o.Loop, e) }
	o.parents.finder, o.parents.tell = net.router.groups, o
	return o, nil
}
