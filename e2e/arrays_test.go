//go:build e2e

package e2e

// Arrays: thousands of tasks of one job over three daemons, and an array of a million.

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/job"
)

const (
	atOnce    = 64    // active tasks of the array
	badEvery  = 97    // each task whose index has the remainder 5 fails, until it is repaired
	unwanted  = 100   // tasks at the end that are cancelled before they run
	mostRSS   = 110e6 // of a daemon at any time, in bytes
	arrayTime = 2 * time.Minute
)

// arrayTasks returns the number of tasks of the array.
func arrayTasks() int {
	if os.Getenv("MUSTER_E2E_FULL") != "" {
		return 10_000
	}
	return 2_000
}

// trio starts three daemons without GPUs, each too small for all active tasks.
func trio(t *testing.T) []*daemon {
	t.Helper()
	args := []string{"--gpus", "none", "--cpus", strconv.Itoa(atOnce/3 + 1), "--log-level", "info"}
	amy := newDaemon(t, "amy", args...).start()
	inv := amy.invite("--uses", "2")
	all := []*daemon{amy, newDaemon(t, "ben", args...).start(inv.flags()...), newDaemon(t, "cat", args...).start(inv.flags()...)}
	for _, d := range all {
		d.untilNodes(3)
	}
	return all
}

// doc returns the document of a job of any number of tasks.
func (d *daemon) doc(selector string) (j api.Job) {
	d.t.Helper()
	text := d.ok("show", selector, "--json")
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		d.t.Fatalf("show %s: %v\n%.500s", selector, err, text)
	}
	return j
}

// checkMemory checks the highest memory of the daemons, and logs what it consists of now. Pages of the program's file are
// shared by all daemons of a host.
func checkMemory(t *testing.T, all []*daemon, when string) {
	t.Helper()
	for _, d := range all {
		peak, anon, file := memory(t, d, "VmHWM"), memory(t, d, "RssAnon"), memory(t, d, "RssFile")
		t.Logf("%s: %s had at most %.0f MB, and has %.0f MB and %.0f MB of the program", when, d.name, peak/1e6, anon/1e6, file/1e6)
		if peak > mostRSS {
			t.Errorf("%s: %s: got %.0f MB of memory, want at most %.0f", when, d.name, peak/1e6, mostRSS/1e6)
		}
	}
}

// memory returns a figure of a daemon's memory, in bytes.
func memory(t *testing.T, d *daemon, name string) float64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", d.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		n := 0
		if _, err := fmt.Sscanf(line, name+": %d kB", &n); err == nil {
			return float64(n << 10)
		}
	}
	t.Fatalf("got no %s", name)
	return 0
}

