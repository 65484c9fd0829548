package job

// Dependencies: what other jobs must have done before a job may start, as Slurm writes it.

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Condition is what a dependency asks of a job, its parent.
type Condition string

// The conditions. A task that was cancelled before it started has ended, and has not succeeded.
const (
	After      Condition = "after"      // each task of the parent has started or ended
	AfterOK    Condition = "afterok"    // all tasks of the parent have succeeded
	AfterNotOK Condition = "afternotok" // all tasks of the parent have ended, and not all have succeeded
	AfterAny   Condition = "afterany"   // all tasks of the parent have ended
	AfterCorr  Condition = "aftercorr"  // for each element of an array: the same element of the parent has succeeded
)

// Conditions returns all conditions.
func Conditions() []Condition { return []Condition{After, AfterOK, AfterNotOK, AfterAny, AfterCorr} }

// Bounds of dependencies.
const (
	MaxDependencies = 1000 // of one job
	// MaxCorresponding bounds the aftercorr of one job: each takes up to two bits for each of its tasks.
	MaxCorresponding = 16
	maxDelay         = 366 * 24 * time.Hour
)

// Dependency is one condition on one job.
type Dependency struct {
	When  Condition
	Job   ID            // see ParseDependencies: a draft may have another name of the job
	Delay time.Duration // of After: how long after the start; whole minutes
}

// String returns the dependency as ParseDependencies reads it.
func (d Dependency) String() string {
	text := string(d.When) + ":" + string(d.Job)
	if d.Delay > 0 {
		text += "+" + strconv.Itoa(int(d.Delay/time.Minute))
	}
	return text
}

// Dependencies are the dependencies of a job.
type Dependencies struct {
	Any   bool // one of them is enough; otherwise all must be met
	Terms []Dependency
}

// List returns the dependencies as a job file has them.
func (d Dependencies) List() []string {
	texts := make([]string, 0, len(d.Terms))
	for _, t := range d.Terms {
		texts = append(texts, t.String())
	}
	if d.Any && len(texts) > 1 {
		return []string{strings.Join(texts, "?")}
	}
	return texts
}

// IDs returns the parents, each once.
func (d Dependencies) IDs() []ID {
	var ids []ID
	seen := map[ID]bool{}
	for _, t := range d.Terms {
		if !seen[t.Job] {
			seen[t.Job] = true
			ids = append(ids, t.Job)
		}
	}
	return ids
}

var errDependency = errors.New("want afterok:ID, afterany:ID, afternotok:ID, aftercorr:ID or after:ID[+MINUTES], several separated by , (all) or ? (any)")

// ParseDependencies parses the dependencies of a job: terms such as afterok:ID or after:ID:ID+10, separated by commas
// if all must be met, or by question marks if one is enough. In a draft an ID may also be a prefix, last, or the name of
// a job in the same job file.
func ParseDependencies(list []string, draft bool) (Dependencies, error) {
	var d Dependencies
	text := strings.Join(list, ",")
	if text == "" && len(list) == 0 {
		return d, nil
	}
	separator := ","
	if d.Any = strings.Contains(text, "?"); d.Any {
		separator = "?"
	}
	if d.Any && strings.Contains(text, ",") {
		return d, fmt.Errorf("dependency %.60q: commas and question marks cannot be mixed", text)
	}
	for part := range strings.SplitSeq(text, separator) {
		if err := d.add(strings.TrimSpace(part), draft); err != nil {
			return d, fmt.Errorf("dependency %.60q: %w", part, err)
		}
	}
	return d, nil
}

// add adds the dependencies of one term.
func (d *Dependencies) add(part string, draft bool) error {
	word, names, _ := strings.Cut(part, ":")
	switch Condition(word) {
	case After, AfterOK, AfterNotOK, AfterAny, AfterCorr:
	default:
		if word == "singleton" {
			return errors.New("singleton is not supported; name the jobs to wait for, such as afterany:ID")
		}
		return errDependency
	}
	for name := range strings.SplitSeq(names, ":") {
		x := Dependency{When: Condition(word)}
		if name, minutes, delayed := cutLast(name, "+"); delayed && x.When == After {
			n, err := strconv.ParseUint(minutes, 10, 31)
			if err != nil || time.Duration(n)*time.Minute > maxDelay {
				return fmt.Errorf("%.20q is not a number of minutes, at most %s", minutes, Duration(maxDelay))
			}
			x.Job, x.Delay = ID(name), time.Duration(n)*time.Minute
		} else {
			x.Job = ID(name)
			if delayed {
				x.Job += ID("+" + minutes)
			}
		}
		x.Job = ID(strings.TrimSpace(string(x.Job)))
		if err := x.check(draft); err != nil {
			return err
		}
		if len(d.Terms) >= MaxDependencies {
			return fmt.Errorf("more than %d dependencies", MaxDependencies)
		}
		d.Terms = append(d.Terms, x)
	}
	return nil
}

