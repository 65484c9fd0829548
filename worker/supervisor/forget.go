package supervisor

// Which exits are still needed, and deleting the journal files that hold none of them.

import (
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/runner/protocol"
)

// ends knows which journal file holds each exit that was not forgotten. Only Run's goroutine uses it.
type ends struct {
	dir    protocol.Dir
	log    *slog.Logger
	at     map[job.Attempt]protocol.Segment
	left   map[protocol.Segment]int // number of exits in each file that were not forgotten
	newest map[int]int              // newest segment of each runner, which the runner may still write to
	lives  func(generation int) bool
	remove func(file func()) // removes a file, now or soon
}

func newEnds(dir protocol.Dir, lives func(generation int) bool, log *slog.Logger) *ends {
	return &ends{
		dir: dir, log: log, lives: lives, remove: func(file func()) { file() },
		at: map[job.Attempt]protocol.Segment{}, left: map[protocol.Segment]int{}, newest: map[int]int{},
	}
}

// newestRunner returns the highest generation that left a journal, or 0. A new runner gets a higher generation, so
// that it never shares files with a dead runner.
func (e *ends) newestRunner() (int, error) {
	segments, err := e.dir.Segments()
	newest := 0
	for _, s := range segments {
		newest = max(newest, s.Runner)
	}
	return newest, err
}

// read returns all exits on disk: those that were not forgotten, and forgotten ones that share a file with them.
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
		return nil, fmt.Errorf("%w; move the file away to start without it: the tasks whose exits are in it then count as lost", err)
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

// add records which file holds the exit of an attempt. Number 0 means that no file does.
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

// forget drops an exit, and deletes its file if it was the last one there.
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

// closed records that a runner is dead.
func (e *ends) closed(generation int) {
	e.drop(protocol.Segment{Runner: generation, Number: e.newest[generation]})
}

// drop deletes a file that holds no exit that is needed and that no runner writes to.
func (e *ends) drop(s protocol.Segment) {
	if s.Number == 0 || e.left[s] > 0 || e.newest[s.Runner] == s.Number && e.lives(s.Runner) {
		return
	}
	delete(e.left, s)
	e.remove(func() {
		if err := os.Remove(e.dir.Journal(s)); err != nil && !errors.Is(err, os.ErrNotExist) {
			e.log.Warn("file of forgotten exits not removed", "error", err)
		}
	})
}

// names returns the attempts whose exits were not forgotten.
func (e *ends) names() map[job.Attempt]bool {
	all := make(map[job.Attempt]bool, len(e.at))
	for a := range e.at {
		all[a] = true
	}
	return all
}
