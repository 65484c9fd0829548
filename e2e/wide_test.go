//go:build e2e

package e2e

// A job for several GPUs starts though jobs for one GPU compete with it.

import (
	"fmt"
	"testing"
	"time"

	"github.com/musterhq/muster/api"
)

// offerRounds is longer than an offer stays queued at a host before its scheduler must renew it.
const offerRounds = 34 * time.Second

// smallJobs are jobs for one GPU each, submitted at two daemons in turn.
type smallJobs struct {
	at   []*daemon
	jobs []smallJob
}

type smallJob struct {
	at *daemon
	id string
}

// submit submits one more job, at the next of the daemons.
func (o *smallJobs) submit(command ...string) {
	at := o.at[len(o.jobs)%len(o.at)]
	o.jobs = append(o.jobs, smallJob{at, at.ok(append([]string{"submit", "-c", "0", "-G", "1", "--"}, command...)...)})
}

// started describes a job that no longer waits; empty if all wait.
func (o *smallJobs) started() string {
	for i, j := range o.jobs {
		if doc := j.at.show(j.id); doc.State != "PENDING" {
			return fmt.Sprintf("small job %d, submitted at %s, is %s", i+1, j.at.name, doc.State)
		}
	}
	return ""
}

// waiting returns the number of jobs that wait.
func (o *smallJobs) waiting() int {
	n := 0
	for _, j := range o.jobs {
		if j.at.show(j.id).State == "PENDING" {
			n++
		}
	}
	return n
}

// twoGPUs starts two daemons that only schedule, and one with two GPUs.
func twoGPUs(t *testing.T, more ...string) (amy, ben *daemon) {
	t.Helper()
	amy = newDaemon(t, "amy", "--no-worker").start()
	inv := amy.invite("--uses", "2")
	ben = newDaemon(t, "ben", "--no-worker").start(inv.flags()...)
	newDaemon(t, "cat", append([]string{"--gpus", "sim:2xH100-80GB", "--cpus", "4"}, more...)...).start(inv.flags()...)
	for _, d := range []*daemon{amy, ben} {
		d.untilNodes(3)
	}
	return amy, ben
}

// pending waits until the job waits for resources. Then it is in the queue.
func (d *daemon) pending(id string) {
	d.t.Helper()
	d.until(id, "PENDING for resources", func(j api.Job) bool { return j.State == "PENDING" && j.Reason == "Resources" })
}

// TestJobForTwoGPUsKeepsItsPlace checks that the GPU that becomes free first is kept for the first job in the queue
// until the other GPU is free as well, which is by the time limit of a task. That holds even if the job's offer must be
// renewed.
func TestJobForTwoGPUsKeepsItsPlace(t *testing.T) {
	t.Parallel()
	amy, ben := twoGPUs(t)
	var holders [2]string
	var gates [2]gate
	for i := range holders {
		gates[i] = newGate(t)
		holders[i] = amy.ok(append([]string{"submit", "-c", "0", "-G", "1", "-t", "10m", "--"}, gates[i].script("exit 0")...)...)
		amy.untilState(holders[i], "RUNNING")
	}
	wide := amy.ok("submit", "-c", "0", "-G", "2", "--", "true")
	amy.pending(wide)
	later := smallJobs{at: []*daemon{ben, amy}}
	for range 4 {
		later.submit("true")
	}
	for _, j := range later.jobs {
		j.at.until(j.id, "PENDING", func(d api.Job) bool { return d.State == "PENDING" })
	}
	gates[0].open()
	amy.untilState(holders[0], "SUCCEEDED")
	checkFor(t, offerRounds, later.started)
	gates[1].open()
	first := amy.untilState(wide, "SUCCEEDED").Tasks[0].StartedAt
	for i, j := range later.jobs {
		doc := j.at.untilState(j.id, "SUCCEEDED")
		if doc.Tasks[0].StartedAt.Before(*first) {
			t.Errorf("small job %d started %s before the job for two GPUs, want after it", i+1, first.Sub(*doc.Tasks[0].StartedAt))
		}
	}
}

// TestJobForTwoGPUsStartsInAStreamOfSmallJobs has small jobs of 36 s each, without time limits, that would never leave
// both GPUs free. Free GPUs are kept for the job for both in turns: the second turn begins 80 s after the job, and is
// longer than a small job runs.
func TestJobForTwoGPUsStartsInAStreamOfSmallJobs(t *testing.T) {
	atFullSize(t)
	amy, ben := twoGPUs(t, "--set-aside", "20s")
	for _, seconds := range []string{"18", "36"} { // so that they never end at the same time
		id := amy.ok("submit", "-c", "0", "-G", "1", "--", "sleep", seconds)
		amy.untilState(id, "RUNNING")
	}
	wide := ben.ok("submit", "-c", "0", "-G", "2", "--", "sleep", "1")
	ben.pending(wide)
	stream := smallJobs{at: []*daemon{amy, ben}}
	start := time.Now()
	untilRight(t, 4*time.Minute, func() string {
		if ben.show(wide).State != "PENDING" {
			return ""
		}
		for n := stream.waiting(); n < 3; n++ {
			stream.submit("sleep", "36")
		}
		return fmt.Sprintf("it waits, and %d small jobs have started", len(stream.jobs)-stream.waiting())
	})
	t.Logf("started after %s", time.Since(start).Round(time.Second))
	first := ben.untilState(wide, "SUCCEEDED").Tasks[0].StartedAt
	before := 0
	for i, j := range stream.jobs {
		untilRight(t, 3*time.Minute, func() string {
			if s := j.at.show(j.id).State; s != "SUCCEEDED" {
				return fmt.Sprintf("job %d is %s", i+1, s)
			}
			return ""
		})
		if at := j.at.show(j.id).Tasks[0].StartedAt; at.Before(*first) {
			before++
		}
	}
	if before > 8 {
		t.Errorf("%d small jobs started before the job for two GPUs, want at most 8", before)
	}
}
