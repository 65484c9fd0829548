package worker

// The one goroutine around a Core: it takes all events that wait, saves what
// they change in one write, and then does what was decided.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
)

// Ledger is the disk of a worker.
type Ledger interface {
	// Save writes all or nothing; with sync it returns when that, and all that
	// was saved before, would survive a power cut.
	Save(put []lease.Record, gone []job.Attempt, epochs []lease.GroupEpoch, sync bool) error
	// Load reads what was saved.
	Load() ([]lease.Record, []lease.GroupEpoch, error)
}

// Sender carries messages to schedulers. It never waits: an error says that
// there is no session, and what matters is sent again when there is.
type Sender interface {
	Send(to job.Peer, m lease.ToScheduler) error
	// Want has a session opened to the scheduler and kept.
	Want(p job.Peer)
	// Unwant takes a Want back: the session is closed unless somebody else needs it.
	Unwant(p job.Peer)
}

// Parts is what a Loop stands on.
type Parts struct {
	Ledger  Ledger
	Sender  Sender
	Driver  Driver
	Adopter Adopter
	// Poll asks whoever reads the devices for a DeviceStatus soon; it must not
	// wait. May be nil.
	Poll func()
	// Keep writes what is set aside, for the next life of the daemon: rarely,
	// and the loop waits for it. May be nil.
	Keep func(Quarantine) error
	// Admit is the host's own policy: nil, or why this user's task is refused.
	// The loop waits for it. May be nil: all is admitted.
	Admit func(user string, spec job.Spec) error
	// Clocks is ReadClocks, or in tests and simulations other clocks.
	Clocks func() Moment
}

// ErrStopped says that the worker has ended. Do not ask again.
var ErrStopped = errors.New("worker has stopped")

const (
	// maxWaiting bounds the events that wait for the loop; who delivers more
	// waits.
	maxWaiting = 4096
	// maxTurn bounds the events that share one save.
	maxTurn = 4096
)

// Loop runs a Core: by itself in Run, or a turn at a time by a composition that has a clock of its own.
type Loop struct {
	core  *Core
	parts Parts
	log   *slog.Logger
	keep  *Quarantine // not on disk yet
	next  []Event     // that carrying out effects brought; the next turn takes them
	// missed is the part of Missed that was logged.
	missed time.Duration
	in     chan input
	// adopted is closed when Begin has ended.
	adopted chan struct{}
	done    chan struct{}
}

// input is an event, or a question that the core answers after the events before it.
type input struct {
	event Event
	ask   func(*Core)
}

// New returns a worker that does nothing before Begin or Run.
func New(cfg Config, parts Parts, log *slog.Logger) (*Loop, error) {
	core, err := NewCore(cfg)
	if err != nil {
		return nil, err
	}
	if parts.Ledger == nil || parts.Sender == nil || parts.Driver == nil || parts.Adopter == nil || parts.Clocks == nil {
		return nil, errors.New("worker: a ledger, a sender, a driver, an adopter and clocks are needed")
	}
	return &Loop{
		core: core, parts: parts, log: log,
		in: make(chan input, maxWaiting), adopted: make(chan struct{}), done: make(chan struct{}),
	}, nil
}

// Run begins, and works until ctx ends. It returns nil then, or why it could not begin. Tasks live on.
func (l *Loop) Run(ctx context.Context) error {
	defer close(l.done)
	if err := l.Begin(ctx); err != nil {
		return err
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		l.arm(timer)
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
			l.Turn(ctx)
		case in := <-l.in:
			l.take(ctx, in)
		}
	}
}

// Begin restores the ledger and adopts the tasks that still run, once and before any Turn. An error says which of the
// two failed.
func (l *Loop) Begin(ctx context.Context) error {
	records, epochs, err := l.parts.Ledger.Load()
	if err != nil {
		return fmt.Errorf("worker: load the ledger: %w", err)
	}
	l.core.Restore(records, epochs)
	found, err := l.parts.Adopter.Adopt(ctx)
	if err != nil {
		return fmt.Errorf("worker: adopt running tasks: %w", err)
	}
	close(l.adopted)
	l.Turn(ctx, Adopted{Found: found})
	return nil
}

