//go:build e2e

package e2e

// Events of another daemon's jobs and nodes, and listings while events are followed.

import (
	"bufio"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/job"
)

// TestEventsShowJobsAndNodesOfOtherDaemons follows the events at one daemon while another one's jobs run, and reads
// listings in between.
func TestEventsShowJobsAndNodesOfOtherDaemons(t *testing.T) {
	t.Parallel()
	amy := newDaemon(t, "amy", "--gpus", "sim:2xH100-80GB", "--cpus", "8").start()
	ben := newDaemon(t, "ben", "--gpus", "none", "--no-worker").start(amy.invite().flags()...)
	amy.untilNodes(2)
	ben.untilNodes(2)

	if out := ben.ok("events"); out != "" {
		t.Errorf("got events before anything was followed: %s, want an empty text", out)
	}
	cmd := ben.client("events", "-f", "--since", "1m", "--jsonl")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	events := make(chan api.Event, 1000)
	go func() {
		defer close(events)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var e api.Event
			if json.Unmarshal(lines.Bytes(), &e) == nil {
				events <- e
			}
		}
	}()
	expect := func(what string, as func(e *api.Event) bool) api.Event {
		t.Helper()
		late := time.After(20 * time.Second)
		for {
			select {
			case e, more := <-events:
				if !more {
					t.Fatalf("the events ended before %s", what)
				}
				if as(&e) {
					return e
				}
			case <-late:
				t.Fatalf("no event of %s", what)
			}
		}
	}
	node := amy.peer()
	expect("amy's feed", func(e *api.Event) bool { return e.Kind == api.EventOpen && e.NodeID == node })

	var delays []time.Duration
	for range 20 {
		id := amy.ok("submit", "-G", "1", "--", "true")
		if !strings.Contains(amy.ok("jobs", "--all", "-q"), id) {
			t.Errorf("job %s is not listed by its own daemon", id)
		}
		ended := expect("the end", func(e *api.Event) bool { return e.Kind == api.EventJob && string(e.ID) == id && e.Job.Ended() })
		began := expect("the task", func(e *api.Event) bool {
			return e.Kind == api.EventTask && string(e.Task.Job) == id && e.Task.StartedAt != nil && e.Task.State.Ended()
		})
		delays = append(delays, ended.At.Sub(*ended.Job.EndedAt))
		if began.EventID == "" || ended.Job.State != job.Succeeded {
			t.Errorf("got %+v, want an ID and SUCCEEDED", ended)
		}
	}
	slices.Sort(delays)
	t.Logf("from the end of a task to its event at another daemon: p50 %s, max %s", delays[len(delays)/2], delays[len(delays)-1])

	id := amy.ok("submit", "-G", "2", "--", "sleep", "300")
	gpu := expect("a GPU", func(e *api.Event) bool { return e.Kind == api.EventGPU && e.GPU.Job == job.ID(id) })
	if gpu.GPU.Node != "amy" {
		t.Errorf("got %+v, want a GPU of amy", gpu.GPU)
	}
	ben.ok("cancel", id) // ben shows its own change at once
	if all := ben.ok("jobs", "-q"); strings.Contains(all, id) {
		t.Errorf("a cancelled job is still listed: got %s, want all without %q", ben.ok("jobs"), id)
	}
	ben.ok("node", "drain", "amy", "--reason", "fans")
	expect("the drain", func(e *api.Event) bool {
		return e.Kind == api.EventNode && e.Node.Drain != nil && e.Node.Drain.Reason == "fans"
	})
	amy.ok("node", "resume", "amy")

	if text := ben.ok("events", "--since", "10m", "--kind", "node"); !strings.Contains(text, "amy draining") {
		t.Errorf("events since: want amy draining, got\n%s", text)
	}
	amy.kill()
	expect("silence", func(e *api.Event) bool { return e.Kind == api.EventSilent && e.NodeID == node })
	ben.fails(2, []string{"kind", "member"}, "events", "--kind", "weather")
}
