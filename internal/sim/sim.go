// Package sim runs a cluster in one process: N virtual daemons on a virtual clock. Their schedulers and their workers
// are the real ones: scheduler.Core and worker.Core, as they are. What is around them is simulated: the loops, the
// journal and the ledger, which are in memory, the sessions between daemons, the processes, which take the time that
// their job says, and the faults.
//
// A World is made from a Config, which determines everything: the same Config gives the same events in the same order.
// It starts no goroutine and reads no clock.
//
// Each machine of the load is a daemon with a worker. Config.Schedulers of them also accept jobs. The schedulers of the
// other daemons would have no jobs, so they are left out. Schedulers find hosts as daemons do: by sessions with some
// standing neighbours, by searches in a table of resource classes, and by announcements that hosts answer. Config.Sink
// gets what happens to jobs, as a stream of records.
//
// CPUs are thousandths, as in package load. A constraint of a job that names CPUs means thousandths too.
package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/internal/fairshare"
	"github.com/musterhq/muster/internal/sim/load"
	"github.com/musterhq/muster/internal/sim/record"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/step"
)

// Config says what is simulated. The zero value of each field but Load is allowed.
type Config struct {
	Contact

	Seed uint64
	// Clock is the clock of the World; nil: a new one. The network must use the same clock.
	Clock *Clock
	Load  load.Load
	// Schedulers is how many of the daemons accept jobs; 0: one.
	Schedulers int
	// Route says to which of them a job goes.
	Route Route
	// Policy is the placement policy of jobs that name none; empty: the default of the daemons.
	Policy string
	// Candidates is how many hosts with room a placement compares; 0: as many as the daemons do.
	Candidates int
	Queueing
	// Known says that users know how long their jobs run, and say so: jobs without a time limit get one.
	Known bool
	// Restart is what each start of a task after a preemption costs, before it goes on where it was.
	Restart time.Duration
	// Checkpoint is how often a running task saves its state, without cost. After a fault it goes on from there; 0: from
	// where it began this time.
	Checkpoint time.Duration
	// Network carries messages and files between machines; nil: constant latencies, drawn from the seed.
	Network Network
	Shares  fairshare.Weights
	Costs   Costs   // the zero value of each: its default
	Faults  []Fault // in any order
	// Horizon ends the simulation though jobs have not ended; 0: never.
	Horizon time.Duration
	Sink    record.Sink // nil: nobody is told
	// Message, if it is set, sees each message between machines: a message of package contract, and its estimated bytes
	// on the wire.
	Message func(msg any, bytes int)
	// Progress is called now and then, if it is set.
	Progress func(Progress)
}

// Queueing says which tasks go first, as in the configuration of the daemons.
type Queueing struct {
	// Order says by what tasks of the same priority are ordered.
	Order contract.OrderBy
	// MaxWait is how long tasks wait until they go before all others; 0: they never do.
	MaxWait time.Duration
}

// CheckMaxWait returns an error if daemons would not accept MaxWait.
func (q Queueing) CheckMaxWait() error {
	if q.MaxWait != 0 && (q.MaxWait < step.MinMaxWait || q.MaxWait > step.MaxMaxWait) {
		return fmt.Errorf("want a time from %s to %s, or 0s", job.Duration(step.MinMaxWait), job.Duration(step.MaxMaxWait))
	}
	return nil
}

// Route says to which of the schedulers a job goes. A job that depends on others goes to the scheduler of the first of
// these.
type Route string

// The routes.
const (
	ByTurns Route = ""     // one after the other
	ByUser  Route = "user" // all jobs of a user to the same one
)

// Progress is how far a simulation is.
type Progress struct {
	Now    time.Duration // virtual
	Events int           // that have happened
	Ended  int           // jobs, of Jobs
	Jobs   int
}

// ErrStuck means that jobs wait and nothing will happen any more.
var ErrStuck = errors.New("sim: nothing is left to happen, and jobs have not ended")

