package loop

// The executor carries out the effects of the core.

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler"
	"github.com/musterhq/muster/scheduler/step"
)

const (
	findTime   = 900 * time.Millisecond // bounds a search; less than MatchWait
	findPeers  = 64                     // bounds the hosts of a search
	maxFinding = 8                      // bounds the searches at a time
	// proposeBatch bounds the records of one entry.
	proposeBatch = 64
)

// executor carries out effects. Only the goroutine of Loop.Run uses it.
type executor struct {
	needs     Needs
	log       *slog.Logger
	box       *mailbox
	replies   *replies
	core      *scheduler.Core
	watchers  watchers
	followers followers
	finding   map[string]bool
	unsaved   []job.Row    // rows that no Save has taken yet
	gone      []job.ID     // jobs whose rows no Save has deleted yet
	kept      []step.Event // RowsKept of the last Save, for the next step
}

// arm sets the timer to the time of the next step that is due.
func (x *executor) arm(timer *time.Timer) {
	wake := x.core.Wake()
	if wake.IsZero() {
		timer.Stop()
		return
	}
	timer.Reset(max(time.Until(wake), 0))
}

// callsFor bounds the time for calls before new mail is taken, because that mail starts and ends tasks.
const callsFor = time.Millisecond

// round gives the core the mail of this daemon and of the members whose turn it is, then, for about callsFor, the calls
// of the askers in turn. All events up to a look are one step, so that the records to which they lead are proposed
// together.
func (x *executor) round(ctx context.Context, mails []mail, searches *sync.WaitGroup) error {
	events := make([]step.Event, 0, len(mails))
	for _, m := range mails {
		if m.event != nil {
			events = append(events, m.event)
			continue
		}
		if err := x.step(ctx, events, searches); err != nil { // a look sees everything that came before it
			return err
		}
		events = events[:0]
		m.look(x.core)
	}
	events = x.box.takeMail(events)
	late := time.Now().Add(callsFor)
	for {
		m, there := x.box.takeCall()
		if !there {
			break
		}
		if m.event != nil {
			events = append(events, m.event)
			continue
		}
		if err := x.step(ctx, events, searches); err != nil {
			return err
		}
		events = events[:0]
		if m.look(x.core); time.Now().After(late) {
			x.box.ring() // there may be more
			break
		}
	}
	return x.step(ctx, events, searches)
}

// step gives the events to the core and carries out the effects. An error says that rows could not be read. It ends the
// loop, because without these rows the jobs would not follow from the journal any more.
func (x *executor) step(ctx context.Context, events []step.Event, searches *sync.WaitGroup) error {
	events, err := scheduler.AddRows(x.core, events, func(id job.ID) ([]job.Row, error) { return rowsOf(x.needs.Journal, id) })
	if err != nil {
		return err
	}
	fx := x.core.Step(time.Now(), append(events, x.kept...)...)
	x.kept = x.kept[:0]
	x.proposeAll(fx.Propose)
	for _, o := range fx.Send {
		switch err := x.needs.Sessions.Send(o.To, o.Msg); {
		case err == nil:
		case errors.Is(err, step.ErrUnsendable), errors.As(err, new(*step.HeldBackError)):
			x.box.putAlways(mail{event: step.NotSent{To: o.To, Msg: o.Msg, Err: err}})
		default:
			x.log.DebugContext(ctx, "message not sent", "peer", o.To, "error", err)
		}
	}
	if fx.Raise != (job.Epoch{}) {
		x.needs.Journal.Raise(fx.Raise)
	}
	if fx.Read != 0 {
		x.readIndex(fx.Read)
	}
	for _, w := range fx.Files {
		searches.Go(func() { x.box.putAlways(mail{event: scheduler.ReadFile(w, x.needs.Journal.File)}) })
	}
	for _, class := range fx.Find {
		x.search(ctx, class, searches)
	}
	for _, p := range fx.Want {
		x.needs.Sessions.Want(p)
	}
	for _, p := range fx.Unwant {
		x.needs.Sessions.Unwant(p)
	}
	if len(fx.Unfollow) > 0 {
		x.needs.Parents.Unfollow(fx.Unfollow)
	}
	if len(fx.Follow) > 0 {
		x.needs.Parents.Follow(fx.Follow)
	}
	if fx.Announce {
		x.needs.Announcer.Announce(fx.Wants)
	}
	if len(fx.Allot) > 0 {
		x.needs.Allotter.Allot(fx.Allot)
	}
	x.save(fx)
	for _, r := range fx.Reply {
		x.replies.reply(r)
	}
	x.watchers.publish(x.core.View(), fx.Changed)
	x.followers.publish(fx.Changed, fx.Gone)
	if !x.core.View().Leads() {
		x.followers.end()
	}
	for _, t := range fx.Notices {
		x.logNotice(t)
	}
	return nil
}

// proposeAll proposes records that end work apart from those that begin work. A journal that runs out of disk space
// refuses only those that begin work. Within a step no record depends on another.
func (x *executor) proposeAll(records []job.Record) {
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
	x.propose(end)
	x.propose(begin)
}

