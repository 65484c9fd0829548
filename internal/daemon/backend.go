package daemon

// The interfaces that the API needs, implemented with the parts of this daemon.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/internal/store"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/p2p"
	"github.com/musterhq/muster/scheduler/backlog"
	"github.com/musterhq/muster/scheduler/journal"
	schedulerloop "github.com/musterhq/muster/scheduler/loop"
	"github.com/musterhq/muster/scheduler/step"
	"github.com/musterhq/muster/worker/files"
	"github.com/musterhq/muster/worker/loop"
	"github.com/musterhq/muster/worker/output"
	"github.com/musterhq/muster/worker/supervisor"
)

// The compiler checks that the interfaces of package api are implemented.
var (
	_ api.Jobs       = jobsBackend{}
	_ api.Deaths     = jobsBackend{}
	_ api.Explain    = jobsBackend{}
	_ api.Scheduling = jobsBackend{}
	_ api.Watch      = jobsBackend{}
	_ api.Progress   = jobsBackend{}
	_ api.Logs       = logsBackend{}
	_ api.NodeSource = nodeBackend{}
	_ api.Peers      = peersBackend{}
	_ api.Directory  = directoryBackend{}
	_ api.Self       = selfBackend{}
)

// apiErrors pairs the errors of this daemon's parts with errors of package api.
var apiErrors = []struct{ ours, theirs error }{
	{step.ErrNotFound, api.ErrNotFound},
	{step.ErrConflict, api.ErrConflict},
	{backlog.ErrFull, api.ErrConflict},
	{step.ErrLimit, api.ErrNoMatch},
	{step.ErrInvalid, api.ErrBad},
	{step.ErrBusy, api.ErrUnavailable},
	{step.ErrStopped, api.ErrUnavailable},
	{store.ErrNoRoom, api.ErrUnavailable},
	{store.ErrFull, api.ErrUnavailable},
	{step.ErrNotOwner, api.ErrUnavailable},
	{journal.ErrNotOwner, api.ErrUnavailable},
	{journal.ErrDropped, api.ErrUnavailable},
	{journal.ErrUncertain, api.ErrUnavailable},
	{errNoSuchRole, api.ErrUnavailable},
	{errNoOwner, api.ErrUnavailable},
	{p2p.ErrMember, api.ErrConflict},
	{p2p.ErrBadToken, api.ErrBad},
	{p2p.ErrRoles, api.ErrDenied},
	{p2p.ErrLabels, api.ErrBad},
	{p2p.ErrNotInviter, api.ErrDenied},
	{p2p.ErrNotYours, api.ErrDenied},
	{p2p.ErrNotRevoked, api.ErrConflict},
	{p2p.ErrTokenUnknown, api.ErrDenied},
	{p2p.ErrTokenUsed, api.ErrDenied},
	{p2p.ErrTokenExpired, api.ErrDenied},
	{p2p.ErrWrongCluster, api.ErrDenied},
}

// apiError is an error of one of our parts that also matches an error of package api with errors.Is. It has the text of
// our error.
type apiError struct{ theirs, ours error }

func (e apiError) Error() string {
	text := e.ours.Error()
	for _, part := range []string{"scheduler: ", "p2p: ", "store: ", "journal: ", "node: "} { // users do not know packages
		text = strings.TrimPrefix(text, part)
	}
	return text
}

func (e apiError) Unwrap() []error { return []error{e.theirs, e.ours} }

// apiErrorOf translates an error of our parts into one of package api.
func apiErrorOf(err error) error {
	if none, ok := errors.AsType[*step.NoMatchError](err); ok {
		return &api.NoMatchError{Explanation: none.Explanation}
	}
	for _, a := range apiErrors {
		if errors.Is(err, a.ours) {
			return apiError{theirs: a.theirs, ours: err}
		}
	}
	return err
}

// jobsBackend gives the API access to the schedulers of this daemon. A request about one job goes to the owner of the
// job's group. A new job goes to home, which is nil if this daemon accepts no jobs. A request about many jobs goes to all
// owners.
type jobsBackend struct {
	owners
	own     func() *p2p.Credential // of this daemon
	trusted bool                   // all jobs use only signed labels
}

// Submit accepts a job.
func (b jobsBackend) Submit(ctx context.Context, s job.Submission) (job.Job, error) {
	if b.home == nil {
		return job.Job{}, fmt.Errorf("submit: %w", acceptsNone(b.own().Roles))
	}
	b.complete(s.User, &s.Spec)
	to, err := b.acceptor(ctx, s.User, s.Key)
	if err != nil {
		return job.Job{}, apiErrorOf(err)
	}
	j, err := to.Submit(ctx, s)
	return j, apiErrorOf(err)
}

