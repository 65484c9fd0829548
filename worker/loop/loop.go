// Package loop runs the core of a worker: one goroutine gives it all waiting events, writes what they change, and carries out the
// effects. All that a worker reads and writes goes through here; the core has no I/O.
package loop

// The goroutine around a Core. It gives all waiting events to the Core, saves what they change in one write, and then
// carries out the effects.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/internal/fairshare"
	"github.com/musterhq/muster/internal/inbox"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker"
	"github.com/musterhq/muster/worker/driver"
	"github.com/musterhq/muster/worker/leaseclock"
	"github.com/musterhq/muster/worker/resources"
	"github.com/musterhq/muster/worker/useraccounts"
)

// ErrStopped says that the worker has ended. Later calls return it too.
var ErrStopped = errors.New("worker has stopped")

const (
	// maxWaiting bounds the events of this host that wait for the loop. If there are that many, a call that delivers another
	// waits.
	maxWaiting = 4096
	// maxTurn bounds how many of them one turn handles. The messages of schedulers come on top; see perScheduler.
	maxTurn = 4096
)

// perScheduler bounds what comes from schedulers: each has a queue of its own, and they take turns. A queue has room for
// the messages about a burst of tasks, and for a Start with a job file of 1 MiB. See docs/adr, ADR 152.
var perScheduler = inbox.Limits{Messages: 4096, Weight: 2 << 20, All: 64 << 20, Small: 16 << 10, Share: 64 << 10, Turn: 2 << 20}

// Loop runs a Core. Either Run calls each turn, or a caller with its own clock calls Begin and Turn.
type Loop struct {
	core  *worker.Core
	parts Parts
	log   *slog.Logger
	exec  executor
	// missed is the value of Missed that was last logged.
	missed time.Duration
	in     chan input // what happens on this host
	self   job.Peer
	// schedulers holds what schedulers have sent, this daemon's own among them. bell holds a token while there may be
	// something to take.
	schedulers *inbox.Inbox[job.Peer, worker.Event]
	bell       chan struct{}
	// adopted is closed when Begin has ended.
	adopted chan struct{}
	done    chan struct{}
}

// input is an event, or a function to call with the core after the events before it.
type input struct {
	event worker.Event
	ask   func(*worker.Core)
}

// New returns a worker. It does nothing before Begin or Run.
func New(cfg worker.Config, parts Parts, log *slog.Logger) (*Loop, error) {
	core, err := worker.NewCore(cfg)
	if err != nil {
		return nil, err
	}
	if parts.Ledger == nil || parts.Sender == nil || parts.Driver == nil || parts.Adopter == nil || parts.Clocks == nil {
		return nil, errors.New("worker: a ledger, a sender, a driver, an adopter and clocks are needed")
	}
	bell := make(chan struct{}, 1)
	return &Loop{
		core: core, parts: parts, log: log, exec: executor{parts: parts, log: log},
		in: make(chan input, maxWaiting), self: cfg.Profile.Peer, schedulers: inbox.New[job.Peer, worker.Event](perScheduler, func() { ring(bell) }), bell: bell,
		adopted: make(chan struct{}), done: make(chan struct{}),
	}, nil
}

func ring(bell chan struct{}) {
	select {
	case bell <- struct{}{}:
	default:
	}
}

// Run runs the worker until ctx ends, and then returns nil. It returns the error of Begin, if any. Tasks go on after Run
// has returned.
func (l *Loop) Run(ctx context.Context) error {
	defer l.schedulers.Close()
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
			l.take(ctx) // what waits comes first: this process may have stood still
		case in := <-l.in:
			l.take(ctx, in)
		case <-l.bell:
			l.take(ctx)
		}
	}
}

// Begin loads the ledger and adopts the tasks that still run. It is called once, before any Turn.
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
	l.Turn(ctx, worker.Adopted{Found: found, NeverBegun: neverBegun(l.parts.Adopter, records, found)})
	return nil
}

