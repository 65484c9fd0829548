package runner

// The recorder writes the exits of tasks to disk and then removes their scratch directories.

import (
	"log/slog"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/worker/runner/protocol"
	"github.com/musterhq/muster/worker/runner/scratch"
	"github.com/musterhq/muster/worker/runner/spawn"
)

const (
	// clearAgain is the pause before a scratch directory is removed again that could not be, for example because the disk
	// was full or the user's own processes still changed it. It doubles up to clearMost.
	clearAgain = time.Second
	clearMost  = 5 * time.Minute
)

// clearers bounds how many scratch directories are removed at the same time.
const clearers = 2

// recorder writes the exits of tasks to the journal.
type recorder struct {
	dir      protocol.Dir
	journal  *journal // used only by save
	room     *room    // of the journal
	unsaved  []*task  // ended tasks whose exit is not on disk
	spawner  *spawn.Spawner
	rounds   chan []*task  // tasks whose exits are written together
	faults   int           // consecutive rounds that could not be written
	clearing chan struct{} // a semaphore: one token for each directory that is being removed
	log      *slog.Logger
}

func newRecorder(dir protocol.Dir, j *journal, s *spawn.Spawner, log *slog.Logger) *recorder {
	return &recorder{dir: dir, journal: j, room: j.room, spawner: s, rounds: make(chan []*task), clearing: make(chan struct{}, clearers), log: log}
}

// next returns the tasks whose exits are to be written and the channel to send them on. The channel is nil if there
// are none.
func (r *recorder) next() (chan<- []*task, []*task) {
	if len(r.unsaved) == 0 {
		return nil, nil
	}
	return r.rounds, r.unsaved
}

// save is the goroutine that writes exits. Tasks that end while a round is synced form the next round.
func (r *recorder) save(saved func([]*task, error)) {
	for round := range r.rounds {
		err := r.journal.save(round)
		saved(round, err)
		if err == nil {
			r.clear(round)
		}
	}
}

// failed logs that a round was not written. Of several consecutive failures only the first is logged.
func (r *recorder) failed(round []*task, err error) {
	if r.faults++; r.faults == 1 {
		r.log.Error("ends of tasks not saved, trying again", "tasks", len(round), "error", err)
	}
}

// clear removes the scratch directories of tasks whose exit is on disk, or keeps them for other tasks. A large directory does not delay the next
// round.
func (r *recorder) clear(round []*task) {
	for _, t := range round {
		path := r.dir.Scratch(t.attempt)
		if t.keeps || t.pid != 0 && t.container == nil && r.spawner.Spare(path, t.who) || unix.Rmdir(path) == nil {
			continue
		}
		go func() {
			for pause := clearAgain; ; pause *= 2 {
				err := r.remove(t)
				if err == nil {
					return
				}
				if pause > clearMost {
					r.log.Warn("scratch directory not removed", "attempt", t.name, "error", err)
					return
				}
				time.Sleep(pause)
			}
		}()
	}
}

// remove removes the scratch directory of a task. Few are removed at the same time.
func (r *recorder) remove(t *task) error {
	r.clearing <- struct{}{}
	defer func() { <-r.clearing }()
	return scratch.Clear(r.dir, t.attempt)
}
