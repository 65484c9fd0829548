// Package supervisor is the daemon's client of the runners, the processes that run a host's tasks and outlive the
// daemon. It starts a runner if none lives, connects to the runners that an earlier daemon left, sends them requests,
// and reports to the worker what becomes of the tasks. It also serves the output of tasks and deletes old output.
package supervisor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/driver"
	"github.com/musterhq/muster/worker/leaseclock"
	"github.com/musterhq/muster/worker/output"
	"github.com/musterhq/muster/worker/runner/protocol"
)

// ErrBusy says that too many requests wait. Try again after a pause.
var ErrBusy = errors.New("supervisor: too many requests wait")

// ErrClosed says that the driver has ended.
var ErrClosed = errors.New("supervisor: closed")

// maxInbox bounds the requests that wait: several for each task that a host can run at once.
const maxInbox = 1 << 16

// Config says where tasks and runners live and how a runner is started.
type Config struct {
	Dir    string   // of the tasks and their runners
	Binary string   // path of the runner's program; with /proc/self/exe an upgrade on disk does not matter
	Args   []string // its arguments before --dir and --generation
	// HostMounts makes runners see the mounts of the host, even if this process sees others.
	HostMounts bool
	Version    string // of the binary; runners of another version only drain
	Node       string // name of this host, for the names of output files
	// OutputLimit bounds the log of each task, in bytes on disk.
	OutputLimit job.Size
	// ClientTimeout is how long the client of a task with input may be gone; 0: the default.
	ClientTimeout job.Duration
	Limits        Limits
	// Libraries returns directories of libraries that tasks find after all others, in LD_LIBRARY_PATH. Containers do not
	// get them: the engine's GPU runtime mounts the libraries. Nil: there are none.
	Libraries func() []string
	// ContainerBinary and ContainerArgs start the runner of containers, as Binary and Args start that of processes.
	ContainerBinary string
	ContainerArgs   []string
	// Engine is the template of every container: the engine's address, the directories allowed for mounts, and the
	// user inside.
	Engine protocol.Container
	// EndContainers ends the containers that a dead runner left, and returns when none of them has a process. Nil:
	// runners on this host have no containers.
	EndContainers func(ctx context.Context, dir string, generation int) error
	// Fences is called when the runner of processes has said whether it fences tasks, and how it isolates them, for
	// people. It must not wait. Once one runner has said that it fences tasks, every task with a lease is fenced or
	// refused, whatever later runners say. It may be nil.
	Fences func(fences bool, isolation string)
	// Usage returns the report of what an attempt used, which is sent with its result; empty: not known. cpu and rss are
	// what the runner reported at the end; 0: not known. Nil: nothing is measured.
	Usage func(a job.Attempt, cpu time.Duration, rss job.Size) string
}

// Limits are the limits of every task, besides those that its spec asks for.
type Limits struct {
	CPUQuota bool     // no task gets more CPU time than it asked for, even if the host is idle
	PIDs     int      // processes and threads of one task; 0: no limit
	Scratch  job.Size // size of one task's scratch directory; 0: no limit
	// UserScratch returns how much of the disk all tasks of a user may hold; 0: no limit. Nil: nobody has one.
	UserScratch func(user string) job.Size
	// Grant returns what the driver of the GPUs gives to a task with these GPUs and this need. Nil: nothing.
	Grant func(uuids []string, need job.Resources) gpu.Grant
}

// DefaultOutputLimit is the default of Config.OutputLimit.
const DefaultOutputLimit job.Size = 256 << 20

// Validate returns an error for the first field that is not valid.
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

// Driver implements driver.Driver with runners. Make one with New.
type Driver struct {
	cfg      Config
	dir      protocol.Dir
	tell     func(driver.Event)
	log      *slog.Logger
	inbox    inbox
	do       chan func()
	activity *activity
	follows  output.Follows
	spares   *spares
	fences   atomic.Bool   // a runner has said that it fences tasks
	reached  chan struct{} // closed once Run has reached every living runner and has cleaned up after every dead one
}

