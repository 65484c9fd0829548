package scheduler

// Requests of users: each is answered when its record is applied, or refused with a reason.

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/backlog"
	"github.com/musterhq/muster/scheduler/fleet"
	"github.com/musterhq/muster/scheduler/search"
	"github.com/musterhq/muster/scheduler/state"
	"github.com/musterhq/muster/scheduler/step"
)

const (
	// MatchWait is how long profiles are waited for, when no known host could run a new job.
	MatchWait   = time.Second
	commitWait  = 30 * time.Second // for a request's record to be committed
	maxRequests = 4096             // requests that wait for an answer
	maxEarly    = 1024             // requests that came before this daemon led
)

// changeKind is the kind of change that a request waits for.
type changeKind int

const (
	toCancel changeKind = iota
	toHold
	toRelease
	toRequeue
	toForget
)

type changeKey struct {
	kind changeKind
	job  job.ID
}

// requests keeps the requests that are not answered yet.
type requests struct {
	*step.Turn
	entries *entries
	history *history
	hosts   *hosts
	search  *search.Search
	explain *explainer
	views   *views

	open    map[step.Token]*step.Timer // by token: the timer that ends the wait
	early   []func()                   // requests that came before this daemon led
	submits map[job.ID]*submission     // submissions whose record is proposed
	keys    map[string]job.ID          // jobs of submits by idempotency key
	others  map[changeKey][]step.Token // requests for other changes
	matches []*match                   // submissions that no known host could run
}

// submission is a job whose Submit record is proposed.
type submission struct {
	tokens []step.Token
	brief  bool // see Submit
	spec   step.Digest
	key    string
	user   string
	costs  backlog.Amount
}

// match is a submission that waits until a host is found that could run it.
type match struct {
	ask     step.Submit
	spec    step.Digest
	clauses []fleet.Clause
	until   time.Time // when it is decided
	more    bool      // there may be hosts whose profile is not known yet
}

// clear forgets all requests.
func (rq *requests) clear() {
	rq.open, rq.early, rq.matches = map[step.Token]*step.Timer{}, nil, nil
	rq.submits, rq.keys = map[job.ID]*submission{}, map[string]job.ID{}
	rq.others = map[changeKey][]step.Token{}
}

// keyOf joins the user and the idempotency key, because each user has keys of their own.
func keyOf(user, key string) string { return user + "\x00" + key }

// take accepts a request, or refuses it if too many wait. An accepted request is answered after commitWait at the
// latest.
func (rq *requests) take(tok step.Token, do func()) {
	if !rq.Lead && rq.Epoch != (job.Epoch{}) { // this daemon has led and does no longer
		rq.Effects.Reply = append(rq.Effects.Reply, step.Reply{Token: tok, Err: step.ErrNotOwner})
		return
	}
	if len(rq.open) >= maxRequests || rq.Outgoing >= step.MaxOutgoing || !rq.Lead && len(rq.early) >= maxEarly {
		rq.Effects.Reply = append(rq.Effects.Reply, step.Reply{Token: tok, Err: fmt.Errorf("%w: %d requests wait", step.ErrBusy, len(rq.open))})
		return
	}
	rq.open[tok] = rq.After(commitWait, func() {
		rq.answer(tok, nil, fmt.Errorf("%w: not on disk within %s: the disk of the data directory does not answer, or is slow; it may be yet", step.ErrBusy, commitWait))
	})
	if !rq.Lead {
		rq.early = append(rq.early, func() {
			if rq.open[tok] != nil {
				do()
			}
		})
		return
	}
	do()
}

// answer replies to a request once. Later answers to the same token are dropped.
func (rq *requests) answer(tok step.Token, e *entry, err error) {
	if !rq.close(tok) {
		return
	}
	r := step.Reply{Token: tok, Err: err}
	if e != nil {
		r.Job, r.File = rq.views.brief(e), e.job.File.Text()
	}
	rq.Effects.Reply = append(rq.Effects.Reply, r)
}

// close ends the wait of a request. It returns false if the wait was over.
func (rq *requests) close(tok step.Token) bool {
	t, open := rq.open[tok]
	if open {
		rq.Stop(t)
		delete(rq.open, tok)
	}
	return open
}

