package scheduler

// Requests of people: each is answered when its record is applied, or refused
// with a reason.

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
	"github.com/musterhq/muster/scheduler/fleet"
)

// askKind is what a waiting request waits for.
type askKind int

const (
	askCancel askKind = iota
	askHold
	askRelease
)

type askKey struct {
	kind askKind
	job  job.ID
}

// asks are the requests without an answer yet.
type asks struct {
	open    map[Token]*timer // and until when each waits
	early   []func()         // that came before this daemon led
	submits map[job.ID]*submission
	keys    map[string]job.ID // of submissions
	others  map[askKey][]Token
	matches []*match // submissions that no known host could run
}

// submission is a job whose record is proposed.
type submission struct {
	tokens []Token
	spec   digest
	key    string
}

type digest [sha256.Size]byte

// match waits for hosts to come that could run the job.
type match struct {
	ask     SubmitAsk
	spec    digest
	clauses []fleet.Clause
	until   time.Time
	last    time.Time // it is refused then at the latest
	more    bool      // there may be hosts that have not said what they have
}

func newAsks() asks {
	return asks{open: map[Token]*timer{}, submits: map[job.ID]*submission{}, keys: map[string]job.ID{}, others: map[askKey][]Token{}}
}

// keyOf joins user and idempotency key: a key is its user's own.
func keyOf(user, key string) string { return user + "\x00" + key }

// ask takes a request in, within bounds, and answers for it in the end.
func (c *Core) ask(tok Token, do func()) {
	if !c.lead && c.epoch != (job.Epoch{}) { // it has led before
		c.fx.Reply = append(c.fx.Reply, Reply{Token: tok, Err: ErrNotOwner})
		return
	}
	if len(c.asks.open) >= maxAsks || c.outgoing >= maxOutgoing || !c.lead && len(c.asks.early) >= maxEarly {
		c.fx.Reply = append(c.fx.Reply, Reply{Token: tok, Err: fmt.Errorf("%w: %d requests wait", ErrBusy, len(c.asks.open))})
		return
	}
	c.asks.open[tok] = c.after(commitWait, func() {
		c.answer(tok, nil, fmt.Errorf("%w: not committed within %s; it may be yet", ErrBusy, commitWait))
	})
	if !c.lead {
		c.asks.early = append(c.asks.early, func() {
			if c.asks.open[tok] != nil {
				do()
			}
		})
		return
	}
	do()
}

// answer replies once; what comes later for the same token is dropped.
func (c *Core) answer(tok Token, e *entry, err error) {
	if !c.closeAsk(tok) {
		return
	}
	r := Reply{Token: tok, Err: err}
	if e != nil {
		r.Job = c.view(e)
	}
	c.fx.Reply = append(c.fx.Reply, r)
}

// closeAsk ends a request's wait; false if it has ended before.
func (c *Core) closeAsk(tok Token) bool {
	t, open := c.asks.open[tok]
	if open {
		c.stop(t)
		delete(c.asks.open, tok)
	}
	return open
}

// answerArchived replies with a job that is archived, or that there is none.
func (c *Core) answerArchived(tok Token, id job.ID) {
	x, there := c.table.Archived(id)
	if !there {
		c.answer(tok, nil, fmt.Errorf("%w: %s", ErrNotFound, id))
		return
	}
	if c.closeAsk(tok) {
		l := c.listed(x)
		c.fx.Reply = append(c.fx.Reply, Reply{Token: tok, Archived: &l})
	}
}

