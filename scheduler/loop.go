package scheduler

// The loop: the one goroutine that feeds the core and carries out what it wants.

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
)

// Journal keeps the records of this daemon's jobs.
type Journal interface {
	// Propose queues records to be committed together or not at all, and
	// returns at once; each comes back through Loop.Deliver if it is committed,
	// and else through Loop.NotProposed.
	// An error says that none of them was queued. It must not wait for Deliver.
	Propose(records ...job.Record) error
	// ReadIndex begins a quorum round and calls done when it is over, with the
	// epoch in which this daemon still leads.
	ReadIndex(done func(job.Epoch, error))
	// Save writes rows as they are after the entry applied, and deletes those of jobs
	// that are gone. It may be lost with a crash: the journal then replays what came
	// after the last rows that were kept.
	Save(applied uint64, rows []job.Row, gone []job.ID) error
	// Rows reads the rows of a job from one part to before another, in order; to is
	// empty for the end. Any goroutine may ask.
	Rows(id job.ID, from, to string) ([]job.Row, error)
}

// Sessions carries messages to workers.
type Sessions interface {
	// Send queues a message, in order, and returns at once. ErrUnsendable says that
	// the message is out of its bounds; any other error that there is no session,
	// and a SessionDown follows or has come.
	Send(to job.Peer, m lease.ToWorker) error
	// Want has a session opened to the peer and kept.
	Want(p job.Peer)
	// Unwant takes a Want back: the session is closed unless somebody else needs it.
	Unwant(p job.Peer)
}

// Finder looks for hosts of a class, as lease.ClassOf names them.
type Finder interface {
	// Find streams at most n hosts until ctx ends; the channel is then closed.
	Find(ctx context.Context, class string, n int) <-chan job.Peer
}

// Announcer tells others what this scheduler looks for; they may come.
type Announcer interface {
	// Announce replaces what was announced before; nothing is wanted if empty.
	Announce(wants []Want)
}

// Needs are the neighbours of a Loop.
type Needs struct {
	Journal   Journal
	Sessions  Sessions
	Finder    Finder
	Announcer Announcer
}

const (
	findTime   = 900 * time.Millisecond // a search is read as a stream for no longer: within matchWait
	findPeers  = 64                     // hosts per search
	maxFinding = 8                      // searches at a time
	// proposeBatch bounds the records of one entry.
	proposeBatch = 64
)

// Loop runs a Core. Its methods may be called from any goroutine, also before
// Run; they answer once it runs.
type Loop struct {
	needs Needs
	log   *slog.Logger
	box   *mailbox
	tell  replies
	self  job.Peer
	done  chan struct{} // closed when Run ends

	// Of the goroutine of Run alone.
	core     *Core
	watchers watchers
	finding  map[string]bool
	unsaved  []job.Row // that no Save has taken yet
	gone     []job.ID  // likewise
	kept     []Event   // RowsKept of the last Save, until the core is told
}

// New makes a scheduler of the jobs in saved. The caller has the journal replay
// what came after them into Deliver.
func New(cfg Config, saved Saved, needs Needs, log *slog.Logger) (*Loop, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if needs.Journal == nil || needs.Sessions == nil || needs.Finder == nil || needs.Announcer == nil {
		return nil, errors.New("scheduler: a neighbour is missing")
	}
	return &Loop{
		needs: needs, log: log, self: cfg.Self, box: newMailbox(), done: make(chan struct{}),
		tell: newReplies(), watchers: newWatchers(), finding: map[string]bool{},
		core: NewCore(cfg, saved, time.Now()),
	}, nil
}

// Run drives the core until ctx ends and every search has ended too.
func (l *Loop) Run(ctx context.Context) error {
	var searches sync.WaitGroup
	defer searches.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer l.end()
	timer := time.NewTimer(0)
	defer timer.Stop()
	var spare []mail
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-l.box.bell:
		case <-timer.C:
		}
		mails := l.box.take(spare)
		l.round(ctx, mails, &searches)
		clear(mails)
		spare = mails
		l.arm(timer)
	}
}

