// Package meter measures what tasks, GPUs and the host use, every few seconds, and keeps the last hour in memory. It only
// informs: the worker decides nothing by what it measures.
//
// A task is measured by its control groups where it has them for itself, and by its processes otherwise. The status of
// the GPUs is what their driver has last said. What cannot be read is not known, and never counts as 0.
//
// Measuring takes at most 1/200 of a core: a round that took longer than that part of the interval is followed by a
// longer pause. Memory is bounded: an hour of samples of at most maxRings tasks, and 120 points of each other task.
package meter

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/usage"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/cgroup"
)

const (
	// Every is the time between two rounds.
	Every = 5 * time.Second
	// share bounds the part of a core that measuring may take to 1/share.
	share = 200
	// maxPause bounds the time between two rounds on a host with very many tasks.
	maxPause = time.Minute
	// maxRings bounds the tasks of which an hour of samples is kept, about 20 KB each.
	maxRings = 128
	// staleAfter is the age from which on the status of the GPUs says nothing about now.
	staleAfter = 30 * time.Second
	// hostStale is the age from which on a sample of the host says nothing about now. A round may follow the last one as
	// late as that.
	hostStale = maxPause + staleAfter
)

// Config says where the kernel's files are.
type Config struct {
	Proc string // usually /proc
	Sys  string // usually /sys
}

// DefaultConfig returns the directories of a usual host.
func DefaultConfig() Config { return Config{Proc: "/proc", Sys: "/sys"} }

// Needs are the parts of the daemon that a Meter asks.
type Needs struct {
	// Running lists the tasks that have a process.
	Running func(context.Context) ([]Task, error)
	// GPUs returns the newest status of the GPUs, and when it was read.
	GPUs func() ([]gpu.Status, time.Time)
}

// Meter measures. Make one with New. Its methods may be called concurrently.
type Meter struct {
	needs  Needs
	log    *slog.Logger
	kernel kernel // Run's goroutine only, as finder
	finder cgroup.Finder

	mu    sync.Mutex
	tasks map[job.Attempt]*taskState // guarded by mu
	rings int                        // guarded by mu; tasks that have a ring
	host  *hostState                 // guarded by mu
	gpus  map[string]*gpuState       // guarded by mu; by UUID
}

// New returns a meter.
func New(cfg Config, needs Needs, log *slog.Logger) *Meter {
	return &Meter{
		needs: needs, log: log, kernel: kernel{proc: cfg.Proc, sys: cfg.Sys}, finder: cgroup.Finder{Proc: cfg.Proc},
		tasks: map[job.Attempt]*taskState{}, host: newHostState(), gpus: map[string]*gpuState{},
	}
}

// Run measures until ctx ends.
func (m *Meter) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		began := time.Now()
		m.round(ctx)
		timer.Reset(pause(time.Since(began)))
	}
}

// pause returns the time until the next round, after a round that took this long.
func pause(took time.Duration) time.Duration {
	return min(max(Every-took, share*took), maxPause)
}

// round measures everything once.
func (m *Meter) round(ctx context.Context) {
	running, err := m.needs.Running(ctx)
	if err != nil {
		m.log.DebugContext(ctx, "tasks not measured", "error", err)
		return
	}
	now := time.Now()
	status, read := m.needs.GPUs()
	if now.Sub(read) > staleAfter {
		status = nil
	}
	by := map[string]gpu.Status{}
	for _, s := range status {
		by[s.UUID] = s
	}
	tasks := m.follow(running, now)
	var all map[int]process
	host := func() map[int]process { // at most once a round
		if all == nil {
			all = m.kernel.processes()
		}
		return all
	}
	readings := make([]reading, len(tasks))
	for i, t := range tasks {
		readings[i] = m.kernel.measure(t, &m.finder, host)
	}
	ofHost := m.measureHost(now)
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, t := range tasks {
		t.take(now, readings[i], by)
	}
	m.host.newest = ofHost
	m.host.ring.Add(ofHost)
	m.takeGPUs(now, read, status, running)
}

func (m *Meter) measureHost(now time.Time) usage.Sample {
	return m.host.measure(&m.kernel, now) // its counters are only this goroutine's
}

