package api

// The source of the feeds of this daemon: its node and its jobs, which are read once for all readers.

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/musterhq/muster/api/view"
	"github.com/musterhq/muster/job"
)

const (
	nodePoll   = 250 * time.Millisecond // between two reads of the node
	countEvery = 4                      // the number of jobs is read at every 4th read of the node
	relist     = time.Minute            // between two searches for deleted jobs, unless the number of jobs falls
	queueShare = 50                     // reading the queue takes at most 1/50 of the time
)

// Keys of the lines. The key of a job is keyJob with its ID.
const (
	keyNode     = "n"
	keyMeasured = "m" // of the node
	keyTotals   = "t"
	keyQueue    = "q" // has users, so only readers that may see jobs get it
	keySynced   = "s"
	keyJob      = "j"
)

// feedSource follows the node and the jobs of this daemon while there are readers.
type feedSource struct {
	node      NodeSource
	watch     Watch
	jobs      Jobs
	directory Directory
	log       *slog.Logger
	whole     wholeNode

	mu      sync.Mutex
	readers int       // guarded by mu
	lines   *view.Log // guarded by mu; nil: there are no readers
	stop    func()    // guarded by mu
}

// read returns the log of this daemon. The log is kept until all readers have called leave.
func (s *feedSource) read(ctx context.Context) (lines *view.Log, leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.readers++; s.readers == 1 {
		ctx, cancel := context.WithCancel(job.WithAsker(context.WithoutCancel(ctx), ""))
		s.lines, s.stop = view.NewLog(), cancel
		own := ownRows{feedSource: s, lines: s.lines, node: nodeLines{whole: &s.whole}, shelf: view.NewShelf()}
		go own.run(ctx)
	}
	return s.lines, sync.OnceFunc(s.leave)
}

func (s *feedSource) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.readers--; s.readers == 0 {
		s.stop()
		s.lines, s.stop = nil, nil
	}
}

// ownRows writes the log of this daemon. Only the goroutine of run uses it.
type ownRows struct {
	*feedSource

	lines  *view.Log
	node   nodeLines
	shelf  *view.Shelf
	counts map[job.State]int
	total  int       // of counts
	listed time.Time // when all jobs were last listed
	queued time.Time // when the queue may be read again
}

func (o *ownRows) run(ctx context.Context) {
	for n := 1; ctx.Err() == nil; n++ {
		if err := o.follow(ctx); err != nil && ctx.Err() == nil {
			o.log.WarnContext(ctx, "cannot tell others of this daemon's jobs", "error", err)
		} else {
			n = 0
		}
		pause(ctx, n+1)
	}
}

// follow lists all jobs, then follows the changes until it falls behind or ctx ends.
func (o *ownRows) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	o.lookAtNode(ctx)
	changes, err := o.watch.Watch(ctx, nil, false) // before the listing, so that no change is missed
	if err != nil {
		return err
	}
	o.lookAtQueue(ctx)
	if err := o.list(ctx); err != nil {
		return err
	}
	o.lines.Set(keySynced, encodeLine(feedLine{Synced: true}))
	tick := time.NewTicker(nodePoll)
	defer tick.Stop()
	for n := 1; ; n++ {
		select {
		case j, more := <-changes:
			if !more {
				return nil
			}
			o.put(&j)
			continue
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		o.lookAtNode(ctx)
		if n%countEvery != 0 {
			continue
		}
		before := o.total
		o.lookAtCounts(ctx)
		o.lookAtQueue(ctx)
		if o.total < before || time.Since(o.listed) > relist { // jobs were deleted, or may have been
			if err := o.list(ctx); err != nil {
				return err
			}
		}
	}
}

func (o *ownRows) lookAtNode(ctx context.Context) {
	info, err := o.feedSource.node.Node(ctx)
	if err != nil {
		return // asked again soon
	}
	n := NodeDocument(info)
	o.node.tell(o.lines, &n)
}

func (o *ownRows) lookAtCounts(ctx context.Context) {
	counts, err := o.watch.Counts(ctx)
	if err != nil {
		return
	}
	o.counts, o.total = counts, 0
	for _, n := range counts {
		o.total += n
	}
	o.tellTotals()
}

// lookAtQueue writes the line about the queue. It does so less often if there are very many waiting jobs.
func (o *ownRows) lookAtQueue(ctx context.Context) {
	began := time.Now()
	if began.Before(o.queued) {
		return
	}
	q, err := o.watch.Queue(ctx)
	if err != nil {
		return
	}
	o.queued = time.Now().Add(queueShare * time.Since(began))
	q = q.forDaemons()
	o.lines.Set(keyQueue, encodeLine(feedLine{Queue: &q}))
}

func (o *ownRows) tellTotals() {
	open, ended := o.shelf.Froms()
	o.lines.Set(keyTotals, encodeLine(feedLine{Totals: &feedTotals{Jobs: o.counts, Open: cursorOf(open), Ended: cursorOf(ended)}}))
}

// list reads all jobs that the feed can hold, page by page, and removes jobs that no longer exist.
func (o *ownRows) list(ctx context.Context) error {
	o.lookAtCounts(ctx)
	open, ended := openAndEnded(nil)
	there := map[job.ID]bool{}
	if err := o.listStates(ctx, open, view.MaxOpen, there); err != nil {
		return err
	}
	if err := o.listStates(ctx, ended, view.MaxEnded, there); err != nil {
		return err
	}
	for _, r := range o.shelf.Retain(there) {
		o.lines.Remove(keyJob+string(r.ID), encodeLine(feedLine{Gone: r.ID}))
	}
	o.listed = time.Now()
	o.tellTotals()
	return nil
}

func (o *ownRows) listStates(ctx context.Context, states []job.State, most int, there map[job.ID]bool) error {
	q := job.Query{States: states, Limit: min(maxLimit, most)}
	for n := 0; ; {
		page, err := o.jobs.List(ctx, q)
		if err != nil {
			return err
		}
		for i := range page {
			there[page[i].ID] = true
			o.put(&page[i])
		}
		if n += len(page); len(page) < q.Limit {
			return nil
		}
		q.After = page[len(page)-1].Position()
		if n >= most {
			o.shelf.Miss(states[0], q.After)
			return nil
		}
	}
}

// put writes the line with the present state of a job.
func (o *ownRows) put(j *job.Job) {
	doc := briefDocument(j, o.directory.Copies(j.ID.Group()))
	text := encodeLine(feedLine{Job: &doc})
	if len(text) > maxFeedJob {
		doc.Tasks, doc.ReasonDetail = []Task{}, ""
		text = encodeLine(feedLine{Job: &doc})
	}
	o.lines.Set(keyJob+string(j.ID), text)
	dropped := o.shelf.Put(&view.Row{ID: j.ID, State: doc.State, Submitted: j.Submitted})
	for _, r := range dropped {
		o.lines.Remove(keyJob+string(r.ID), encodeLine(feedLine{Gone: r.ID, Older: true}))
	}
	if len(dropped) > 0 {
		o.tellTotals()
	}
}
