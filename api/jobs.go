package api

// The routes of jobs.

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/musterhq/muster/job"
)

type jobOutput struct{ Body Job }

type jobInput struct {
	ID string `path:"id" maxLength:"64"`
}

type submitInput struct {
	Key     string `header:"Idempotency-Key" maxLength:"128" doc:"A second request of the same user with the same key returns the job of the first request."`
	RawBody []byte `contentType:"application/json"`
}

// jobRoutes serves the jobs that this daemon owns, and lists the jobs of all daemons.
type jobRoutes struct {
	*daemons
	jobAccess

	explain   Explain
	directory Directory
	hasTree   func(tree string) error
	follows   *followRoutes
	viewer    *viewer
}

func (r *jobRoutes) submit(ctx context.Context, in *submitInput) (*jobOutput, error) {
	if err := requesterOf(ctx).maySubmit(); err != nil {
		return nil, err
	}
	spec, err := decodeSpec(in.RawBody)
	if err != nil {
		return nil, err
	}
	if err := r.hasTree(spec.Tree); err != nil {
		return nil, err
	}
	warnings, err := r.pinNodes(ctx, &spec)
	if err != nil {
		return nil, err
	}
	a := requesterOf(ctx)
	s := job.Submission{Spec: spec, User: a.user, Operator: a.operator, Key: in.Key}
	s.Unknown = r.absentParents(ctx, s)
	j, err := r.jobs.Submit(ctx, s)
	if err != nil {
		return nil, err
	}
	a.note.about(string(j.ID))
	a.note.with("name", j.Spec.Name)
	out := r.answer(ctx, j)
	out.Body.Warnings = warnings
	return out, nil
}

// absentParents returns the jobs that a new job depends on and that do not exist or that its user may not see. Jobs of
// owners that do not answer in time are left out.
func (r *jobRoutes) absentParents(ctx context.Context, s job.Submission) []job.ID {
	d, err := job.ParseDependencies(s.Spec.Dependency, false)
	if err != nil || len(d.Terms) == 0 {
		return nil // an invalid dependency is refused later, by the owner of the new job
	}
	ctx, cancel := context.WithTimeout(ctx, parentsWithin)
	defer cancel()
	if !s.Spec.Hold {
		defer time.AfterFunc(hopelessAfter, func() {
			if e, err := r.explain.Offers(ctx, job.Submission{Spec: s.Spec, User: s.User}); err == nil && len(e.Now)+len(e.Later) == 0 {
				cancel()
			}
		}).Stop()
	}
	hidden := make(chan []job.ID, 1)
	go func() { hidden <- r.hiddenParents(ctx, d) }()
	return append(r.follows.unknownParents(ctx, d), <-hidden...)
}

// hiddenParents returns the jobs that a spec depends on and that the requester may not see. They are treated as unknown
// jobs, because a job that waits for them would reveal their progress.
func (r *jobRoutes) hiddenParents(ctx context.Context, d job.Dependencies) (hidden []job.ID) {
	if requesterOf(ctx).operator {
		return nil
	}
	ids := d.IDs()
	hides := make([]bool, len(ids))
	room := make(chan struct{}, parentsAtATime)
	var asking sync.WaitGroup
	for i, id := range ids {
		asking.Go(func() {
			room <- struct{}{}
			defer func() { <-room }()
			hides[i] = r.hides(ctx, id)
		})
	}
	asking.Wait()
	for i, id := range ids {
		if hides[i] {
			hidden = append(hidden, id)
		}
	}
	return hidden
}

// hides reports whether the owner of a job tells the requester that the job does not exist.
func (r *jobRoutes) hides(ctx context.Context, id job.ID) bool {
	peer, self, err := r.directory.Owner(ctx, id.Group())
	switch {
	case err != nil:
		return false // its owner is not known, so its progress is not visible either
	case self:
		j, err := r.jobs.Get(ctx, id)
		return err == nil && !requesterOf(ctx).may(partRow, &j)
	}
	var doc Job
	return errors.Is(r.daemons.ask(ctx, peer, "/v1/jobs/"+string(id), nil, &doc), ErrNotFound)
}

// answer returns the whole document of a job, without the parts that the requester may not see.
func (r *jobRoutes) answer(ctx context.Context, j job.Job) *jobOutput {
	d := requesterOf(ctx).shown(&j, JobDocument(j, r.directory.Copies(j.ID.Group())))
	d.OwnerName = r.nameOf(d.Owner)
	if a := requesterOf(ctx); a.from == fromPeer { // that daemon forwards the answer to its requester
		d.ClockAhead = 0 - r.ahead(a.daemon)
	}
	return &jobOutput{d}
}