// follow returns the states of the tasks that run, and forgets all others.
func (m *Meter) follow(running []Task, now time.Time) []*taskState {
	m.mu.Lock()
	defer m.mu.Unlock()
	was := m.tasks
	m.tasks = make(map[job.Attempt]*taskState, len(running))
	out := make([]*taskState, 0, len(running))
	m.rings = 0
	for _, t := range running {
		s := was[t.Attempt]
		if s == nil {
			s = newTaskState(t.clone(), now)
		}
		m.tasks[t.Attempt] = s
		out = append(out, s)
		if s.ring != nil {
			m.rings++
		}
	}
	for _, s := range out {
		if s.ring == nil && m.rings < maxRings {
			s.ring = &usage.Ring{}
			m.rings++
		}
	}
	return out
}

// End returns the encoded report about a task that has ended, and forgets the task; nil: nothing is known. used is the CPU
// time of its processes as the kernel reported it at the end, and greatest the memory of the largest; 0: not known. For a
// task that ended before it was measured, the report contains only these two.
func (m *Meter) End(a job.Attempt, used time.Duration, greatest job.Size) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := usage.NewReport()
	if t := m.tasks[a]; t != nil {
		delete(m.tasks, a)
		r = t.report(used, greatest)
	}
	if r.Samples == 0 {
		if used <= 0 {
			return nil
		}
		r = atEnd(used, greatest)
	}
	b, err := r.Encode()
	if err != nil {
		m.log.Error("usage of a task is not reported", "attempt", a.String(), "error", err)
		return nil
	}
	return b
}

// TaskSample is the newest sample of a running task.
type TaskSample struct {
	Task

	CPUSeconds, Read, Written float64 // in all; NaN: not known
	Sample                    usage.Sample
}

// GPUSample is the newest sample of a GPU.
type GPUSample struct {
	UUID   string
	Sample usage.Sample
	Idle   time.Time // since when a task holds it without using it; zero: not idle, or not known
}

// Snapshot is the newest sample of everything. Values that are not known are NaN.
type Snapshot struct {
	Host  usage.Sample
	Tasks []TaskSample // in the order of their attempts
	GPUs  []GPUSample  // in the order of their UUIDs
}

// Latest returns the newest samples. It reads no file.
func (m *Meter) Latest() Snapshot {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := Snapshot{Host: m.host.newest}
	for _, t := range m.tasks {
		s.Tasks = append(s.Tasks, TaskSample{Task: t.clone(), CPUSeconds: t.cpu.total, Read: t.read.total, Written: t.written.total, Sample: t.newest})
	}
	slices.SortFunc(s.Tasks, func(a, b TaskSample) int { return compareAttempts(a.Attempt, b.Attempt) })
	s.GPUs = m.latestGPUs()
	return s
}

// Now returns the newest sample of the host; one with a zero time if there is none, or if it says nothing about now.
func (m *Meter) Now() usage.Sample {
	m.mu.Lock()
	defer m.mu.Unlock()
	if time.Since(m.host.newest.At) > hostStale {
		return usage.Sample{Values: usage.Unknown()}
	}
	return m.host.newest
}

// Running returns what is known of a running task: the report as it would be now, and the samples of the last hour,
// which are few if very many tasks run. It returns false for a task that does not run, or was not measured yet.
func (m *Meter) Running(a job.Attempt) (t TaskSample, r usage.Report, hour usage.Points, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.tasks[a]
	if s == nil || s.newest.At.IsZero() {
		return t, usage.NewReport(), hour, false
	}
	t = TaskSample{Task: s.clone(), CPUSeconds: s.cpu.total, Read: s.read.total, Written: s.written.total, Sample: s.newest}
	if s.ring != nil {
		hour = s.ring.Points(time.Now())
	}
	return t, s.report(0, 0), hour, true
}

// Host returns the samples of the last hour: those of the host, and those of each GPU, by UUID.
func (m *Meter) Host() (host usage.Points, gpus map[string]usage.Points) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	gpus = map[string]usage.Points{}
	for uuid, g := range m.gpus {
		gpus[uuid] = g.ring.Points(now)
	}
	return m.host.ring.Points(now), gpus
}
