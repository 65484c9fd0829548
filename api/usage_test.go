package api

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/usage"
	"github.com/musterhq/muster/job"
)

// fakeUsage has the use of attempts that run at a daemon.
type fakeUsage map[job.Attempt]AttemptUsage

func (f fakeUsage) Attempt(_ context.Context, a job.Attempt) (AttemptUsage, error) {
	u, has := f[a]
	if !has {
		return u, fmt.Errorf("%w: it does not run here", ErrNotFound)
	}
	return u, nil
}

func (f fakeUsage) Host(context.Context) (usage.Points, map[string]usage.Points, error) {
	var r usage.Ring
	r.Add(usage.Sample{At: time.Now(), Values: used(3)})
	p := r.Points(time.Now())
	return p, map[string]usage.Points{"g": p}, nil
}

// used returns values of which only CPUs are known.
func used(cpus float64) usage.Values {
	v := usage.Unknown()
	v[usage.CPU] = cpus
	return v
}

// reportOf returns a report of some samples, 5 seconds apart.
func reportOf(cpus ...float64) usage.Report {
	f := usage.NewFold(time.Time{}, 5*time.Second)
	for i, x := range cpus {
		f.Add(usage.Sample{At: time.Time{}.Add(time.Duration(i) * 5 * time.Second), Values: used(x)})
	}
	r := f.Report()
	r.CPU = 40
	return r
}

// Any daemon returns the use of a task: from its host while it runs, and from the owner alone after its end.
func TestUsageOfATaskComesFromHostThenOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben", "cat")
		amy, ben, cat := c.daemons[0], c.daemons[1], c.daemons[2]
		j := ben.newJob(1)
		j.Tasks[0] = job.Task{State: job.Running, Attempt: 2, Assigned: true, Node: cat.peer, NodeName: "cat", Started: time.Now().Add(-time.Minute)}
		j = ben.put(j)
		ctx := t.Context()
		u, err := amy.client.TaskUsage(ctx, j.ID, 0)
		if err != nil || u.Used != nil || u.Life != nil || u.Recent != nil || u.Attempt != 2 {
			t.Fatalf("before it was measured: got %+v, %v, want nothing of attempt 2", u, err)
		}
		var hour usage.Ring
		hour.Add(usage.Sample{At: time.Now(), Values: used(2)})
		cat.used[job.Attempt{Job: j.ID, N: 2}] = AttemptUsage{
			Report: reportOf(1, 3), Recent: hour.Points(time.Now()), Idle: map[string]time.Time{"g": time.Now().Add(-time.Hour)},
		}
		u, err = amy.client.TaskUsage(ctx, j.ID, 0)
		if err != nil || u.Used == nil || *u.Used.CPUs != 2 || *u.Used.CPUSeconds != 40 || u.Used.GPU != nil || u.Used.ReadBytes != nil {
			t.Fatalf("while it runs: got %+v, %v, want CPUs only", u.Used, err)
		}
		if !u.Life.Start.Equal(*at(j.Tasks[0].Started)) || len(u.Life.CPUs) != 2 || *u.Life.CPUs[1] != 3 || u.Life.GPU != nil || len(u.Recent.At) != 1 || len(u.Idle) != 1 || u.Idle[0].Seconds != 3600 {
			t.Errorf("while it runs: got life %+v, recent %+v, idle %v, want 2, 1 and 1 entries", u.Life, u.Recent, u.Idle)
		}
		b, err := reportOf(1, 3).Encode()
		if err != nil {
			t.Fatal(err)
		}
		delete(cat.used, job.Attempt{Job: j.ID, N: 2})
		began := time.Now().Add(-time.Minute)
		j.Tasks[0].State, j.Tasks[0].Assigned = job.Succeeded, false
		j.Tasks[0].Exit = &job.Exit{State: job.Succeeded, Started: true, Began: began, Ended: time.Now(), Usage: string(b)}
		ben.put(j)
		close(cat.silent)
		u, err = amy.client.TaskUsage(ctx, j.ID, 0)
		if err != nil || u.Used == nil || *u.Used.CPUs != 2 || u.Recent != nil || !u.Life.Start.Equal(began) {
			t.Errorf("after its end, with a silent node: got %+v, %v, want the use of its life", u, err)
		}
		d, err := amy.client.Job(ctx, j.ID)
		if err != nil || d.Tasks[0].Used == nil || *d.Tasks[0].Used.CPUSeconds != 40 {
			t.Errorf("job: got %+v, %v, want 40 CPU seconds", d.Tasks, err)
		}
		l, err := amy.client.Jobs(ctx, JobFilter{})
		if err != nil || len(l.Items) != 1 || len(l.Items[0].Tasks) > 0 && l.Items[0].Tasks[0].Used != nil {
			t.Errorf("listing: got %+v, %v, want no use of tasks", l.Items, err)
		}
	})
}

