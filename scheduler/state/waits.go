package state

// The dependencies of a job on other jobs, its parents, and how far each is.
// See docs/adr, ADR 86.

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unsafe"

	"github.com/musterhq/muster/internal/store/storepb"
	"github.com/musterhq/muster/job"
)

// Wait says whether other jobs keep a task from running.
type Wait uint8

// The waits.
const (
	WaitNone  Wait = iota
	WaitOn         // for other jobs
	WaitNever      // a dependency can no longer be met, unless a person requeues a parent
)

// parentOutcome is how far one dependency is.
type parentOutcome uint8

const (
	waitingFor parentOutcome = iota
	met                      // for ever
	never
	lost // never, and the parent was deleted, so nothing can change that
)

// Waits holds the dependencies of a job. A job without dependencies has none; the methods may be called all the same.
type Waits struct {
	any    bool // one is enough
	terms  []term
	each   []each     // one for each term with aftercorr
	layout job.Layout // of the job
	broken string     // why this version cannot read the dependencies; the job waits for ever

	// Terms without aftercorr.
	whole, met, never int
	due               int64 // when the delays of the met ones are over; ns since 1970, 0 for none
}

// term is one dependency.
type term struct {
	parent  job.ID
	since   int64  // after: when the parent had started; ns since 1970
	delay   uint32 // after: minutes
	when    uint8  // index in conditions
	outcome parentOutcome
	saw     uint8 // the final state of the parent that led to the outcome, see sawOf
	linked  bool  // the parent has a link to it
	live    bool  // that link counts
}

var conditions = job.Conditions()

func (x *term) is(c job.Condition) bool { return conditions[x.when] == c }

// The values of term.saw that are not states.
const (
	sawNothing uint8 = 0
	sawGone    uint8 = 255
)

// sawOf encodes the state of a job: sawNothing until it has ended.
func sawOf(s job.State) uint8 {
	if !s.Ended() {
		return sawNothing
	}
	return number(s) + 1
}

// each is the state of one aftercorr, task by task.
type each struct {
	term       int
	met, never Set
	dirty      Set // blocks of both sets that have changed since TakeRows
}

// The sizes of what Waits consists of, in bytes of memory.
const (
	termBytes = int(unsafe.Sizeof(term{}))
	eachBytes = int(unsafe.Sizeof(each{}))
)

// bytes returns the memory of the dependencies.
func (w *Waits) bytes() int {
	if w == nil {
		return 0
	}
	n := len(w.terms)*termBytes + len(w.each)*eachBytes
	for i := range w.each {
		n += (len(w.each[i].met.words) + len(w.each[i].never.words) + len(w.each[i].dirty.words)) * 8
	}
	return n
}

// newWaits returns what a new job waits for; nil without dependencies.
func newWaits(s *job.Spec) *Waits {
	if len(s.Dependency) == 0 {
		return nil
	}
	d, err := job.ParseDependencies(s.Dependency, false)
	l, err1 := s.Layout()
	if err == nil {
		err = err1
	}
	if err != nil { // the job was accepted by a daemon that knows more than this one
		return &Waits{broken: err.Error()}
	}
	w := &Waits{any: d.Any, layout: l, terms: make([]term, 0, len(d.Terms))}
	for i, x := range d.Terms {
		w.terms = append(w.terms, term{
			parent: x.Job, delay: uint32(x.Delay / time.Minute), when: uint8(slices.Index(conditions, x.When)),
		})
		if x.When == job.AfterCorr {
			w.each = append(w.each, each{term: i})
		} else {
			w.whole++
		}
	}
	return w
}

// Of says whether other jobs keep a task from running.
func (w *Waits) Of(task int) Wait {
	switch {
	case w == nil:
		return WaitNone
	case w.broken != "":
		return WaitOn
	case w.any:
		return w.anyOf(task)
	case w.never > 0:
		return WaitNever
	}
	waits := w.met < w.whole
	for i := range w.each {
		e := &w.each[i]
		if e.never.Has(task) {
			return WaitNever
		}
		waits = waits || !e.met.Has(task)
	}
	if waits {
		return WaitOn
	}
	return WaitNone
}