// answerArchived replies with an archived job, or with ErrNotFound.
func (rq *requests) answerArchived(tok step.Token, id job.ID) {
	x, there := rq.entries.table.Archived(id)
	if !there {
		rq.answer(tok, nil, fmt.Errorf("%w: %s", step.ErrNotFound, id))
		return
	}
	if rq.close(tok) {
		l := rq.views.listed(x)
		rq.Effects.Reply = append(rq.Effects.Reply, step.Reply{Token: tok, Archived: &l})
	}
}

func (rq *requests) submit(a step.Submit) {
	sum, err := step.CheckSpec(a.Spec)
	err = checkPolicy(a.Spec, err)
	if err == nil && len(a.Key) > job.MaxName {
		err = fmt.Errorf("%w: the idempotency key has %d bytes; at most %d", step.ErrInvalid, len(a.Key), job.MaxName)
	}
	if at := a.Spec.Begin; err == nil && at != nil && at.After(rq.Now.Add(job.MaxBegin)) {
		err = fmt.Errorf("%w: begin: %s is more than a year ahead", step.ErrInvalid, at.Format(time.RFC3339))
	}
	if err == nil && rq.entries.table.Len()+len(rq.submits) >= rq.Config.MaxJobs {
		err = fmt.Errorf("%w: %d jobs are kept", step.ErrBusy, rq.entries.table.Len())
	}
	if err != nil {
		rq.answer(a.Token, nil, err)
		return
	}
	if a.Key != "" && rq.submittedBefore(a, sum) {
		return
	}
	err = checkLimits(rq.entries, a.User, a.Operator, &a.Spec)
	if err == nil {
		err = checkParents(rq, a)
	}
	if err != nil {
		rq.answer(a.Token, nil, err)
		return
	}
	clauses, err := fleet.ClausesOfUser(a.User, a.Spec)
	switch {
	case err != nil:
		rq.answer(a.Token, nil, fmt.Errorf("%w: %w", step.ErrInvalid, err))
	case a.Spec.Hold || rq.hosts.fleet.Meet(clauses, max(1, a.Spec.Nodes)):
		rq.proposeSubmit(a, sum)
	default:
		rq.awaitMatch(&match{ask: a, spec: sum, clauses: clauses, until: rq.Now.Add(MatchWait)})
	}
}

// checkParents refuses a job that depends on jobs that do not exist. A job cannot depend on itself or on one that
// depends on it, because its id is not known before.
func checkParents(rq *requests, a step.Submit) error {
	d, err := job.ParseDependencies(a.Spec.Dependency, false)
	if err != nil {
		return fmt.Errorf("%w: %w", step.ErrInvalid, err)
	}
	if n := rq.entries.table.Parents.Links(); len(d.Terms) > 0 && n+len(d.Terms) > maxLinks {
		return fmt.Errorf("%w: %d dependencies are waited for", step.ErrBusy, n)
	}
	for _, id := range d.IDs() {
		_, kept := rq.entries.table.Entry(id)
		if id.Group() == rq.Config.Group && !kept || slices.Contains(a.Unknown, id) {
			return fmt.Errorf("%w: dependency on job %s: there is no such job", step.ErrInvalid, id)
		}
	}
	return nil
}

// submittedBefore answers a submission whose idempotency key was used before. It returns false if the key is new.
func (rq *requests) submittedBefore(a step.Submit, sum step.Digest) bool {
	switch id, archived := rq.entries.table.Keyed(a.User, a.Key); {
	case archived:
		rq.answerArchived(a.Token, id) // Loop.Submit compares the job files
		return true
	case id != "":
		e := rq.entries.byID[id]
		if first, err := step.DigestOf(e.job); err == nil && first == sum {
			rq.answer(a.Token, e, nil)
		} else {
			rq.answer(a.Token, nil, KeyConflict(a.Key, id))
		}
		return true
	}
	if id, there := rq.keys[keyOf(a.User, a.Key)]; there {
		s := rq.submits[id]
		if s.spec == sum {
			s.tokens, s.brief = append(s.tokens, a.Token), s.brief && a.Brief
		} else {
			rq.answer(a.Token, nil, KeyConflict(a.Key, id))
		}
		return true
	}
	return false
}

