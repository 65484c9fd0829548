package files

// The driver: a task with files waits here until they are staged.

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/driver"
	"github.com/musterhq/muster/worker/leaseclock"
	"github.com/musterhq/muster/worker/runner/protocol"
	"github.com/musterhq/muster/worker/runner/scratch"
)

// Driver wraps a driver.Driver and Adopter. A task without files is passed on directly. Make one with New.
type Driver struct {
	cfg      Config
	needs    Needs
	log      *slog.Logger
	keeper   keeper
	unpacker unpacker
	ctx      chan context.Context // holds Run's context once it runs
	wg       sync.WaitGroup

	mu    sync.Mutex
	tasks map[job.Attempt]*task // guarded by mu; tasks with files, until their exit was reported
}

// task is one attempt with files.
type task struct {
	driver.Task // Deadline is kept up to date

	staging bool          // the wrapped driver does not have it yet
	doing   func() string // what it waits for, for people; nil: nothing yet
	ending  error         // why it will not be started
	end     chan struct{} // closed when ending is set
	over    chan struct{} // closed when it is no longer staging
}

// finish ends the staging of a task's files. The first reason stays. The caller holds the driver's lock.
func (t *task) finish(why error) {
	if t.ending == nil {
		t.ending = why
		close(t.end)
	}
}

// New makes a driver. It reports nothing before Run.
func New(cfg Config, needs Needs, log *slog.Logger) *Driver {
	return &Driver{
		cfg: cfg, needs: needs, log: log, keeper: keeper{cfg: cfg, log: log}, unpacker: newUnpacker(cfg, needs.Store),
		ctx: make(chan context.Context, 1), tasks: map[job.Attempt]*task{},
	}
}

// Run runs until ctx ends. The next daemon continues what was in progress.
func (d *Driver) Run(ctx context.Context) error {
	d.ctx <- ctx
	<-ctx.Done()
	d.wg.Wait()
	return nil
}

// running returns Run's context. It waits for Run.
func (d *Driver) running() context.Context {
	ctx := <-d.ctx
	d.ctx <- ctx
	return ctx
}

// hasFiles reports whether a task uploads or keeps files.
func hasFiles(t driver.Task) bool { return t.Spec.Tree != "" || len(t.Spec.Download) > 0 }

// Start starts a task once its files are staged; see driver.Driver.
func (d *Driver) Start(t driver.Task) error {
	if !hasFiles(t) {
		return d.needs.Driver.Start(t)
	}
	if err := d.cfg.save(t); err != nil {
		return err
	}
	if t.Spec.Tree == "" {
		d.mu.Lock()
		d.tasks[t.Attempt] = &task{Task: t}
		d.mu.Unlock()
		return d.needs.Driver.Start(t)
	}
	d.begin(t)
	return nil
}

// Stop ends an attempt; see driver.Driver.
func (d *Driver) Stop(a job.Attempt, grace time.Duration, reason string) error {
	d.mu.Lock()
	t := d.tasks[a]
	if t != nil && t.staging {
		t.finish(stopped{job.Exit{State: job.Cancelled, Code: neverRan, Reason: reason}})
		d.mu.Unlock()
		return nil
	}
	d.mu.Unlock()
	return d.needs.Driver.Stop(a, grace, reason)
}

// Await returns when an attempt is not being staged, or when ctx ends.
func (d *Driver) Await(ctx context.Context, a job.Attempt) {
	d.mu.Lock()
	t := d.tasks[a]
	d.mu.Unlock()
	if t == nil || t.over == nil {
		return
	}
	select {
	case <-t.over:
	case <-ctx.Done():
	}
}

// Signal signals an attempt. It does nothing if the attempt is being staged and has no process.
func (d *Driver) Signal(a job.Attempt, number int) error {
	d.mu.Lock()
	t := d.tasks[a]
	waits := t != nil && t.staging
	d.mu.Unlock()
	if waits {
		return nil
	}
	return d.needs.Driver.Signal(a, number)
}