func (w *Waits) anyOf(task int) Wait {
	waits := w.met+w.never < w.whole
	for i := range w.each {
		e := &w.each[i]
		if e.met.Has(task) {
			return WaitNone
		}
		waits = waits || !e.never.Has(task)
	}
	switch {
	case w.met > 0:
		return WaitNone
	case waits:
		return WaitOn
	}
	return WaitNever
}

// facts holds what is known of a parent as a whole.
type facts struct {
	saw     uint8
	started bool // each of its tasks has started or ended
	since   time.Time
}

// settle applies facts to a dependency without aftercorr. It returns false if they change nothing.
func (w *Waits) settle(x *term, f facts) bool {
	to := x.judge(f)
	switch {
	case x.outcome == met, x.outcome == lost, to == x.outcome:
		return false
	case to == lost && x.outcome == never: // its final state says more
	case to == waitingFor:
		x.saw = sawNothing
	default:
		x.saw = f.saw
	}
	w.never += count(to == never || to == lost) - count(x.outcome == never || x.outcome == lost)
	x.outcome = to
	if to == met {
		x.since = storepb.Nanos(f.since)
		w.add(x)
	}
	return true
}

// judge returns the outcome of a dependency without aftercorr.
func (x *term) judge(f facts) parentOutcome {
	ended, good := f.saw != sawNothing, f.saw == sawOf(job.Succeeded)
	bad := never
	if f.saw == sawGone {
		bad = lost
	}
	fits := false
	switch conditions[x.when] {
	case job.After:
		fits, ended = ended || f.started, ended || f.started
	case job.AfterAny:
		fits = true
	case job.AfterOK:
		fits = good
	case job.AfterNotOK:
		fits = !good && f.saw != sawGone
	case job.AfterCorr:
	}
	switch {
	case !ended:
		return waitingFor
	case fits:
		return met
	}
	return bad
}

// due returns when the delay of a dependency that is met is over; in ns since 1970, 0 for none.
func (x *term) due() int64 {
	if x.delay == 0 {
		return 0
	}
	return x.since + int64(time.Duration(x.delay)*time.Minute)
}

// add counts a dependency that is met.
func (w *Waits) add(x *term) {
	due := x.due()
	if w.met == 0 || w.any == (due < w.due) { // with any, the earliest due counts; else the latest
		w.due = due
	}
	w.met++
}

// recount counts the outcomes again.
func (w *Waits) recount() {
	w.met, w.never, w.due = 0, 0, 0
	for i := range w.terms {
		switch x := &w.terms[i]; {
		case x.is(job.AfterCorr):
		case x.outcome == met:
			w.add(x)
		case x.outcome == never, x.outcome == lost:
			w.never++
		}
	}
}

// eachOf returns the state of the aftercorr with this index in terms.
func (w *Waits) eachOf(term int) *each {
	i := slices.IndexFunc(w.each, func(e each) bool { return e.term == term })
	return &w.each[i]
}

// selected returns the tasks of the elements with these indices. The tasks of a job depend element by element.
func (w *Waits) selected(indices []job.Range) []job.Range {
	if n := w.layout.Size(); n > 1 {
		numbers := make([]job.Range, len(indices))
		for i, r := range indices {
			numbers[i] = job.Range{First: r.First * n, Last: r.Last*n + n - 1}
		}
		indices = numbers
	}
	return w.layout.Select(indices)
}

// mark notes the outcome of an aftercorr for some tasks, and appends those that it changes to changed.
func (e *each) mark(tasks []job.Range, to parentOutcome, changed []job.Range) []job.Range {
	for _, r := range tasks {
		for i := r.First; i <= r.Last; i++ {
			if e.markOne(i, to) {
				changed = appendRange(changed, i, i)
			}
		}
	}
	return changed
}

func (e *each) markOne(i int, to parentOutcome) (changed bool) {
	switch {
	case e.met.Has(i):
		return false
	case to == met:
		e.never.Remove(i)
		changed = e.met.Add(i)
	case to == waitingFor:
		changed = e.never.Remove(i)
	default:
		changed = e.never.Add(i)
	}
	if changed {
		e.dirty.Add(i / setBlock)
	}
	return changed
}

// wouldMark reports whether mark would change anything. It looks at 64 tasks at a time.
func (e *each) wouldMark(tasks []job.Range, to parentOutcome) bool {
	return slices.ContainsFunc(tasks, func(r job.Range) bool {
		return anyWord(r, func(w int, mask uint64) uint64 {
			done, failed := e.met.word(w), e.never.word(w)
			switch to {
			case waitingFor:
				return mask & failed
			case never, lost:
				return mask &^ (done | failed)
			case met:
			}
			return mask &^ done
		})
	})
}

