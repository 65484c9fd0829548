//go:build e2e

package e2e

// What a job asks of its nodes: constraints, preferences, lists of nodes, a begin time, and a node for itself.

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/api"
)

// racks starts three daemons with labels: n1 and n2 are in rack r1, n3 in rack r2. n2 has two joined GPUs.
func racks(t *testing.T) (n1, n2, n3 *daemon) {
	t.Helper()
	n1 = newDaemon(t, "n1", "--gpus", "none", "--cpus", "4", "--label", "rack=r1", "--label", "old=yes").start()
	inv := n1.invite("--uses", "2")
	n2 = newDaemon(t, "n2", "--gpus", "sim:2xH100-80GB", "--cpus", "8", "--label", "rack=r1").start(inv.flags()...)
	n3 = newDaemon(t, "n3", "--gpus", "none", "--cpus", "4", "--label", "rack=r2").start(inv.flags()...)
	for _, d := range []*daemon{n1, n2, n3} {
		d.untilNodes(3)
	}
	return n1, n2, n3
}

// nodeOf submits a job with these flags that prints its node, and returns the node after the job has succeeded.
func (d *daemon) nodeOf(flags ...string) string {
	d.t.Helper()
	id := d.ok(append(append([]string{"submit"}, flags...), "--", "true")...)
	return d.untilState(id, "SUCCEEDED").Tasks[0].Node
}

func TestConstraintsChooseNodes(t *testing.T) {
	t.Parallel()
	n1, n2, n3 := racks(t)
	for _, c := range []struct {
		flags []string
		want  string // any of these nodes
	}{
		{[]string{"-C", "rack=r1&!old"}, "n2"},
		{[]string{"-C", "rack=r2|gpu.count>=8"}, "n3"},
		{[]string{"-C", "gpu.memory>=40GB&gpu.cc>=9.0"}, "n2"},
		{[]string{"-C", "nvlink", "-G", "2"}, "n2"},
		{[]string{"-C", "!nvlink&rack=r1"}, "n1"},
		{[]string{"-C", "cpus>=8&os=" + runtime.GOOS + "&arch=" + runtime.GOARCH}, "n2"},
		{[]string{"-C", "name=n3"}, "n3"},
		{[]string{"--prefer", "rack=r2"}, "n3"},
		{[]string{"--prefer", "rack=r1:2,old:2,rack=r2:3"}, "n1"},
		{[]string{"--prefer", "rack=none", "-w", "n3"}, "n3"},
		{[]string{"-w", "n[2-9]", "-x", "n[1,3]"}, "n2"},
		{[]string{"-w", "n[03,3,7]"}, "n3"},
		{[]string{"-x", "n[1-2]"}, "n3"},
	} {
		for _, d := range []*daemon{n1, n3} { // at both daemons
			if got := d.nodeOf(c.flags...); got != c.want {
				t.Errorf("submitted to %s with %q: got a run on %s, want %s", d.name, c.flags, got, c.want)
			}
		}
	}

	// A node that does not fit is listed with the reason for each term.
	n2.fails(3, []string{
		"constraint gpu.cc>=9.0: met by 1 of 3 nodes (n[1,3]: has no GPU)",
		"constraint rack=r2: met by 1 of 3 nodes (n[1-2]: has rack=r1)",
		"constraint zone=eu: met by 0 of 3 nodes (n[1-3]: is not labelled zone",
	}, "submit", "-C", "gpu.cc>=9.0&rack=r2&zone=eu", "--", "true")
	n2.fails(2, []string{`at character 13: gpu.memory: size "40": a number needs a unit`}, "submit", "-C", "gpu.memory>=40", "--", "true")
	offers := n3.ok("offers", "--prefer", "rack=r2")
	if lines := strings.Split(offers, "\n"); !strings.Contains(offers, "n3: prefers rack=r2; ") || strings.Index(offers, "n3: ") > strings.Index(offers, "n1: ") {
		t.Errorf("offers: want the preferred node first, got\n%s", strings.Join(lines, "\n"))
	}

	// A preference does not make a job wait, although the preferred node is full.
	hold := n3.ok("submit", "-w", "n3", "-c", "4", "--", "sleep", "600")
	n3.untilState(hold, "RUNNING")
	if got := n3.nodeOf("--prefer", "rack=r2:100", "-c", "2"); got == "n3" {
		t.Error("a job ran on a full node")
	}
	n3.ok("cancel", hold)
}

