package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/musterhq/muster/job"
)

// summarize returns a story in a few words.
func summarize(events []JobEvent) (out []string) {
	for _, e := range events {
		text := string(e.Kind)
		if e.Task != nil {
			text += fmt.Sprintf(" %d.%d", *e.Task, e.Attempt)
		}
		for _, part := range []string{e.User, e.Node, e.Tasks, string(e.State), e.Reason} {
			if part != "" {
				text += " " + part
			}
		}
		out = append(out, text)
	}
	return out
}

// Any daemon returns the history of a job, in the order of cause and effect, whatever the clocks of the nodes say.
func TestHistoryOfAJobIsInCausalOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben", "cal")
		amy, ben, cal := c.daemons[0], c.daemons[1], c.daemons[2]
		j := ben.newJob(1)
		after := func(s int) time.Time { return j.Submitted.Add(time.Duration(s) * time.Second) }
		j.Acts = []job.Act{{Kind: job.ActHold, At: after(1), Reason: "look"}, {Kind: job.ActRelease, At: after(2)}, {Kind: job.ActRequeue, At: after(20), Tasks: []job.Range{{First: 0, Last: 0}}, More: true}}
		j.OlderActs = 5
		lost := job.Outcome{N: 2, Node: cal.peer, NodeName: "cal", Placed: after(3), Exit: job.Exit{State: job.NodeFail, Reason: "silent", Ended: after(9)}}
		failed := job.Outcome{N: 3, Node: ben.peer, NodeName: "ben", Placed: after(10), Exit: job.Exit{State: job.Failed, Code: 7, Started: true, Began: after(5), Ended: after(6)}} // ben's clock is late
		task := &j.Tasks[0]
		task.Earlier = &job.Earlier{Outcomes: []job.Outcome{lost, failed}, Older: 1}
		task.State, task.Attempt, task.Node, task.NodeName, task.Placed, task.Started, task.Assigned = job.Running, 4, amy.peer, "amy", after(21), after(22), true
		ben.put(j)
		l, err := amy.client.Story(t.Context(), j.ID, TaskFilter{})
		want := []string{
			"submitted " + j.User, "omitted what people asked for before", "omitted 0.0 earlier attempts", "held look", "released", "placed 0.2 cal", "ended 0.2 cal NODE_FAIL silent",
			"placed 0.3 ben", "started 0.3 ben", "ended 0.3 ben FAILED", "requeued 0,…", "placed 0.4 amy", "started 0.4 amy",
		}
		if got := summarize(l.Items); err != nil || !slices.Equal(got, want) || l.Next != "" {
			t.Errorf("got %q, %v\nwant %q", got, err, want)
		}
		if e := l.Items[9]; e.ExitCode == nil || *e.ExitCode != 7 || !e.At.Equal(after(6)) || l.Items[1].At != nil || l.Items[1].Count != 5 {
			t.Errorf("got %+v, want the times and counts of the attempts", l.Items)
		}

		exit := job.Exit{State: job.Succeeded, Started: true, Began: after(22), Ended: after(30)}
		task.State, task.Assigned, task.Exit, task.Ended, task.Reason = job.Succeeded, false, &exit, after(30), job.Reason{}
		ben.put(j)
		l, _ = amy.client.Story(t.Context(), j.ID, TaskFilter{})
		if got := summarize(l.Items); !slices.Equal(got[len(got)-2:], []string{"ended 0.4 amy SUCCEEDED", "ended SUCCEEDED"}) {
			t.Errorf("got %q, want the end of the task and of the job last", got)
		}
		if _, err := amy.client.Story(t.Context(), job.NewID(ben.group, 77), TaskFilter{}); !errors.Is(err, ErrNotFound) {
			t.Errorf("the history of an unknown job: got %v, want ErrNotFound", err)
		}
	})
}

