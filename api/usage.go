package api

// The routes of the usage of tasks and nodes. The owner of a job knows what its ended tasks have used; the host of a running
// task knows what the task uses.

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/url"
	"slices"
	"time"

	"github.com/musterhq/muster/internal/usage"
	"github.com/musterhq/muster/job"
)

type (
	taskUsageInput struct {
		ID   string `path:"id" maxLength:"64"`
		Task int    `path:"t" minimum:"0" maximum:"2147483647"`
	}
	attemptUsageInput struct {
		Attempt string `path:"attempt" maxLength:"64"`
	}
	nodeUsageInput struct {
		ID string `path:"id" maxLength:"128" doc:"The node's id, a unique part of it, or its name."`
	}
	taskUsageOutput struct{ Body TaskUsage }
	nodeUsageOutput struct{ Body NodeUsage }
)

// usageRoutes serves what was measured.
type usageRoutes struct {
	*daemons
	jobAccess

	usage Usage
}

// task serves the request as the owner of the job.
func (r *usageRoutes) task(ctx context.Context, in *taskUsageInput) (*taskUsageOutput, error) {
	j, err := r.may(ctx, partRow, in.ID, "show the usage of")
	if err != nil {
		return nil, err
	}
	t, err := taskOf(ctx, r.jobs, j, in.Task)
	if err != nil {
		return nil, err
	}
	d := TaskUsage{Schema: SchemaTaskUsage, Job: j.ID, Task: in.Task, Attempt: t.Attempt, State: t.State, NodeID: t.Node, Node: t.NodeName}
	switch {
	case t.Exit != nil:
		var report usage.Report
		if d.Used, report = usedOf(t.Exit.Usage); d.Used != nil {
			d.Life = lifeDocument(report, t.Exit.Began)
		}
	case t.Assigned && t.Node != "":
		a := job.Attempt{Job: j.ID, Task: t.Index, N: t.Attempt}
		now, err := r.running(ctx, t.Node, a)
		if err != nil && !errors.Is(err, ErrNotFound) { // not found: its host has just started it, or has an older version
			return nil, fmt.Errorf("usage of job %s: %w", in.ID, err)
		}
		if err == nil {
			d.Used, d.Life, d.Recent, d.Idle = now.Used, now.Life, now.Recent, now.Idle
		}
		if d.Life != nil && !t.Started.IsZero() {
			d.Life.Start = t.Started.UTC()
		}
	}
	return &taskUsageOutput{d}, nil
}

// running asks the host of a running attempt for its usage.
func (r *usageRoutes) running(ctx context.Context, node job.Peer, a job.Attempt) (TaskUsage, error) {
	if node == r.self {
		out, err := r.attempt(ctx, &attemptUsageInput{a.String()})
		if err != nil {
			return TaskUsage{}, err
		}
		return out.Body, nil
	}
	ctx, cancel := context.WithTimeout(ctx, fanWait)
	defer cancel()
	var d TaskUsage
	err := r.ask(ctx, node, "/peer/v1/attempts/"+a.String()+"/usage", url.Values{}, &d)
	return d, err
}

// attempt serves the request as the host of the attempt.
func (r *usageRoutes) attempt(ctx context.Context, in *attemptUsageInput) (*taskUsageOutput, error) {
	a, err := job.ParseAttempt(in.Attempt)
	if err != nil {
		return nil, bad("%w", err)
	}
	u, err := r.usage.Attempt(ctx, a)
	if err != nil {
		return nil, fmt.Errorf("usage of attempt %s: %w", a, err)
	}
	d := TaskUsage{Schema: SchemaTaskUsage, Job: a.Job, Attempt: a.N, State: job.Running, NodeID: r.self, Used: usedDocument(u.Report)}
	if len(u.Recent.At) > 0 {
		s := recentDocument(u.Recent)
		d.Recent = &s
		d.Life = lifeDocument(u.Report, s.Start)
	}
	for _, uuid := range slices.Sorted(maps.Keys(u.Idle)) {
		d.Idle = append(d.Idle, IdleGPU{UUID: uuid, Since: u.Idle[uuid].UTC(), Seconds: math.Round(time.Since(u.Idle[uuid]).Seconds())})
	}
	return &taskUsageOutput{d}, nil
}

// node serves the request as the node.
func (r *usageRoutes) node(ctx context.Context, _ *nodeUsageInput) (*nodeUsageOutput, error) {
	host, gpus, err := r.usage.Host(ctx)
	if err != nil {
		return nil, err
	}
	d := NodeUsage{Schema: SchemaNodeUsage, NodeID: r.self, Host: recentDocument(host), GPUs: []GPUUsage{}}
	for _, uuid := range slices.Sorted(maps.Keys(gpus)) {
		d.GPUs = append(d.GPUs, GPUUsage{UUID: uuid, Recent: recentDocument(gpus[uuid])})
	}
	return &nodeUsageOutput{d}, nil
}
