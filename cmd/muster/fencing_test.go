package main

import (
	"strings"
	"testing"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/job"
)

// What happens to a task without contact is said in one sentence, also for tasks on nodes that do not fence them.
func TestShowSaysWhatHappensWithoutContact(t *testing.T) {
	spec := job.DefaultSpec()
	spec.Partition = job.PartitionFence
	on := func(fencing ...string) (tasks []api.Task) {
		for i, f := range fencing {
			tasks = append(tasks, api.Task{Node: "n" + string(rune('1'+i)), Fencing: f})
		}
		return tasks
	}
	for _, c := range []struct {
		tasks     []api.Task
		partition string
		requeue   bool
		want      string
	}{
		{on("yes", ""), job.PartitionFence, true, "a task that has had no contact with n9 for 5m ends on its node, and then it runs elsewhere (fence)"},
		{on("yes", "no", "unknown"), job.PartitionFence, true, "a task that has had no contact with n9 for 5m ends on its node; on n2, n3, of which that is not certain, it runs elsewhere only after that node is back, has rebooted or was declared dead (fence)"},
		{on("no"), job.PartitionFence, false, "a task that has had no contact with n9 for 5m ends on its node; on n1, of which that is not certain, it ends as NODE_FAIL only after that node is back, has rebooted or was declared dead (fence)"},
		{on("no"), job.PartitionHold, true, "a task goes on without contact; it runs elsewhere only after its node has said that it is gone or has restarted, or was declared dead (hold)"},
	} {
		s := spec
		s.Partition, s.Requeue = c.partition, c.requeue
		if got := ifSilent(api.Job{OwnerName: "n9", Spec: &s, Tasks: c.tasks}); got != c.want {
			t.Errorf("got %s\nwant\n%s", got, c.want)
		}
	}
}

func TestFencingOfANodeIsExplained(t *testing.T) {
	for word, want := range map[string]string{"yes": "yes: tasks end", "no": "no: tasks with --on-partition fence run elsewhere only", "": "unknown, its version does not say: tasks", "unknown": "unknown, its version does not say: tasks"} {
		if got := fencingText(word); !strings.HasPrefix(got, want) {
			t.Errorf("%q: got %s, want a text that begins with %s", word, got, want)
		}
	}
}
