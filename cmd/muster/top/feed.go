package top

// The feed: asks the daemon, and turns its answers and events into messages for the model.

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/job"
)

const (
	batchWait = 200 * time.Millisecond // for how long events are collected
	batchMost = 512
	tryAgain  = time.Second // after the client has given up
	pageSize  = 500
)

// feed asks a daemon.
type feed struct{ daemon Daemon }

// The fields that are requested. Links of GPUs and addresses of nodes are left out.
var (
	nodeFields    = []string{"id", "name", "state", "detail", "labels", "cpus", "memory", "free", "running", "age"}
	gpuFields     = []string{"node_id", "uuid", "index", "model", "class", "memory", "memory_used", "utilization", "temperature", "power", "read_at", "health", "detail", "simulated", "free", "job", "jobs"}
	readingFields = []string{"node_id", "uuid", "memory_used", "utilization", "temperature", "power", "read_at"}
	jobFields     = []string{"id", "name", "user", "state", "reason", "priority", "nodes", "submitted_at", "started_at", "ended_at", "resources", "task_count", "counts", "tasks", "age", "clock_ahead"}
)

// follow sends the events of the cluster until ctx ends. A stream that breaks is opened again.
func (f feed) follow(ctx context.Context, send func(any)) {
	events := make(chan api.Event, batchMost)
	go func() {
		defer close(events)
		for ctx.Err() == nil {
			f.events(ctx, events, send)
			pause(ctx, tryAgain)
		}
	}()
	for e := range events {
		batch := []api.Event{e}
		wait := time.NewTimer(batchWait)
	collect:
		for len(batch) < batchMost {
			select {
			case e, more := <-events:
				if !more {
					break collect
				}
				batch = append(batch, e)
			case <-wait.C:
				break collect
			}
		}
		wait.Stop()
		send(changes{batch})
	}
}

// events passes on the events of one stream.
func (f feed) events(ctx context.Context, to chan<- api.Event, send func(any)) {
	kinds := []api.EventKind{api.EventJob, api.EventNode, api.EventGPU, api.EventMember, api.EventGone}
	for e, err := range f.daemon.Events(ctx, api.EventFilter{Kinds: kinds}) {
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			send(silenced{err.Error()})
			return
		case e.NodeID == "" && e.Kind == api.EventSilent:
			send(silenced{e.Detail})
			continue
		case e.NodeID == "" && e.Kind == api.EventOpen:
			send(opened{})
			continue
		}
		select {
		case to <- e:
		case <-ctx.Done():
			return
		}
	}
}

// load lists everything. It sends the nodes and GPUs first, then pages of jobs, and returns the last message.
func (f feed) load(ctx context.Context, send func(any)) loaded {
	now := time.Now()
	nodes, err := f.daemon.ListNodes(ctx, api.ListFilter{Fields: nodeFields})
	if err != nil {
		return loaded{err: err}
	}
	gpus, err := f.daemon.ListGPUs(ctx, api.ListFilter{Fields: gpuFields})
	if err != nil {
		return loaded{err: err}
	}
	send(hostsOf(nodes, gpus.Items, now))
	const perJob = 700 // bytes, about
	l, jobs := loaded{bytes: nodes.Bytes + gpus.Bytes}, 0
	open := slices.DeleteFunc(job.States(), job.State.Ended)
	for answer, err := range f.daemon.JobPages(ctx, api.JobFilter{States: open, Fields: jobFields, Limit: pageSize}) {
		if err != nil {
			l.err = err
			return l
		}
		p := page{ahead: map[job.Group]float64{}}
		for i := range answer.Items {
			if jobs >= maxJobs {
				l.left = true
				break
			}
			if w := workOf(&answer.Items[i], now); w != nil {
				p.ahead[w.id.Group()] = answer.Items[i].ClockAhead
				p.jobs = append(p.jobs, w)
				jobs++
			}
			l.bytes += perJob
		}
		send(p)
		if l.left {
			break
		}
	}
	return l
}

func hostsOf(nodes api.Listed[api.Node], gpus []api.GPU, now time.Time) hosts {
	h := hosts{partial: clean(strings.Join(nodes.Partial, ", ")), age: seconds(nodes.Age), devices: make(map[job.Peer][]*device, len(nodes.Items))}
	for i := range nodes.Items {
		h.nodes = append(h.nodes, nodeOf(&nodes.Items[i], now))
	}
	for i := range gpus {
		d := deviceOf(&gpus[i])
		d.take(readingOf(&gpus[i], now))
		h.devices[gpus[i].NodeID] = append(h.devices[gpus[i].NodeID], d)
	}
	return h
}

// read asks for the readings of GPUs.
func (f feed) read(ctx context.Context, m measure) measured {
	l, err := f.daemon.ListGPUs(ctx, api.ListFilter{Fields: readingFields, Nodes: m.nodes, Tag: m.tag})
	return measured{gpus: l.Items, tag: l.Tag, same: l.Same, bytes: l.Bytes, err: err}
}

// cancel cancels a task, or all tasks of a job.
func (f feed) cancel(ctx context.Context, x cancel) notice {
	change := api.Change{Reason: "cancelled in muster top"}
	if x.task != whole {
		change.Tasks = []job.Range{{First: x.task, Last: x.task}}
	}
	if _, err := f.daemon.Cancel(ctx, x.id, change); err != nil {
		return notice{"cancel " + x.label + ": " + err.Error(), true}
	}
	return notice{x.label + " is cancelled", false}
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