func (rq *requests) proposeSubmit(a step.Submit, sum step.Digest) {
	if a.Key != "" && rq.submittedBefore(a, sum) {
		return // a submission with the same key was proposed while this one waited for hosts
	}
	l, _ := a.Spec.Layout() // CheckSpec has found it valid
	costs := backlog.SubmitCost(&a.Spec, l.Tasks())
	if err := rq.entries.backlog.Check(a.User, a.Operator, costs); err != nil {
		rq.answer(a.Token, nil, err)
		return
	}
	taken := func(id job.ID) bool {
		_, kept := rq.entries.table.Entry(id)
		return kept || rq.submits[id] != nil
	}
	id := job.NewID(rq.Config.Group, rq.Rand.Uint64())
	for taken(id) {
		id = job.NewID(rq.Config.Group, rq.Rand.Uint64())
	}
	s := &submission{tokens: []step.Token{a.Token}, brief: a.Brief, spec: sum, user: a.User, costs: costs}
	rq.entries.backlog.Shift(s.user, s.costs)
	if a.Key != "" {
		s.key = keyOf(a.User, a.Key)
		rq.keys[s.key] = id
	}
	rq.submits[id] = s
	rq.Propose(job.SubmitRecord{Job: id, User: a.User, Spec: a.Spec, Key: a.Key, At: rq.Now, Tasks: l.Tasks()})
}

// submitted answers the requests for a job that is now in the journal.
func (rq *requests) submitted(id job.ID) {
	s := rq.submits[id]
	if s == nil {
		return
	}
	rq.drop(id, s)
	for _, tok := range s.tokens {
		if s.brief && rq.close(tok) {
			rq.Effects.Reply = append(rq.Effects.Reply, step.Reply{Token: tok, Job: job.Job{ID: id}})
		}
		rq.answer(tok, rq.entries.byID[id], nil) // unless the request is closed
	}
}

// drop forgets a submission.
func (rq *requests) drop(id job.ID, s *submission) {
	delete(rq.submits, id)
	rq.entries.backlog.Shift(s.user, backlog.Amount{}.Minus(s.costs))
	if s.key != "" && rq.keys[s.key] == id {
		delete(rq.keys, s.key)
	}
}

// settled answers the request whose record was applied: the oldest one for this kind of change of the job.
func (rq *requests) settled(kind changeKind, e *entry, err error) {
	if tok, there := rq.oldest(kind, e.job.ID); there {
		rq.answer(tok, e, err)
	}
}

// oldest removes and returns the oldest request for this kind of change of the job. The journal takes or refuses their
// records in the order of the requests.
func (rq *requests) oldest(kind changeKind, id job.ID) (tok step.Token, there bool) {
	k := changeKey{kind, id}
	tokens := rq.others[k]
	if len(tokens) == 0 {
		return 0, false
	}
	if rq.others[k] = tokens[1:]; len(tokens) == 1 {
		delete(rq.others, k)
	}
	return tokens[0], true
}

// awaitMatch searches for hosts before the submission is refused.
func (rq *requests) awaitMatch(m *match) {
	rq.matches = append(rq.matches, m)
	for _, class := range fleet.ClassesFor(m.ask.Spec) {
		rq.search.Find(class)
	}
	rq.search.Find(contract.AnyWorker)
	rq.At(m.until, rq.retryMatches)
}

// retryMatches proposes the submissions that a known host could run now. Those that have waited long enough are
// refused. If there may be hosts whose profile is not known yet, nobody knows whether one of them could run the job, so
// it is proposed too, and waits.
func (rq *requests) retryMatches() {
	var rest []*match
	for _, m := range rq.matches {
		late := !rq.Now.Before(m.until)
		switch {
		case rq.hosts.fleet.Meet(m.clauses, max(1, m.ask.Spec.Nodes)), late && m.more:
			rq.proposeSubmit(m.ask, m.spec)
		case late:
			rq.answer(m.ask.Token, nil, &step.NoMatchError{Explanation: rq.explain.of("", m.ask.User, m.ask.Spec, m.clauses)})
		default:
			rest = append(rest, m)
		}
	}
	rq.matches = rest
}

func (rq *requests) cancel(a step.Cancel) {
	e := rq.entries.byID[a.Job]
	var counts job.Counts
	a.Tasks, counts = widened(e, a.Tasks)
	switch {
	case e == nil:
		rq.answerArchived(a.Token, a.Job)
	case e.job.Cancelled != "" || counts.Ended() == counts.Total():
		rq.answer(a.Token, e, nil)
	default:
		rq.await(toCancel, a.Job, a.Token)
		rq.Propose(job.CancelRecord{Job: a.Job, Tasks: a.Tasks, Reason: contract.Clip(a.Reason), At: rq.Now})
	}
}

