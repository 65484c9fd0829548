package runner

// The recorder writes the exits of tasks to disk and then removes their directories.

import (
	"log/slog"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/worker/runner/protocol"
	"github.com/musterhq/muster/worker/runner/scratch"
	"github.com/musterhq/muster/worker/runner/spawn"
)

const (
	// clearAgain is the pause before a failed removal of a scratch directory is tried again, for example because the disk
	// was full or the user's own processes still changed it. It doubles up to clearMost.
	clearAgain = time.Second
	clearMost  = 5 * time.Minute
)

const (
	// saveAgain is the pause before exits that could not be written are written again, for example on a full disk.
	saveAgain = time.Second
	// saveTime is how long a round may take to be written before the daemon is told exits that are not on disk.
	saveTime = 10 * time.Second
)

// clearers bounds how many scratch directories are removed at the same time.
const clearers = 2

// recorder writes the exits of tasks to the journal.
type recorder struct {
	dir      protocol.Dir
	journal  *journal    // used only by save
	room     *room       // of the journal
	unsaved  []*task     // ended tasks whose exit is not on disk
	saving   []*task     // those that are being written
	since    time.Time   // when save last took or returned a round, or could have taken one
	late     *time.Timer // fires when that may be long ago
	armed    bool        // late is set
	spawner  *spawn.Spawner
	rounds   chan []*task  // tasks whose exits are written together
	faults   int           // consecutive rounds that could not be written
	clearing chan struct{} // a semaphore: one token for each directory that is being removed
	log      *slog.Logger
}

func newRecorder(dir protocol.Dir, j *journal, s *spawn.Spawner, log *slog.Logger) *recorder {
	late := time.NewTimer(0)
	late.Stop()
	return &recorder{
		dir: dir, journal: j, room: j.room, spawner: s, rounds: make(chan []*task), clearing: make(chan struct{}, clearers), late: late, log: log,
	}
}

// next returns the tasks whose exits are to be written and the channel to send them on. The channel is nil if there
// are none.
func (r *recorder) next() (chan<- []*task, []*task) {
	if len(r.unsaved) == 0 {
		return nil, nil
	}
	return r.rounds, r.unsaved
}

// add takes on tasks that have ended.
func (r *recorder) add(ended ...*task) {
	if len(r.unsaved) == 0 && r.saving == nil {
		r.since = time.Now()
	}
	r.unsaved = append(r.unsaved, ended...)
	if !r.armed {
		r.arm(saveTime)
	}
}

// sent notes that save has taken what next returned.
func (r *recorder) sent() {
	r.saving, r.unsaved, r.since = r.unsaved, nil, time.Now()
}

// back notes that save has returned what it had taken.
func (r *recorder) back() { r.saving, r.since = nil, time.Now() }

func (r *recorder) arm(after time.Duration) {
	r.armed = true
	r.late.Reset(after)
}

// hangs returns the tasks whose exits wait for a disk that does not answer. It is called when late fires.
func (r *recorder) hangs() []*task {
	r.armed = false
	if r.saving == nil && len(r.unsaved) == 0 {
		return nil
	}
	if left := saveTime - time.Since(r.since); left > 0 {
		r.arm(left)
		return nil
	}
	r.arm(saveAgain)
	return slices.Concat(r.saving, r.unsaved)
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

// clear removes the scratch directories and the /tmp of tasks whose exit is on disk, or keeps them for other tasks. A
// large directory does not delay the next round.
func (r *recorder) clear(round []*task) {
	for _, t := range round {
		if t.tmp != nil && !r.spawner.Tmps.Spare(t.tmp) {
			go r.remove(t, func() error { return scratch.Remove(t.tmp.Path) })
		}
		path := r.dir.Scratch(t.attempt)
		if t.keeps || t.pid != 0 && t.container == nil && r.spawner.Spare(path, t.who) || unix.Rmdir(path) == nil {
			continue
		}
		go r.remove(t, func() error { return scratch.Clear(r.dir, t.attempt) })
	}
}

// remove calls once, which removes a directory of a task, until that succeeds or the pause between two tries exceeds
// clearMost. At most clearers directories are removed at the same time.
func (r *recorder) remove(t *task, once func() error) {
	for pause := clearAgain; ; pause *= 2 {
		r.clearing <- struct{}{}
		err := once()
		<-r.clearing
		if err == nil {
			return
		}
		if pause > clearMost {
			r.log.Warn("directory of a task not removed", "attempt", t.name, "error", err)
			return
		}
		time.Sleep(pause)
	}
}
