package runner

// Taking the ends of tasks to disk, and removing what is not needed afterwards.

import (
	"log/slog"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/worker/runner/protocol"
	"github.com/musterhq/muster/worker/runner/scratch"
)

// clearers bounds the scratch directories that are removed at once.
const clearers = 2

// recorder takes the ends of tasks to the journal.
type recorder struct {
	dir      protocol.Dir
	journal  *journal      // used by save alone
	unsaved  []*task       // they ended, and that is not on disk
	rounds   chan []*task  // to save
	faults   int           // rounds in a row that could not be saved
	clearing chan struct{} // a token for each directory that is being removed
	log      *slog.Logger
}

func newRecorder(dir protocol.Dir, j *journal, log *slog.Logger) *recorder {
	return &recorder{dir: dir, journal: j, rounds: make(chan []*task), clearing: make(chan struct{}, clearers), log: log}
}

// next returns the tasks to save and the channel to send them on; without any, the channel is nil.
func (r *recorder) next() (chan<- []*task, []*task) {
	if len(r.unsaved) == 0 {
		return nil, nil
	}
	return r.rounds, r.unsaved
}

// save is the goroutine that writes rounds of ends. What comes while it syncs one is the next.
func (r *recorder) save(saved func([]*task, error)) {
	for round := range r.rounds {
		err := r.journal.save(round)
		saved(round, err)
		if err == nil {
			r.clear(round)
		}
	}
}

// failed logs that a round was not saved; of several in a row, the first.
func (r *recorder) failed(round []*task, err error) {
	if r.faults++; r.faults == 1 {
		r.log.Error("ends of tasks not saved, trying again", "tasks", len(round), "error", err)
	}
}

// clear removes the scratch directories of tasks whose end is on disk. Large ones
// do not delay the next round.
func (r *recorder) clear(round []*task) {
	for _, t := range round {
		if t.keeps || unix.Rmdir(r.dir.Scratch(t.attempt)) == nil {
			continue
		}
		go func() {
			r.clearing <- struct{}{}
			defer func() { <-r.clearing }()
			if err := scratch.Clear(r.dir, t.attempt); err != nil {
				r.log.Warn("scratch directory not removed", "attempt", t.name, "error", err)
			}
		}()
	}
}
