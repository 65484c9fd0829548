// Package loop runs the core of a scheduler: one goroutine gives it events, one at a time, and carries out the effects.
// Other goroutines of the daemon ask it through a mailbox with a bound for each sender.
package loop

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler"
	"github.com/musterhq/muster/scheduler/step"
)

// Loop runs a Core. Any goroutine may call its methods, also before Run: they answer once it runs.
type Loop struct {
	*Dependencies

	self    job.Peer
	calls   *calls
	reader  *reader
	execute *executor
}

// New makes a scheduler of the jobs in saved. The journal must then deliver the entries after Saved.Applied.
func New(cfg step.Config, saved scheduler.Saved, needs Needs, log *slog.Logger) (*Loop, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if needs.Journal == nil || needs.Sessions == nil || needs.Finder == nil || needs.Announcer == nil || needs.Parents == nil || needs.Allotter == nil {
		return nil, errors.New("scheduler: a neighbour is missing")
	}
	box, replies := newMailbox(), newReplies()
	cs := &calls{box: box, replies: replies, done: make(chan struct{})}
	l := &Loop{
		self:   cfg.Self,
		calls:  cs,
		reader: &reader{calls: cs, journal: needs.Journal, self: cfg.Self},
		execute: &executor{
			needs: needs, log: log, box: box, replies: replies, watchers: newWatchers(), followers: followers{}, finding: map[string]bool{},
			core: scheduler.NewCore(cfg, saved, time.Now()),
		},
	}
	l.Dependencies = &Dependencies{l.calls, l.reader, &l.execute.followers}
	return l, nil
}

// Run runs the core until ctx ends, or until rows that an entry of the journal needs cannot be read. It returns when
// every search has ended too.
func (l *Loop) Run(ctx context.Context) error {
	var searches sync.WaitGroup
	defer searches.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer l.execute.watchers.end()
	defer l.execute.followers.end()
	defer l.calls.end()
	timer := time.NewTimer(0)
	defer timer.Stop()
	var spare []mail
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-l.calls.box.bell:
		case <-timer.C:
		}
		mails := l.calls.box.take(spare)
		if err := l.execute.round(ctx, mails, &searches); err != nil {
			return err
		}
		clear(mails)
		spare = mails
		l.execute.arm(timer)
	}
}

// Deliver takes a committed entry, in order. The journal calls it.
func (l *Loop) Deliver(e job.Committed) {
	l.calls.box.putEntry(step.Committed{Committed: e})
}

// SessionUp tells the scheduler of a new session, with the addresses of its ends. Like every event of a member, it
// waits while too much of that member is waiting for the loop. If the peer is this daemon, it does not wait.
func (l *Loop) SessionUp(p job.Peer, path contract.Path) {
	l.tell(p, step.SessionUp{Peer: p, Path: path})
}

// TellMeasured tells the scheduler how long a message to the peer of a session and the answer take.
func TellMeasured(l *Loop, p job.Peer, roundTrip time.Duration) {
	l.tell(p, step.Measured{Peer: p, RoundTrip: roundTrip})
}

// SessionDown tells the scheduler that a session has ended.
func (l *Loop) SessionDown(p job.Peer) { l.tell(p, step.SessionDown{Peer: p}) }

// TellRevoked tells the scheduler that a host is no member of the cluster any more. It does not wait.
func TellRevoked(l *Loop, p job.Peer) {
	l.calls.box.fromOwn(p, step.Revoked{Peer: p})
}

// FromWorker takes a message of a host, in order. It waits while too much of that host is waiting for the loop.
// ErrBusy, which only this daemon's own worker gets, says that the message was dropped. Then close the local session
// and open it again.
func (l *Loop) FromWorker(p job.Peer, m contract.ToScheduler) error {
	if !l.tell(p, step.FromWorker{Peer: p, Msg: m}) {
		return step.ErrBusy
	}
	return nil
}

// tell adds an event of a member. This daemon's own worker never waits for its scheduler, because the scheduler waits
// for the worker.
func (l *Loop) tell(p job.Peer, e step.Event) bool {
	if p == l.self {
		return l.calls.box.fromOwn(p, e)
	}
	return l.calls.box.from(p, e)
}