// decodeSpec strictly decodes a job file in JSON, and adds the defaults.
func decodeSpec(body []byte) (job.Spec, error) {
	spec := job.DefaultSpec()
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&spec); err != nil {
		return spec, specProblem(err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return spec, bad("job: extra data after the job file; send one job per request")
	}
	if len(spec.Upload) > 0 {
		return spec, bad("upload: the daemon cannot read your files: use `muster submit`, or upload them over HTTP first and give their tree")
	}
	for _, glob := range spec.Download {
		if !doublestar.ValidatePattern(glob) {
			return spec, bad("download %.100q: not a glob", glob)
		}
	}
	if err := cmp.Or(spec.Validate(), spec.CheckPartition(), spec.CheckMemory()); err != nil {
		return spec, bad("%w", err)
	}
	return spec.WithPartition(), nil
}

// specProblem says which field of a job file is wrong.
func specProblem(err error) error {
	p := newProblem("bad-request", http.StatusUnprocessableEntity, "job file")
	flaw := Flaw{Location: "body", Message: strings.TrimPrefix(err.Error(), "json: ")}
	if name, ok := strings.CutPrefix(flaw.Message, "unknown field "); ok {
		field := strings.Trim(name, `"`)
		flaw = Flaw{Location: "body." + field, Message: "unknown field " + quote(field)}
	} else if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		flaw = Flaw{Location: "body." + wrong.Field, Message: fmt.Sprintf("%s: wrong type: a JSON %s", wrong.Field, wrong.Value)}
		if wrong.Type == reflect.TypeFor[job.Size]() || wrong.Type == reflect.TypeFor[job.Duration]() {
			flaw.Message = fmt.Sprintf("%s: wrong type: a JSON %s; want text with a unit, such as \"8GiB\" or \"90m\"", wrong.Field, wrong.Value)
		}
	}
	p.Errors = []Flaw{flaw}
	return p
}

type specInput struct {
	RawBody []byte `contentType:"application/json"`
}

type explanationOutput struct{ Body Explanation }

func (r *jobRoutes) offers(ctx context.Context, in *specInput) (*explanationOutput, error) {
	if err := requesterOf(ctx).maySubmit(); err != nil {
		return nil, err
	}
	spec, err := decodeSpec(in.RawBody)
	if err != nil {
		return nil, err
	}
	if _, err := r.pinNodes(ctx, &spec); err != nil {
		return nil, err
	}
	e, err := r.explain.Offers(ctx, job.Submission{Spec: spec, User: requesterOf(ctx).user, Operator: requesterOf(ctx).operator})
	if err != nil {
		return nil, err
	}
	return &explanationOutput{ExplanationDocument(e)}, nil
}

func (r *jobRoutes) get(ctx context.Context, in *jobInput) (*jobOutput, error) {
	j, err := r.may(ctx, partRow, in.ID, "show")
	if err != nil {
		return nil, err
	}
	return r.answer(ctx, j), nil
}

// about adds the job to an error that does not name it.
func about(id string, err error) error {
	if strings.Contains(err.Error(), id) {
		return err
	}
	return fmt.Errorf("job %s: %w", id, err)
}

type changeInput struct {
	ID   string         `path:"id" maxLength:"64"`
	Body *changeRequest `required:"false"`
}

func (in *changeInput) reason() string {
	if in.Body == nil {
		return ""
	}
	return in.Body.Reason
}

// tasks returns the tasks that the request is about; none means all.
func (in *changeInput) tasks(j job.Job) ([]job.Range, error) {
	if in.Body == nil || in.Body.Tasks == "" {
		return nil, nil
	}
	return tasksNamed(j, in.Body.Tasks)
}

// tasksNamed returns the tasks of a job that have these numbers.
func tasksNamed(j job.Job, numbers string) ([]job.Range, error) {
	ranges, err := job.ParseRanges(numbers)
	if err != nil {
		return nil, bad("tasks %.100q: %w", numbers, err)
	}
	l, err := j.Spec.Layout()
	if err != nil {
		return nil, err
	}
	tasks := l.Select(ranges)
	if len(tasks) == 0 {
		return nil, noTask(j.ID, numbers, l)
	}
	return tasks, nil
}

// noTask is the error about a number that no task has.
func noTask(id job.ID, numbers string, l job.Layout) error {
	has := "the job has one task, 0"
	switch n := l.Tasks(); {
	case l.IsArray() && l.Size() > 1:
		has = fmt.Sprintf("the job has %d gangs of %d tasks, from %s to %s", n/l.Size(), l.Size(), l.Name(l.Number(0)), l.Name(l.Number(n-1)))
	case l.IsArray():
		has = fmt.Sprintf("the job has %d tasks, from %d to %d", n, l.Number(0), l.Number(n-1))
	case n > 1:
		has = fmt.Sprintf("the job has %d ranks, from 0 to %d", n, n-1)
	}
	return &notFoundError{"task", string(id) + "." + numbers, has}
}

// jobAccess finds jobs of which the requester may see or use a part.
type jobAccess struct{ jobs Jobs }