// Turn takes the events in order, saves what they change and carries out what follows. When it returns, everything is
// done that can be done now. It must not be called while Run runs, nor by two goroutines at once. ctx is for the log.
func (l *Loop) Turn(ctx context.Context, events ...Event) {
	events = append(l.next, events...)
	l.next = nil
	for {
		w := l.core.Step(l.now(), events...)
		var err error
		if !w.Empty() {
			err = l.parts.Ledger.Save(w.Put, w.Gone, w.Epochs, w.Sync)
		}
		l.carryOut(ctx, l.core.Saved(l.now(), err))
		if len(l.next) == 0 {
			return
		}
		events, l.next = l.next, nil
	}
}

// Wake returns when the next Turn is due even if no event comes; false if none is.
func (l *Loop) Wake() (BootTime, bool) { return l.core.Wake() }

// arm sets the timer to the next turn that is due without an event.
func (l *Loop) arm(timer *time.Timer) {
	at, ok := l.Wake()
	if !ok {
		timer.Stop()
		return
	}
	timer.Reset(max(0, at.Sub(l.parts.Clocks().Boot)))
}

func (l *Loop) now() Moment {
	m := l.parts.Clocks()
	if d := Missed() - l.missed; d > 0 {
		l.missed += d
		l.log.Warn("this host was paused, or its wall clock was set forward: all leases are so much older", "by", d.Round(time.Millisecond).String())
	}
	return m
}

// take carries out one turn for an input and those that wait behind it, and then answers the questions among them.
func (l *Loop) take(ctx context.Context, first input) {
	var events []Event
	var asks []func(*Core)
	add := func(in input) {
		if in.ask != nil {
			asks = append(asks, in.ask)
		} else {
			events = append(events, in.event)
		}
	}
	add(first)
	for more := true; more && len(events)+len(asks) < maxTurn; {
		select {
		case in := <-l.in:
			add(in)
		default:
			more = false
		}
	}
	l.Turn(ctx, events...)
	for _, ask := range asks {
		ask(l.core)
		if len(l.next) > 0 { // it brought an event
			l.Turn(ctx)
		}
	}
}

// carryOut does what a turn has decided, in the order of the fields of Effects. What it learns is for the next turn.
func (l *Loop) carryOut(ctx context.Context, e Effects) {
	l.say(ctx, e.Log)
	l.drive(e)
	l.keepQuarantine(e.Keep)
	l.send(e)
	l.admit(e.Admit)
}

// say writes the lines to the log.
func (l *Loop) say(ctx context.Context, lines []Line) {
	for _, s := range lines {
		l.log.LogAttrs(ctx, s.Level, s.Msg, s.Attrs...) //nolint:sloglint // the core fixes the message
	}
}

// admit asks the host's policy.
func (l *Loop) admit(asked []Admission) {
	for _, a := range asked {
		answer := Admitted{Attempt: a.Attempt}
		if l.parts.Admit != nil {
			if err := l.parts.Admit(a.User, a.Spec); err != nil {
				answer.Refused = cmp.Or(clip(err.Error()), "no reason given")
			}
		}
		l.next = append(l.next, answer)
	}
}

// keepQuarantine writes what is set aside; what the disk does not take is tried
// again with the next round.
func (l *Loop) keepQuarantine(now *Quarantine) {
	if now != nil {
		l.keep = now
	}
	if l.keep == nil || l.parts.Keep == nil {
		return
	}
	err := l.parts.Keep(*l.keep)
	switch {
	case err == nil:
		l.keep = nil
	case now != nil:
		l.log.Error("what is set aside cannot be written; a restarted daemon would not know", "error", err)
	}
}

// drive carries out what concerns the driver.
func (l *Loop) drive(e Effects) {
	for _, t := range e.Start {
		if err := l.parts.Driver.Start(t); err != nil {
			l.log.Error("task cannot be started", "attempt", t.Attempt.String(), "error", err)
			l.next = append(l.next, DriverEvent{Attempt: t.Attempt, Kind: DriverFailed, Exit: job.Exit{
				State: job.Failed, Code: exitOurs, Reason: clip(err.Error()),
			}})
		}
	}
	for _, s := range e.Stop {
		if err := l.parts.Driver.Stop(s.Attempt, s.Grace, s.Reason); err != nil {
			l.log.Warn("task cannot be stopped now", "attempt", s.Attempt.String(), "error", err)
			l.next = append(l.next, StopFailed{Attempt: s.Attempt})
		}
	}
	for _, s := range e.Signal {
		if err := l.parts.Driver.Signal(s.Attempt, s.Number); err != nil {
			l.log.Warn("task cannot be signalled", "attempt", s.Attempt.String(), "signal", s.Number, "error", err)
		}
	}
	if len(e.Extend) > 0 {
		if err := l.parts.Driver.Extend(e.Extend); err != nil {
			l.log.Warn("leases cannot be extended now", "attempts", len(e.Extend), "error", err)
		}
	}
	for _, a := range e.Forget {
		if err := l.parts.Driver.Forget(a); err != nil {
			l.log.Warn("attempt cannot be forgotten", "attempt", a.String(), "error", err)
		}
	}
}