// New makes a driver that passes events to tell, in a goroutine of its own. Tell may block, but not after Run's
// context has ended. No event is passed before Adopt has answered.
func New(cfg Config, tell func(driver.Event), log *slog.Logger) (*Driver, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Driver{
		cfg: cfg, dir: protocol.Dir(cfg.Dir), tell: tell, log: log,
		inbox: inbox{wake: make(chan struct{}, 1)}, do: make(chan func()),
		activity: &activity{all: map[job.Attempt]*attemptActivity{}},
		spares:   newSpares(protocol.Dir(cfg.Dir), log), reached: make(chan struct{}),
	}, nil
}

// Start starts a task; see driver.Driver.
func (d *Driver) Start(t driver.Task) error {
	granted := d.cfg.Limits.grant(t)
	s := protocol.Start{
		Attempt: t.Attempt.String(), Command: t.Spec.Argv(), Script: t.Spec.Script, Workdir: t.Spec.Workdir, SubmitDir: t.Spec.SubmitDir,
		User: t.User, Env: withVariables(environmentOf(t, d.cfg.Libraries), granted.Env), Hostfile: t.Hostfile, Files: t.Files, Keeps: len(t.Spec.Download) > 0,
		Hold: t.Hold, Lead: driver.FenceLead,
		Limit: t.TimeLimit, Grace: t.Grace, Warn: t.Warning.Signal, WarnBefore: t.Warning.Before, Limits: d.cfg.Limits.of(t, granted),
		OutputLimit: d.cfg.OutputLimit, Shared: granted.Shared,
	}
	if s.Script != "" {
		s.Command, s.Args = nil, s.Command
	}
	names := job.Names{ID: t.Attempt.Job, Task: t.Number, Index: t.Index, Job: t.Spec.Name, Node: d.cfg.Node, User: t.User}
	s.Stdout, s.Stderr = names.Expand(t.Spec.Output), names.Expand(t.Spec.Error)
	if t.Spec.Error == "" {
		s.Stderr = s.Stdout // one file gets both streams
	}
	s.Input = d.inputOf(t.Spec)
	if t.Spec.Image != "" {
		c := d.cfg.Engine
		c.Image, c.Mounts, c.HostNetwork = t.Spec.Image, t.Spec.Mounts, t.Spec.Nodes > 1
		c.GPUs = protocol.GPUs(granted.Engine)
		s.Container = &c
	}
	e := &entry{attempt: t.Attempt, role: role(s.Container != nil), user: t.User}
	e.plain = s.Container == nil && s.Script == "" && s.Files == "" && !s.Keeps && s.Input == nil && s.SubmitDir == "" && t.Spec.Nodes <= 1
	if !t.Hold {
		if t.Deadline <= leaseclock.Now() {
			return fmt.Errorf("supervisor: start %s: its lease has run out", t.Attempt)
		}
		e.deadline = t.Deadline
		s.Deadline, s.Skew = t.Deadline.OnHost()
		s.Fenced = d.fences.Load()
	}
	if s.Container == nil {
		s.Spare = d.spares.take(t.Attempt, t.User, d.follows.Followed)
	}
	frame, err := protocol.Frame(protocol.Request{Start: &s})
	if err != nil {
		d.spares.settled(t.Attempt)
		return fmt.Errorf("supervisor: start %s: %w", t.Attempt, err)
	}
	e.start = frame
	d.activity.begin(t.Attempt)
	if err := d.inbox.put(func(s *state) { s.begin(e) }); err != nil {
		d.activity.end(t.Attempt)
		d.spares.settled(t.Attempt)
		return err
	}
	return nil
}

// inputOf returns how a task gets input, or nil if it gets none.
func (d *Driver) inputOf(s job.Spec) *protocol.Input {
	if !s.TakesInput() {
		return nil
	}
	in := &protocol.Input{TTY: s.TTY != "", Away: cmp.Or(d.cfg.ClientTimeout, job.DefaultClientTimeout).D()}
	if t, err := job.ParseTerminal(s.TTY); err == nil {
		in.Rows, in.Cols = t.Rows, t.Cols
	}
	return in
}