// may returns a job if the requester may see or use that part of it.
func (o jobAccess) may(ctx context.Context, p part, id, verb string) (job.Job, error) {
	j, err := o.jobs.Get(ctx, job.ID(id))
	if err != nil {
		return j, about(id, err)
	}
	a := requesterOf(ctx)
	a.note.ofJob(&j)
	return j, a.require(p, &j, verb)
}

// mayTask is may, and also returns one of the job's tasks.
func (o jobAccess) mayTask(ctx context.Context, p part, id string, index int, verb string) (job.Job, job.Task, error) {
	j, err := o.may(ctx, p, id, verb)
	if err != nil {
		return j, job.Task{}, err
	}
	t, err := taskOf(ctx, o.jobs, j, index)
	return j, t, err
}

// taskOf returns the task of a job that has this number.
func taskOf(ctx context.Context, jobs Jobs, j job.Job, number int) (job.Task, error) {
	l, err := j.Spec.Layout()
	if err != nil {
		return job.Task{}, err
	}
	at := l.Select([]job.Range{{First: number, Last: number}})
	if len(at) == 0 {
		return job.Task{}, noTask(j.ID, l.Name(number), l)
	}
	if i := at[0].First; i < len(j.Tasks) && j.Tasks[i].Index == i {
		return j.Tasks[i], nil
	}
	tasks, err := jobs.Tasks(ctx, j.ID, job.TaskQuery{Ranges: at, After: -1, Limit: 1})
	if err != nil {
		return job.Task{}, err
	}
	if len(tasks) == 0 {
		return job.Task{}, noTask(j.ID, l.Name(number), l)
	}
	return tasks[0], nil
}

func (r *jobRoutes) cancel(ctx context.Context, in *changeInput) (*jobOutput, error) {
	own, err := r.may(ctx, partChange, in.ID, "cancel")
	if err != nil {
		return nil, err
	}
	tasks, err := in.tasks(own)
	if err != nil {
		return nil, err
	}
	j, err := r.jobs.Cancel(ctx, job.ID(in.ID), tasks, in.reason())
	if err != nil {
		return nil, about(in.ID, err)
	}
	return r.answer(ctx, j), nil
}

func (r *jobRoutes) hold(ctx context.Context, in *changeInput) (*jobOutput, error) {
	return r.setHold(ctx, in, false)
}

func (r *jobRoutes) release(ctx context.Context, in *changeInput) (*jobOutput, error) {
	return r.setHold(ctx, in, true)
}

func (r *jobRoutes) setHold(ctx context.Context, in *changeInput, release bool) (*jobOutput, error) {
	verb := map[bool]string{false: "hold", true: "release"}[release]
	own, err := r.may(ctx, partChange, in.ID, verb)
	if err != nil {
		return nil, err
	}
	tasks, err := in.tasks(own)
	if err != nil {
		return nil, err
	}
	j, err := r.jobs.Hold(ctx, job.ID(in.ID), tasks, release, in.reason())
	if err != nil {
		return nil, about(in.ID, err)
	}
	return r.answer(ctx, j), nil
}

type requeueInput struct {
	ID   string          `path:"id" maxLength:"64"`
	Body *requeueRequest `required:"false"`
}

func (r *jobRoutes) requeue(ctx context.Context, in *requeueInput) (*jobOutput, error) {
	own, err := r.may(ctx, partChange, in.ID, "requeue")
	if err != nil {
		return nil, err
	}
	change, failed := changeInput{ID: in.ID}, false
	if in.Body != nil {
		change.Body, failed = &changeRequest{Tasks: in.Body.Tasks, Reason: in.Body.Reason}, in.Body.Failed
	}
	tasks, err := change.tasks(own)
	if err != nil {
		return nil, err
	}
	if own.Spec.TakesInput() {
		return nil, fmt.Errorf("requeue job %s: %w: it got its input from a client, and cannot run again without it; submit it again", in.ID, ErrConflict)
	}
	if err := r.hasTree(own.Spec.Tree); err != nil { // uploaded files are not kept for a job that has ended
		return nil, fmt.Errorf("requeue job %s: %w: the files that were uploaded with it are gone (tree %.16s…); submit it again", in.ID, ErrConflict, own.Spec.Tree)
	}
	j, err := r.jobs.Requeue(ctx, job.ID(in.ID), tasks, failed, change.reason())
	if err != nil {
		return nil, about(in.ID, err)
	}
	return r.answer(ctx, j), nil
}

// forget deletes a job that has ended. The output of its tasks stays on their hosts until these delete it, but cannot be
// found any more.
func (r *jobRoutes) forget(ctx context.Context, in *jobInput) (*struct{}, error) {
	if _, err := r.may(ctx, partChange, in.ID, "forget"); err != nil {
		return nil, err
	}
	if err := r.jobs.Forget(ctx, job.ID(in.ID)); err != nil {
		return nil, about(in.ID, err)
	}
	return nil, nil //nolint:nilnil // 204: there is nothing to say
}
