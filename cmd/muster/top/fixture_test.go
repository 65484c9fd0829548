package top

// A cluster for the tests: simulated GPUs, and the jobs on them.

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/job"
)

var noon = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

// fake is a daemon with hand-written documents.
type fake struct {
	nodes  []api.Node
	gpus   []api.GPU
	jobs   []api.Job
	events chan api.Event
	asked  []api.ListFilter // for GPUs
	ended  []api.Change
	broken error
}

func (f *fake) Events(ctx context.Context, _ api.EventFilter) iter.Seq2[api.Event, error] {
	return func(yield func(api.Event, error) bool) {
		if f.broken != nil {
			yield(api.Event{}, f.broken)
			return
		}
		if !yield(api.Event{Kind: api.EventOpen}, nil) {
			return
		}
		for {
			select {
			case e := <-f.events:
				if !yield(e, nil) {
					return
				}
			case <-ctx.Done():
				yield(api.Event{}, ctx.Err())
				return
			}
		}
	}
}

func (f *fake) ListNodes(context.Context, api.ListFilter) (l api.Listed[api.Node], err error) {
	l.Items, l.Bytes = f.nodes, 500*len(f.nodes)
	return l, f.broken
}

func (f *fake) ListGPUs(_ context.Context, filter api.ListFilter) (l api.Listed[api.GPU], err error) {
	f.asked = append(f.asked, filter)
	l.Items, l.Bytes, l.Tag = f.gpus, 230*len(f.gpus), "tag"
	return l, f.broken
}

func (f *fake) JobPages(context.Context, api.JobFilter) iter.Seq2[api.Listing[api.Job], error] {
	return func(yield func(api.Listing[api.Job], error) bool) {
		yield(api.Listing[api.Job]{Items: f.jobs}, f.broken)
	}
}

func (f *fake) Cancel(_ context.Context, id job.ID, x api.Change) (api.Job, error) {
	if f.ended = append(f.ended, x); id == "" {
		return api.Job{}, errors.New("no such job")
	}
	return api.Job{}, nil
}

func idOf(n int) job.ID { return job.ID(fmt.Sprintf("%010d-mdxchras0wg7e", n)) }

func peer(n int) job.Peer { return job.Peer(fmt.Sprintf("12D3KooW%044d", n)) }

// sim is a cluster of simulated GPUs: some busy, some idle, one set aside, and one of which nothing is known.
func sim() *fake {
	age := 0.2
	f := &fake{events: make(chan api.Event)}
	for n, state := range []api.NodeState{api.NodeReady, api.NodeReady, api.NodeDraining} {
		d := api.Node{ID: peer(n), Name: fmt.Sprintf("sim%d", n+1), State: state, CPUs: 64, Memory: 256 << 30, NodeLoad: api.NodeLoad{Running: new(2 - n)}, Hearing: api.Hearing{Age: &age}}
		d.Labels = map[string]string{"rack": fmt.Sprintf("r%d", n+1)}
		d.Free = api.NodeFree{CPUs: 48 + 8*n, Memory: (192 + 32*int64(n)) << 30}
		f.nodes = append(f.nodes, d)
		for i := range 4 {
			f.gpus = append(f.gpus, simGPU(n, i))
		}
	}
	f.nodes[2].Detail = "drained by amy: new power supply"
	f.gpus[7].Health, f.gpus[7].Detail = gpu.Unhealthy, "Xid 79: fell off the bus"
	f.gpus[11].Utilization, f.gpus[11].MemoryUsed, f.gpus[11].Temperature, f.gpus[11].Power = -1, -1, 0, 0
	f.jobs = []api.Job{
		running(1, "train", "amy", 0, 0, 1),
		running(2, "sweep", "ben", 1, 0),
		waiting(3, "later", "amy"),
		array(4, "grid", "cat"),
	}
	f.gpus[0].Jobs, f.gpus[1].Jobs, f.gpus[4].Jobs = []job.ID{idOf(1)}, []job.ID{idOf(1)}, []job.ID{idOf(2)}
	f.gpus[0].Free, f.gpus[1].Free, f.gpus[4].Free = 0, 0, 0.5
	return f
}

