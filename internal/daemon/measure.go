package daemon

// The metrics that are computed at each scrape from what this host and the schedulers of this daemon know.
// See docs/adr, ADR 138.

import (
	"context"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/internal/hostinfo"
	"github.com/musterhq/muster/internal/metrics"
	"github.com/musterhq/muster/internal/usage"
	"github.com/musterhq/muster/job"
	schedulerloop "github.com/musterhq/muster/scheduler/loop"
	"github.com/musterhq/muster/scheduler/step"
	"github.com/musterhq/muster/worker/meter"
)

const (
	// measureWait bounds a scrape. A loop that does not answer in this time has no series.
	measureWait = 2 * time.Second
	// statusOld is the age at which the status of a GPU is too old to report. The status is read every statusEvery, but not
	// on a drained host.
	statusOld = time.Minute
)

// measurer collects the metrics of this daemon.
type measurer struct {
	node    nodeBackend
	peers   peersBackend
	owners  owners
	dataDir string
	meter   *meter.Meter
	most    int // bounds the tasks with series of their own
	asking  atomic.Bool
}

var _ api.Metrics = (*measurer)(nil)

// measurer returns the measurer of this daemon.
func (n *Node) measurer() *measurer {
	return &measurer{
		node: nodeBackend{n.host, n.hw.gpus, n.exec.work, n.exec.drains, n.exec.meter, n.clocks, n.log}, meter: n.exec.meter,
		peers: peersBackend{n.host, n.cfg.Name, n.now, n.owners.home, n.net.router.departed}, owners: n.owners,
		dataDir: n.cfg.DataDir, most: n.cfg.MetricsTasks,
	}
}

// Collect sends the metrics as they are now.
func (m *measurer) Collect(ctx context.Context, sees func(user string) bool, to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(ctx, measureWait)
	defer cancel()
	own := m.peers.host.Credential()
	s := metrics.Sample{Use: useOf(m.meter.Latest(), time.Now()), Members: m.peers.states(), CredentialEnd: own.NotAfter, InvitersEnd: own.InvitersEnd()}
	m.host(ctx, sees, &s)
	m.schedulers(ctx, &s)
	s.Collect(to)
}

// useOf returns the newest measurements, without those that are older than statusOld.
func useOf(newest meter.Snapshot, now time.Time) *metrics.Use {
	u := &metrics.Use{Host: metrics.UnknownHost, Tasks: make(map[job.Attempt]metrics.TaskUse, len(newest.Tasks))}
	if v := &newest.Host.Values; now.Sub(newest.Host.At) < statusOld {
		u.Host = metrics.HostUse{
			CPUs: v[usage.CPU], Memory: v[usage.Memory], Read: v[usage.Read], Written: v[usage.Write], Received: v[usage.Received], Sent: v[usage.Sent],
		}
	}
	for i := range newest.Tasks {
		t := &newest.Tasks[i]
		if v := &t.Sample.Values; now.Sub(t.Sample.At) < statusOld {
			u.Tasks[t.Attempt] = metrics.TaskUse{CPUSeconds: t.CPUSeconds, Memory: v[usage.Memory], Read: t.Read, Written: t.Written, Processes: v[usage.PIDs]}
		}
	}
	return u
}

// host adds the metrics of this host: its resources, the free part of them, and its running tasks.
func (m *measurer) host(ctx context.Context, sees func(user string) bool, s *metrics.Sample) {
	info, err := m.node.Node(ctx)
	if err != nil {
		return
	}
	records, err := m.node.work.Attempts(ctx)
	if err != nil {
		return
	}
	queued, err := m.node.work.View(ctx)
	if err != nil {
		return
	}
	p := &info.Profile
	n := &metrics.Node{
		ID: string(p.Peer), Name: p.Name, Version: p.Version, Arch: p.Arch, OS: p.OS,
		Ready: p.Worker && info.State == api.NodeReady, Draining: info.Drain != nil,
		CPUs: p.CPUs, CPUsAllocated: p.CPUs - info.Free.CPUs, Memory: p.Memory, MemoryAllocated: p.Memory - info.Free.Memory,
		Running: info.Running, Queued: queued.Queued, GPUsSetAside: len(info.Quarantined),
	}
	s.GPUs = gpusOf(&info)
	for _, g := range s.GPUs {
		n.GPUsAllocated += g.Allocated
	}
	if free, ok := m.diskFree(ctx); ok {
		n.Disk, n.DiskFree = p.Disk, free
	}
	s.Node = n
	for i := range records {
		switch r := &records[i]; {
		case r.Phase != contract.PhaseStarted || r.Exit != nil:
		case !sees(r.User):
		case len(s.Tasks) == m.most:
			n.TasksUnlisted++
		default:
			s.Tasks = append(s.Tasks, taskOf(r))
		}
	}
}

