package supervisor

// The tasks that have a process, for package meter and other callers.

import (
	"context"
	"fmt"
	"time"

	"github.com/musterhq/muster/job"
)

// Running is a task that has a process.
type Running struct {
	Attempt   job.Attempt
	PID       int       // of its main process
	Began     time.Time // zero: not known
	Group     string    // the directory in which its runner makes the control groups of tasks; empty: none
	Container bool
}

// Running lists the tasks that have a process. The error is ErrBusy, ErrClosed or that of ctx.
func (d *Driver) Running(ctx context.Context) ([]Running, error) {
	answer := make(chan []Running, 1)
	if err := d.inbox.put(func(s *state) { answer <- s.running() }); err != nil {
		return nil, err
	}
	select {
	case all := <-answer:
		return all, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("supervisor: list running tasks: %w", ctx.Err())
	}
}

func (s *state) running() []Running {
	all := make([]Running, 0, len(s.entries))
	for _, e := range s.entries {
		k := s.runners.links[e.runner]
		if k == nil || e.pid <= 0 {
			continue
		}
		all = append(all, Running{Attempt: e.attempt, PID: e.pid, Began: e.began, Group: k.cgroup, Container: k.role == containers})
	}
	return all
}
