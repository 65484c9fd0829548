// Package supervisor is the daemon's client of the runners, the processes that
// run a host's tasks and outlive the daemon. It starts a runner if none lives,
// connects to the runners that an earlier daemon left, sends them requests, and
// reports to the worker what becomes of the tasks. It also serves the output of
// tasks and deletes old output.
package supervisor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker"
	"github.com/musterhq/muster/worker/output"
	"github.com/musterhq/muster/worker/runner/protocol"
)

// ErrBusy says that more is asked than can be carried out; try again after a
// pause.
var ErrBusy = errors.New("supervisor: too many requests wait")

// ErrClosed says that the driver has ended.
var ErrClosed = errors.New("supervisor: closed")

// maxInbox bounds the requests that wait: several for each task that a host
// can hold at once.
const maxInbox = 1 << 16

// Config says where tasks live and how a runner is started.
type Config struct {
	Dir     string   // of the tasks and their runners
	Binary  string   // path of the program; /proc/self/exe is right even when a new version took its place
	Args    []string // before --dir and --generation: its verb if it has several, and its other flags
	Version string   // of the binary: runners of another one only drain
	Node    string   // its name, for the names of files
	// OutputLimit bounds the log of each task, in bytes on disk.
	OutputLimit job.Size
	Bounds      Bounds
	// ContainerBinary and ContainerArgs start the runner of containers, as Binary
	// and Args do that of processes.
	ContainerBinary string
	ContainerArgs   []string
	// Engine is what every container starts from: the engine's host, the
	// directories that it may show, the user inside.
	Engine protocol.Container
	// EndContainers ends what containers a dead runner left, and returns when no
	// process of them is left; nil: runners here have none.
	EndContainers func(ctx context.Context, dir string, generation int) error
}

// Bounds are those of every task, beside what it asks for.
type Bounds struct {
	CPUQuota bool     // no task gets more CPU time than it asked for, even if others are idle
	PIDs     int      // processes and threads of one task; 0: no bound
	Scratch  job.Size // of one task's scratch directory; 0: no bound
	// GPUs is the device file of each GPU by UUID, "/dev/nvidia0"; empty if it
	// is not known, and a task with such a GPU is kept from none.
	GPUs map[string]string
}

// DefaultOutputLimit is what a task's log may take unless the daemon's owner
// says otherwise.
const DefaultOutputLimit job.Size = 256 << 20

// Validate says what is wrong with the configuration.
func (c Config) Validate() error {
	switch {
	case c.Dir == "":
		return errors.New("supervisor: dir: not given")
	case c.Binary == "":
		return errors.New("supervisor: binary: not given")
	case c.OutputLimit < output.MinBound:
		return fmt.Errorf("supervisor: output limit %s: at least %s", c.OutputLimit, job.Size(output.MinBound))
	}
	return nil
}

// Driver is a worker.Driver whose tasks are processes. Make one with New.
type Driver struct {
	cfg     Config
	dir     protocol.Dir
	tell    func(worker.DriverEvent)
	log     *slog.Logger
	inbox   inbox
	do      chan func()
	lives   lives
	follows output.Follows
}

// New makes a driver that reports to tell, from a goroutine of its own; tell
// may block, but not after Run's context has ended. Nothing is reported before
// Adopt has answered.
func New(cfg Config, tell func(worker.DriverEvent), log *slog.Logger) (*Driver, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Driver{
		cfg: cfg, dir: protocol.Dir(cfg.Dir), tell: tell, log: log,
		inbox: inbox{wake: make(chan struct{}, 1)}, do: make(chan func()),
		lives: lives{all: map[job.Attempt]*life{}},
	}, nil
}

// Start begins a task; see worker.Driver.
func (d *Driver) Start(t worker.Task) error {
	s := protocol.Start{
		Attempt: t.Attempt.String(), Command: t.Spec.Argv(), Script: t.Spec.Script, Workdir: t.Spec.Workdir,
		User: t.User, Env: t.Env, Hostfile: t.Hostfile, Files: t.Files, Keeps: len(t.Spec.Download) > 0,
		Hold: t.Hold, Lead: worker.FenceLead,
		Limit: t.TimeLimit, Grace: t.Grace, Warn: t.Warning.Signal, WarnBefore: t.Warning.Before, Limits: d.cfg.Bounds.of(t),
		OutputLimit: d.cfg.OutputLimit,
	}
	names := job.Names{Attempt: t.Attempt, Job: t.Spec.Name, Node: d.cfg.Node, User: t.User}
	s.Stdout, s.Stderr = names.Expand(t.Spec.Output), names.Expand(t.Spec.Error)
	if t.Spec.Error == "" {
		s.Stderr = s.Stdout // as a terminal would show it
	}
	if t.Spec.Image != "" {
		c := d.cfg.Engine
		c.Image, c.Mounts = t.Spec.Image, t.Spec.Mounts
		if !t.Simulated {
			c.GPUs = t.Devices
		}
		s.Container = &c
	}
	e := &entry{attempt: t.Attempt, role: role(s.Container != nil)}
	if !t.Hold {
		if t.Deadline <= worker.Now() {
			return fmt.Errorf("supervisor: start %s: its lease has run out", t.Attempt)
		}
		e.deadline = t.Deadline
		s.Deadline, s.Skew = t.Deadline.OnHost()
	}
	frame, err := protocol.Frame(protocol.Request{Start: &s})
	if err != nil {
		return fmt.Errorf("supervisor: start %s: %w", t.Attempt, err)
	}
	e.start = frame
	d.lives.begin(t.Attempt)
	if err := d.inbox.put(func(s *state) { s.begin(e) }); err != nil {
		d.lives.end(t.Attempt)
		return err
	}
	return nil
}