// checkSpec bounds and digests a spec; two specs are equal if these are.
func checkSpec(s job.Spec) (digest, error) {
	if err := s.Validate(); err != nil {
		return digest{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	text, err := job.EncodeSpec(s)
	if err != nil {
		return digest{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if len(text) > job.MaxSpecBytes {
		return digest{}, fmt.Errorf("%w: the job file has %d bytes; at most %d", ErrInvalid, len(text), job.MaxSpecBytes)
	}
	return sha256.Sum256(text), nil
}

func (c *Core) submit(a SubmitAsk) {
	sum, err := checkSpec(a.Spec)
	if err == nil && len(a.Key) > job.MaxName {
		err = fmt.Errorf("%w: the idempotency key has %d bytes; at most %d", ErrInvalid, len(a.Key), job.MaxName)
	}
	if err == nil && c.table.Len()+len(c.asks.submits) >= c.cfg.MaxJobs {
		err = fmt.Errorf("%w: %d jobs are kept", ErrBusy, c.table.Len())
	}
	if err != nil {
		c.answer(a.Token, nil, err)
		return
	}
	if a.Key != "" && c.submittedBefore(a, sum) {
		return
	}
	clauses, err := fleet.ClausesOf(a.Spec)
	switch {
	case err != nil:
		c.answer(a.Token, nil, fmt.Errorf("%w: %w", ErrInvalid, err))
	case a.Spec.Hold || c.fleet.AnyMeets(clauses):
		c.proposeSubmit(a, sum)
	default:
		c.awaitMatch(&match{ask: a, spec: sum, clauses: clauses, last: c.now.Add(matchMost)})
	}
}

// submittedBefore answers a repeated submission with the job of the first.
func (c *Core) submittedBefore(a SubmitAsk, sum digest) bool {
	switch id, archived := c.table.Keyed(a.User, a.Key); {
	case archived:
		c.answerArchived(a.Token, id) // the loop compares the job files
		return true
	case id != "":
		e := c.jobs[id]
		if first, err := checkSpec(e.job.Spec); err == nil && first == sum {
			c.answer(a.Token, e, nil)
		} else {
			c.answer(a.Token, nil, keyConflict(a.Key, id))
		}
		return true
	}
	if id, there := c.asks.keys[keyOf(a.User, a.Key)]; there {
		s := c.asks.submits[id]
		if s.spec == sum {
			s.tokens = append(s.tokens, a.Token)
		} else {
			c.answer(a.Token, nil, keyConflict(a.Key, id))
		}
		return true
	}
	return false
}

func keyConflict(key string, id job.ID) error {
	return fmt.Errorf("%w: idempotency key %q was used for another job file, job %s", ErrConflict, key, id)
}

func (c *Core) proposeSubmit(a SubmitAsk, sum digest) {
	if a.Key != "" && c.submittedBefore(a, sum) {
		return // an equal one was proposed while this one waited for hosts
	}
	id := job.NewID(c.cfg.Group, c.rng.Uint64())
	for c.taken(id) {
		id = job.NewID(c.cfg.Group, c.rng.Uint64())
	}
	s := &submission{tokens: []Token{a.Token}, spec: sum}
	if a.Key != "" {
		s.key = keyOf(a.User, a.Key)
		c.asks.keys[s.key] = id
	}
	c.asks.submits[id] = s
	c.propose(job.SubmitRecord{Job: id, User: a.User, Spec: a.Spec, Key: a.Key, At: c.now})
}

// taken says whether a job has the id.
func (c *Core) taken(id job.ID) bool {
	_, kept := c.table.Entry(id)
	return kept || c.asks.submits[id] != nil
}

// submitted answers all who asked for the job that is now in the journal.
func (as *asks) submitted(c *Core, id job.ID) {
	s := as.submits[id]
	if s == nil {
		return
	}
	as.drop(id, s)
	for _, tok := range s.tokens {
		c.answer(tok, c.jobs[id], nil)
	}
}

func (as *asks) drop(id job.ID, s *submission) {
	delete(as.submits, id)
	if s.key != "" && as.keys[s.key] == id {
		delete(as.keys, s.key)
	}
}

// settled answers all who asked for this of the job.
func (as *asks) settled(c *Core, kind askKind, e *entry, err error) {
	k := askKey{kind, e.job.ID}
	tokens := as.others[k]
	delete(as.others, k)
	for _, tok := range tokens {
		c.answer(tok, e, err)
	}
}

// awaitMatch looks for hosts before it refuses: once more, as long as hosts turn
// up that have not said what they have, or silent ones have cut the search short.
func (c *Core) awaitMatch(m *match) {
	c.asks.matches = append(c.asks.matches, m)
	m.more, m.until = false, c.now.Add(matchWait)
	c.find(fleet.ClassFor(m.ask.Spec))
	c.find(lease.AnyWorker)
	c.at(m.until, c.retryMatches)
}

// retryMatches proposes what can be run now and refuses what has waited enough.
func (c *Core) retryMatches() {
	var rest, again []*match
	for _, m := range c.asks.matches {
		switch {
		case c.fleet.AnyMeets(m.clauses):
			c.proposeSubmit(m.ask, m.spec)
		case !c.now.Before(m.until) && m.more && c.now.Before(m.last):
			again = append(again, m)
		case !c.now.Before(m.until):
			c.answer(m.ask.Token, nil, &NoMatchError{Explanation: c.explain(m.ask.Spec, m.clauses)})
		default:
			rest = append(rest, m)
		}
	}
	c.asks.matches = rest
	for _, m := range again {
		c.awaitMatch(m)
	}
}

func (c *Core) cancel(a CancelAsk) {
	e := c.jobs[a.Job]
	switch {
	case e == nil:
		c.answerArchived(a.Token, a.Job)
	case e.job.Cancelled != "" || e.job.Ended():
		c.answer(a.Token, e, nil)
	default:
		c.await(askCancel, a.Job, a.Token)
		c.propose(job.CancelRecord{Job: a.Job, Reason: lease.Clip(a.Reason), At: c.now})
	}
}

func (c *Core) hold(a HoldAsk) {
	e := c.jobs[a.Job]
	kind, from, to := askHold, job.Pending, job.Held
	if a.Release {
		kind, from, to = askRelease, job.Held, job.Pending
	}
	switch {
	case e == nil:
		c.answerArchived(a.Token, a.Job)
	case e.job.State() == to:
		c.answer(a.Token, e, nil)
	case e.job.State() != from:
		c.answer(a.Token, nil, conflict(e.job.ID, c.stateOf(e), kind))
	default:
		c.await(kind, a.Job, a.Token)
		c.propose(job.HoldRecord{Job: a.Job, Release: a.Release, Reason: lease.Clip(a.Reason)})
	}
}

// left answers all who asked for this of a job that has left the core.
func (as *asks) left(c *Core, kind askKind, id job.ID) {
	k := askKey{kind, id}
	tokens := as.others[k]
	delete(as.others, k)
	for _, tok := range tokens {
		c.answerArchived(tok, id)
	}
}

func kindOf(r job.HoldRecord) askKind {
	if r.Release {
		return askRelease
	}
	return askHold
}

func conflict(id job.ID, s job.State, kind askKind) error {
	what := "only a job that waits can be held"
	if kind == askRelease {
		what = "only a held job can be released"
	}
	return fmt.Errorf("%w: job %s is %s: %s", ErrConflict, id, s, what)
}

func (c *Core) await(kind askKind, id job.ID, tok Token) {
	k := askKey{kind, id}
	c.asks.others[k] = append(c.asks.others[k], tok)
}

var errNotTaken = errors.New("the journal did not take it")

// notProposed undoes what rests on a record that will not come.
func (c *Core) notProposed(r job.Record, err error) {
	if err == nil {
		err = errNotTaken
	}
	c.outgoing = max(c.outgoing-1, 0)
	switch r := r.(type) {
	case job.SubmitRecord:
		if s := c.asks.submits[r.Job]; s != nil {
			c.asks.drop(r.Job, s)
			for _, tok := range s.tokens {
				c.answer(tok, nil, fmt.Errorf("scheduler: accept job: %w", err))
			}
		}
	case job.AssignRecord:
		c.notAssigned(r.Attempt)
	case job.CancelRecord:
		c.refused(askCancel, r.Job, err)
	case job.HoldRecord:
		c.refused(kindOf(r), r.Job, err)
	case job.PurgeRecord:
		delete(c.purging, r.Job.Drawn())
	case job.UnassignRecord, job.ResultRecord: // their timers propose them again
	}
}

func (c *Core) refused(kind askKind, id job.ID, err error) {
	k := askKey{kind, id}
	tokens := c.asks.others[k]
	delete(c.asks.others, k)
	for _, tok := range tokens {
		c.answer(tok, nil, fmt.Errorf("scheduler: job %s: %w", id, err))
	}
}