// of returns the limits of one task with what the driver of the GPUs gives it.
func (b Limits) of(t driver.Task, granted gpu.Grant) protocol.Limits {
	l := protocol.Limits{CPUs: t.Spec.Resources.CPUs, Quota: b.CPUQuota, Memory: t.Spec.Resources.Memory, PIDs: b.PIDs, Scratch: b.Scratch}
	if b.UserScratch != nil {
		l.UserScratch = b.UserScratch(t.User)
	}
	for _, c := range granted.Closed {
		l.Closed = append(l.Closed, protocol.Closed(c))
	}
	for _, m := range granted.Memory {
		l.DeviceMemory = append(l.DeviceMemory, protocol.DeviceMemory{PCI: m.PCI, Bytes: int64(m.Bytes)})
	}
	return l
}

// grant returns what the driver of the GPUs gives to a task.
func (b Limits) grant(t driver.Task) gpu.Grant {
	if b.Grant == nil {
		return gpu.Grant{}
	}
	return b.Grant(t.Devices, t.Spec.Resources)
}

// withVariables returns a sorted environment with more variables, which override those that are there.
func withVariables(env []string, more map[string]string) []string {
	all := make([]string, 0, len(env)+len(more))
	for _, word := range env {
		name, _, _ := strings.Cut(word, "=")
		if _, overridden := more[name]; !overridden {
			all = append(all, word)
		}
	}
	for name, value := range more {
		all = append(all, name+"="+value)
	}
	slices.Sort(all)
	return all
}

// Stop stops an attempt; see driver.Driver.
func (d *Driver) Stop(a job.Attempt, grace time.Duration, reason string) error {
	m := protocol.Stop{Attempt: a.String(), Grace: max(0, grace), Reason: reason}
	return d.inbox.put(func(s *state) { s.stop(a, m) })
}

// Signal signals an attempt; see driver.Driver.
func (d *Driver) Signal(a job.Attempt, number int) error {
	m := protocol.Signal{Attempt: a.String(), Number: number}
	return d.inbox.put(func(s *state) { s.signal(a, m) })
}

// Extend moves deadlines; see driver.Driver.
func (d *Driver) Extend(deadlines map[job.Attempt]leaseclock.BootTime) error {
	own := maps.Clone(deadlines) // the caller may change its map
	return d.inbox.put(func(s *state) { s.extend(own) })
}

// Forget drops the exit of an attempt but not its output; see driver.Driver.
func (d *Driver) Forget(a job.Attempt) error {
	return d.inbox.put(func(s *state) { s.ends.forget(a); d.spares.forgotten(a) })
}

// Adopt returns the attempts that an earlier daemon left; see worker.Adopter. It waits until Run has reached every
// living runner and has cleaned up after every dead one.
func (d *Driver) Adopt(ctx context.Context) ([]driver.Event, error) {
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

// ErrUnreached says that a task which runs may be unknown yet, because a runner of an earlier daemon was not reached.
var ErrUnreached = errors.New("a runner of the daemon before was not reached yet")

// reachWithin is how long a request about a task waits until the runners are reached. Most are reached within
// milliseconds.
const reachWithin = 10 * time.Second

// awaitRunners waits until Run has reached every living runner and has cleaned up after every dead one. Until then a
// task that runs may be unknown.
func (d *Driver) awaitRunners(ctx context.Context) error {
	late := time.NewTimer(reachWithin)
	defer late.Stop()
	select {
	case <-d.reached:
		return nil
	case <-late.C:
		return fmt.Errorf("supervisor: %w", ErrUnreached)
	case <-ctx.Done():
		return fmt.Errorf("supervisor: await the runners of an earlier daemon: %w", ctx.Err())
	}
}

// NeverBegun reports whether no runner has begun an attempt; see worker.Adopter. A runner first makes the attempt's
// directory.
func (d *Driver) NeverBegun(a job.Attempt) bool {
	_, err := os.Lstat(d.dir.Task(a))
	return errors.Is(err, os.ErrNotExist)
}

// Ping returns nil once Run's goroutine has answered, or an error if ctx ends first.
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
	events []driver.Event
	err    error
}

// inbox queues requests for Run's goroutine. Putting one never blocks.
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

// Has reports whether an attempt was started and has not ended. Next is closed when another attempt is started.
func (d *Driver) Has(a job.Attempt) (has bool, next <-chan struct{}) {
	v := d.activity
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.next == nil {
		v.next = make(chan struct{})
	}
	return v.all[a] != nil, v.next
}