// of are the limits of one task.
func (b Bounds) of(t worker.Task) protocol.Limits {
	l := protocol.Limits{CPUs: t.Spec.Resources.CPUs, Quota: b.CPUQuota, Memory: t.Spec.Resources.Memory, PIDs: b.PIDs, Scratch: b.Scratch}
	for _, uuid := range t.Devices {
		if node, ok := b.GPUs[uuid]; ok {
			l.AnyGPU = l.AnyGPU || node == ""
			l.GPUs = append(l.GPUs, node)
		}
	}
	return l
}

// Stop ends an attempt; see worker.Driver.
func (d *Driver) Stop(a job.Attempt, grace time.Duration, reason string) error {
	m := protocol.Stop{Attempt: a.String(), Grace: max(0, grace), Reason: reason}
	return d.inbox.put(func(s *state) { s.stop(a, m) })
}

// Signal signals an attempt; see worker.Driver.
func (d *Driver) Signal(a job.Attempt, number int) error {
	m := protocol.Signal{Attempt: a.String(), Number: number}
	return d.inbox.put(func(s *state) { s.signal(a, m) })
}

// Extend moves deadlines; see worker.Driver.
func (d *Driver) Extend(deadlines map[job.Attempt]worker.BootTime) error {
	own := maps.Clone(deadlines) // the caller keeps his
	return d.inbox.put(func(s *state) { s.extend(own) })
}

// Forget drops the end of an attempt, not its output; see worker.Driver.
func (d *Driver) Forget(a job.Attempt) error {
	return d.inbox.put(func(s *state) { s.ends.forget(a) })
}

// Adopt finds what an earlier daemon left; see worker.Adopter. It waits for Run
// to have reached every runner, or to have ended what dead ones left.
func (d *Driver) Adopt(ctx context.Context) ([]worker.DriverEvent, error) {
	answer := make(chan adopted, 1)
	if err := d.inbox.put(func(s *state) { s.adopters = append(s.adopters, answer) }); err != nil {
		return nil, err
	}
	select {
	case a := <-answer:
		return a.events, a.err
	case <-ctx.Done():
		return nil, fmt.Errorf("supervisor: adopt tasks: %w", ctx.Err())
	}
}

// Ping returns nil once the goroutine of Run has come by, or why it did not
// before ctx ended.
func (d *Driver) Ping(ctx context.Context) error {
	seen := make(chan struct{})
	if err := d.inbox.put(func(*state) { close(seen) }); err != nil {
		return err
	}
	select {
	case <-seen:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("supervisor: ping: %w", context.Cause(ctx))
	}
}

type adopted struct {
	events []worker.DriverEvent
	err    error
}

// inbox takes requests without making anyone wait.
type inbox struct {
	mu     sync.Mutex
	queue  []func(*state) // guarded by mu
	closed bool           // guarded by mu
	wake   chan struct{}
}

func (b *inbox) put(f func(*state)) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return ErrClosed
	}
	if len(b.queue) >= maxInbox {
		return ErrBusy
	}
	b.queue = append(b.queue, f)
	select {
	case b.wake <- struct{}{}:
	default:
	}
	return nil
}

func (b *inbox) take() []func(*state) {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.queue
	b.queue = nil
	return all
}

func (b *inbox) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed, b.queue = true, nil
}

// lives says of each attempt whether it may still write, to those who read
// what it writes.
type lives struct {
	mu   sync.Mutex
	all  map[job.Attempt]*life // guarded by mu
	next chan struct{}         // closed at the next begin; nil while nobody waits; guarded by mu
}

// life has two moments, each told by closing its channel.
type life struct {
	begun chan struct{} // its files exist
	ended chan struct{} // nothing more will be written
}

// begin notes that an attempt has been asked for.
func (v *lives) begin(a job.Attempt) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.all[a] == nil {
		v.all[a] = &life{begun: make(chan struct{}), ended: make(chan struct{})}
		if v.next != nil {
			close(v.next)
			v.next = nil
		}
	}
}

// run notes that its process exists.
func (v *lives) run(a job.Attempt) {
	v.begin(a)
	v.mu.Lock()
	defer v.mu.Unlock()
	closeOnce(v.all[a].begun)
}

// end notes that nothing of it is left.
func (v *lives) end(a job.Attempt) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if l := v.all[a]; l != nil {
		closeOnce(l.begun)
		closeOnce(l.ended)
		delete(v.all, a)
	}
}

// of is the life of an attempt, nil if it is over or never was.
func (v *lives) of(a job.Attempt) *life {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.all[a]
}

// Has says whether an attempt has been asked for and not ended; next is closed
// when another one is.
func (d *Driver) Has(a job.Attempt) (has bool, next <-chan struct{}) {
	v := &d.lives
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.next == nil {
		v.next = make(chan struct{})
	}
	return v.all[a] != nil, v.next
}

// closeOnce closes a channel; its callers hold the lock of lives.
func closeOnce(c chan struct{}) {
	select {
	case <-c:
	default:
		close(c)
	}
}
