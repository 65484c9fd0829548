package daemon

// Messages between schedulers and workers: over a session to another daemon, or by a direct call within this daemon.

import (
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/p2p"
	"github.com/musterhq/muster/p2p/session"
	schedulerloop "github.com/musterhq/muster/scheduler/loop"
	"github.com/musterhq/muster/scheduler/step"
	"github.com/musterhq/muster/worker/loop"
)

// The compiler checks that the interfaces of the parts are implemented.
var (
	_ session.Handler        = (*router)(nil)
	_ schedulerloop.Sessions = toWorkers{}
	_ loop.Sender            = toSchedulers{}
)

// router connects the sessions with the schedulers and the worker of this daemon. Its fields are set before the
// sessions run. Without the scheduler role owners is empty; without the worker role work is nil.
type router struct {
	self      job.Peer
	sessions  *session.Manager
	wants     *wantedSessions
	defects   *defects
	reopening atomic.Bool // the local session is being closed and opened again
	owners    owners
	work      *loop.Loop
	groups    *directory
	signed    func(job.Peer) map[string]string // the labels that are signed for a peer
	may       func(job.Peer, p2p.Roles) bool   // whether a peer may have a role
	onSession func(job.Peer)                   // called when a session has been opened
	departed  *departed
	log       *slog.Logger
}

var errNoSuchRole = errors.New("node: this daemon does not have that role")

// Up tells the schedulers and the worker that a session has been opened.
func (r *router) Up(p job.Peer, info session.Info) {
	r.departed.back(p)
	if r.work != nil {
		r.work.Up(p, info.Path)
	}
	r.owners.sessionUp(p, info.Path)
	r.onSession(p)
}

// Measured tells the schedulers the round-trip time to a daemon.
func (r *router) Measured(p job.Peer, roundTrip time.Duration) { r.owners.measured(p, roundTrip) }

// Down tells the schedulers and the worker that a session has ended.
func (r *router) Down(p job.Peer, err error) {
	if errors.Is(err, session.ErrGoodbye) {
		r.departed.gone(p)
	}
	if r.work != nil {
		r.work.Down(p)
	}
	r.owners.sessionDown(p)
}

// FromScheduler passes a message of another daemon's scheduler to the worker.
func (r *router) FromScheduler(p job.Peer, msg contract.ToWorker) {
	if owns, ok := msg.(contract.Owns); ok {
		for _, g := range owns.Groups {
			r.groups.learn(g.Group, p, g.Founding)
		}
	}
	if r.work != nil {
		r.work.Deliver(p, msg)
	}
}

// FromWorker passes a message of another daemon's worker to the scheduler. While too many messages of that worker wait for
// the scheduler, FromWorker blocks, and so the session is not read.
func (r *router) FromWorker(p job.Peer, msg contract.ToScheduler) {
	if r.owners.home == nil {
		return
	}
	if hello, ok := msg.(contract.Hello); ok {
		msg = r.vouched(p, hello)
	}
	if err := r.owners.fromWorker(p, msg); err != nil {
		r.log.Debug("message not taken: the scheduler has ended", "peer", string(p), "error", err)
	}
}

// vouched sets the signed labels in a Hello to the labels in the peer's credential.
func (r *router) vouched(p job.Peer, hello contract.Hello) contract.Hello {
	hello.Profile.Sign(r.signed(p))
	return hello
}

// openLocal opens the local session: the session between this daemon's own schedulers and worker, which needs no stream.
func (r *router) openLocal() {
	if r.work == nil || r.owners.home == nil {
		return
	}
	r.owners.sessionUp(r.self, contract.Path{})
	r.work.Up(r.self, contract.Path{})
}

// send sends a message to another daemon. It returns the error of the session unchanged. session.ErrInvalid means that
// the message is out of bounds, so sending it again cannot help. A session.HeldBackError means: send it again later. After
// any other error the session has ended, and Down has been or will be called.
func (r *router) send(to job.Peer, msg any) error {
	err := r.sessions.Send(to, msg)
	if errors.Is(err, session.ErrInvalid) {
		r.defects.refused(to, msg, err)
	}
	return err
}

// reopenLocal closes the local session and opens it again. Both sides handle that like the end of a session between
// hosts, so messages that were lost meanwhile need no other handling.
func (r *router) reopenLocal(why error) {
	if !r.reopening.CompareAndSwap(false, true) {
		return
	}
	r.log.Warn("local session reopened: the queue of the scheduler is full", "error", why)
	go func() {
		r.work.Down(r.self)
		r.owners.sessionDown(r.self)
		r.reopening.Store(false)
		r.openLocal()
	}()
}

// toWorkers sends the messages of one scheduler.
type toWorkers struct {
	*router
	why reason // why this scheduler wants its sessions
}

// Send sends a message to a worker. It may block if that is the worker of this daemon, but this worker never waits for a
// scheduler.
func (r toWorkers) Send(to job.Peer, m contract.ToWorker) error {
	if to != r.self {
		err := r.send(to, m)
		if held := (*session.HeldBackError)(nil); errors.As(err, &held) {
			return &step.HeldBackError{Wait: held.Wait, Times: held.Times}
		}
		if errors.Is(err, session.ErrInvalid) {
			err = fmt.Errorf("%w: %w", step.ErrUnsendable, err)
		}
		return err
	}
	if r.work == nil {
		return errNoSuchRole
	}
	r.work.Deliver(to, m)
	return nil
}

// Want keeps a session with a worker.
func (r toWorkers) Want(p job.Peer) { r.wants.want(p, r.why) }

// Unwant ends a Want.
func (r toWorkers) Unwant(p job.Peer) { r.wants.unwant(p, r.why) }

// toSchedulers sends the messages of the worker.
type toSchedulers struct{ *router }

// Want keeps a session with a scheduler.
func (r toSchedulers) Want(p job.Peer) { r.wants.want(p, forWorker) }

// Unwant ends a Want.
func (r toSchedulers) Unwant(p job.Peer) { r.wants.unwant(p, forWorker) }

// Send sends a message to a scheduler. It does not block. It removes the limits from a Hello to a peer without the role
// scheduler: such a peer does not need them, and need not learn which users they name.
func (r toSchedulers) Send(to job.Peer, m contract.ToScheduler) error {
	if to != r.self {
		if hello, ok := m.(contract.Hello); ok && !r.may(to, p2p.RoleScheduler) {
			hello.Profile.Limits = nil
			m = hello
		}
		return r.send(to, m)
	}
	if r.owners.home == nil {
		return errNoSuchRole
	}
	err := r.owners.fromWorker(to, m)
	if err != nil {
		r.reopenLocal(err)
	}
	return err
}