// taskOf returns a running task. In an array its number is the index that people use.
func taskOf(r *contract.Record) metrics.Task {
	number := r.Attempt.Task
	if r.Element.Array {
		number = r.Element.Index
	}
	return metrics.Task{
		Attempt: r.Attempt, Task: strconv.Itoa(number), User: r.User, Started: r.Started, CPUs: r.Need.CPUs, Memory: r.Need.Memory, GPUs: r.Devices,
	}
}

// gpusOf returns the GPUs of the host with their newest status, unless that is old.
func gpusOf(info *api.NodeInfo) []metrics.GPU {
	current := !info.Released && time.Since(info.Read) < statusOld
	gpus := make([]metrics.GPU, 0, len(info.Profile.GPUs))
	for _, d := range info.Profile.GPUs {
		g := metrics.GPU{Device: d, Allocated: 1, SetAside: info.Quarantined[d.UUID] != ""}
		for _, free := range info.Free.GPUs {
			if free.UUID == d.UUID {
				g.Allocated -= float64(free.Milli) / 1000
			}
		}
		if i := slices.IndexFunc(info.Status, func(x gpu.Status) bool { return x.UUID == d.UUID }); i >= 0 && current {
			g.Status = &info.Status[i]
		}
		gpus = append(gpus, g)
	}
	return gpus
}

// diskFree returns the free space of the data directory, or false if the file system does not answer before ctx ends.
// While a file system hangs, it is not asked again.
func (m *measurer) diskFree(ctx context.Context) (job.Size, bool) {
	if m.asking.Swap(true) {
		return 0, false
	}
	answer := make(chan job.Size, 1)
	go func() {
		defer m.asking.Store(false)
		if free, err := hostinfo.DiskFree(ctx, m.dataDir); err == nil {
			answer <- free
		}
		close(answer)
	}()
	select {
	case free, ok := <-answer:
		return free, ok
	case <-ctx.Done():
		return 0, false
	}
}

// schedulers adds up the numbers of all owners of this daemon. A daemon that accepts no jobs has no owners.
func (m *measurer) schedulers(ctx context.Context, s *metrics.Sample) {
	if len(m.owners.by) == 0 {
		return
	}
	counts := map[job.State]int{}
	for _, state := range job.States() {
		counts[state] = 0
	}
	sum := &metrics.Totals{Offers: map[string]uint64{}, Ended: map[job.State]uint64{}}
	for _, o := range m.owners.by {
		jobs, err := o.Counts(ctx)
		if err != nil {
			return
		}
		totals, err := schedulerloop.TotalsOf(ctx, o.Loop)
		if err != nil {
			return
		}
		for state, n := range jobs {
			counts[state] += n
		}
		for result, n := range totals.Offers {
			sum.Offers[string(result)] += n
		}
		for state, n := range totals.Ended {
			sum.Ended[state] += n
		}
		add(&sum.Queued, &totals.Queued)
		add(&sum.Started, &totals.Started)
	}
	s.Jobs, s.Totals = counts, sum
}

// add adds the durations that one scheduler has measured.
func add(sum *metrics.Histogram, d *step.Durations) {
	if sum.Counts == nil {
		sum.Bounds, sum.Counts = step.Bounds[:], make([]uint64, len(d.Counts))
	}
	for i, n := range d.Counts {
		sum.Counts[i] += n
	}
	sum.Sum += d.Sum.Seconds()
}