// arm sets the timer to when the core next wants a step.
func (l *Loop) arm(timer *time.Timer) {
	wake := l.core.Wake()
	if wake.IsZero() {
		timer.Stop()
		return
	}
	timer.Reset(max(time.Until(wake), 0))
}

// round steps through all mail and carries out what comes of it at once, so
// that what was asked together is committed together.
func (l *Loop) round(ctx context.Context, mails []mail, searches *sync.WaitGroup) {
	events := make([]Event, 0, len(mails))
	for _, m := range mails {
		if m.event != nil {
			events = append(events, m.event)
			continue
		}
		l.step(ctx, events, searches) // a look sees all that came before it
		events = events[:0]
		m.look(l.core)
	}
	l.step(ctx, events, searches)
}

func (l *Loop) step(ctx context.Context, events []Event, searches *sync.WaitGroup) {
	fx := l.core.Step(time.Now(), append(events, l.kept...)...)
	l.kept = l.kept[:0]
	l.proposeAll(fx.Propose)
	for _, o := range fx.Send {
		switch err := l.needs.Sessions.Send(o.To, o.Msg); {
		case err == nil:
		case errors.Is(err, ErrUnsendable):
			l.box.putAlways(mail{event: NotSent{To: o.To, Msg: o.Msg, Err: err}})
		default:
			l.log.DebugContext(ctx, "message not sent", "peer", o.To, "error", err)
		}
	}
	if fx.Read != 0 {
		l.readIndex(fx.Read)
	}
	for _, class := range fx.Find {
		l.search(ctx, class, searches)
	}
	for _, p := range fx.Want {
		l.needs.Sessions.Want(p)
	}
	for _, p := range fx.Unwant {
		l.needs.Sessions.Unwant(p)
	}
	if fx.Announce {
		l.needs.Announcer.Announce(fx.Wants)
	}
	l.save(fx)
	for _, r := range fx.Reply {
		l.tell.reply(r)
	}
	l.watchers.publish(l.core, fx.Changed)
	for _, t := range fx.Notices {
		l.logNotice(t)
	}
}

// proposeAll proposes what ends work apart from what begins it: a journal that
// runs out of room refuses the second and still takes the first. Neither rests
// on the other within a step.
func (l *Loop) proposeAll(records []job.Record) {
	if len(records) == 0 {
		return
	}
	var begin, end []job.Record
	for _, r := range records {
		if job.BeginsWork(r) {
			begin = append(begin, r)
		} else {
			end = append(end, r)
		}
	}
	l.propose(end)
	l.propose(begin)
}

func (l *Loop) propose(records []job.Record) {
	for len(records) > 0 {
		batch := records[:min(len(records), proposeBatch)]
		records = records[len(batch):]
		if err := l.needs.Journal.Propose(batch...); err != nil {
			l.log.Warn("records not proposed", "count", len(batch), "error", err)
			l.box.putAlways(mail{event: NotProposed{Records: batch, Err: err}})
		}
	}
}

func (l *Loop) readIndex(tok Token) {
	l.needs.Journal.ReadIndex(func(e job.Epoch, err error) {
		l.box.putAlways(mail{event: ReadDone{Token: tok, Epoch: e, Err: err}})
	})
}

// save keeps the rows. The journal has all that is in them, so a failure loses nothing:
// what was not saved goes with the next that is.
func (l *Loop) save(fx Effects) {
	if len(fx.Rows) == 0 && len(fx.Gone) == 0 {
		return
	}
	failed := len(l.unsaved) > 0
	l.unsaved, l.gone = append(l.unsaved, fx.Rows...), append(l.gone, fx.Gone...)
	if failed {
		l.unsaved = newest(l.unsaved, l.gone)
	}
	if err := l.needs.Journal.Save(l.core.Applied(), l.unsaved, l.gone); err != nil {
		l.log.Error("job rows not saved, they are tried again with the next", "count", len(l.unsaved), "error", err)
		return
	}
	clear(l.unsaved)
	l.unsaved, l.gone = l.unsaved[:0], nil
	l.kept = append(l.kept[:0], RowsKept{l.core.Applied()})
}