func simGPU(n, i int) api.GPU {
	read := noon.Add(-4 * time.Second)
	return api.GPU{
		NodeID: peer(n), Node: fmt.Sprintf("sim%d", n+1), UUID: fmt.Sprintf("GPU-sim-%d-%d", n, i), Index: i, Model: "Simulated NVIDIA H100 80GB", Class: "h100-80gb",
		Memory: 80 << 30, MemoryUsed: int64(8*(n*4+i)) << 29, Utilization: (n*4 + i) * 9, Health: gpu.Healthy, Simulated: true, Free: 1,
		GPUReading: api.GPUReading{Temperature: 30 + 5*(n*4+i), Power: 50 + float64(60*(n*4+i)), ReadAt: &read},
	}
}

func running(n int, name, user string, node int, gpus ...int) api.Job {
	began := noon.Add(-time.Duration(n) * 67 * time.Minute)
	t := api.Task{Job: idOf(n), State: job.Running, NodeID: peer(node), Node: fmt.Sprintf("sim%d", node+1), Attempt: 1, StartedAt: &began}
	return api.Job{
		ID: idOf(n), Name: name, User: user, State: job.Running, Priority: 50, Nodes: 1, SubmittedAt: began, StartedAt: &began, TaskCount: 1,
		Counts: map[job.State]int{job.Running: 1}, Tasks: []api.Task{t}, Resources: api.TaskNeed{CPUs: 8, GPUs: len(gpus), Memory: 32 << 30},
	}
}

func waiting(n int, name, user string) api.Job {
	t := api.Task{Job: idOf(n), State: job.Pending, Reason: "Resources"}
	return api.Job{
		ID: idOf(n), Name: name, User: user, State: job.Pending, Reason: "Resources", Priority: 50, Nodes: 1, SubmittedAt: noon.Add(-time.Minute), TaskCount: 1,
		Counts: map[job.State]int{job.Pending: 1}, Tasks: []api.Task{t}, Resources: api.TaskNeed{CPUs: 8, GPUs: 8},
	}
}

// array is a job whose tasks are not reported singly.
func array(n int, name, user string) api.Job {
	j := waiting(n, name, user)
	began := noon.Add(-30 * time.Second)
	j.State, j.Reason, j.TaskCount, j.Tasks, j.StartedAt = job.Running, "", 1000, nil, &began
	j.Counts = map[job.State]int{job.Running: 12, job.Pending: 900, job.Succeeded: 88}
	j.Resources = api.TaskNeed{CPUs: 1, GPUShare: 0.25}
	return j
}

// shown returns a model that has loaded the daemon's data, on a screen of this size.
func shown(f *fake, width, height int) *model {
	m := newModel("", time.Second)
	m.update(sized{width, height}, noon)
	m.update(opened{}, noon)
	l := feed{f}.load(context.Background(), func(msg any) {
		switch msg := msg.(type) { // as if they had arrived at noon
		case hosts:
			for _, list := range msg.devices {
				for _, d := range list {
					if d.reading.learnt != 0 {
						d.reading.learnt = instantOf(noon)
					}
				}
			}
			for _, n := range msg.nodes {
				n.seen = noon
			}
		case page:
			for _, w := range msg.jobs {
				if w.told != 0 {
					w.told = instantOf(noon.Add(-time.Minute))
				}
			}
		}
		m.update(msg, noon)
	})
	m.update(l, noon)
	m.update(measured{same: true}, noon)
	return m
}

// listAll makes the model list everything.
func listAll(m *model, f *fake, now time.Time) {
	m.update(feed{f}.load(context.Background(), func(msg any) { m.update(msg, now) }), now)
}

func keys(m *model, now time.Time, names ...string) (effects []any) {
	for _, k := range names {
		written := k
		if len([]rune(k)) > 1 {
			written = ""
		}
		effects = append(effects, m.update(pressed{k, written}, now)...)
	}
	return effects
}