func (x *executor) propose(records []job.Record) {
	for len(records) > 0 {
		batch := records[:min(len(records), proposeBatch)]
		records = records[len(batch):]
		if err := x.needs.Journal.Propose(batch...); err != nil {
			x.log.Warn("records not proposed", "count", len(batch), "error", err)
			x.box.putAlways(mail{event: step.NotProposed{Records: batch, Err: err}})
		}
	}
}

func (x *executor) readIndex(tok step.Token) {
	x.needs.Journal.ReadIndex(func(e job.Epoch, err error) {
		x.box.putAlways(mail{event: step.ReadDone{Token: tok, Epoch: e, Err: err}})
	})
}

// save saves the rows. If that fails, nothing is lost: the journal has everything that is in them, and they are saved
// again with the next.
func (x *executor) save(fx step.Effects) {
	if len(fx.Rows) == 0 && len(fx.Gone) == 0 {
		return
	}
	failed := len(x.unsaved) > 0
	x.unsaved, x.gone = append(x.unsaved, fx.Rows...), append(x.gone, fx.Gone...)
	if failed {
		x.unsaved = newest(x.unsaved, x.gone)
	}
	if err := x.needs.Journal.Save(x.core.Applied(), x.unsaved, x.gone); err != nil {
		x.log.Error("job rows not saved, they are tried again with the next", "count", len(x.unsaved), "error", err)
		return
	}
	clear(x.unsaved)
	x.unsaved, x.gone = x.unsaved[:0], nil
	x.kept = append(x.kept[:0], step.RowsKept{Applied: x.core.Applied()})
}

// newest returns the newest row of each part of each job that is not gone.
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

// search looks for hosts of a class in a goroutine of its own. There is one search for a class at a time.
func (x *executor) search(ctx context.Context, class string, searches *sync.WaitGroup) {
	if x.finding[class] || len(x.finding) >= maxFinding {
		return
	}
	x.finding[class] = true
	searches.Go(func() {
		ctx, stop := context.WithTimeout(ctx, findTime)
		defer stop()
		n := 0
		for p := range x.needs.Finder.Find(ctx, class, findPeers) {
			if n++; n <= findPeers { // one by one, because silent hosts may delay the rest
				x.box.putAlways(mail{event: step.Found{Class: class, Peers: []job.Peer{p}}})
			}
		}
		cut, members := ctx.Err() != nil, x.needs.Finder.Members()
		x.box.putAlways(mail{look: func(c *scheduler.Core) {
			delete(x.finding, class)
			// Hosts that do not answer hold most searches up. If the profiles of all members are known, nothing is missing.
			unknown := slices.ContainsFunc(members, func(p job.Peer) bool { return !c.View().Knows(p) })
			x.box.putAlways(mail{event: step.Found{Class: class, Cut: cut && unknown}})
		}})
	})
}

// logNotice writes a notice into the log. Starts and ends of tasks are at level debug, because jobs show them and the
// log of the host has them.
func (x *executor) logNotice(t step.Notice) {
	switch t.Kind {
	case step.TaskStarted:
		x.log.Debug("task placed", "peer", t.Peer, "node", t.Node, "attempt", t.Attempt, "why", t.Detail)
	case step.TaskEnded:
		x.log.Debug("task ended", "peer", t.Peer, "node", t.Node, "attempt", t.Attempt, "state", t.State, "detail", t.Detail)
	case step.TaskWrittenOff:
		x.log.Warn("task written off", "peer", t.Peer, "node", t.Node, "attempt", t.Attempt)
	case step.WorkerFound:
		x.log.Info("worker found", "peer", t.Peer, "node", t.Node)
	case step.WorkerLost:
		x.log.Warn("worker lost", "peer", t.Peer, "node", t.Node, "detail", t.Detail)
	case step.WorkerGone:
		x.log.Info("worker gone", "peer", t.Peer, "node", t.Node)
	case step.MessageDefect:
		x.log.Warn("a task waits since a message about it could not be sent", "peer", t.Peer, "node", t.Node, "attempt", t.Attempt, "error", t.Detail)
	case step.StartHeldBack:
		x.log.Warn("the start of a task is kept back", "peer", t.Peer, "node", t.Node, "attempt", t.Attempt, "why", t.Detail)
	case step.NodeDead:
		x.log.Warn("node declared dead: what was assigned to it is given up", "peer", t.Peer, "node", t.Node, "user", t.Detail)
	case step.RowDefect:
		x.log.Error("rows of a job cannot be written", "job", t.Attempt.Job, "error", t.Detail)
	case step.RowsDamaged:
		x.log.Error("a job was not requeued: its rows are missing or damaged", "job", t.Attempt.Job, "error", t.Detail)
	case step.FileDefect:
		x.log.Error("the file of a job cannot be read", "job", t.Attempt.Job, "error", t.Detail)
	case step.IllegalMove:
		x.log.Error("defect: illegal move of an attempt", "peer", t.Peer, "attempt", t.Attempt, "move", t.Detail)
	case step.NewerOwner:
		x.log.Error("a newer owner of these jobs exists", "peer", t.Peer, "epoch", t.Detail)
	case step.CopyHasLed:
		x.log.Warn("a copy of this daemon has led these jobs; taking a higher epoch", "peer", t.Peer, "epoch", t.Detail)
	}
}
