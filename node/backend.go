package node

// What the API asks of this daemon's parts.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/journal"
	"github.com/musterhq/muster/lease"
	"github.com/musterhq/muster/p2p"
	"github.com/musterhq/muster/scheduler"
	"github.com/musterhq/muster/store"
	"github.com/musterhq/muster/worker"
	"github.com/musterhq/muster/worker/files"
	"github.com/musterhq/muster/worker/output"
	"github.com/musterhq/muster/worker/supervisor"
)

// The joints of the house.
var (
	_ api.Jobs       = jobsBackend{}
	_ api.Deaths     = jobsBackend{}
	_ api.Explain    = jobsBackend{}
	_ api.Watch      = jobsBackend{}
	_ api.Logs       = logsBackend{}
	_ api.NodeSource = nodeBackend{}
	_ api.Peers      = peersBackend{}
	_ api.Directory  = directoryBackend{}
	_ api.Self       = selfBackend{}
)

// answers pairs the errors of our parts with those that the API knows.
var answers = []struct{ ours, theirs error }{
	{scheduler.ErrNotFound, api.ErrNotFound},
	{scheduler.ErrConflict, api.ErrConflict},
	{scheduler.ErrInvalid, api.ErrBad},
	{scheduler.ErrBusy, api.ErrUnavailable},
	{scheduler.ErrStopped, api.ErrUnavailable},
	{store.ErrNoRoom, api.ErrUnavailable},
	{store.ErrFull, api.ErrUnavailable},
	{scheduler.ErrNotOwner, api.ErrUnavailable},
	{journal.ErrNotOwner, api.ErrUnavailable},
	{journal.ErrDropped, api.ErrUnavailable},
	{journal.ErrUncertain, api.ErrUnavailable},
	{errNoSuchRole, api.ErrUnavailable},
	{errNoOwner, api.ErrUnavailable},
	{p2p.ErrMember, api.ErrConflict},
	{p2p.ErrBadToken, api.ErrBad},
	{p2p.ErrRoles, api.ErrDenied},
	{p2p.ErrNotInviter, api.ErrDenied},
	{p2p.ErrTokenUnknown, api.ErrDenied},
	{p2p.ErrTokenUsed, api.ErrDenied},
	{p2p.ErrTokenExpired, api.ErrDenied},
	{p2p.ErrWrongCluster, api.ErrDenied},
}

// answered is an error of ours under the API's name for it; its text stays ours.
type answered struct{ theirs, ours error }

func (e answered) Error() string {
	text := e.ours.Error()
	for _, part := range []string{"scheduler: ", "p2p: ", "store: ", "journal: ", "node: "} { // a user has no use for whose it is
		text = strings.TrimPrefix(text, part)
	}
	return text
}

func (e answered) Unwrap() []error { return []error{e.theirs, e.ours} }

// answerOf translates an error for the API.
func answerOf(err error) error {
	if none, ok := errors.AsType[*scheduler.NoMatchError](err); ok {
		return &api.NoMatchError{Explanation: none.Explanation}
	}
	for _, a := range answers {
		if errors.Is(err, a.ours) {
			return answered{theirs: a.theirs, ours: err}
		}
	}
	return err
}

// jobsBackend is the schedulers as the API wants them. What is about one job
// goes to the owner of its group, all else to that of new jobs; there is none
// where this daemon takes no jobs.
type jobsBackend struct{ owners }

// Submit accepts a job.
func (b jobsBackend) Submit(ctx context.Context, s api.Submission) (job.Job, error) {
	if b.home == nil {
		return job.Job{}, answerOf(errNoSuchRole)
	}
	j, err := b.home.Submit(ctx, scheduler.SubmitRequest{User: s.User, Key: s.Key, Spec: s.Spec})
	return j, answerOf(err)
}

// Get is one job.
func (b jobsBackend) Get(ctx context.Context, id job.ID) (job.Job, error) {
	if b.home == nil {
		return job.Job{}, fmt.Errorf("job %s: %w", id, api.ErrNotFound)
	}
	j, err := b.of(id.Group()).Job(ctx, id)
	return j, answerOf(err)
}

// List is what q picks, page by page of the scheduler's own.
func (b jobsBackend) List(ctx context.Context, q job.Query) ([]job.Job, error) {
	if b.home == nil {
		return nil, nil
	}
	f := q
	var all []job.Job
	for {
		page, err := b.home.Jobs(ctx, f)
		if err != nil {
			return nil, answerOf(err)
		}
		more := len(page) >= scheduler.MaxList
		if more {
			last := page[len(page)-1]
			f.After = last.Position()
		}
		all = append(all, q.Pick(page)...)
		if !more || (q.Limit > 0 && len(all) >= q.Limit) {
			return q.Pick(all), nil
		}
	}
}

// Cancel ends a job.
func (b jobsBackend) Cancel(ctx context.Context, id job.ID, reason string) (job.Job, error) {
	if b.home == nil {
		return job.Job{}, fmt.Errorf("job %s: %w", id, api.ErrNotFound)
	}
	j, err := b.of(id.Group()).Cancel(ctx, id, reason)
	return j, answerOf(err)
}

