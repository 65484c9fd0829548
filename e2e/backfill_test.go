//go:build e2e

package e2e

// Small jobs run before one that cannot start yet, and do not delay it.

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/api"
)

// eightGPUs starts two daemons that only schedule, and one with eight GPUs.
func eightGPUs(t *testing.T, more ...string) (amy, ben *daemon) {
	t.Helper()
	amy = newDaemon(t, "amy", "--no-worker").start()
	inv := amy.invite("--uses", "2")
	ben = newDaemon(t, "ben", "--no-worker").start(inv.flags()...)
	newDaemon(t, "cat", append([]string{"--gpus", "sim:8xH100-80GB", "--cpus", "4"}, more...)...).start(inv.flags()...)
	for _, d := range []*daemon{amy, ben} {
		d.untilNodes(3)
	}
	return amy, ben
}

// TestBackfillDelaysNoLargerJob has a job for eight GPUs wait for a GPU that a task with a time limit holds. Jobs that
// end before that run first. Jobs that would not, or that have no limit, wait.
func TestBackfillDelaysNoLargerJob(t *testing.T) {
	t.Parallel()
	amy, ben := eightGPUs(t)
	g := newGate(t)
	holder := amy.ok(append([]string{"submit", "-c", "0", "-G", "1", "-t", "10m", "--"}, g.script("exit 0")...)...)
	amy.untilState(holder, "RUNNING")
	big := amy.ok("submit", "-c", "0", "-G", "8", "-t", "5m", "--", "true")
	doc := amy.until(big, "PENDING with an estimated start", func(j api.Job) bool { return j.State == "PENDING" && j.Estimated != nil })
	if left := time.Until(*doc.Estimated); left < 9*time.Minute || left > 11*time.Minute {
		t.Errorf("got a start in %s, want about 10 min, by the limit", left)
	}

	long := amy.ok("submit", "-c", "0", "-G", "1", "-t", "20m", "--", "true")
	unlimited := ben.ok("submit", "-c", "0", "-G", "1", "--", "true")
	for _, d := range []*daemon{amy, ben} {
		for range 3 {
			d.untilState(d.ok("submit", "-c", "0", "-G", "2", "-t", "1m", "--", "sleep", "0.2"), "SUCCEEDED")
		}
	}
	for d, id := range map[*daemon]string{amy: long, ben: unlimited} {
		if doc := d.show(id); doc.State != "PENDING" || doc.Reason == "" {
			t.Errorf("a job that might delay it: got %s %s, want PENDING with a reason", doc.State, doc.Reason)
		}
	}

	for _, c := range []struct {
		d     *daemon
		args  []string
		words []string
	}{
		{amy, []string{"jobs", "--start"}, []string{"START", big, doc.Estimated.Local().Format("2006-01-02"), long, unlimited}},
		{ben, []string{"why", big}, []string{"Resources: ", "starts within ", " on cat, by the time limits", " or before"}},
		{ben, []string{"show", big}, []string{"PENDING", " or before"}},
		{amy, []string{"why", unlimited}, []string{"starts  ", "unknown"}},
	} {
		out := c.d.ok(c.args...)
		t.Logf("muster %s\n%s", strings.Join(c.args, " "), out)
		for _, w := range c.words {
			if !strings.Contains(out, w) {
				t.Errorf("muster %s: want %q, got\n%s", strings.Join(c.args, " "), w, out)
			}
		}
	}
	var why api.Explanation
	if err := json.Unmarshal([]byte(ben.ok("why", "--json", big)), &why); err != nil || why.Estimated == nil {
		t.Errorf("why --json: got %v, %+v, want an estimated start", err, why)
	}
	amy.fails(2, []string{"--start"}, "jobs", "--start", "--all")

	slow := ben.ok("submit", "-c", "0", "-G", "7", "-t", "8m", "--", "sleep", "3") // runs on all free GPUs
	ben.untilState(slow, "RUNNING")
	g.open()
	first := amy.untilState(big, "SUCCEEDED").Tasks[0].StartedAt
	for d, id := range map[*daemon]string{amy: long, ben: unlimited} {
		if at := d.untilState(id, "SUCCEEDED").Tasks[0].StartedAt; at.Before(*first) {
			t.Errorf("%s started %s before the job for eight GPUs, want after it", id, first.Sub(*at))
		}
	}
}

// TestUnknownStartKeepsGPUsInTurnsOnly has a job for eight GPUs whose start is unknown, because a task without a limit holds
// one. The other seven are kept for it in turns only.
func TestUnknownStartKeepsGPUsInTurnsOnly(t *testing.T) {
	t.Parallel()
	amy, ben := eightGPUs(t, "--set-aside", "4s")
	g := newGate(t)
	holder := amy.ok(append([]string{"submit", "-c", "0", "-G", "1", "--"}, g.script("exit 0")...)...)
	amy.untilState(holder, "RUNNING")
	big := ben.ok("submit", "-c", "0", "-G", "8", "--", "true")
	explained := func(words string) {
		t.Helper()
		until(ben, "why "+big, words, func() string { return ben.ok("why", big) }, func(s string) bool { return strings.Contains(s, words) })
	}
	explained("keeps what is free for it for ")
	if out := ben.ok("why", big); !strings.Contains(out, "unknown") {
		t.Errorf("why: got %s, want an unknown start", out)
	}
	small := amy.ok("submit", "-c", "0", "-G", "1", "--", "true")
	amy.untilState(small, "SUCCEEDED")
	if doc := ben.show(big); doc.State != "PENDING" {
		t.Errorf("the job for eight GPUs is %s, want PENDING", doc.State)
	}
	explained("lets others have what is free for ")
	g.open()
	ben.untilState(big, "SUCCEEDED")
	amy.fails(2, []string{"set-aside", "want"}, "daemon", "--set-aside", "0s")
}
