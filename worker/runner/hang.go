package runner

// Starts that hang: in a directory or a file that a task's user named and whose
// file server does not answer. No thread can be called back from there, so that
// one start is given up and another thread takes its place among the starters.

import (
	"time"

	"github.com/musterhq/muster/worker/runner/protocol"
	"github.com/musterhq/muster/worker/runner/spawn"
)

const (
	// maxStuck bounds the starters that hang, and maxStuckUser those of one user.
	maxStuck     = 64
	maxStuckUser = 8
)

// slow is called when a start takes long.
func (l *loop) slow(t *task, o *spawn.Order) {
	if !t.handed || t.back {
		return // it has come back meanwhile
	}
	s := o.Start
	l.stuck[o] = s.User
	l.log.Warn("start hangs", "attempt", t.name, "user", s.User, "waits_for", o.WaitsFor())
	l.report(protocol.Report{Progress: &protocol.Progress{Attempt: t.name, Detail: clip("waits for " + o.WaitsFor() + ", which does not answer")}})
	if len(l.stuck) <= maxStuck {
		go l.starter.Run(l.starts)
	}
	if l.dropHanded(); o.Withdrawn() {
		return
	}
	time.AfterFunc(l.cfg.Answer-spawn.SlowStart, func() {
		l.do <- func() {
			l.drop(t, spawn.Refuse(spawn.CodeNotExecutable, "%s did not answer within %s on this node", o.WaitsFor(), l.cfg.Answer))
		}
	})
}

// drop ends a task that a starter has in hand, unless its process is being made.
func (l *loop) drop(t *task, err error) {
	if t.handed && t.order != nil && t.order.Withdraw() {
		l.neverStarted(t, err)
	}
}

// dropHanded ends the tasks in the starters' hands that are not wanted any more.
func (l *loop) dropHanded() {
	for t := range l.starting {
		if t.watch.cause != causeNone {
			l.drop(t, spawn.Refuse(spawn.CodeNotExecutable, "%s", t.watch.detail))
		}
	}
}

// hopeless says why a user's start would only hang as well.
func (l *loop) hopeless(user string) error {
	n := 0
	for _, other := range l.stuck {
		if other == user {
			n++
		}
	}
	if n < maxStuckUser {
		return nil
	}
	return spawn.Refuse(spawn.CodeNotExecutable, "%d starts of user %s hang in files that do not answer on this node", n, user)
}
