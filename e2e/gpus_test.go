//go:build e2e

package e2e

// GPUs that fail and recover, and shares of one GPU, on simulated devices.

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/musterhq/muster/api"
)

// faulty starts a daemon with two simulated GPUs, and returns the file to which their faults are written.
func faulty(t *testing.T) (*daemon, *os.File) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "faults")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	d := newDaemon(t, "cat", "--gpus", "sim:2xH100-80GB?faults="+path, "--cpus", "8").start()
	script, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { script.Close() })
	return d, script
}

func allHealthy(n api.Node) bool {
	return n.GPUs[0].Health == "healthy" && n.GPUs[1].Health == "healthy"
}

func TestFaultPutsGPUIntoQuarantine(t *testing.T) {
	t.Parallel()
	cat, script := faulty(t)
	g := newGate(t)
	runs := cat.ok(append([]string{"submit", "-G", "2", "--"}, g.script("exit 0")...)...)
	cat.untilState(runs, "RUNNING")
	fmt.Fprint(script, "0 xid 31\n0 xid 79\n") // the first one is an error of a program
	n := cat.untilNode("cat", "with a GPU in quarantine", func(n api.Node) bool { return !allHealthy(n) })
	if n.GPUs[0].Detail != "xid 79 (fallen off the bus)" || n.GPUs[1].Health != "healthy" || n.State != "ready" {
		t.Errorf("node: got %+v, want the first GPU with its fault", n)
	}
	if out := cat.ok("gpus"); !strings.Contains(out, "unhealthy: xid 79 (fallen off the bus)") {
		t.Errorf("gpus: want the fault, got\n%s", out)
	}
	g.open() // the running task goes on
	cat.untilState(runs, "SUCCEEDED")
	waits := cat.ok("submit", "-G", "2", "--", "true")
	cat.until(waits, "PENDING for the GPU", func(j api.Job) bool { return j.State == "PENDING" && j.Reason == "GPUUnhealthy" })
	one := cat.ok("submit", "-G", "1", "--", "true")
	if doc := cat.untilState(one, "SUCCEEDED"); doc.Tasks[0].GPUs[0] != n.GPUs[1].UUID {
		t.Errorf("ran on %v, want %s", doc.Tasks[0].GPUs, n.GPUs[1].UUID)
	}
	// The driver reports no problem, so a probe ends the quarantine.
	cat.untilState(waits, "SUCCEEDED")
	if n := cat.node("cat"); !allHealthy(n) {
		t.Errorf("after the probe: got %+v, want healthy GPUs", n)
	}
	// A GPU that needs a reset according to its driver stays in quarantine until a person ends it.
	fmt.Fprint(script, "1 unhealthy row remap pending\n1 xid 31\n")
	n = cat.untilNode("cat", "with a GPU in quarantine", func(n api.Node) bool { return !allHealthy(n) })
	if !strings.Contains(n.GPUs[1].Detail, "row remap pending") {
		t.Errorf("node: got %+v, want the reason", n)
	}
	fmt.Fprint(script, "1 healthy\n1 xid 31\n")
	cat.untilNode("cat", "healthy", allHealthy)
}

// TestQuarantineSurvivesRestart checks that a daemon that was killed still knows which GPU was in quarantine.
func TestQuarantineSurvivesRestart(t *testing.T) {
	t.Parallel()
	cat, script := faulty(t)
	fmt.Fprint(script, "0 xid 79\n")
	cat.untilNode("cat", "with a GPU in quarantine", func(n api.Node) bool { return !allHealthy(n) })
	cat.kill()
	cat.start()
	if n := cat.node("cat"); n.GPUs[0].Detail != "xid 79 (fallen off the bus)" || n.GPUs[1].Health != "healthy" {
		t.Errorf("after a restart: got %+v, want the first GPU with its fault", n)
	}
	cat.ok("node", "resume", "cat")
	cat.untilNode("cat", "healthy", allHealthy)
	cat.kill()
	cat.start()
	if n := cat.node("cat"); !allHealthy(n) {
		t.Errorf("in quarantine again after resume and restart: got %+v", n)
	}
}

func TestForeignMemoryCountsAsTaken(t *testing.T) {
	t.Parallel()
	cat, script := faulty(t)
	fmt.Fprint(script, "0 foreign 70GiB\n0 xid 31\n")
	big := cat.ok("submit", "-G", "2", "--", "true")
	cat.until(big, "PENDING", func(j api.Job) bool { return j.State == "PENDING" && j.Reason == "Resources" })
	fmt.Fprint(script, "0 foreign 0B\n0 xid 31\n")
	cat.untilState(big, "SUCCEEDED")
	fmt.Fprint(script, "0 foreign 70GiB\n1 foreign 79GiB\n0 xid 31\n")
	cat.untilNode("cat", "used by others", func(n api.Node) bool { return n.GPUs[1].MemoryUsed > 0 })
	small := cat.ok("submit", "--gpu-share", "0.1", "--gpu-mem", "8GiB", "--", "true")
	if doc := cat.untilState(small, "SUCCEEDED"); doc.Tasks[0].GPUs[0] != cat.node("cat").GPUs[0].UUID {
		t.Errorf("ran on %v, want the first GPU", doc.Tasks[0].GPUs)
	}
}

// TestSharesOfOneGPURunTogether checks that shares of one GPU run together up to its memory and its thousandths, and
// not beyond.
func TestSharesOfOneGPURunTogether(t *testing.T) {
	t.Parallel()
	cat := newDaemon(t, "cat", "--gpus", "sim:1xH100-80GB", "--cpus", "8").start()
	share := func(share, memory string) (string, gate) {
		g := newGate(t)
		return cat.ok(append([]string{"submit", "--gpu-share", share, "--gpu-mem", memory, "--"}, g.script("exit 0")...)...), g
	}
	waits := func(id string) {
		t.Helper()
		cat.until(id, "PENDING", func(j api.Job) bool { return j.State == "PENDING" && j.Reason == "Resources" })
	}
	end := func(id string, g gate) {
		t.Helper()
		g.open()
		cat.untilState(id, "SUCCEEDED")
	}
	a, ga := share("0.25", "39GiB")
	b, gb := share("0.25", "39GiB")
	on := cat.untilState(a, "RUNNING").Tasks[0].GPUs[0]
	if doc := cat.untilState(b, "RUNNING"); doc.Tasks[0].GPUs[0] != on {
		t.Errorf("got %v, want %s", doc.Tasks[0].GPUs, on)
	}
	c, gc := share("0.25", "3GiB") // 2 GiB are left
	waits(c)
	end(a, ga)
	cat.untilState(c, "RUNNING")
	d, gd := share("0.5", "1GiB") // now all thousandths are taken
	cat.untilState(d, "RUNNING")
	e, ge := share("0.01", "1MiB")
	waits(e)
	end(c, gc)
	cat.untilState(e, "RUNNING")
	whole := cat.ok("submit", "-G", "1", "--", "true")
	waits(whole)
	end(b, gb)
	end(d, gd)
	waits(whole)
	end(e, ge)
	cat.untilState(whole, "SUCCEEDED")
}