// complete adds the defaults of this daemon's settings to a user's job file.
func (b jobsBackend) complete(user string, s *job.Spec) {
	s.TrustedLabels = s.TrustedLabels || b.trusted
	limit := b.times.of(user)
	s.DefaultTime = s.TimeLimit == 0 && limit > 0
	if s.DefaultTime {
		s.TimeLimit = limit
	}
}

// Get returns one job.
func (b jobsBackend) Get(ctx context.Context, id job.ID) (job.Job, error) {
	if b.home == nil {
		return job.Job{}, fmt.Errorf("job %s: %w", id, api.ErrNotFound)
	}
	j, err := b.of(id.Group()).Job(ctx, id)
	return j, apiErrorOf(err)
}

// List returns the jobs that q selects.
func (b jobsBackend) List(ctx context.Context, q job.Query) ([]job.Job, error) {
	all, err := b.list(ctx, q)
	return all, apiErrorOf(err)
}

// Tasks returns the tasks of a job that q selects.
func (b jobsBackend) Tasks(ctx context.Context, id job.ID, q job.TaskQuery) ([]job.Task, error) {
	if b.home == nil {
		return nil, fmt.Errorf("job %s: %w", id, api.ErrNotFound)
	}
	tasks, err := b.of(id.Group()).Tasks(ctx, id, q)
	return tasks, apiErrorOf(err)
}

// Cancel cancels tasks of a job.
func (b jobsBackend) Cancel(ctx context.Context, id job.ID, tasks []job.Range, reason string) (job.Job, error) {
	if b.home == nil {
		return job.Job{}, fmt.Errorf("job %s: %w", id, api.ErrNotFound)
	}
	j, err := b.of(id.Group()).Cancel(ctx, id, tasks, reason)
	return j, apiErrorOf(err)
}

// Hold holds tasks of a job, or releases them.
func (b jobsBackend) Hold(ctx context.Context, id job.ID, tasks []job.Range, release bool, reason string) (job.Job, error) {
	if b.home == nil {
		return job.Job{}, fmt.Errorf("job %s: %w", id, api.ErrNotFound)
	}
	j, err := b.of(id.Group()).Hold(ctx, id, tasks, release, reason)
	return j, apiErrorOf(err)
}

// Requeue makes tasks of a job run again.
func (b jobsBackend) Requeue(ctx context.Context, id job.ID, tasks []job.Range, failed bool, reason string) (job.Job, error) {
	if b.home == nil {
		return job.Job{}, fmt.Errorf("job %s: %w", id, api.ErrNotFound)
	}
	j, err := b.of(id.Group()).Requeue(ctx, id, tasks, failed, reason)
	return j, apiErrorOf(err)
}

// Forget deletes a job that has ended.
func (b jobsBackend) Forget(ctx context.Context, id job.ID) error {
	if b.home == nil {
		return fmt.Errorf("job %s: %w", id, api.ErrNotFound)
	}
	return apiErrorOf(schedulerloop.ForgetJob(ctx, b.of(id.Group()).Loop, id))
}

// MayBeDead counts the tasks of this daemon's jobs on a host that does not answer.
func (b jobsBackend) MayBeDead(ctx context.Context, node job.Peer, store string) (tasks int, err error) {
	tasks, err = b.sum(func(o *owner) (int, error) { return o.MayBeDead(ctx, node, store) })
	return tasks, apiErrorOf(err)
}

// DeclareDead gives up the tasks of this daemon's jobs on a host.
func (b jobsBackend) DeclareDead(ctx context.Context, node job.Peer, store, by string) (tasks int, err error) {
	tasks, err = b.sum(func(o *owner) (int, error) { return o.DeclareDead(ctx, node, store, by) })
	return tasks, apiErrorOf(err)
}

// Why explains the state of a job.
func (b jobsBackend) Why(ctx context.Context, id job.ID) (contract.Explanation, error) {
	if b.home == nil {
		return contract.Explanation{}, fmt.Errorf("job %s: %w", id, api.ErrNotFound)
	}
	x, err := b.of(id.Group()).Why(ctx, id)
	return x, apiErrorOf(err)
}