// The history of a large array comes in pages. Events of the job as a whole are on the first page, and tasks that were
// never placed cost nothing.
func TestHistoryOfAnArrayComesInPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben")
		amy, ben := c.daemons[0], c.daemons[1]
		j := ben.newArray(1, "10-10000:10")
		for _, i := range []int{2, 500, 999} {
			x := &j.Tasks[i]
			x.State, x.Attempt, x.Node, x.NodeName, x.Placed, x.Assigned = job.Starting, 1, ben.peer, "ben", j.Submitted.Add(time.Second), true
		}
		ben.put(j)
		var pages [][]string
		f := TaskFilter{Limit: 2}
		for {
			l, err := amy.client.Story(t.Context(), j.ID, f)
			if err != nil {
				t.Fatal(err)
			}
			pages = append(pages, summarize(l.Items))
			if f.Cursor = l.Next; f.Cursor == "" {
				break
			}
		}
		if want := "[[submitted amy placed 30.1 ben placed 5010.1 ben] [placed 10000.1 ben]]"; fmt.Sprint(pages) != want {
			t.Errorf("got %v, want %s", pages, want)
		}
		l, err := amy.client.Story(t.Context(), j.ID, TaskFilter{Tasks: []job.Range{{First: 31, Last: 6000}}})
		if err != nil || fmt.Sprint(summarize(l.Items)) != "[placed 5010.1 ben]" {
			t.Errorf("of some tasks: got %v, %v, want task 5010", summarize(l.Items), err)
		}
		for _, q := range []string{"?cursor=-1", "?cursor=x", "?limit=251", "?tasks=nine"} {
			resp := amy.ask(t, http.MethodGet, "/v1/jobs/"+string(j.ID)+"/events"+q)
			if resp.StatusCode/100 != 4 {
				t.Errorf("%s: got status %d, want 4xx", q, resp.StatusCode)
			}
			resp.Body.Close()
		}
	})
}

// Only a job's user and operators can forget it, and only after it has ended.
func TestForgetNeedsTheUserAndAnEndedJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben")
		amy, ben := c.daemons[0], c.daemons[1]
		j := ben.put(running(ben.newJob(1), ben))
		if err := amy.client.Forget(t.Context(), j.ID); !errors.Is(err, ErrConflict) {
			t.Errorf("a running job: got %v, want ErrConflict", err)
		}
		j = ben.put(ended(j, job.Exit{State: job.Succeeded}))
		foreign := ben.newJob(2)
		foreign.User = "eve"
		ben.put(ended(running(foreign, ben), job.Exit{State: job.Succeeded}))
		if err := amy.client.Forget(t.Context(), foreign.ID); !errors.Is(err, ErrDenied) {
			t.Errorf("another user's job: got %v, want ErrDenied", err)
		}
		if err := amy.client.Forget(t.Context(), j.ID); err != nil {
			t.Errorf("a job that has ended: got %v, want no error", err)
		}
		for _, err := range []error{amy.client.Forget(t.Context(), j.ID), second(amy.client.Job(t.Context(), j.ID)), second(amy.client.Story(t.Context(), j.ID, TaskFilter{}))} {
			if !errors.Is(err, ErrNotFound) {
				t.Errorf("afterwards: got %v, want ErrNotFound", err)
			}
		}
	})
}

// One daemon asks all to query again, adds up their answers, and names those that are silent. False answers are
// bounded.
func TestQueryAllAddsUpAnswersAndNamesSilentDaemons(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben", "cal", "dan")
		amy, cal, dan := c.daemons[0], c.daemons[2], c.daemons[3]
		close(cal.silent)
		lie := Looked{Ended: -7, Tasks: -1, More: -1, Waiting: []WaitingFor{{Reason: job.ReasonResources, Tasks: -100}}}
		for i := range 1000 {
			lie.Placed = append(lie.Placed, Placed{Task: i})
			lie.Waiting = append(lie.Waiting, WaitingFor{Reason: fmt.Sprint(i)})
		}
		dan.mu.Lock()
		dan.lies = map[string]any{pathPeerSchedule: lie}
		dan.mu.Unlock()
		began := time.Now()
		d, err := amy.client.LookAnew(t.Context())
		if err != nil || d.Ended != 4 || d.Tasks != 2 || d.More != 0 || len(d.Placed) != 2+mostPlaced || len(d.Waiting) > 3+mostReasons || !slices.Equal(d.Partial, []string{"cal"}) {
			text, _ := json.Marshal(d)
			t.Errorf("got %v, want the bounded sums of two daemons, without cal: %.300s", err, text)
		}
		if d.Waiting[0].Reason != job.ReasonResources || d.Waiting[0].Tasks != 10 || d.Waiting[1].Reason != "of amy" {
			t.Errorf("the rest waits for: got %+v, want Resources for 10 tasks first", d.Waiting[:3])
		}
		if took := time.Since(began); took > anewWait {
			t.Errorf("it took %s, want at most %s", took, anewWait)
		}
		if resp := amy.ask(t, http.MethodPost, pathPeerSchedule); resp.StatusCode != http.StatusNotFound {
			t.Errorf("a client uses the route of daemons: status %d, want 404", resp.StatusCode)
		}
	})
}