// New makes the world of a Config. The Config must not change any more.
func New(cfg Config) (*World, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	w := newWorld(cfg)
	w.durable = slices.ContainsFunc(cfg.Faults, func(f Fault) bool { return f.Kind == Crash || f.Kind == Kill })
	for i := range cfg.Load.Machines {
		if _, err := w.addMachine(i); err != nil {
			return nil, err
		}
	}
	joinLater(w)
	n := len(w.hosts)
	for i := range w.cfg.Schedulers {
		w.addOwner(w.hosts[i*n/w.cfg.Schedulers])
	}
	if err := w.addJobs(); err != nil {
		return nil, err
	}
	if err := w.addFaults(); err != nil {
		return nil, err
	}
	w.start()
	return w, nil
}

func (cfg *Config) check() error {
	switch {
	case len(cfg.Load.Machines) == 0:
		return errors.New("sim: a cluster without machines")
	case cfg.Schedulers < 0 || cfg.Schedulers > len(cfg.Load.Machines):
		return fmt.Errorf("sim: %d schedulers: want 1 to %d, one on each machine at most", cfg.Schedulers, len(cfg.Load.Machines))
	case cfg.Route != ByTurns && cfg.Route != ByUser:
		return fmt.Errorf("sim: route %q: want %q or %q", cfg.Route, ByTurns, ByUser)
	case cfg.CheckMaxWait() != nil:
		return fmt.Errorf("sim: max-wait %s: %w", cfg.MaxWait, cfg.CheckMaxWait())
	case cfg.Candidates < 0:
		return fmt.Errorf("sim: %d candidates: want at least 1", cfg.Candidates)
	case cfg.Standing < 0:
		return fmt.Errorf("sim: %d standing sessions: want at least 1", cfg.Standing)
	case cfg.Stale < 0:
		return fmt.Errorf("sim: news that is stale by %s: want 0 or more", cfg.Stale)
	case cfg.Restart < 0 || cfg.Checkpoint < 0 || cfg.Horizon < 0:
		return fmt.Errorf("sim: restart %s, checkpoint %s, horizon %s: none may be negative", cfg.Restart, cfg.Checkpoint, cfg.Horizon)
	}
	if cfg.Policy != "" {
		if err := step.CheckPolicy(cfg.Policy); err != nil {
			return fmt.Errorf("sim: %w", err)
		}
	}
	return cfg.Costs.check()
}

// lookEvery is how many events happen between two looks at the context and two calls of Config.Progress.
const lookEvery = 1 << 14

// Run runs the world until each job has ended, until the horizon, or until ctx ends. It may be called once.
func (w *World) Run(ctx context.Context) (Result, error) {
	most := endOfTime
	if w.cfg.Horizon > 0 {
		most = w.cfg.Horizon + warmUp
	}
	for w.left > 0 && len(w.defects) == 0 && w.err == nil {
		w.skip(most)
		if !w.next(most) {
			if w.cfg.Horizon == 0 {
				return w.result(), fmt.Errorf("%w: %d of %d", ErrStuck, w.left, len(w.works))
			}
			w.now = most
			break
		}
		if w.ran%lookEvery == 0 {
			if err := ctx.Err(); err != nil {
				return w.result(), fmt.Errorf("sim: ended at %s: %w", w.Now(), err)
			}
			w.tellProgress()
		}
	}
	w.tellProgress()
	r := w.result()
	if w.err != nil {
		return r, w.err
	}
	if len(w.defects) > 0 {
		return r, fmt.Errorf("sim: a defect of muster: %s", w.defects[0])
	}
	return r, nil
}

// endOfTime is later than anything that happens.
const endOfTime = 100 * 365 * 24 * time.Hour

func (w *World) tellProgress() {
	if w.cfg.Progress != nil {
		w.cfg.Progress(Progress{Now: w.Now(), Events: w.ran, Ended: len(w.works) - w.left, Jobs: len(w.works)})
	}
}