func (rq *requests) hold(a step.Hold) {
	e := rq.entries.byID[a.Job]
	kind, from, to := holdKind(a.Release), job.Pending, job.Held
	if a.Release {
		from, to = to, from
	}
	var counts job.Counts
	a.Tasks, counts = widened(e, a.Tasks)
	switch {
	case e == nil:
		rq.answerArchived(a.Token, a.Job)
	case counts.Of(from) == 0 && counts.Of(to) > 0:
		rq.answer(a.Token, e, nil)
	case counts.Of(from) == 0:
		rq.answer(a.Token, nil, rq.conflict(e, a.Tasks, kind))
	case !a.Release && roomToGrow(rq.entries, e) != nil: // a release needs no room: a released job can run and end
		rq.answer(a.Token, nil, roomToGrow(rq.entries, e))
	default:
		rq.await(kind, a.Job, a.Token)
		rq.Propose(job.HoldRecord{Job: a.Job, Tasks: a.Tasks, Release: a.Release, Reason: contract.Clip(a.Reason), At: rq.Now})
	}
}

func (rq *requests) requeue(a step.Requeue) {
	e := rq.entries.byID[a.Job]
	if e == nil {
		switch x, archived := rq.entries.table.Archived(a.Job); {
		case !archived:
			rq.answerArchived(a.Token, a.Job)
			return
		case a.Failed && x.State() == job.Succeeded:
			rq.answer(a.Token, nil, noneFailed(a.Job))
			return
		}
	} else if none, err := nothingToRequeue(e.job.ID, e.job.CountsIn(state.Widen(e.job, a.Tasks)), a.Failed); none {
		rq.answer(a.Token, e, err)
		return
	}
	if err := roomToRequeue(rq.entries, a.Job, e); err != nil {
		rq.answer(a.Token, nil, err)
		return
	}
	if e != nil && e.job.Ended() {
		e.priority = allowed(rq.Turn, e.job)
	}
	rq.await(toRequeue, a.Job, a.Token)
	rq.Propose(job.RequeueRecord{Job: a.Job, Tasks: a.Tasks, Failed: a.Failed, Reason: contract.Clip(a.Reason), At: rq.Now})
}

// notRequeued answers the request whose record could not be applied, because the job is purged, or is archived with rows
// that cannot be read.
func (rq *requests) notRequeued(id job.ID) {
	tok, there := rq.oldest(toRequeue, id)
	if _, archived := rq.entries.table.Archived(id); there && archived {
		rq.answer(tok, nil, Unreadable(id, "are missing or damaged"))
	} else if there {
		rq.answerArchived(tok, id)
	}
}

// left answers the request whose record was applied after the job was archived or purged.
func (rq *requests) left(kind changeKind, id job.ID) {
	if tok, there := rq.oldest(kind, id); there {
		rq.answerArchived(tok, id)
	}
}

func holdKind(release bool) changeKind {
	if release {
		return toRelease
	}
	return toHold
}

// conflict returns the error about tasks of a job that can be neither held nor released.
func (rq *requests) conflict(e *entry, ranges []job.Range, kind changeKind) error {
	if len(ranges) == 0 {
		return Conflict("job "+string(e.job.ID)+" is", rq.views.stateOf(e), kind == toRelease)
	}
	return Conflict("these tasks of job "+string(e.job.ID)+" are", rq.views.stateIn(e, ranges), kind == toRelease)
}

func (rq *requests) await(kind changeKind, id job.ID, tok step.Token) {
	k := changeKey{kind, id}
	rq.others[k] = append(rq.others[k], tok)
}

// refused answers the request whose record the journal has refused.
func (rq *requests) refused(kind changeKind, id job.ID, err error) {
	if tok, there := rq.oldest(kind, id); there {
		rq.answer(tok, nil, fmt.Errorf("scheduler: job %s: %w", id, err))
	}
}

// lostLead answers all requests with ErrNotOwner.
func (rq *requests) lostLead() {
	for _, tok := range slices.Sorted(maps.Keys(rq.open)) {
		rq.answer(tok, nil, step.ErrNotOwner)
	}
	for id, s := range rq.submits {
		rq.drop(id, s)
	}
	rq.clear()
}

// takeEarly handles the requests that came before this daemon led.
func (rq *requests) takeEarly() {
	early := rq.early
	rq.early = nil
	for _, take := range early {
		take()
	}
}

// found notes the result of a search: more says that there may be hosts whose profile is not known yet.
func (rq *requests) found(more bool) {
	for _, m := range rq.matches {
		m.more = m.more || more
	}
}
