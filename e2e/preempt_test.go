//go:build e2e

package e2e

// Tasks of a higher priority preempt tasks that allow it.

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/api"
)

// saver is a task that records a TERM, saves its work for a moment and ends. When it runs again it goes on at once.
const saver = `if [ "$MUSTER_PREEMPTED" = 1 ]; then echo goes on, attempt $MUSTER_ATTEMPT; exit 0; fi
trap 'echo got TERM; sleep 0.3; echo saved; exit 0' TERM
echo begins
while :; do sleep 0.1; done`

func TestHigherPriorityPreempts(t *testing.T) {
	amy, ben := pair(t)
	// Both hosts are full: each has a preemptible task, and one of them also a task that is not preemptible.
	low := amy.ok("submit", "-c", "4", "--preemptible", "--priority", "20", "-w", "ben", "--grace", "5s", "--", "sh", "-c", saver)
	g := newGate(t)
	kept := amy.ok(append([]string{"submit", "-c", "4", "--priority", "10", "-w", "amy", "--"}, g.script("exit 0")...)...)
	amy.untilState(low, "RUNNING")
	amy.untilState(kept, "RUNNING")
	until(amy, "output of "+low, "begun", func() string { return amy.muster("logs", low).stdout }, func(s string) bool { return strings.Contains(s, "begins") })

	// Neither a task of the same priority nor one that would not fit after that preempts anything.
	equal := amy.ok("submit", "-c", "4", "--priority", "20", "-w", "ben", "--", "true")
	amy.fails(3, []string{"cpus"}, "submit", "-c", "5", "--priority", "90", "--", "true")

	high := amy.ok("submit", "-c", "3", "--priority", "90", "--", "sh", "-c", "echo high; sleep 0.5")
	doc := amy.untilState(high, "SUCCEEDED")
	if doc.Tasks[0].Node != "ben" {
		t.Errorf("the high priority ran on %s, want ben", doc.Tasks[0].Node)
	}
	if doc := amy.show(kept); doc.State != "RUNNING" || doc.Tasks[0].Attempt != 1 {
		t.Errorf("the task that is not preemptible: got %+v, want RUNNING in attempt 1", doc)
	}
	end := amy.untilState(low, "SUCCEEDED")
	if end.Tasks[0].Attempt < 2 {
		t.Errorf("the preempted task: got %+v, want attempt 2 or later", end.Tasks[0])
	}
	if out := amy.ok("logs", low); !strings.Contains(out, "goes on, attempt "+strconv.Itoa(end.Tasks[0].Attempt)) {
		t.Errorf("its output: got %q, want that it goes on", out)
	}
	amy.untilState(equal, "SUCCEEDED")
	g.open()
	amy.untilState(kept, "SUCCEEDED")
	if log := ben.log(); strings.Contains(log, "defect") {
		t.Errorf("got a defect in the log, want none: %s", log)
	}
}

// A preemptible task with --no-requeue ends as PREEMPTED, and its reason names the job that preempted it.
func TestPreemptedTaskWithoutRequeueEnds(t *testing.T) {
	amy := newDaemon(t, "amy", "--gpus", "sim:2xH100-80GB", "--cpus", "4").start()
	low := amy.ok("submit", "-G", "2", "--preemptible", "--no-requeue", "--grace", "1s", "--", "sleep", "600")
	amy.untilState(low, "RUNNING")
	high := amy.ok("submit", "-G", "1", "--priority", "80", "--", "true")
	amy.untilState(high, "SUCCEEDED")
	doc := amy.until(low, "PREEMPTED", func(j api.Job) bool { return j.State == "PREEMPTED" })
	if !strings.Contains(doc.Reason, "preempted by job "+high) {
		t.Errorf("reason: got %q, want that job", doc.Reason)
	}
}

// A gang preempts on two hosts at once, or on none: while one host has a task that is not preemptible, the task of the
// other host gets no signal.
func TestGangPreemptsOnAllHostsOrNone(t *testing.T) {
	amy, ben := pair(t)
	held := newGate(t)
	said := newDiary(t)
	victim := func(host string) string {
		id := amy.ok("submit", "-c", "4", "--preemptible", "--priority", "20", "-w", host, "--grace", "5s", "--", "sh", "-c",
			"[ \"$MUSTER_PREEMPTED\" = 1 ] && exit 0; trap 'echo "+host+"-$MUSTER_ATTEMPT >>"+said.path+"; exit 0' TERM; echo begins; while :; do sleep 0.1; done")
		amy.untilState(id, "RUNNING")
		until(amy, "output of "+id, "begun", func() string { return amy.muster("logs", id).stdout }, func(s string) bool { return strings.Contains(s, "begins") })
		return id
	}
	onBen := victim("ben")
	kept := amy.ok(append([]string{"submit", "-c", "4", "--priority", "10", "-w", "amy", "--"}, held.script("exit 0")...)...)
	amy.untilState(kept, "RUNNING")

	// The gang would fit on ben only.
	gang := ben.ok("submit", "-N", "2", "-c", "3", "--priority", "90", "--", "sh", "-c", "echo rank $MUSTER_NODE_RANK")
	ben.untilDoc(gang, "waiting", func(j api.Job) bool { return j.State == "PENDING" && j.Reason != "" })
	span := 5 * time.Second
	if os.Getenv("MUSTER_E2E_FULL") != "" {
		span = offerRounds
	}
	checkFor(t, span, func() string {
		for _, id := range []string{onBen, kept} {
			if j := amy.show(id); j.State != "RUNNING" || j.Tasks[0].Attempt != 1 {
				return "task " + id + " is " + string(j.State) + ", attempt " + strconv.Itoa(j.Tasks[0].Attempt)
			}
		}
		return ""
	})
	if text := said.read(); text != "" {
		t.Fatalf("a task was signalled for nothing: got %q, want an empty text", text)
	}
	ben.ok("cancel", gang)

	// Now both hosts have a preemptible task.
	held.open()
	amy.untilState(kept, "SUCCEEDED")
	onAmy := victim("amy")
	gang = ben.ok("submit", "-N", "2", "-c", "3", "--priority", "90", "--", "sh", "-c", "echo rank $MUSTER_NODE_RANK")
	if r := amy.muster("wait", gang); r.code != 0 {
		t.Fatalf("the gang: exit %d, want 0: %s\n%s", r.code, r.stderr, amy.ok("show", gang))
	}
	for _, id := range []string{onAmy, onBen} {
		if end := amy.untilState(id, "SUCCEEDED"); end.Tasks[0].Attempt != 2 {
			t.Errorf("the preempted task ended as attempt %d, want 2", end.Tasks[0].Attempt)
		}
	}
	signalled := strings.Fields(said.read()) // the tasks that were signalled, with their attempts
	slices.Sort(signalled)
	if !slices.Equal(signalled, []string{"amy-1", "ben-1"}) {
		t.Errorf("signalled: got %q, want amy-1 and ben-1", signalled)
	}
	for _, d := range []*daemon{amy, ben} {
		if log := d.log(); strings.Contains(log, "defect") {
			t.Errorf("got a defect in the log, want none: %s", log)
		}
	}
}
