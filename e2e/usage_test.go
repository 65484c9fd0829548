//go:build e2e

package e2e

// The use of tasks and nodes: measured by a real daemon, and still reported when the node is gone.

import (
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/musterhq/muster/api"
)

// get returns the document at a path of the daemon's API.
func get[T any](d *daemon, path string) (doc T) {
	d.t.Helper()
	client := d.http()
	defer client.CloseIdleConnections()
	resp, err := client.Get("http://muster" + path)
	if err != nil {
		d.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode == 200 {
		err = json.Unmarshal(text, &doc)
	}
	if err != nil || resp.StatusCode != 200 {
		d.t.Fatalf("GET %s: got %s: %v, want 200\n%s", path, resp.Status, err, text)
	}
	return doc
}

// burn uses CPU time, 100 MB of memory and the disk for some seconds. The memory is that of a child of the task.
const burn = `dd if=/dev/zero of=$MUSTER_SCRATCH/x bs=1M count=8 conv=fsync 2>/dev/null
head -c 100000000 /dev/zero | tr '\0' x | sh -c 'v=$(cat); end=$(($(date +%s)+14)); while [ $(date +%s) -lt $end ]; do :; done; echo ${#v}'`

// TestUsageOfATaskIsMeasured checks the figures of a task that computes for some seconds: while it runs at another
// daemon, and after its end, when its node is gone.
func TestUsageOfATaskIsMeasured(t *testing.T) {
	amy := newDaemon(t, "amy", "--gpus", "none", "--cpus", "2").start()
	ben := newDaemon(t, "ben", "--gpus", "sim:1xH100-80GB", "--cpus", "4").start(amy.invite().flags()...)
	amy.untilNodes(2)
	id := amy.ok("submit", "-G", "1", "-c", "2", "--mem", "1GiB", "--", "sh", "-c", burn)
	amy.untilState(id, "RUNNING")
	path := "/v1/jobs/" + id + "/tasks/0/usage"
	now := until(amy, "usage of "+id, "measured twice", func() api.TaskUsage { return get[api.TaskUsage](amy, path) }, func(u api.TaskUsage) bool {
		return u.Used != nil && u.Used.Samples >= 2
	})
	plausible(t, "while it runs", now.Used)
	if now.Node != "ben" || now.Recent == nil || len(now.Recent.At) < 2 || now.Life == nil || len(now.Life.At) > 120 {
		t.Errorf("while it runs: got %+v, want some samples on ben", now)
	}
	node := get[api.NodeUsage](amy, "/v1/nodes/ben/usage")
	if n := len(node.Host.CPUs); n < 2 || node.Host.CPUs[n-1] == nil || *node.Host.CPUs[n-1] <= 0 || len(node.Host.Memory) != n || len(node.GPUs) != 1 {
		t.Errorf("ben: got %+v, want samples of the host and one GPU", node)
	}
	amy.untilState(id, "SUCCEEDED")
	ben.kill()
	done := get[api.TaskUsage](amy, path)
	plausible(t, "after its end", done.Used)
	if *done.Used.CPUSeconds < *now.Used.CPUSeconds {
		t.Errorf("CPU time fell from %g s to %g s, want it to grow", *now.Used.CPUSeconds, *done.Used.CPUSeconds)
	}
	doc := amy.show(id)
	if ran := doc.Tasks[0].EndedAt.Sub(*doc.Tasks[0].StartedAt).Seconds(); *done.Used.CPUSeconds > 2.5*ran {
		t.Errorf("got %g s of CPU time in %g s, want at most 2.5 times as much", *done.Used.CPUSeconds, ran)
	}
	if shown := amy.ok("show", id); !containsAll(shown, []string{"used", "cpu ", "cpus of 2 (", "memory ", " at most of 1GiB (", "written", "gpu 0% busy"}) {
		t.Errorf("show: want the use, got\n%s", shown)
	}
	short := amy.ok("submit", "-W", "--", "true")
	// For a task that ended before it was measured, the kernel reports the CPU time.
	u := get[api.TaskUsage](amy, "/v1/jobs/"+short+"/tasks/0/usage").Used
	if u == nil || u.CPUSeconds == nil || *u.CPUSeconds > 1 || u.Memory != nil || u.PIDsPeak != nil || u.WrittenBytes != nil || u.GPU != nil || !strings.Contains(amy.ok("show", short), "used ") {
		t.Errorf("a task of no time has used %+v, want only CPU time:\n%s", u, amy.ok("show", short))
	}
}

// plausible checks the figures of burn. A busy host gives it less CPU time than it asks for.
func plausible(t *testing.T, when string, u *api.Used) {
	t.Helper()
	if u == nil {
		t.Fatalf("%s: got nothing, want the use", when)
	}
	if u.CPUSeconds == nil || *u.CPUSeconds < 0.5 || *u.CPUSeconds > 60 {
		t.Errorf("%s: got CPU time %v, want 0.5 to 60", when, text(u.CPUSeconds))
	}
	if u.MemoryPeak == nil || *u.MemoryPeak < 100e6 || *u.MemoryPeak > 1<<30 {
		t.Errorf("%s: got memory %v, want 100 MB to 1 GiB", when, text(u.MemoryPeak))
	}
	if u.PIDsPeak == nil || *u.PIDsPeak < 2 || *u.PIDsPeak > 20 {
		t.Errorf("%s: got processes %v, want 2 to 20", when, text(u.PIDsPeak))
	}
	if u.WrittenBytes == nil || *u.WrittenBytes < 8<<20 {
		t.Errorf("%s: got written %v, want at least 8 MiB", when, text(u.WrittenBytes))
	}
	if u.GPU == nil || *u.GPU != 0 || u.Power == nil || *u.Power <= 0 {
		t.Errorf("%s: got GPU %v, power %v, want 0 and more than 0", when, text(u.GPU), text(u.Power))
	}
}

func text(x *float64) any {
	if x == nil {
		return "unknown"
	}
	return *x
}