// The node itself returns its use.
func TestUsageOfANodeComesFromTheNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben")
		amy, ben := c.daemons[0], c.daemons[1]
		var u NodeUsage
		if err := amy.client.call(t.Context(), "GET", "/v1/nodes/ben/usage", url.Values{}, nil, &u); err != nil {
			t.Fatal(err)
		}
		if u.NodeID != ben.peer || len(u.Host.At) != 1 || *u.Host.CPUs[0] != 3 || u.Host.Memory != nil || len(u.GPUs) != 1 || u.GPUs[0].UUID != "g" {
			t.Errorf("usage: got %+v, want one sample of the host and one GPU", u)
		}
		err := amy.client.call(t.Context(), "GET", "/v1/nodes/eve/usage", url.Values{}, nil, &u)
		if err == nil || !strings.Contains(err.Error(), "not found") {
			t.Errorf("of an unknown node: got %v, want not found", err)
		}
		close(ben.silent)
		for state, limit := range map[NodeState]time.Duration{NodeSuspect: forwardRead, NodeLost: 0} {
			amy.mu.Lock()
			amy.states[ben.peer] = state
			amy.mu.Unlock()
			began := time.Now()
			err := amy.client.call(t.Context(), "GET", "/v1/nodes/ben/usage", url.Values{}, nil, &u)
			if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "node ben") || time.Since(began) != limit {
				t.Errorf("of a node that is %s: got %v after %s, want ErrUnavailable after %s", state, err, time.Since(began), limit)
			}
		}
	})
}

// The use of a job is the sum of its tasks. What was held while the use is not known is shown separately.
func TestUsageOfAJobIsTheSumOfItsTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben")
		amy, ben := c.daemons[0], c.daemons[1]
		j := ben.newArray(1, "0-2499")
		j.Spec.Resources.CPUs, j.Spec.Project = 4, "vision"
		b, err := reportOf(1, 3).Encode() // 40 s of CPU time
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now().Add(-time.Hour)
		for i := range j.Tasks {
			x := &j.Tasks[i]
			x.State, x.Attempt, x.Started, x.Ended = job.Succeeded, 1, began, began.Add(20*time.Second)
			x.Exit = &job.Exit{State: job.Succeeded, Started: true, Began: began, Ended: x.Ended}
			if i%2 == 0 {
				x.Exit.Usage = string(b)
			}
		}
		j.Tasks[1] = job.Task{Index: 1, State: job.Cancelled} // it never ran
		j = ben.put(j)
		u, err := amy.client.JobUsage(t.Context(), j.ID)
		if err != nil {
			t.Fatal(err)
		}
		if u.Tasks != 2499 || u.Measured != 1250 || u.Seconds != 2499*20 || u.HeldCPU != 2499*80 || u.KnownCPU != 1250*80 || *u.UsedCPU != 1250*40 || u.Project != "vision" {
			t.Errorf("usage: got %+v, CPU %v, want the sums of 2499 tasks", u, *u.UsedCPU)
		}
		if u.UsedGPU != nil || u.MemoryPeak != nil || u.Read != nil || u.HeldGPU != 0 {
			t.Errorf("unknown values: got %+v, want none", u)
		}
	})
}