// Offers says which hosts would take a job, without submitting it.
func (b jobsBackend) Offers(ctx context.Context, s job.Submission) (contract.Explanation, error) {
	if b.home == nil {
		return contract.Explanation{}, fmt.Errorf("offers: %w", acceptsNone(b.own().Roles))
	}
	b.complete(s.User, &s.Spec)
	b.home.allotter.refresh(ctx, b.home.Loop, s.User)
	x, err := b.home.Offers(ctx, s.User, s.Operator, s.Spec)
	return x, apiErrorOf(err)
}

// Watch reports changes of jobs.
func (b jobsBackend) Watch(ctx context.Context, ids []job.ID, ended bool) (<-chan job.Job, error) {
	if b.home == nil {
		none := make(chan job.Job)
		context.AfterFunc(ctx, func() { close(none) })
		return none, nil
	}
	c, err := b.watch(ctx, job.Query{IDs: ids, Ended: ended})
	return c, apiErrorOf(err)
}

// Follow reports the progress of some jobs of one group.
func (b jobsBackend) Follow(ctx context.Context, jobs []job.Follow, each func(job.Progress) error) error {
	if b.home == nil || len(jobs) == 0 {
		return apiErrorOf(errNoSuchRole)
	}
	return apiErrorOf(b.of(jobs[0].Job.Group()).Follow(ctx, jobs, each))
}

// Counts returns the number of jobs in each state.
func (b jobsBackend) Counts(ctx context.Context) (map[job.State]int, error) {
	all := map[job.State]int{}
	for _, o := range b.by {
		counts, err := o.Counts(ctx)
		if err != nil {
			return nil, apiErrorOf(err)
		}
		for state, n := range counts {
			all[state] += n
		}
	}
	return all, nil
}

// Queue returns what the jobs of this daemon wait for, and what they hold.
func (b jobsBackend) Queue(ctx context.Context) (info api.QueueInfo, err error) {
	users := map[string]api.UserLoad{}
	for _, o := range b.by {
		q, err := schedulerloop.QueueOf(ctx, o.Loop)
		if err != nil {
			return api.QueueInfo{}, apiErrorOf(err)
		}
		info.Waited.Add(q.Waited)
		if !q.Oldest.IsZero() && (info.Oldest == nil || q.Oldest.Before(*info.Oldest)) {
			info.Oldest = &q.Oldest
		}
		for _, d := range q.Demands {
			u := users[d.User]
			users[d.User] = api.UserLoad{User: d.User, Running: u.Running + d.Running, Pending: u.Pending + d.Waiting, GPUs: u.GPUs + d.GPUs}
		}
	}
	info.Users = slices.Collect(maps.Values(users))
	return info, nil
}

// logsBackend gives the API access to the output of this host's attempts.
type logsBackend struct {
	driver *supervisor.Driver
	files  *files.Driver
	work   *loop.Loop
}

// Open opens a stream of an attempt.
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
		return nil, 0, fmt.Errorf("%w: its node has never started it, or its output is gone: it is kept for %d days, or less if the disk is short",
			api.ErrNotFound, supervisor.KeepFor/(24*time.Hour))
	}
	if err != nil {
		return nil, 0, driverError(a, err)
	}
	return logBody{body}, body.Offset(), nil
}

// awaitStart waits until an attempt in the ledger has been handed to its driver. A request for its output may arrive
// before the Start message, or while the files of the job are still on their way.
func (b logsBackend) awaitStart(ctx context.Context, a job.Attempt) {
	look := time.NewTicker(ledgerPoll)
	defer look.Stop()
	for ctx.Err() == nil {
		has, next := b.driver.Has(a)
		if has || !b.holds(ctx, a) {
			return
		}
		b.files.Await(ctx, a)
		select {
		case <-next:
		case <-look.C: // the offer may have been withdrawn
		case <-ctx.Done():
		}
	}
}

// ledgerPoll is how often awaitStart reads the ledger.
const ledgerPoll = time.Second

// holds reports whether the attempt is in the ledger, and runs or may still start.
func (b logsBackend) holds(ctx context.Context, a job.Attempt) bool {
	records, err := b.work.Attempts(ctx)
	return err == nil && slices.ContainsFunc(records, func(r contract.Record) bool {
		return r.Attempt == a && r.Exit == nil && (r.Phase == contract.PhaseReserved || r.Phase == contract.PhaseStarted)
	})
}

// logBody reads a log and translates its errors for the API.
type logBody struct{ *output.Follower }

// Read returns an api.GapError where output was removed.
func (b logBody) Read(p []byte) (int, error) {
	n, err := b.Follower.Read(p)
	if cut, ok := errors.AsType[*output.CutError](err); ok {
		err = &api.GapError{Next: cut.To}
	}
	return n, err
}
