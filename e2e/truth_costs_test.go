//go:build e2e

package e2e

// The costs of the steps of a real cluster, measured on it for the simulation.

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/internal/sim"
	"github.com/musterhq/muster/internal/sim/load"
	"github.com/musterhq/muster/job"
)

// times are measured times.
type times []time.Duration

func (ts times) mean() time.Duration {
	sum := time.Duration(0)
	for _, t := range ts {
		sum += t
	}
	return sum / time.Duration(max(len(ts), 1))
}

// around returns the range with the mean and the deviation of the times, but not below 0.
func (ts times) around(mean time.Duration) sim.Range {
	squares := 0.0
	for _, t := range ts {
		squares += math.Pow(float64(t-ts.mean()), 2)
	}
	half := time.Duration(math.Sqrt(3 * squares / float64(max(len(ts), 1))))
	mean = max(mean, 0)
	half = min(half, mean)
	return sim.Range{Least: mean - half, Most: mean + half}
}

// probes is how many tasks are told to end.
const probes = 10

// measure returns the costs of the steps, and how much longer a task runs than it asked for. Most of it is measured
// while the load runs, with the machine as busy as it is then. None of the times includes waiting for free capacity.
func (c *devCluster) measure(l *truthLoad, jobs []submitted, docs []api.Job, owners []int) (costs sim.Costs, longer time.Duration) {
	c.t.Helper()
	var commits, asks, starts, rests, ends times
	for i, s := range jobs {
		commits, asks = append(commits, s.took), append(asks, s.asked)
		for _, x := range docs[i].Tasks {
			if x.Attempt == 1 {
				rests = append(rests, x.EndedAt.Sub(*x.StartedAt)-l.jobs[i].Runs)
			}
			if i < l.first && docs[i].TaskCount == 1 {
				starts = append(starts, x.StartedAt.Sub(s.at))
			}
		}
	}
	for i := range probes {
		var told time.Time
		_, doc := c.probe(owners[i%len(owners)], &load.Job{Spec: job.DefaultSpec(), Runs: time.Hour}, func(s submitted) {
			eventually(c.t, "the program of a task running", func() bool {
				_, err := os.Stat(filepath.Join(c.notes, fmt.Sprintf("%s.0.1", s.id)))
				return err == nil
			})
			told = time.Now()
			if _, err := c.clients[s.owner].Cancel(c.t.Context(), s.id, api.Change{}); err != nil {
				c.t.Fatal(err)
			}
		})
		ends = append(ends, doc.EndedAt.Sub(told))
	}
	syncs := syncTimes(c.t, filepath.Dir(c.sockets[0]))
	commit := max(commits.mean()-asks.mean(), syncs.mean()) // the additional time of a submission over another request
	costs.Sync, costs.Commit, costs.End = syncs.around(syncs.mean()), commits.around(commit), ends.around(ends.mean())
	// The time from the submission of a single job to its start consists of two entries of the journal, one write of
	// the worker, and the rest.
	costs.Start = starts.around(starts.mean() - 2*commit - syncs.mean())
	c.t.Logf("measured: submit %v, another request %v, submit to start %v, sync %v, end %v, a task runs %v longer", commits.mean(), asks.mean(), starts.mean(), syncs.mean(), ends.mean(), rests.mean())
	return costs, rests.mean()
}

// probe submits a job and returns it when it has ended.
func (c *devCluster) probe(owner int, x *load.Job, meanwhile func(submitted)) (submitted, api.Job) {
	c.t.Helper()
	s, err := c.submit(c.t.Context(), owner, x)
	if err != nil {
		c.t.Fatal(err)
	}
	meanwhile(s)
	docs, err := c.clients[owner].Wait(c.t.Context(), []job.ID{s.id}, func(api.Job) {})
	if err != nil {
		c.t.Fatal(err)
	}
	return s, docs[0]
}

// syncTimes measures appends to a file in a directory, each with fdatasync.
func syncTimes(t *testing.T, dir string) (ts times) {
	t.Helper()
	f, err := os.CreateTemp(dir, "sync-") // the disk of the daemons
	if err != nil {
		t.Fatal(err)
	}
	defer os.Remove(f.Name())
	defer f.Close()
	for range 200 {
		start := time.Now()
		_, err := f.Write(make([]byte, 300)) // a record of the worker's ledger
		if err == nil {
			err = unix.Fdatasync(int(f.Fd()))
		}
		if err != nil {
			t.Fatal(err)
		}
		ts = append(ts, time.Since(start))
	}
	return ts
}
