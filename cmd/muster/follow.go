package main

// Following a job to its end, and the resulting exit code.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/job"
)

// follower follows jobs through one daemon.
type follower struct {
	streams
	client *api.Client
}

// follow copies both streams of a job until it ends, and exits with its code.
func (f follower) follow(ctx context.Context, j api.Job, out io.Writer) error {
	err := f.copyAndTell(ctx, j, out)
	return f.followed(ctx, j, err)
}

// copyAndTell copies both streams of a job until it ends, and tells why it has not started.
func (f follower) copyAndTell(ctx context.Context, j api.Job, out io.Writer) error {
	stop := f.tellWait(ctx, j.ID)
	defer stop()
	return f.copyOutput(ctx, j, out)
}

// followed finishes follow after the output was copied, with or without an error.
func (f follower) followed(ctx context.Context, j api.Job, err error) error {
	id := j.ID
	if ctx.Err() != nil {
		return exitError{exitCtrlC, fmt.Errorf("detached, the job goes on; to follow it again: muster logs -f %s; to end it: muster cancel %s", id, id)}
	}
	if err := f.waitFor(ctx, []chosen{{Job: j}}); err != nil {
		return err
	}
	if err != nil {
		return exitError{job.ExitMuster, fmt.Errorf("output of job %s: %w", id, err)}
	}
	return nil
}

// copyOutput follows a job. It copies each stream to its own destination, or both in the order of writing if the
// destination is the same.
func (f follower) copyOutput(ctx context.Context, j api.Job, out io.Writer) error {
	var mu sync.Mutex
	if j.Array != "" || j.Nodes > 1 {
		return f.copyAll(ctx, j, &mu, out)
	}
	id := j.ID
	defer f.tellStart(ctx, id, &mu)()
	if sameFile(out, f.err) {
		_, err := f.client.Logs(ctx, api.LogRequest{Job: id, Follow: true}, lockedWriter{&mu, out})
		return err
	}
	var copies sync.WaitGroup
	errs := make([]error, 2)
	for i, to := range []io.Writer{out, f.err} {
		copies.Go(func() {
			_, errs[i] = f.client.Logs(ctx, api.LogRequest{Job: id, Stream: []string{"stdout", "stderr"}[i], Follow: true}, lockedWriter{&mu, to})
		})
	}
	copies.Wait()
	return errors.Join(errs...)
}

// copyAll follows all tasks of an array or a gang.
func (f follower) copyAll(ctx context.Context, j api.Job, mu *sync.Mutex, out io.Writer) error {
	layout, _ := j.Layout() // without one, tasks have their numbers
	all := allLogs{client: f.client, job: j.ID, layout: layout, follow: true}
	if sameFile(out, f.err) {
		return all.copy(ctx, mu, out)
	}
	var copies sync.WaitGroup
	errs := make([]error, 2)
	for i, to := range []io.Writer{out, f.err} {
		copies.Go(func() {
			one := all
			one.stream = []string{"stdout", "stderr"}[i]
			errs[i] = one.copy(ctx, mu, to)
		})
	}
	copies.Wait()
	return errors.Join(errs...)
}

// sameFile reports whether both writers are the same file or terminal.
func sameFile(a, b io.Writer) bool {
	f, ok1 := a.(*os.File)
	g, ok2 := b.(*os.File)
	if !ok1 || !ok2 {
		return false
	}
	x, err1 := f.Stat()
	y, err2 := g.Stat()
	return err1 == nil && err2 == nil && os.SameFile(x, y)
}

// lockedWriter lets two streams write to one destination.
type lockedWriter struct {
	mu *sync.Mutex
	w  io.Writer
}

func (l lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// tellWait prints on a terminal, after a second, why a job has not started.
func (f follower) tellWait(ctx context.Context, id job.ID) (stop func() bool) {
	if !onTerminal(f.err) {
		return func() bool { return false }
	}
	return time.AfterFunc(time.Second, func() {
		j, err := f.client.Job(ctx, id)
		if err == nil && (j.State == job.Pending || j.State == job.Held) {
			fmt.Fprintf(f.err, "muster: job %s is %s (%s); more: muster why %s\n", id, j.State, withDetail(j.Reason, j.ReasonDetail), id)
		}
	}).Stop
}

// tellStart prints on a terminal, in one line that it updates, what keeps a task from starting, such as the layers of
// its image. stop waits until the line is gone.
func (f follower) tellStart(ctx context.Context, id job.ID, mu *sync.Mutex) (stop func()) {
	if !onTerminal(f.err) {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var told sync.WaitGroup
	told.Go(func() {
		shown := false
		_, _ = f.client.Wait(ctx, []job.ID{id}, func(j api.Job) { // an error costs only this line
			mu.Lock()
			defer mu.Unlock()
			switch starting := j.State == job.Starting && j.ReasonDetail != ""; {
			case starting:
				fmt.Fprintf(f.err, "\r\x1b[Kmuster: %s", printable(j.ReasonDetail))
				shown = true
			case shown:
				fmt.Fprint(f.err, "\r\x1b[K")
				shown = false
			}
			if j.State == job.Running || j.Ended() {
				cancel()
			}
		})
	})
	return func() { cancel(); told.Wait() }
}

// maxWaited bounds the jobs that one stream of events may name.
const maxWaited = 1000

// waitFor waits for jobs, or tasks of them, to end, and exits with the highest of their codes.
func (f follower) waitFor(ctx context.Context, all []chosen) error {
	var ids []job.ID
	for _, x := range all {
		if len(x.tasks) == 0 {
			ids = append(ids, x.ID)
		}
	}
	highest := 0
	note := func(who string, state job.State, why string, code int) {
		highest = max(highest, code)
		switch {
		case code != 0 && why != "":
			fmt.Fprintf(f.err, "muster: %s: %s: %s\n", who, state, why)
		case code == job.ExitMuster:
			fmt.Fprintf(f.err, "muster: %s: %s, and its owner does not say why\n", who, state)
		}
	}
	err := f.waitForJobs(ctx, ids, func(j api.Job) {
		code, _ := j.Exit()
		note("job "+string(j.ID), j.State, withDetail(j.Reason, j.ReasonDetail), code)
	})
	for _, x := range all {
		if err == nil && len(x.tasks) > 0 {
			err = f.waitForTasks(ctx, x, note)
		}
	}
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return exitError{job.ExitMuster, errors.New("the timeout has passed; the job goes on")}
	case ctx.Err() != nil:
		return exitError{exitCtrlC, errors.New("no longer waiting; the job goes on")}
	case err != nil:
		return ours(err)
	case highest != 0:
		return exitError{code: highest}
	}
	return nil
}

func (f follower) waitForJobs(ctx context.Context, ids []job.ID, ended func(api.Job)) error {
	var jobs []api.Job
	for some := range slices.Chunk(ids, maxWaited) {
		all, err := f.client.Wait(ctx, some, nil)
		if err != nil {
			return err
		}
		jobs = append(jobs, all...)
	}
	for _, j := range jobs {
		ended(j)
	}
	return nil
}

// waitForTasks waits for tasks of one job. It names the first that failed.
func (f follower) waitForTasks(ctx context.Context, x chosen, note func(who string, state job.State, why string, code int)) error {
	failed, err := f.client.WaitTasks(ctx, x.ID, x.tasks)
	for i, t := range failed {
		why := withDetail(t.Reason, t.ReasonDetail)
		if i >= maxErrors {
			why = ""
		}
		code, _ := t.Exit()
		note(fmt.Sprintf("task %s.%s", x.ID, taskName(x.Job, t.Task)), t.State, why, code)
	}
	return err
}