// Each reports whether the tasks wait one by one for the tasks of another array.
func (w *Waits) Each() bool { return w != nil && len(w.each) > 0 }

// DueAt returns when the delays after the starts of other jobs are over, by the owner's clock; zero if there are none.
func (w *Waits) DueAt() time.Time {
	if w == nil {
		return time.Time{}
	}
	return storepb.Time(w.due)
}

// Delay returns the longest delay after a start.
func (w *Waits) Delay() time.Duration {
	minutes := uint32(0)
	for i := 0; w != nil && i < len(w.terms); i++ {
		minutes = max(minutes, w.terms[i].delay)
	}
	return time.Duration(minutes) * time.Minute
}

// List returns the state of each dependency.
func (w *Waits) List() []job.Depends {
	switch {
	case w == nil:
		return nil
	case w.broken != "":
		return []job.Depends{{Outcome: job.DependencyWaiting, Detail: w.broken}}
	}
	out := make([]job.Depends, 0, len(w.terms))
	for i := range w.terms {
		x := &w.terms[i]
		d := job.Depends{
			Dependency: job.Dependency{When: conditions[x.when], Job: x.parent, Delay: time.Duration(x.delay) * time.Minute},
			Outcome:    x.outcome.word(),
		}
		switch {
		case x.is(job.AfterCorr):
			d.Outcome, d.Detail = w.eachOf(i).sum(w.layout.Tasks())
		case x.saw == sawGone:
			d.Detail = wasDeleted
		case x.saw != sawNothing:
			d.Parent = stateOf(x.saw - 1)
		}
		if x.outcome == met && x.delay > 0 && x.since > 0 { // else its start was never known here, and the delay is over
			d.Detail = strings.TrimPrefix(d.Detail+", the delay ends at "+storepb.Time(x.due()).UTC().Format(time.RFC3339), ", ")
		}
		out = append(out, d)
	}
	return out
}

// wasDeleted says that a parent was deleted before this owner learnt how it ended.
const wasDeleted = "its owner had deleted it before its end was known here"

func (o parentOutcome) word() job.DependencyState {
	switch o {
	case met:
		return job.DependencyMet
	case never, lost:
		return job.DependencyNever
	case waitingFor:
	}
	return job.DependencyWaiting
}

// sum returns the outcome of an aftercorr for all n tasks of the job together.
func (e *each) sum(n int) (job.DependencyState, string) {
	detail := fmt.Sprintf("met for %d of %d tasks", e.met.Len(), n)
	if e.never.Len() > 0 {
		detail += fmt.Sprintf(", never for %d", e.never.Len())
	}
	switch n {
	case e.met.Len():
		return job.DependencyMet, detail
	case e.met.Len() + e.never.Len():
		return job.DependencyNever, detail
	}
	return job.DependencyWaiting, detail
}

// NeverWhy says which dependency of the task can no longer be met.
func (w *Waits) NeverWhy(task int) string {
	for i := range w.terms {
		x := &w.terms[i]
		name := string(conditions[x.when]) + ":" + string(x.parent)
		switch {
		case x.is(job.AfterCorr):
			switch {
			case !w.eachOf(i).never.Has(task):
			case x.outcome == lost:
				return fmt.Sprintf("%s: task %d of it is not known to have succeeded, and its owner has deleted it", name, w.layout.Number(task))
			default:
				return fmt.Sprintf("%s: task %d of it does not exist or did not succeed", name, w.layout.Number(task))
			}
		case x.outcome == lost && x.saw == sawGone:
			return name + ": " + wasDeleted
		case x.outcome == never, x.outcome == lost:
			return name + ": it is " + string(stateOf(x.saw-1))
		}
	}
	return ""
}

// appendRange appends a range, which may be empty, to ranges in rising order.
func appendRange(ranges []job.Range, first, last int) []job.Range {
	switch n := len(ranges); {
	case first > last:
	case n > 0 && ranges[n-1].Last+1 == first:
		ranges[n-1].Last = last
	default:
		ranges = append(ranges, job.Range{First: first, Last: last})
	}
	return ranges
}
