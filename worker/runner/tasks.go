package runner

// The tasks of a runner, and the phases that each goes through.

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/internal/timers"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/runner/pidspace"
	"github.com/musterhq/muster/worker/runner/protocol"
	"github.com/musterhq/muster/worker/runner/pump"
	"github.com/musterhq/muster/worker/runner/spawn"
)

// phase is how far a task has come.
type phase int

const (
	none      phase = iota // new
	queued                 // its order waits for a spawner
	spawning               // a spawner has its order
	preparing              // its container has no process yet
	running                // its main process exists
	lingering              // its main process ended, other processes of it run: in the grace, or until they are killed
	ended                  // no process of it is left; its exit is being written, and told if that takes long
	gone                   // its exit is on disk, and the daemon was told
)

var phaseNames = [...]string{"none", "queued", "spawning", "preparing", "running", "lingering", "ended", "gone"}

func (p phase) String() string { return phaseNames[p] }

// nextPhases lists every legal transition. Any other is a defect.
var nextPhases = map[phase][]phase{
	none:      {queued, preparing},
	queued:    {spawning, ended},      // ended: it was stopped or its lease ran out
	spawning:  {running, ended, gone}, // ended: refused or withdrawn; gone: an earlier runner has had it
	preparing: {running, ended, gone}, // as spawning
	running:   {lingering, ended},     // a container has no lingering processes
	lingering: {ended},
	ended:     {gone},
	gone:      {},
}

// task is one attempt, from its Start until its exit is on disk and the daemon was told.
type task struct {
	attempt   job.Attempt
	name      string // of the attempt
	phase     phase
	order     *spawn.Order // until its process exists
	watch     watch
	due       timers.Timer[time.Duration, *task] // of its watch
	pid       int                                // of its main process
	ticks     uint64                             // start of the main process, in ticks since boot
	out       *pump.Outlet                       // until its exit is written
	inlet     *inlet                             // nil: it gets no input from a client
	began     time.Time
	container *container // nil: the task is a process
	record    protocol.Record
	memory    job.Size // limit of its memory; 0: none
	disk      diskLimits
	who       spawn.Account // the user that it runs as
	where     string        // the directory that it started in
	keeps     bool          // the daemon, not the runner, removes its scratch directory
	privateState
	saving
}

// privateState is what a task does not share with the host.
type privateState struct {
	space *pidspace.Space // nil: its processes are in the namespaces of the host
	tmp   *spawn.TmpDir   // nil: it has the /tmp of the host
}

// saving is what is known of a task while its exit is written.
type saving struct {
	segment int    // of the journal, which holds its record
	silent  bool   // it wrote no output
	tail    string // the end of its standard error
	told    bool   // the daemon knows how it exited, though that is not on disk
}

// diskLimits says whose task it is, and how much of the disk it may hold.
type diskLimits struct {
	user    string
	scratch job.Size // limit of its scratch directory; 0: none
	all     job.Size // limit of what all tasks of the user hold; 0: none
}

// container is what the loop knows of a task's container.
type container struct {
	cancel  context.CancelFunc // ends the pull and the preparation
	process spawn.Process      // nil: it has none yet
}

func (b *container) signal(sig unix.Signal) {
	if b.process == nil {
		b.cancel()
		return
	}
	b.process.Signal(sig)
}

// end sends a signal that ends the container. All of its processes keep the grace.
func (b *container) end(sig unix.Signal) {
	if b.process == nil || sig == unix.SIGKILL {
		b.signal(sig)
		return
	}
	b.process.End(sig)
}

// endSpace ends the namespaces of a task that has no process.
func (t *task) endSpace() {
	t.space.Kill()
	t.space.Close()
	t.space = nil
}

// asStarted returns the report that the task has a process.
func (t *task) asStarted() protocol.Started {
	return protocol.Started{Attempt: t.name, PID: t.pid, Began: t.began}
}

// tasks are the tasks of a runner that are not gone.
type tasks struct {
	log   *slog.Logger
	all   map[job.Attempt]*task
	mains map[int]*task        // main processes that were not reaped yet, by pid; not those of containers
	left  map[*task]bool       // the lingering tasks
	count [len(phaseNames)]int // of tasks in each phase
}

func newTasks(log *slog.Logger) *tasks {
	return &tasks{log: log, all: map[job.Attempt]*task{}, mains: map[int]*task{}, left: map[*task]bool{}}
}

// welcome returns the Welcome that names all tasks of the runner.
func (ts *tasks) welcome(info protocol.Info) protocol.Welcome {
	w := protocol.Welcome{Info: info}
	for _, t := range ts.all {
		if t.pid != 0 {
			w.Running = append(w.Running, t.asStarted())
		} else {
			w.Starting = append(w.Starting, t.name)
		}
	}
	return w
}

// find returns the task of the attempt with this name, or nil.
func (ts *tasks) find(name string) *task {
	a, err := job.ParseAttempt(name)
	if err != nil {
		return nil
	}
	return ts.all[a]
}

// move takes a task to its next phase. An illegal transition is a defect of the runner: it is logged, the task stays
// in its phase, move returns false, and the caller must not go on.
func (ts *tasks) move(t *task, to phase) bool {
	if !slices.Contains(nextPhases[t.phase], to) {
		ts.log.Error("defect: a task cannot make this move, ignored", "attempt", t.name, "from", t.phase.String(), "to", to.String())
		return false
	}
	if t.phase != none {
		ts.count[t.phase]--
	}
	ts.count[to]++
	t.phase = to
	switch to {
	case queued, preparing:
		ts.all[t.attempt] = t
	case running:
		if t.container == nil {
			ts.mains[t.pid] = t
		}
	case lingering:
		ts.left[t] = true
	case ended:
		delete(ts.left, t)
	case gone:
		delete(ts.all, t.attempt)
	case none, spawning:
	}
	return true
}

// starting returns how many tasks may still get a process from a spawner.
func (ts *tasks) starting() int { return ts.count[queued] + ts.count[spawning] }

// hasMain reports whether the main process of a task was not reaped yet.
func (ts *tasks) hasMain(t *task) bool { return ts.mains[t.pid] == t }