// The documents of nodes show what is in use now, with and without the picture and of one node; unknown values are
// null. A silent node has no known use.
func TestNodesReportWhatIsInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben")
		amy, ben := c.daemons[0], c.daemons[1]
		set := func(cpus float64) {
			ben.mu.Lock()
			defer ben.mu.Unlock()
			ben.now = usage.Sample{At: time.Now(), Values: used(cpus)}
			ben.now.Values[usage.Sent] = 1e6 + 0.4
		}
		of := func(how string) *NodeNow {
			t.Helper()
			l, err := amy.client.Nodes(t.Context())
			at := slices.IndexFunc(l.Items, func(n Node) bool { return n.ID == ben.peer })
			if err != nil || at < 0 {
				t.Fatalf("%s: got %+v, %v, want the node", how, l, err)
			}
			if u := l.Items[1-at].Usage; u != nil {
				t.Errorf("%s: got %+v, want nothing, because amy was not measured", how, u)
			}
			return l.Items[at].Usage
		}
		set(3.00049)
		check := func(how string, u *NodeNow, cpus float64) {
			t.Helper()
			if u == nil || u.CPUs == nil || *u.CPUs != cpus || u.Sent == nil || *u.Sent != 1e6 || u.Memory != nil || u.Received != nil || u.At.IsZero() {
				t.Errorf("%s: got %+v, want %v CPUs and 1e6 bytes sent", how, u, cpus)
			}
		}
		check("asked", of("asked"), 3)
		n, err := amy.client.Node(t.Context(), "ben")
		if err != nil {
			t.Fatal(err)
		}
		check("one node", n.Usage, 3)
		amy.makePicture(t)
		events := make(chan Event, 100)
		go func() {
			for e := range amy.client.Events(t.Context(), EventFilter{Kinds: []EventKind{EventNode, EventGPU}}) {
				events <- e
			}
		}()
		sleep(t.Context(), 2*time.Second)
		for len(events) > 0 {
			<-events
		}
		set(4)
		sleep(t.Context(), time.Second)
		check("from the picture", of("from the picture"), 4)
		if len(events) > 0 {
			t.Errorf("a measured value is an event: got %+v, want len(events) = 0", <-events)
		}
		close(ben.silent)
		ben.back.cut()
		sleep(t.Context(), 5*time.Second)
		if u := of("silent"); u != nil {
			t.Errorf("of a silent node: got %+v, want nothing", u)
		}
	})
}

// The utilization of a node is the mean of the GPUs that report it.
func TestUtilizationOfANodeIsTheMeanOfItsGPUs(t *testing.T) {
	now := time.Now()
	gpus := []GPU{{Utilization: 10}, {Utilization: -1}, {Utilization: 25}, {Utilization: 90, Health: gpu.Unknown}}
	for i := range gpus {
		gpus[i].ReadAt = &now
	}
	s := usage.Sample{At: now, Values: usage.Unknown()}
	if u := nodeNow(s, gpus, false); u == nil || u.GPU == nil || *u.GPU != 17.5 || u.CPUs != nil {
		t.Errorf("got %+v, want GPU 17.5", u)
	}
	for _, of := range [][]GPU{nil, gpus[1:2], gpus[3:], {{Utilization: 50}}} {
		if u := nodeNow(s, of, false); u == nil || u.GPU != nil {
			t.Errorf("%+v: got %+v, want no GPU", of, u)
		}
	}
	if u := nodeNow(s, gpus, true); u.GPU != nil {
		t.Errorf("released GPUs: got %+v, want no GPU", u)
	}
	if u := nodeNow(usage.Sample{}, gpus, false); u != nil {
		t.Errorf("never measured: got %+v, want nothing", u)
	}
}