// cutLast is like strings.Cut, but cuts around the last separator.
func cutLast(s, separator string) (before, after string, found bool) {
	if i := strings.LastIndex(s, separator); i >= 0 {
		return s[:i], s[i+len(separator):], true
	}
	return s, "", false
}

func (d Dependency) check(draft bool) error {
	switch {
	case d.Job == "", strings.Contains(string(d.Job), "+"):
		return errDependency
	case strings.Contains(string(d.Job), "."):
		return fmt.Errorf("%.60q names tasks; a dependency is on a whole job", string(d.Job))
	case draft && printable(string(d.Job)) && len(d.Job) <= 4*MaxName:
		return nil
	}
	_, err := ParseID(string(d.Job))
	return err
}

// checkDependency checks dependencies with whole IDs.
func checkDependency(s Spec) error { return s.checkDependencies(false) }

func (s Spec) checkDependencies(draft bool) error {
	d, err := ParseDependencies(s.Dependency, draft)
	if err != nil {
		return err
	}
	n := 0
	for _, t := range d.Terms {
		if t.When == AfterCorr {
			n++
		}
	}
	if n == 0 {
		return nil
	}
	switch l, err := s.Layout(); {
	case err != nil:
		return err
	case !l.IsArray():
		return errors.New("dependency aftercorr: only for an array; use afterok")
	case n > MaxCorresponding:
		return fmt.Errorf("dependency aftercorr: %d jobs; at most %d", n, MaxCorresponding)
	}
	return nil
}

// ValidateDraft is like Validate, for a job that is not submitted yet; see ParseDependencies.
func (s Spec) ValidateDraft() error {
	if err := s.checkDependencies(true); err != nil {
		return err
	}
	s.Dependency = nil
	return s.Validate()
}

// DependencyState is how far one dependency is.
type DependencyState string

// The states of a dependency. Met is final. Never is final unless a person requeues the parent.
const (
	DependencyWaiting DependencyState = "waiting"
	DependencyMet     DependencyState = "met"
	DependencyNever   DependencyState = "never"
)

// Depends is the state of one dependency, for people.
type Depends struct {
	Dependency
	Outcome DependencyState
	Parent  State  // of the parent, as far as it is known
	Detail  string // what is not plain from the other fields
}

// Follow asks how far a job is.
type Follow struct {
	Job   ID
	Tasks bool // the state of each task too
}

// Progress tells jobs that depend on a job how far that job is.
type Progress struct {
	Job     ID
	State   State         // empty: its owner has no such job, so it has ended and was deleted
	Started bool          // each of its tasks has started or ended
	Ago     time.Duration // how long ago the last of them did, as far as it is known
	// Tasks by their numbers, at most MaxRanges ranges together. Another Progress of the job may tell of further tasks.
	Tasks TaskStates
}

// TaskStates groups tasks by what matters to tasks that depend on them.
type TaskStates struct {
	Succeeded []Range
	Failed    []Range // ended otherwise
	Open      []Range // not ended
}

// Pages returns the tasks in parts that have at most MaxRanges ranges each. There is always one part.
func (s TaskStates) Pages() []TaskStates {
	pages, room := []TaskStates{{}}, MaxRanges
	for _, list := range []struct {
		ranges []Range
		of     func(*TaskStates) *[]Range
	}{
		{s.Succeeded, func(p *TaskStates) *[]Range { return &p.Succeeded }},
		{s.Failed, func(p *TaskStates) *[]Range { return &p.Failed }},
		{s.Open, func(p *TaskStates) *[]Range { return &p.Open }},
	} {
		for rest := list.ranges; len(rest) > 0; {
			if room == 0 {
				pages, room = append(pages, TaskStates{}), MaxRanges
			}
			n := min(room, len(rest))
			*list.of(&pages[len(pages)-1]) = rest[:n:n]
			rest, room = rest[n:], room-n
		}
	}
	return pages
}

// Len returns the number of ranges.
func (s TaskStates) Len() int { return len(s.Succeeded) + len(s.Failed) + len(s.Open) }