func (l *Loop) send(e Effects) {
	for _, p := range e.Want {
		l.parts.Sender.Want(p)
	}
	for _, p := range e.Unwant {
		l.parts.Sender.Unwant(p)
	}
	for _, m := range e.Send {
		if err := l.parts.Sender.Send(m.To, m.Msg); err != nil {
			l.log.Debug("message not sent", "peer", string(m.To), "error", err)
		}
	}
	if e.Poll && l.parts.Poll != nil {
		l.parts.Poll()
	}
}

// tell delivers an event; it waits while the loop is behind, and does nothing
// once it has ended.
func (l *Loop) tell(ev Event) {
	select {
	case l.in <- input{event: ev}:
	case <-l.done:
	}
}

// Up says that a session to a scheduler has opened.
func (l *Loop) Up(p job.Peer) { l.tell(Up{Peer: p}) }

// Down says that it has ended.
func (l *Loop) Down(p job.Peer) { l.tell(Down{Peer: p}) }

// Deliver takes a message of a scheduler. It waits while the loop is behind, so
// it must not be called by whoever carries out Send.
func (l *Loop) Deliver(from job.Peer, m lease.ToWorker) { l.tell(Message{From: from, Msg: m}) }

// Driven takes what a driver has to tell.
func (l *Loop) Driven(e DriverEvent) { l.tell(e) }

// Devices takes the status of all GPUs, and where MPS listens, if it runs.
func (l *Loop) Devices(s []gpu.Status, mps string) { l.tell(DeviceStatus{Devices: s, MPS: mps}) }

// Fault takes an error that a GPU reported.
func (l *Loop) Fault(f gpu.Fault) { l.tell(DeviceFault{Fault: f}) }

// RestoreDevice gives a GPU that was set aside another chance.
func (l *Loop) RestoreDevice(uuid string) { l.tell(DeviceRestored{UUID: uuid}) }

// ChangeProfile changes what the host could ever give. It may be called from
// several places, each of which changes what it knows about.
func (l *Loop) ChangeProfile(change func(*lease.Profile)) {
	select {
	case l.in <- input{ask: func(c *Core) {
		p := c.Profile()
		change(&p)
		l.next = append(l.next, ProfileChanged{Profile: p})
	}}:
	case <-l.done:
	}
}

// SetLimits takes how much each user may hold from now on.
func (l *Loop) SetLimits(to Limits) { l.tell(LimitsChanged{Limits: to}) }

// Drain stops the giving away of anything, or resumes it.
func (l *Loop) Drain(d Drain) { l.tell(d) }

// Attempts are the records of all attempts that are reserved, run, or are not
// yet acknowledged.
func (l *Loop) Attempts(ctx context.Context) ([]lease.Record, error) {
	answer := make(chan []lease.Record, 1)
	if err := l.ask(ctx, func(c *Core) { answer <- c.Attempts() }); err != nil {
		return nil, err
	}
	return <-answer, nil
}

// View shows the worker as it is now.
func (l *Loop) View(ctx context.Context) (View, error) {
	answer := make(chan View, 1)
	if err := l.ask(ctx, func(c *Core) { answer <- c.View() }); err != nil {
		return View{}, err
	}
	return <-answer, nil
}

// Ping returns nil once the loop has come by, or why it did not before ctx
// ended. While it waits for the tasks of an earlier daemon, which may take as
// long as the processes of a dead runner cannot be killed, that is no fault.
func (l *Loop) Ping(ctx context.Context) error {
	select {
	case <-l.adopted:
		return l.ask(ctx, func(*Core) {})
	default:
		return nil
	}
}

// ask runs f in the loop's goroutine, and returns when it has.
func (l *Loop) ask(ctx context.Context, f func(*Core)) error {
	answered := make(chan struct{})
	select {
	case l.in <- input{ask: func(c *Core) { f(c); close(answered) }}:
	case <-ctx.Done():
		return ctx.Err()
	case <-l.done:
		return ErrStopped
	}
	select {
	case <-answered:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-l.done:
		return ErrStopped
	}
}
