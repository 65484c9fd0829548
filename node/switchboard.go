package node

// The switchboard: messages between schedulers and workers, over a session or,
// within this daemon, by hand.

import (
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
	"github.com/musterhq/muster/p2p/session"
	"github.com/musterhq/muster/scheduler"
	"github.com/musterhq/muster/worker"
)

// The joints of the house.
var (
	_ session.Handler    = (*switchboard)(nil)
	_ scheduler.Sessions = toWorkers{}
	_ worker.Sender      = toSchedulers{}
)

// switchboard joins the sessions to the scheduler and the worker of this
// daemon. Its fields are set before the sessions run; owners is empty and work
// is nil where this daemon does not have the role.
type switchboard struct {
	self     job.Peer
	sessions *session.Manager
	wants    *wants
	defects  *defects
	anew     atomic.Bool // the local session is about to end
	owners   owners
	work     *worker.Loop
	groups   *directory
	cut      func(peer.ID) error // closes the connection to a peer
	met      func(job.Peer)      // a session came up
	left     *departed
	log      *slog.Logger
}

var errNoSuchRole = errors.New("node: this daemon does not have that role")

// Up tells both roles of a session.
func (b *switchboard) Up(p job.Peer, _ session.Info) {
	b.left.back(p)
	if b.work != nil {
		b.work.Up(p)
	}
	b.owners.sessionUp(p)
	b.met(p)
}

// Down tells both roles of a session's end.
func (b *switchboard) Down(p job.Peer, err error) {
	if errors.Is(err, session.ErrGoodbye) {
		b.left.gone(p)
	}
	if b.work != nil {
		b.work.Down(p)
	}
	b.owners.sessionDown(p)
}

// FromScheduler takes what another daemon's scheduler says.
func (b *switchboard) FromScheduler(p job.Peer, msg lease.ToWorker) {
	if owns, ok := msg.(lease.Owns); ok {
		for _, g := range owns.Groups {
			b.groups.learn(g.Group, p)
		}
	}
	if b.work != nil {
		b.work.Deliver(p, msg)
	}
}

// FromWorker takes what another daemon's worker says. If the scheduler has no
// room for it the session is cut, so that the worker begins anew.
func (b *switchboard) FromWorker(p job.Peer, msg lease.ToScheduler) {
	if b.owners.home == nil {
		return
	}
	err := b.owners.fromWorker(p, msg)
	if err == nil {
		return
	}
	b.log.Warn("session cut: the scheduler is behind", "peer", string(p), "error", err)
	if id, err := peer.Decode(string(p)); err == nil {
		if err := b.cut(id); err != nil {
			b.log.Debug("connection not closed", "peer", string(p), "error", err)
		}
	}
}

// local opens the session that needs no stream: that of this daemon's own
// scheduler and worker.
func (b *switchboard) local() {
	if b.work == nil || b.owners.home == nil {
		return
	}
	b.owners.sessionUp(b.self)
	b.work.Up(b.self)
}

// send hands a message to another daemon. It returns what the session says of
// it as it is: a message that is out of bounds will be so the next time, too,
// while without a session, or when it was cut, a Down follows or has come.
func (b *switchboard) send(to job.Peer, msg any) error {
	err := b.sessions.Send(to, msg)
	if errors.Is(err, session.ErrInvalid) {
		b.defects.refused(to, msg, err)
	}
	return err
}

// begin ends the local session and opens it anew, as one between hosts would.
// What is lost until then is lost with the old one, and so needs no other end.
func (b *switchboard) begin(why error) {
	if !b.anew.CompareAndSwap(false, true) {
		return
	}
	b.log.Warn("local session begins anew: the scheduler is behind", "error", why)
	go func() {
		b.work.Down(b.self)
		b.owners.sessionDown(b.self)
		b.anew.Store(false)
		b.local()
	}()
}

// toWorkers is the scheduler's way out.
type toWorkers struct{ *switchboard }

// Send hands a message to a worker. The worker of this daemon may make the
// caller wait; it never waits for the scheduler itself.
func (b toWorkers) Send(to job.Peer, m lease.ToWorker) error {
	if to != b.self {
		err := b.send(to, m)
		if errors.Is(err, session.ErrInvalid) {
			err = fmt.Errorf("%w: %w", scheduler.ErrUnsendable, err)
		}
		return err
	}
	if b.work == nil {
		return errNoSuchRole
	}
	b.work.Deliver(to, m)
	return nil
}

// Want keeps a session to a worker.
func (b toWorkers) Want(p job.Peer) { b.wants.want(p, forScheduler) }

// Unwant takes a Want back.
func (b toWorkers) Unwant(p job.Peer) { b.wants.unwant(p, forScheduler) }

// toSchedulers is the worker's way out.
type toSchedulers struct{ *switchboard }

// Want keeps a session to a scheduler.
func (b toSchedulers) Want(p job.Peer) { b.wants.want(p, forWorker) }

// Unwant takes a Want back.
func (b toSchedulers) Unwant(p job.Peer) { b.wants.unwant(p, forWorker) }

// Send hands a message to a scheduler; it does not wait.
func (b toSchedulers) Send(to job.Peer, m lease.ToScheduler) error {
	if to != b.self {
		return b.send(to, m)
	}
	if b.owners.home == nil {
		return errNoSuchRole
	}
	err := b.owners.fromWorker(to, m)
	if err != nil {
		b.begin(err)
	}
	return err
}