// runs returns the attempts of each index that have run.
func runs(t *testing.T, dir string) map[int][]int {
	t.Helper()
	attempts := map[int][]int{}
	text, err := os.ReadFile(filepath.Join(dir, "ran"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var index, task, attempt int
		if _, err := fmt.Sscan(line, &index, &task, &attempt); err != nil || index != task {
			t.Fatalf("a task has written %q: got %v, want its index and attempt", line, err)
		}
		attempts[index] = append(attempts[index], attempt)
	}
	return attempts
}

const arrayScript = `#!/bin/sh
echo $MUSTER_ARRAY_INDEX $MUSTER_TASK $MUSTER_ATTEMPT >>ran
echo "index $MUSTER_ARRAY_INDEX"
[ $((MUSTER_ARRAY_INDEX % 97)) -ne 5 ] || [ -e repaired ] || exit 3
`

func TestEachElementOfAnArrayRunsOnce(t *testing.T) {
	t.Parallel()
	all := trio(t)
	amy, ben, cat := all[0], all[1], all[2]
	dir, n := t.TempDir(), arrayTasks()
	if err := os.WriteFile(filepath.Join(dir, "work.sh"), []byte(arrayScript), 0o755); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	id := amy.ok("submit", "-J", "work", "-D", dir, "--array", fmt.Sprintf("0-%d%%%d", n-1, atOnce), "--", "./work.sh")
	cut := fmt.Sprintf("%s.%d-%d", id, n-unwanted, n-1)
	ben.ok("cancel", cut)
	if j := ben.doc(cut); j.Counts[job.Cancelled] != unwanted || len(j.Tasks) != unwanted || j.Tasks[0].Task != n-unwanted || j.Tasks[0].State != job.Cancelled {
		t.Errorf("after a cancel of %s: got %v and %d tasks, want the last 100 cancelled", cut, j.Counts, len(j.Tasks))
	}
	seen := watchProgress(t, cat, id)
	wanted := fmt.Sprintf("%s.0-%d", id, n-unwanted-1)
	if r := ben.musterPatiently("wait", wanted); r.code != 3 || strings.Count(r.stderr, "\n") > 5 {
		t.Errorf("wait %s: exit %d, want 3 in few lines: %s", wanted, r.code, r.stderr)
	}
	took := time.Since(start)
	t.Logf("%d tasks in %.1f s: %.0f a second", n-unwanted, took.Seconds(), float64(n-unwanted)/took.Seconds())
	if got := seen(); len(got) < 2 {
		t.Errorf("the progress in `muster jobs`: got %q, want at least 2 values", got)
	}
	checkMemory(t, all, "after the array")

	bad := (n - unwanted - 5 + badEvery - 1) / badEvery
	attempts := runs(t, dir)
	for i := range n - unwanted {
		if len(attempts[i]) != 1 || attempts[i][0] != 1 {
			t.Fatalf("index %d: got the attempts %v, want 1", i, attempts[i])
		}
	}
	if len(attempts) != n-unwanted {
		t.Errorf("got %d indices that ran, want %d", len(attempts), n-unwanted)
	}
	j := cat.doc(id)
	if j.State != job.Failed || j.Counts[job.Failed] != bad || j.Counts[job.Succeeded] != n-unwanted-bad || j.Counts[job.Cancelled] != unwanted {
		t.Errorf("got counts %v, want %d failed", j.Counts, bad)
	}
	perNode := map[string]int{}
	for i, x := range cat.doc(wanted).Tasks {
		perNode[x.Node]++
		want := 0
		if x.Task%badEvery == 5 {
			want = 3
		}
		if x.Task != i || x.ExitCode == nil || *x.ExitCode != want || x.Attempt != 1 {
			t.Fatalf("task %d: got %+v, want exit code %d", i, x, want)
		}
	}
	t.Logf("tasks on each node: %v", perNode)
	if len(perNode) != 3 {
		t.Errorf("the tasks ran on %v, want 3 nodes", perNode)
	}
	if out := cat.ok("logs", "--all", id+".3-5,100"); out != "3| index 3\n4| index 4\n5| index 5\n100| index 100" {
		t.Errorf("logs --all: got %q, want the lines of 3, 4, 5 and 100", out)
	}

	if err := os.WriteFile(filepath.Join(dir, "repaired"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	ben.ok("requeue", "--failed", wanted)
	if r := amy.musterPatiently("wait", wanted); r.code != 0 {
		t.Errorf("wait after the requeue: exit %d, want 0: %s", r.code, r.stderr)
	}
	again := runs(t, dir)
	for i := range n - unwanted {
		want := 1
		if i%badEvery == 5 {
			want = 2
		}
		if len(again[i]) != want {
			t.Fatalf("index %d after the requeue of the failed ones: got the attempts %v, want %d", i, again[i], want)
		}
	}
	if j := amy.doc(id); j.Counts[job.Succeeded] != n-unwanted || j.Counts[job.Cancelled] != unwanted {
		t.Errorf("got counts %v, want all succeeded but the cancelled ones", j.Counts)
	}
	checkMemory(t, all, "at the end")
}

// musterPatiently runs a verb that may take longer than others.
func (d *daemon) musterPatiently(args ...string) (r result) {
	d.t.Helper()
	deadline := time.Now().Add(arrayTime)
	for {
		r = d.muster(append(args, "--timeout", "30s")...)
		if r.code != 125 || time.Now().After(deadline) || !strings.Contains(r.stderr, "timeout has passed") {
			return r
		}
	}
}

// watchProgress reads the progress of an array in the listing of its jobs until the returned function is called. That
// function returns the different texts.
func watchProgress(t *testing.T, d *daemon, id string) func() []string {
	t.Helper()
	shown := regexp.MustCompile(`\d+/\d+ done`)
	stop, done := make(chan struct{}), make(chan []string, 1)
	go func() {
		var texts []string
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for last := -1; ; {
			select {
			case <-stop:
				done <- texts
				return
			case <-tick.C:
			}
			for line := range strings.Lines(d.muster("jobs", "--all").stdout) {
				text := shown.FindString(line)
				if !strings.HasPrefix(line, id) || text == "" {
					continue
				}
				n := 0
				fmt.Sscan(text[:strings.IndexByte(text, '/')], &n)
				if n < last {
					t.Errorf("the progress went back from %d to %s", last, text)
				}
				if last = n; len(texts) == 0 || texts[len(texts)-1] != text {
					texts = append(texts, text)
				}
			}
		}
	}()
	return func() []string { close(stop); return <-done }
}

// A million tasks are accepted, listed, shown by page and cancelled in at most two seconds each, and cost the daemons
// little memory.
func TestArrayOfAMillionCostsLittle(t *testing.T) {
	all := trio(t)
	amy, ben, cat := all[0], all[1], all[2]
	dir := t.TempDir()
	r := amy.muster("submit", "-J", "large", "-D", dir, "--hold", "--array", "0-1999998:2%8", "--", "sh", "-c", "echo $MUSTER_ARRAY_INDEX >>ran")
	id := strings.TrimSpace(r.stdout)
	if r.code != 0 || r.took > 2*time.Second {
		t.Fatalf("submit: exit %d after %s: got %s, want 0 within 2 s", r.code, r.took, r.stderr)
	}
	if out := ben.ok("jobs"); !strings.Contains(out, "0/1000000 done") {
		t.Errorf("jobs: got\n%s\nwant 0/1000000 done", out)
	}
	if j := cat.doc(id + ".1000000-1000019"); len(j.Tasks) != 10 || j.Tasks[9].Task != 1000018 || j.TaskCount != 1_000_000 {
		t.Errorf("a page in the middle: got %+v, want 10 tasks", j.Tasks)
	}
	ben.fails(1, []string{"the job has 1000000 tasks, from 0 to 1999998"}, "show", id+".7")
	ben.ok("release", id+".100-119,1999998")
	if r := cat.muster("wait", id+".100-119,1999998", "--timeout", "30s"); r.code != 0 {
		t.Errorf("wait for the released tasks: exit %d, want 0: %s", r.code, r.stderr)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "ran")); err != nil || strings.Count(string(text), "\n") != 11 || !strings.Contains(string(text), "1999998\n") {
		t.Errorf("got %q, %v from the tasks that ran, want 11 with the last", text, err)
	}
	if r := cat.muster("cancel", id); r.code != 0 || r.took > 2*time.Second {
		t.Errorf("cancel: exit %d after %s: got %s, want 0 within 2 s", r.code, r.took, r.stderr)
	}
	if j := ben.doc(id); j.State != job.Cancelled || j.Counts[job.Cancelled] != 1_000_000-11 || j.Counts[job.Succeeded] != 11 {
		t.Errorf("after the cancel: got %s, %v, want 11 succeeded and the rest cancelled", j.State, j.Counts)
	}
	checkMemory(t, all, "with a million tasks")
}

// run of an array prints the lines of all its tasks, ends with them, and exits with the highest code.
func TestRunOfAnArrayPrintsAllTasks(t *testing.T) {
	t.Parallel()
	all := trio(t)
	r := all[1].muster("run", "--array", "1-40", "--", "sh", "-c", "echo line $MUSTER_ARRAY_INDEX; exit $((MUSTER_ARRAY_INDEX % 10))")
	if r.code != 9 || strings.Count(r.stdout, "\n") != 40 || !strings.Contains(r.stdout, "40| line 40\n") {
		t.Errorf("exit %d, %q, %q, want 9 and the lines of 40 tasks", r.code, r.stdout, r.stderr)
	}
}
