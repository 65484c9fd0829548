package supervisor

// Forgetting: which ends somebody may still ask for, and the files of the
// runners' journals that hold none of them.

import (
	"errors"
	"log/slog"
	"os"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/runner/protocol"
)

// ends knows where the ends lie that were not forgotten. It is the state's.
type ends struct {
	dir    protocol.Dir
	log    *slog.Logger
	at     map[job.Attempt]protocol.Segment
	left   map[protocol.Segment]int // ends in each file that were not forgotten
	newest map[int]int              // segment of each runner, to which it may be writing as long as it lives
	lives  func(generation int) bool
}

func newEnds(dir protocol.Dir, lives func(generation int) bool, log *slog.Logger) *ends {
	return &ends{
		dir: dir, log: log, lives: lives,
		at: map[job.Attempt]protocol.Segment{}, left: map[protocol.Segment]int{}, newest: map[int]int{},
	}
}

// newestRunner is the highest generation that left a journal, or 0: a new
// runner takes a higher one, so that no living runner has the files of a dead
// one.
func (e *ends) newestRunner() (int, error) {
	segments, err := e.dir.Segments()
	newest := 0
	for _, s := range segments {
		newest = max(newest, s.Runner)
	}
	return newest, err
}

// read takes up what is on disk: all that was not forgotten, and of what was,
// whatever shares a file with it.
func (e *ends) read() ([]protocol.End, error) {
	segments, err := e.dir.Segments()
	if err != nil {
		return nil, err
	}
	for _, s := range segments {
		e.newest[s.Runner] = max(e.newest[s.Runner], s.Number)
	}
	all, err := e.dir.Ends()
	if err != nil {
		e.log.Error("some ends of tasks are unreadable", "error", err)
	}
	for _, end := range all {
		if a, err := job.ParseAttempt(end.Attempt); err == nil {
			e.add(a, end.Segment)
		}
	}
	for _, s := range segments {
		e.drop(s)
	}
	return all, nil
}

// add notes where the end of an attempt lies. A number of zero is none: its
// runner never wrote one.
func (e *ends) add(a job.Attempt, s protocol.Segment) {
	if _, known := e.at[a]; known || s.Number == 0 {
		return
	}
	e.at[a] = s
	e.left[s]++
	if before := e.newest[s.Runner]; s.Number > before {
		e.newest[s.Runner] = s.Number
		e.drop(protocol.Segment{Runner: s.Runner, Number: before})
	}
}

// forget drops an end, and with the last of a file the file.
func (e *ends) forget(a job.Attempt) {
	s, known := e.at[a]
	if !known {
		return
	}
	delete(e.at, a)
	if e.left[s]--; e.left[s] == 0 {
		e.drop(s)
	}
}

// closed says that a runner is dead.
func (e *ends) closed(generation int) {
	e.drop(protocol.Segment{Runner: generation, Number: e.newest[generation]})
}

// drop deletes a file that holds nothing to remember and that nobody writes to.
func (e *ends) drop(s protocol.Segment) {
	if s.Number == 0 || e.left[s] > 0 || e.newest[s.Runner] == s.Number && e.lives(s.Runner) {
		return
	}
	delete(e.left, s)
	if err := os.Remove(e.dir.Journal(s)); err != nil && !errors.Is(err, os.ErrNotExist) {
		e.log.Warn("forgotten ends not removed", "error", err)
	}
}

// names are the attempts whose ends are not forgotten.
func (e *ends) names() map[job.Attempt]bool {
	all := make(map[job.Attempt]bool, len(e.at))
	for a := range e.at {
		all[a] = true
	}
	return all
}
