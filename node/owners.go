package node

// The owners of this daemon: for each group of jobs that it keeps, a journal and a scheduler.

import (
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/journal"
	"github.com/musterhq/muster/lease"
	"github.com/musterhq/muster/scheduler"
)

// owner acts on the journal of one group. It owns the group's jobs while that journal leads.
type owner struct {
	*scheduler.Loop
	journal *journal.Journal
	led     chan struct{} // closed when it first owns the jobs
}

var _ journal.Owner = (*owner)(nil)

// Deliver hands a committed entry to the scheduler.
func (o *owner) Deliver(c job.Committed) {
	o.Loop.Deliver(c)
	if c.Lead {
		select {
		case <-o.led:
		default:
			close(o.led) // only the journal's goroutine comes here
		}
	}
}

// owners are set before the parts of the daemon run and do not change then. The zero value is that of a daemon without the
// scheduler role.
type owners struct {
	home *owner // of the group that takes new jobs here; nil without the role
	by   map[job.Group]*owner
}

// add makes o the owner of a group; the first one is home.
func (s *owners) add(g job.Group, o *owner) {
	if s.by == nil {
		s.home, s.by = o, map[job.Group]*owner{}
	}
	s.by[g] = o
}

// of is the owner of a group, home if this daemon does not have the group, or nil without the role.
func (s owners) of(g job.Group) *owner {
	if o := s.by[g]; o != nil {
		return o
	}
	return s.home
}

// sessionUp tells all owners of a session.
func (s owners) sessionUp(p job.Peer) {
	for _, o := range s.by {
		o.SessionUp(p)
	}
}

// sessionDown tells all owners of a session's end.
func (s owners) sessionDown(p job.Peer) {
	for _, o := range s.by {
		o.SessionDown(p)
	}
}

// fromWorker hands a worker's message to the owner of the group that it is about, or to all if it is about the worker. An
// error says that one of them dropped it.
func (s owners) fromWorker(p job.Peer, m lease.ToScheduler) error {
	switch m := m.(type) {
	case lease.Commit:
		return s.of(m.Group).FromWorker(p, m)
	case lease.Decline:
		return s.of(m.Attempt.Job.Group()).FromWorker(p, m)
	case lease.Event:
		return s.of(m.Group).FromWorker(p, m)
	case lease.Renew:
		return s.of(m.Group).FromWorker(p, m)
	case lease.Stale:
		return s.of(m.Group).FromWorker(p, m)
	}
	for _, o := range s.by { // lease.Hello and lease.Availability
		if err := o.FromWorker(p, m); err != nil {
			return err
		}
	}
	return nil
}

// newOwners builds the owners of this daemon, and joins them to the switchboard.
func newOwners(b base, net *overlay) (all owners, err error) {
	if b.cfg.NoScheduler {
		return owners{}, nil
	}
	group := b.store.Group()
	// The journal delivers to the scheduler, which is built from what the journal loads.
	o := &owner{led: make(chan struct{})}
	if o.journal, err = journal.New(journal.DefaultConfig(), b.store, group, o, b.part("journal")); err != nil {
		return owners{}, err
	}
	var saved scheduler.Saved
	if saved.Applied, err = o.journal.Load(saved.Add); err == nil {
		err = saved.End()
	}
	if err != nil {
		return owners{}, err
	}
	sc := scheduler.DefaultConfig()
	sc.Self, sc.Group, sc.Seed, sc.LossLimit = b.host.Peer(), group, draw(), b.cfg.LossLimit
	o.Loop, err = scheduler.New(sc, saved, scheduler.Needs{
		Journal: o.journal, Sessions: toWorkers{net.board}, Finder: net.table, Announcer: announcer{net.topic},
	}, b.part("scheduler"))
	if err != nil {
		return owners{}, err
	}
	all.add(group, o)
	net.board.owners = all
	return all, nil
}