// neverBegun returns the attempts that started according to the ledger, and that the driver was never asked to start.
func neverBegun(a driver.Adopter, records []contract.Record, found []driver.Event) (all []job.Attempt) {
	known := make(map[job.Attempt]bool, len(found))
	for _, e := range found {
		known[e.Attempt] = true
	}
	for _, r := range records {
		if r.Phase == contract.PhaseStarted && r.PID == 0 && r.Exit == nil && !known[r.Attempt] && a.NeverBegun(r.Attempt) {
			all = append(all, r.Attempt)
		}
	}
	return all
}

// Turn handles the events in order, saves what they change and carries out the effects. When it returns, there is nothing
// left to do now. It must not be called during Run, nor by two goroutines at once. ctx is for the log.
func (l *Loop) Turn(ctx context.Context, events ...worker.Event) {
	events = append(l.exec.next, events...)
	l.exec.next = nil
	for {
		w := l.core.Step(l.now(), events...)
		var err error
		if !w.Empty() {
			err = l.exec.disk.write(func() error { return l.parts.Ledger.Save(w.Put, w.Gone, w.Claims, w.Sync) })
		}
		l.exec.carryOut(ctx, l.core.Saved(l.now(), err))
		if len(l.exec.next) == 0 {
			return
		}
		events, l.exec.next = l.exec.next, nil
	}
}

// Wake returns when the next Turn is due without events; false if none is.
func (l *Loop) Wake() (leaseclock.BootTime, bool) { return l.core.Wake() }

// arm sets the timer to the next turn that is due without events.
func (l *Loop) arm(timer *time.Timer) {
	at, ok := l.Wake()
	if !ok {
		timer.Stop()
		return
	}
	timer.Reset(max(0, at.Sub(l.parts.Clocks().Boot)))
}

func (l *Loop) now() leaseclock.Moment {
	m := l.parts.Clocks()
	if d := leaseclock.Missed() - l.missed; d > 0 {
		l.missed += d
		l.log.Warn("this host was paused, or its wall clock was set forward: all leases end earlier by that time", "by", d.Round(time.Millisecond).String())
	}
	return m
}

// take does one turn with the given inputs, all inputs that wait, and what comes from the schedulers whose turn it is. Then
// it calls the functions among the inputs.
func (l *Loop) take(ctx context.Context, first ...input) {
	var events []worker.Event
	var asks []func(*worker.Core)
	add := func(in input) {
		if in.ask != nil {
			asks = append(asks, in.ask)
		} else {
			events = append(events, in.event)
		}
	}
	for _, in := range first {
		add(in)
	}
	for more := true; more && len(events)+len(asks) < maxTurn; {
		select {
		case in := <-l.in:
			add(in)
		default:
			more = false
		}
	}
	events, more := l.schedulers.Take(events)
	if more {
		ring(l.bell)
	}
	l.Turn(ctx, events...)
	for _, ask := range asks {
		ask(l.core)
		if len(l.exec.next) > 0 { // the function has added an event
			l.Turn(ctx)
		}
	}
}

// deliver passes an event to the loop. It waits while the loop is behind, and does nothing once the loop has ended.
func (l *Loop) deliver(ev worker.Event) {
	select {
	case l.in <- input{event: ev}:
	case <-l.done:
	}
}

// Up says that a session to a scheduler has opened, with the addresses of its ends. Like Deliver, it waits while too much
// of that scheduler waits.
func (l *Loop) Up(p job.Peer, path contract.Path) {
	l.schedulers.Put(p, worker.Up{Peer: p, Path: path}, 0)
}

// Down says that the session to a scheduler has ended.
func (l *Loop) Down(p job.Peer) { l.schedulers.Put(p, worker.Down{Peer: p}, 0) }

// Deliver delivers a message of a scheduler, in order. It waits while too much of that scheduler waits, so Sender.Send must
// not call it.
func (l *Loop) Deliver(from job.Peer, m contract.ToWorker) {
	weight := 0
	if from != l.self { // what this daemon's own scheduler sends is in its memory anyway
		weight = contract.Weight(m)
	}
	l.schedulers.Put(from, worker.Message{From: from, Msg: m}, weight)
}

// Driven delivers an event of the driver.
func (l *Loop) Driven(e driver.Event) { l.deliver(e) }

// Devices delivers the status of all GPUs; see DeviceStatus.
func (l *Loop) Devices(s []gpu.Status, tasks map[int]bool) {
	l.deliver(worker.DeviceStatus{Devices: s, Tasks: tasks})
}