// Hold keeps a job back, or lets it go.
func (b jobsBackend) Hold(ctx context.Context, id job.ID, release bool, reason string) (j job.Job, err error) {
	switch {
	case b.home == nil:
		return job.Job{}, fmt.Errorf("job %s: %w", id, api.ErrNotFound)
	case release:
		j, err = b.of(id.Group()).Release(ctx, id, reason)
	default:
		j, err = b.of(id.Group()).Hold(ctx, id, reason)
	}
	return j, answerOf(err)
}

// MayBeDead counts what this daemon's jobs have on a host that does not answer.
func (b jobsBackend) MayBeDead(ctx context.Context, node job.Peer) (tasks int, err error) {
	if b.home == nil {
		return 0, nil
	}
	tasks, err = b.home.MayBeDead(ctx, node)
	return tasks, answerOf(err)
}

// DeclareDead gives that up.
func (b jobsBackend) DeclareDead(ctx context.Context, node job.Peer, by string) (tasks int, err error) {
	if b.home == nil {
		return 0, nil
	}
	tasks, err = b.home.DeclareDead(ctx, node, by)
	return tasks, answerOf(err)
}

// Why explains a job.
func (b jobsBackend) Why(ctx context.Context, id job.ID) (lease.Explanation, error) {
	if b.home == nil {
		return lease.Explanation{}, fmt.Errorf("job %s: %w", id, api.ErrNotFound)
	}
	x, err := b.of(id.Group()).Why(ctx, id)
	return x, answerOf(err)
}

// Offers is a dry run.
func (b jobsBackend) Offers(ctx context.Context, s api.Submission) (lease.Explanation, error) {
	if b.home == nil {
		return lease.Explanation{}, answerOf(errNoSuchRole)
	}
	x, err := b.home.Offers(ctx, s.Spec)
	return x, answerOf(err)
}

// Watch tells of changes.
func (b jobsBackend) Watch(ctx context.Context, ids []job.ID, ended bool) (<-chan job.Job, error) {
	if b.home == nil {
		none := make(chan job.Job)
		context.AfterFunc(ctx, func() { close(none) })
		return none, nil
	}
	c, err := b.home.Watch(ctx, job.Query{IDs: ids, Ended: ended})
	return c, answerOf(err)
}

// Counts is how many jobs are in each state.
func (b jobsBackend) Counts(ctx context.Context) (map[job.State]int, error) {
	if b.home == nil {
		return map[job.State]int{}, nil
	}
	counts, err := b.home.Counts(ctx)
	return counts, answerOf(err)
}

// logsBackend is the output of this host's attempts.
type logsBackend struct {
	driver *supervisor.Driver
	files  *files.Driver
	work   *worker.Loop
}

// Open reads a stream of an attempt.
func (b logsBackend) Open(ctx context.Context, a job.Attempt, stream string, offset int64, follow bool) (io.ReadCloser, int64, error) {
	if b.driver == nil {
		return nil, 0, fmt.Errorf("attempt %s: %w", a, api.ErrNotFound)
	}
	body, err := b.driver.Follow(ctx, a, output.Stream(stream), offset, follow)
	if follow && errors.Is(err, fs.ErrNotExist) {
		b.awaitStart(ctx, a)
		body, err = b.driver.Follow(ctx, a, output.Stream(stream), offset, follow)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, fmt.Errorf("output of attempt %s: %w", a, api.ErrNotFound)
	}
	if err != nil {
		return nil, 0, err
	}
	return logBody{body}, body.Offset(), nil
}

// awaitStart waits until an attempt that this host has taken on is handed to
// its driver: who asks for its output may be faster than the word to start it,
// or than its files.
func (b logsBackend) awaitStart(ctx context.Context, a job.Attempt) {
	look := time.NewTicker(lookAgain)
	defer look.Stop()
	for ctx.Err() == nil {
		has, next := b.driver.Has(a)
		if has || !b.taken(ctx, a) {
			return
		}
		b.files.Await(ctx, a)
		select {
		case <-next:
		case <-look.C: // it may have been taken back
		case <-ctx.Done():
		}
	}
}

// lookAgain is how soon the ledger is asked again for an attempt that has not
// been handed to its driver.
const lookAgain = time.Second

// taken says whether the ledger holds an attempt that may still begin, or runs.
func (b logsBackend) taken(ctx context.Context, a job.Attempt) bool {
	records, err := b.work.Attempts(ctx)
	return err == nil && slices.ContainsFunc(records, func(r lease.Record) bool {
		return r.Attempt == a && r.Exit == nil && (r.Phase == lease.PhaseReserved || r.Phase == lease.PhaseStarted)
	})
}

// logBody is a log as the API reads it.
type logBody struct{ *output.Follower }

// Read tells of cuts in the API's words.
func (b logBody) Read(p []byte) (int, error) {
	n, err := b.Follower.Read(p)
	if cut, ok := errors.AsType[*output.CutError](err); ok {
		err = &api.GapError{Next: cut.To}
	}
	return n, err
}