func TestJobStartsAfterItsBeginTime(t *testing.T) {
	t.Parallel()
	n1, _, n3 := racks(t)
	id := n1.ok("submit", "--begin", "now+3s", "--", "true")
	submitted := time.Now()
	doc := n3.untilState(id, "PENDING")
	if doc.Reason != "BeginTime" || !strings.Contains(n3.ok("jobs"), "BeginTime") || !strings.Contains(n3.ok("show", id), "BeginTime: begins at 20") {
		t.Errorf("it waits for %s: got %s, want BeginTime", doc.Reason, doc.ReasonDetail)
	}
	// The daemon that owns the job is restarted while it waits.
	n1.kill()
	n1.start()
	doc = n1.untilState(id, "SUCCEEDED")
	if began := doc.StartedAt.Sub(*doc.Spec.Begin); began < 0 || began > 15*time.Second {
		t.Errorf("it started %s after its begin time, and %s after it was submitted, want at most 15 s after its begin time", began, doc.StartedAt.Sub(submitted))
	}
	past := n1.ok("submit", "--begin", "2020-01-01", "--", "true")
	n1.untilState(past, "SUCCEEDED")
	n1.fails(2, []string{"is more than a year ahead"}, "submit", "--begin", "2100-01-01", "--", "true")
	n1.fails(2, []string{`--begin: "soon": want a time such as 16:00`}, "submit", "--begin", "soon", "--", "true")
}

// A task that wants a node for itself starts although small tasks are submitted all the time, runs beside none of them,
// and has all GPUs. Time limits show when it can start; later tasks have none, and wait.
func TestExclusiveTaskStartsDespiteSmallTasks(t *testing.T) {
	t.Parallel()
	_, n2, n3 := racks(t)
	dir := t.TempDir()
	// Each task writes when it begins and ends, on the one host where all must run.
	note := func(name, work string) []string {
		return []string{"sh", "-c", fmt.Sprintf(`cd %s; echo begin %s >>log; %s; echo end %s >>log`, dir, name, work, name)}
	}
	submit := func(d *daemon, flags []string, command []string) string {
		return d.ok(append(append(append([]string{"submit", "-w", "n2"}, flags...), "--"), command...)...)
	}
	var ids []string
	for i := range 6 {
		ids = append(ids, submit([]*daemon{n2, n3}[i%2], []string{"-c", "2", "-t", "1m"}, note(fmt.Sprint("small", i), "until [ -e all-wait ]; do sleep 0.05; done")))
	}
	n2.untilState(ids[0], "RUNNING")
	alone := submit(n3, []string{"--exclusive", "-c", "1"}, note("alone", "sleep 1"))
	for i := range 6 {
		ids = append(ids, submit([]*daemon{n2, n3}[i%2], []string{"-c", "2"}, note(fmt.Sprint("late", i), "sleep 0.5")))
	}
	waiting := n3.until(alone, "waiting", func(j api.Job) bool { return j.Reason == "Resources" })
	if !strings.Contains(waiting.ReasonDetail, "other tasks on 1 of 1 nodes") {
		t.Errorf("it waits for %s, want other tasks on 1 of 1 nodes", waiting.ReasonDetail)
	}
	if err := os.WriteFile(filepath.Join(dir, "all-wait"), nil, 0o600); err != nil { // the small tasks may end
		t.Fatal(err)
	}
	done := n3.untilState(alone, "SUCCEEDED")
	if len(done.Tasks[0].GPUs) != 2 {
		t.Errorf("got the GPUs %v, want both", done.Tasks[0].GPUs)
	}
	for _, id := range ids {
		n2.untilState(id, "SUCCEEDED")
	}
	text, err := os.ReadFile(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	running, began := map[string]bool{}, false
	for line := range strings.Lines(string(text)) {
		what, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		if what == "end" {
			delete(running, name)
			continue
		}
		if running[name] = true; (name == "alone" || running["alone"]) && len(running) > 1 {
			t.Errorf("these ran together: got %v, want the exclusive task alone\n%s", running, text)
		}
		if began = began || name == "alone"; !began && strings.HasPrefix(name, "late") {
			t.Errorf("%s began before the exclusive task, which was first\n%s", name, text)
		}
	}
}
