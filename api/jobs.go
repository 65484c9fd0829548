package api

// The routes of jobs.

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/musterhq/muster/job"
)

// Bounds of a listing of jobs.
const (
	defaultLimit = 200
	maxLimit     = 1000 // a page of about 2 MB
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
}

func (r *jobRoutes) submit(ctx context.Context, in *submitInput) (*jobOutput, error) {
	spec, err := decodeSpec(in.RawBody)
	if err != nil {
		return nil, err
	}
	if err := r.hasTree(spec.Tree); err != nil {
		return nil, err
	}
	if err := r.pinNodes(ctx, &spec); err != nil {
		return nil, err
	}
	a := requesterOf(ctx)
	unknown := r.follows.unknownParents(ctx, spec)
	j, err := r.jobs.Submit(ctx, Submission{Spec: spec, User: a.user, Operator: a.operator, Key: in.Key, Unknown: unknown})
	if err != nil {
		return nil, err
	}
	a.note.about(string(j.ID))
	a.note.with("name", j.Spec.Name)
	return r.answer(ctx, j), nil
}

// answer returns the whole document, without what the requester may not see.
func (r *jobRoutes) answer(ctx context.Context, j job.Job) *jobOutput {
	return &jobOutput{requesterOf(ctx).shown(&j, JobDocument(j, r.directory.Copies(j.ID.Group())))}
}

// decodeSpec decodes a job file in JSON strictly, and adds the defaults.
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
	err := spec.Validate()
	if err == nil || errors.Is(err, ErrNotYet) {
		return spec, err
	}
	return spec, bad("%w", err)
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
	spec, err := decodeSpec(in.RawBody)
	if err != nil {
		return nil, err
	}
	if err := r.pinNodes(ctx, &spec); err != nil {
		return nil, err
	}
	e, err := r.explain.Offers(ctx, Submission{Spec: spec, User: requesterOf(ctx).user})
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

// about adds the job to an error that may not name it.
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

// tasksNamed returns the tasks of a job that people name by these numbers.
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

// mayTask is may with one of the job's tasks.
func (o jobAccess) mayTask(ctx context.Context, p part, id string, index int, verb string) (job.Job, job.Task, error) {
	j, err := o.may(ctx, p, id, verb)
	if err != nil {
		return j, job.Task{}, err
	}
	t, err := taskOf(ctx, o.jobs, j, index)
	return j, t, err
}

// taskOf returns the task of a job that people call by this number.
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
		change.Body, failed = &in.Body.changeRequest, in.Body.Failed
	}
	tasks, err := change.tasks(own)
	if err != nil {
		return nil, err
	}
	if own.Spec.TakesInput() {
		return nil, fmt.Errorf("requeue job %s: %w: it got its input from a client, and cannot run again without it; submit it again", in.ID, ErrConflict)
	}
	if err := r.hasTree(own.Spec.Tree); err != nil { // they are not kept for a job that has ended
		return nil, fmt.Errorf("requeue job %s: %w: the files that were uploaded with it are gone (tree %.16s…); submit it again", in.ID, ErrConflict, own.Spec.Tree)
	}
	j, err := r.jobs.Requeue(ctx, job.ID(in.ID), tasks, failed, change.reason())
	if err != nil {
		return nil, about(in.ID, err)
	}
	return r.answer(ctx, j), nil
}

type listInput struct {
	State  []string `query:"state" maxItems:"32" doc:"States, or their short codes such as PD."`
	User   string   `query:"user" maxLength:"64"`
	Mine   bool     `query:"mine" doc:"Only jobs of the caller."`
	Name   string   `query:"name" maxLength:"256" doc:"A glob such as train-*."`
	Prefix string   `query:"prefix" maxLength:"64" doc:"A prefix of the id."`
	Last   bool     `query:"last" doc:"Only the newest job of user, or of the caller if user is empty."`
	Limit  int      `query:"limit" minimum:"0" maximum:"1000" doc:"Jobs in a page; 0 means 200."`
	Cursor string   `query:"cursor" maxLength:"128" doc:"The field next of the previous page."`
}

type jobsOutput struct {
	Cursor   string `header:"Muster-Cursor" doc:"The field next, for clients that have not decoded the listing yet."`
	Founding string `header:"Muster-Founding" doc:"Proves to other daemons that this one has founded the group of its jobs."`
	Body     Listing[Job]
}

