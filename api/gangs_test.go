package api

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/musterhq/muster/job"
)

// newGang returns a PENDING gang of this daemon, or an array of gangs.
func (d *daemon) newGang(n uint64, array string, nodes int) job.Job {
	j := d.newJob(n)
	j.Spec.Nodes = nodes
	j.Spec.Array = array
	l, err := j.Spec.Layout()
	if err != nil {
		d.cluster.t.Fatal(err)
	}
	j.Tasks = nil
	for i := range l.Tasks() {
		j.Tasks = append(j.Tasks, job.Task{Index: i, State: job.Pending})
	}
	return j
}

// Any daemon finds the tasks of gangs by index and rank.
func TestTasksOfGangsAreFoundByIndexAndRank(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben")
		amy, ben := c.daemons[0], c.daemons[1]
		gang, array := ben.newGang(1, "", 3), ben.newGang(2, "5,9-10", 2)
		gang.Spec.Name, array.Spec.Name = "mesh", "train.v2.sh" // mesh could be the beginning of an id
		gang, array = ben.put(gang), ben.put(array)
		for text, want := range map[string][]Task{
			string(gang.ID) + ".1-2": {{Task: 1, Rank: 1}, {Task: 2, Rank: 2}},
			string(array.ID) + ".9":  {{Task: 18, Index: 9}, {Task: 19, Index: 9, Rank: 1}},
			string(array.ID) + ".0-9.1": {
				{Task: 11, Index: 5, Rank: 1}, {Task: 19, Index: 9, Rank: 1},
			},
			"mesh.1-2":          {{Task: 1, Rank: 1}, {Task: 2, Rank: 2}},
			"train.v2.sh.9":     {{Task: 18, Index: 9}, {Task: 19, Index: 9, Rank: 1}},
			"train.v2.sh.5,9.1": {{Task: 11, Index: 5, Rank: 1}, {Task: 19, Index: 9, Rank: 1}},
		} {
			jobs, sel, err := amy.client.Resolve(t.Context(), text)
			if err != nil || len(jobs) != 1 {
				t.Fatalf("%s: got %v, %v, want one job", text, jobs, err)
			}
			var got []Task
			for x, err := range amy.client.AllTasks(t.Context(), jobs[0].ID, TaskFilter{Tasks: sel.Tasks}) {
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, Task{Task: x.Task, Index: x.Index, Rank: x.Rank})
			}
			if !slices.EqualFunc(got, want, func(a, b Task) bool { return a.Task == b.Task && a.Index == b.Index && a.Rank == b.Rank }) {
				t.Errorf("%s: got %+v, want %+v", text, got, want)
			}
		}
		for text, want := range map[string]error{
			string(gang.ID) + ".0.1": ErrBad, string(gang.ID) + ".3": ErrNotFound, string(array.ID) + ".9.2": ErrNotFound, string(array.ID) + ".6": ErrNotFound,
			string(array.ID) + ".1073741824": ErrNotFound,
			"mesh.3":                         ErrNotFound, "mesh.0.1": ErrBad, "mesh.2-1": ErrBad, "train.v2.sh.6": ErrNotFound, "train.v2.sh.9-5": ErrBad, "train.v2.sh.x": ErrNotFound, "train.v3.sh.9": ErrNotFound,
		} {
			if _, sel, err := amy.client.Resolve(t.Context(), text); !errors.Is(err, want) {
				t.Errorf("%s: got %+v, %v; want %v", text, sel, err, want)
			}
		}
	})
}

// The reason of a gang that failed names the member that failed.
func TestReasonOfAGangNamesTheFailedMember(t *testing.T) {
	of := func(nodes int, array string, tasks ...job.Task) Job {
		spec := job.DefaultSpec()
		spec.Nodes, spec.Array = nodes, array
		for i := range tasks {
			tasks[i].Index = i
		}
		return JobDocument(whole(job.Job{Spec: spec, Tasks: tasks}), 1)
	}
	failed := func(node string, e job.Exit) job.Task {
		return job.Task{State: e.State, NodeName: node, Exit: &e, Reason: job.Reason{Detail: e.Reason}}
	}
	ended := failed("n1", job.Exit{State: job.Cancelled, Code: 143, Signal: 15, Reason: "rank 1 on n2: exit code 3"})
	for want, j := range map[string]Job{
		"rank 1 on n2: exit code 3":      of(3, "", ended, failed("n2", job.Exit{State: job.Failed, Code: 3}), ended),
		"rank 1 on n2: signal 9":         of(2, "", ended, failed("n2", job.Exit{State: job.Failed, Code: 137, Signal: 9})),
		"rank 0 on n1: the disk is full": of(2, "", failed("n1", job.Exit{State: job.Failed, Code: 125, Reason: "the disk is full"}), ended),
		"rank 1: TIMEOUT":                of(2, "", ended, job.Task{State: job.Timeout}),
	} {
		if j.Reason != want || j.ReasonDetail != "" {
			t.Errorf("reason: got %q, want %q", j.Reason, want)
		}
	}
	for name, j := range map[string]Job{
		"array":     of(2, "0", ended, failed("n2", job.Exit{State: job.Failed, Code: 3})),
		"no gang":   of(0, "", failed("n2", job.Exit{State: job.Failed, Code: 3})),
		"cancelled": of(2, "", failed("n1", job.Exit{State: job.Cancelled, Reason: "enough"}), failed("n2", job.Exit{State: job.Cancelled, Reason: "enough"})),
	} {
		if strings.Contains(j.Reason, "rank") {
			t.Errorf("%s: got the reason %q, want none with a rank", name, j.Reason)
		}
	}
}