// newest are the newest of rows, one for each part of a job that is not gone.
func newest(rows []job.Row, gone []job.ID) []job.Row {
	type key struct {
		job  job.ID
		part string
	}
	last := map[key]int{}
	for i, r := range rows {
		last[key{r.Job, r.Part}] = i
	}
	left := map[job.ID]bool{}
	for _, id := range gone {
		left[id] = true
	}
	out := rows[:0]
	for i, r := range rows {
		if last[key{r.Job, r.Part}] == i && !left[r.Job] {
			out = append(out, r)
		}
	}
	return out
}

// search looks for hosts of a class in a goroutine of its own; one per class.
func (l *Loop) search(ctx context.Context, class string, searches *sync.WaitGroup) {
	if l.finding[class] || len(l.finding) >= maxFinding {
		return
	}
	l.finding[class] = true
	searches.Go(func() {
		ctx, stop := context.WithTimeout(ctx, findTime)
		defer stop()
		n := 0
		for p := range l.needs.Finder.Find(ctx, class, findPeers) {
			if n++; n <= findPeers { // at once: silent hosts may hold up the rest
				l.box.putAlways(mail{event: Found{Class: class, Peers: []job.Peer{p}}})
			}
		}
		l.box.putAlways(mail{look: func(*Core) { delete(l.finding, class) }})
		l.box.putAlways(mail{event: Found{Class: class, Cut: ctx.Err() != nil}})
	})
}

// end answers all who still wait.
func (l *Loop) end() {
	l.box.close()
	close(l.done)
	l.watchers.end()
}

// Deliver hands in a committed entry, in order; the journal calls it.
func (l *Loop) Deliver(e job.Committed) {
	l.box.putEntry(mail{event: Committed{e}})
}

// SessionUp tells of a new session.
func (l *Loop) SessionUp(p job.Peer) { l.box.putAlways(mail{event: SessionUp{Peer: p}}) }

// SessionDown tells of a session's end.
func (l *Loop) SessionDown(p job.Peer) { l.box.putAlways(mail{event: SessionDown{Peer: p}}) }

// FromWorker hands in a worker's message, in order, and does not wait. ErrBusy
// says that it was dropped: cut the session, so that its worker begins anew.
func (l *Loop) FromWorker(p job.Peer, m lease.ToScheduler) error {
	if !l.box.put(mail{event: FromWorker{Peer: p, Msg: m}}) {
		return ErrBusy
	}
	return nil
}

// logNotice says what happened. How tasks fare is in their jobs' documents, and
// on the log of the host that runs them.
func (l *Loop) logNotice(t Notice) {
	switch t.Kind {
	case TaskStarted:
		l.log.Debug("task placed", "peer", t.Peer, "node", t.Node, "attempt", t.Attempt, "why", t.Detail)
	case TaskEnded:
		l.log.Debug("task ended", "peer", t.Peer, "node", t.Node, "attempt", t.Attempt, "state", t.State, "detail", t.Detail)
	case TaskWrittenOff:
		l.log.Warn("task written off", "peer", t.Peer, "node", t.Node, "attempt", t.Attempt)
	case WorkerFound:
		l.log.Info("worker found", "peer", t.Peer, "node", t.Node)
	case WorkerLost:
		l.log.Warn("worker lost", "peer", t.Peer, "node", t.Node, "detail", t.Detail)
	case WorkerGone:
		l.log.Info("worker gone", "peer", t.Peer, "node", t.Node)
	case MessageDefect:
		l.log.Warn("a task waits since a message about it could not be sent", "peer", t.Peer, "node", t.Node, "attempt", t.Attempt, "error", t.Detail)
	case NodeDead:
		l.log.Warn("node declared dead: what was assigned to it is given up", "peer", t.Peer, "node", t.Node, "user", t.Detail)
	case RowDefect:
		l.log.Error("rows of a job cannot be written", "job", t.Attempt.Job, "error", t.Detail)
	case NewerOwner:
		l.log.Error("a newer owner of these jobs exists", "peer", t.Peer, "epoch", t.Detail)
	}
}