// Fault delivers an error that a GPU reported.
func (l *Loop) Fault(f gpu.Fault) { l.deliver(worker.DeviceFault{Fault: f}) }

// RestoreDevice ends the quarantine of a GPU.
func (l *Loop) RestoreDevice(uuid string) { l.deliver(worker.DeviceRestored{UUID: uuid}) }

// ChangeProfile changes the profile of the host. Each caller changes only the fields that it is responsible for.
func (l *Loop) ChangeProfile(change func(*contract.Profile)) {
	select {
	case l.in <- input{ask: func(c *worker.Core) {
		p := c.Profile()
		change(&p)
		l.exec.next = append(l.exec.next, worker.ProfileChanged{Profile: p})
	}}:
	case <-l.done:
	}
}

// TellRoom says why the data directory has no room for new work; "" if it has. The host then accepts no tasks.
func TellRoom(l *Loop, why string) { l.deliver(worker.RoomChanged{Why: why}) }

// TellLookedUp delivers the answer of a lookup; see Parts.LookUp.
func TellLookedUp(l *Loop, user string, is useraccounts.Presence) {
	l.deliver(worker.LookedUp{User: user, Is: is})
}

// SetShares replaces the weights of users and projects.
func (l *Loop) SetShares(w fairshare.Weights) { l.deliver(worker.SharesChanged{Weights: w}) }

// SetLimits replaces the limits of users.
func (l *Loop) SetLimits(to resources.Limits, p *contract.Priorities) {
	l.deliver(worker.LimitsChanged{Limits: to, Priorities: p})
}

// Drain begins, changes or ends a drain.
func (l *Loop) Drain(d worker.Drain) { l.deliver(d) }

// ForgetClaim forgets the epoch of a journal group, and returns the group's owner; "" if none is known.
func (l *Loop) ForgetClaim(ctx context.Context, g job.Group) (owner job.Peer, err error) {
	answer := make(chan job.Peer, 1)
	if err := l.ask(ctx, func(c *worker.Core) { answer <- c.OwnerOf(g) }); err != nil {
		return "", err
	}
	l.deliver(worker.ForgetClaim{Group: g})
	return <-answer, nil
}

// Attempts returns the records of all attempts that are reserved, run, or are not yet acknowledged. The error is
// ErrStopped or that of ctx.
func (l *Loop) Attempts(ctx context.Context) ([]contract.Record, error) {
	answer := make(chan []contract.Record, 1)
	if err := l.ask(ctx, func(c *worker.Core) { answer <- c.Attempts() }); err != nil {
		return nil, err
	}
	return <-answer, nil
}

// View returns the present state of the worker. The error is ErrStopped or that of ctx.
func (l *Loop) View(ctx context.Context) (worker.View, error) {
	answer := make(chan worker.View, 1)
	if err := l.ask(ctx, func(c *worker.Core) { answer <- c.View() }); err != nil {
		return worker.View{}, err
	}
	return <-answer, nil
}

// Usage returns what users and projects have used of this host. The error is ErrStopped or that of ctx.
func (l *Loop) Usage(ctx context.Context) (resources.UsageView, error) {
	answer := make(chan resources.UsageView, 1)
	if err := l.ask(ctx, func(c *worker.Core) { answer <- c.Usage(l.now()) }); err != nil {
		return resources.UsageView{}, err
	}
	return <-answer, nil
}

// Ping returns nil when the loop answers, or the error of ctx if it does not answer in time. While the loop still adopts
// the tasks of an earlier daemon, Ping returns nil at once. Adopting may take long if the processes of a dead runner
// cannot be killed, but then the loop does not hang.
func (l *Loop) Ping(ctx context.Context) error {
	select {
	case <-l.adopted:
		return l.ask(ctx, func(*worker.Core) {})
	default:
		return nil
	}
}

// ask runs f in the loop's goroutine after all events that were delivered before, and returns when f has.
func (l *Loop) ask(ctx context.Context, f func(*worker.Core)) error {
	answered := make(chan struct{})
	select {
	case l.in <- input{ask: func(c *worker.Core) { f(c); close(answered) }}:
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