// peerJobs is the listing of another daemon, with its proof.
type peerJobs struct {
	Listing[Job]
	proof job.Founding
}

func (p *peerJobs) readHeader(h http.Header) { p.proof = proofIn(h) }

// theirs returns the jobs in a member's answer that are its own, and counts the others.
func (r *jobRoutes) theirs(a *answer[peerJobs]) []Job {
	p, n := proven{r.directory, a.member.Peer, a.value.proof}, len(a.value.Items)
	items := slices.DeleteFunc(a.value.Items, func(j Job) bool { return !p.tells(&j) })
	r.metrics.dropped(n - len(items))
	return items
}

func (r *jobRoutes) list(ctx context.Context, in *listInput) (*jobsOutput, error) {
	q, err := in.query(requesterOf(ctx))
	if err != nil {
		return nil, err
	}
	own, err := r.listed(ctx, q)
	if err != nil {
		return nil, err
	}
	answers, err := fan[peerJobs](ctx, r.daemons, "/v1/jobs", in.forwarded(q))
	if err != nil {
		return nil, err
	}
	l := Listing[Job]{Schema: SchemaJobs, Items: []Job{}, Partial: silent(r.daemons, answers)}
	more := len(own) >= q.Limit
	l.Items = slices.Grow(l.Items, len(own))
	for i := range own {
		l.Items = append(l.Items, requesterOf(ctx).shown(&own[i], briefDocument(&own[i], r.directory.Copies(own[i].ID.Group()))))
	}
	for _, a := range answers {
		if a.err == nil {
			l.Items = append(l.Items, r.theirs(&a)...)
			more = more || a.value.Next != ""
		}
	}
	slices.SortFunc(l.Items, func(a, b Job) int { return position(a).Compare(position(b)) })
	if len(l.Items) > q.Limit {
		l.Items, more = l.Items[:q.Limit], true
	}
	if more && len(l.Items) > 0 && !in.Last {
		l.Next = cursor(position(l.Items[len(l.Items)-1]))
	}
	_, proof := r.directory.Home()
	return &jobsOutput{l.Next, proof.String(), l}, nil
}

// listed returns the jobs of this daemon that the query selects and the requester may see.
func (r *jobRoutes) listed(ctx context.Context, q job.Query) ([]job.Job, error) {
	if a := requesterOf(ctx); a.ownOnly && !a.operator {
		if a.user == "" || (q.User != "" && q.User != a.user) {
			return nil, nil
		}
		q.User = a.user
	}
	return r.jobs.List(ctx, q)
}

func position(j Job) job.Position { return job.Position{Submitted: j.SubmittedAt, ID: j.ID} }

func (in *listInput) query(a requester) (job.Query, error) {
	q := job.Query{User: in.User, Name: in.Name, Prefix: in.Prefix, Limit: in.Limit}
	if q.Limit == 0 {
		q.Limit = defaultLimit
	}
	if in.Mine || (in.Last && in.User == "") {
		q.User = a.user
	}
	if in.Last {
		q.Limit = 1
	}
	for _, text := range in.State {
		state, err := job.ParseState(text)
		if err != nil {
			return q, bad("%w", err)
		}
		q.States = append(q.States, state)
	}
	if _, err := path.Match(in.Name, ""); err != nil {
		return q, bad("name %.60q: not a glob: %w", in.Name, err)
	}
	var err error
	q.After, err = parseCursor(in.Cursor)
	return q, err
}

// forwarded returns the query for another daemon, with fields that depend on the requester filled in.
func (in *listInput) forwarded(q job.Query) url.Values {
	return JobFilter{States: q.States, User: q.User, Name: q.Name, Prefix: q.Prefix, Limit: q.Limit, Cursor: in.Cursor}.query()
}

// cursor encodes a position as text.
func cursor(p job.Position) string {
	return strconv.FormatInt(p.Submitted.UnixNano(), 10) + "." + string(p.ID)
}

func parseCursor(text string) (job.Position, error) {
	if text == "" {
		return job.Position{}, nil
	}
	at, id, _ := strings.Cut(text, ".")
	ns, err1 := strconv.ParseInt(at, 10, 64)
	whole, err2 := job.ParseID(id)
	if err := errors.Join(err1, err2); err != nil {
		return job.Position{}, bad("cursor %s: want the field next of a listing", quote(text))
	}
	return job.Position{Submitted: time.Unix(0, ns), ID: whole}, nil
}