// Extend moves deadlines; see driver.Driver.
func (d *Driver) Extend(deadlines map[job.Attempt]leaseclock.BootTime) error {
	d.mu.Lock()
	if len(d.tasks) > 0 {
		for a, at := range deadlines {
			if t := d.tasks[a]; t != nil && t.staging && t.Deadline > leaseclock.Now() {
				t.Deadline = max(t.Deadline, at)
			}
		}
	}
	d.mu.Unlock()
	return d.needs.Driver.Extend(deadlines)
}

// Forget drops the exit of an attempt; see driver.Driver.
func (d *Driver) Forget(a job.Attempt) error { return d.needs.Driver.Forget(a) }

// Driven receives the events of the wrapped driver and passes them on. It passes on the exit of a task once the
// task's files are kept.
func (d *Driver) Driven(e driver.Event) {
	d.mu.Lock()
	t := d.tasks[e.Attempt]
	d.mu.Unlock()
	if t == nil || e.Kind == driver.Started || e.Kind == driver.Starting {
		d.needs.Tell(e)
		return
	}
	d.wg.Go(func() {
		d.keeper.keep(t.Task, e)
		d.forget(e.Attempt)
		d.needs.Tell(e)
	})
}

// forget removes the record and the files of an attempt that has ended, except kept ones.
func (d *Driver) forget(a job.Attempt) {
	d.mu.Lock()
	delete(d.tasks, a)
	d.mu.Unlock()
	err := errors.Join(os.RemoveAll(d.cfg.staged(a)), scratch.Clear(protocol.Dir(d.cfg.Dir), a), gone(os.Remove(d.cfg.record(a))))
	if err != nil {
		d.log.Warn("staged files not removed", "attempt", a.String(), "error", err)
	}
}

func gone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// NeverBegun reports whether the wrapped driver has never begun an attempt; see worker.Adopter.
func (d *Driver) NeverBegun(a job.Attempt) bool { return d.needs.Adopter.NeverBegun(a) }

// Adopt returns the attempts that an earlier daemon left, and continues to stage or keep their files; see
// worker.Adopter.
func (d *Driver) Adopt(ctx context.Context) ([]driver.Event, error) {
	found, err := d.needs.Adopter.Adopt(ctx)
	if err != nil {
		return nil, err
	}
	known := make(map[job.Attempt]driver.Event, len(found))
	for _, e := range found {
		known[e.Attempt] = e
	}
	entries, err := os.ReadDir(d.cfg.staging())
	if gone(err) != nil {
		return nil, fmt.Errorf("files: adopt: %w", err)
	}
	for _, entry := range entries {
		name, isRecord := strings.CutSuffix(entry.Name(), ".json")
		a, err := job.ParseAttempt(name)
		if err != nil || !isRecord {
			continue
		}
		s, err := d.cfg.load(a)
		e, there := known[a]
		switch {
		case err != nil:
			d.log.WarnContext(ctx, "staged files of an attempt cannot be adopted", "attempt", name, "error", err)
			d.forget(a)
		case there && (e.Kind == driver.Started || e.Kind == driver.Starting):
			d.mu.Lock()
			d.tasks[a] = &task{Task: s.Task}
			d.mu.Unlock()
		case there || s.Boot != d.cfg.Boot || d.begun(a):
			d.keeper.keep(s.Task, e)
			d.forget(a)
		case s.Task.Spec.Tree == "":
			d.forget(a) // the earlier daemon died before it started the task
		default:
			d.begin(s.Task) //nolint:contextcheck // it lasts as long as Run, not as this call
			found = append(found, driver.Event{Attempt: a, Kind: driver.Starting})
		}
	}
	return found, nil
}

// begun reports whether the wrapped driver has started the attempt.
func (d *Driver) begun(a job.Attempt) bool {
	_, err := os.Lstat(protocol.Dir(d.cfg.Dir).Task(a))
	return err == nil
}
