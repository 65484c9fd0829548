package daemon

// The files that say which jobs hold each GPU, for other programs that measure GPUs.

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/metrics/jobfiles"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker"
	"github.com/musterhq/muster/worker/loop"
)

const (
	// jobFilesEvery is how often the files are compared with the worker. Other programs read them every few seconds.
	jobFilesEvery = time.Second
	// jobFilesAgain is how often the files are written even without a change, in case somebody has removed some.
	jobFilesAgain = time.Minute
)

// jobFiles keeps a directory with a file for each GPU, which lists the jobs that hold the GPU.
type jobFiles struct {
	dir  string
	work viewer
	log  *slog.Logger

	written map[string][]job.ID // what the files say; nil: not known
	at      time.Time           // when they were last written; zero: not yet by this process
	began   time.Time
	failing bool
}

// viewer is the part of the worker that knows who holds which GPU.
type viewer interface {
	View(ctx context.Context) (worker.View, error)
}

var _ viewer = (*loop.Loop)(nil)

// run keeps the files up to date until ctx ends. The files stay after that, because the tasks run on.
func (f *jobFiles) run(ctx context.Context) error {
	f.began = time.Now()
	tick := time.NewTicker(jobFilesEvery)
	defer tick.Stop()
	for {
		f.look(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// look writes the files if something has changed, or if jobFilesAgain has passed. If the worker does not answer, it leaves
// them as they are.
func (f *jobFiles) look(ctx context.Context) {
	timed, cancel := context.WithTimeout(ctx, measureWait)
	defer cancel()
	v, err := f.work.View(timed)
	if err != nil {
		return
	}
	if f.at.IsZero() && time.Since(f.began) < listTimeout && unlisted(v) {
		return // the driver has not listed the GPUs yet, and the files of the previous daemon are still right
	}
	held := jobsOfGPUs(v)
	if f.written != nil && maps.EqualFunc(held, f.written, slices.Equal) && time.Since(f.at) < jobFilesAgain {
		return
	}
	err = jobfiles.Write(f.dir, held)
	switch {
	case err != nil && !f.failing:
		f.log.ErrorContext(ctx, "the files of the jobs that hold GPUs are not true", "directory", f.dir, "error", err)
	case err == nil && f.failing:
		f.log.InfoContext(ctx, "the files of the jobs that hold GPUs are true again", "directory", f.dir)
	}
	f.failing, f.written, f.at = err != nil, held, time.Now()
	if err != nil {
		f.written = nil
	}
}

// unlisted reports whether tasks hold GPUs that are not listed.
func unlisted(v worker.View) bool {
	for uuid := range v.Holders {
		if !slices.ContainsFunc(v.Profile.GPUs, func(d gpu.Device) bool { return d.UUID == uuid }) {
			return true
		}
	}
	return false
}

// jobsOfGPUs returns the jobs that hold each GPU, by the name of the GPU's file. The jobs are sorted and without duplicates.
func jobsOfGPUs(v worker.View) map[string][]job.ID {
	held := map[string][]job.ID{}
	for _, d := range v.Profile.GPUs {
		name := jobfiles.Name(d)
		if name == "" {
			continue
		}
		for _, text := range v.Holders[d.UUID] {
			if a, err := job.ParseAttempt(text); err == nil && !slices.Contains(held[name], a.Job) {
				held[name] = append(held[name], a.Job)
			}
		}
		slices.Sort(held[name])
	}
	return held
}
