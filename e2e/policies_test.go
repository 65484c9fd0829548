//go:build e2e

package e2e

// Placement policies: each job has its own, and a daemon has one for jobs that name none.

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestPoliciesChooseHosts(t *testing.T) {
	t.Parallel()
	n1 := newDaemon(t, "n1", "--gpus", "sim:2xH100-80GB", "--cpus", "8").start()
	inv := n1.invite("--uses", "2")
	n2 := newDaemon(t, "n2", "--gpus", "sim:4xH100-80GB", "--cpus", "8").start(inv.flags()...)
	n3 := newDaemon(t, "n3", "--gpus", "sim:2xH100-80GB", "--cpus", "8", "--policy", "spread").start(inv.flags()...)
	for _, d := range []*daemon{n1, n2, n3} {
		d.untilNodes(3)
	}
	// One GPU of two is free on n1, three of four on n2, both on n3.
	for _, node := range []string{"n1", "n2"} {
		n2.untilState(n2.ok("submit", "-G", "1", "-w", node, "--", "sleep", "600"), "RUNNING")
	}
	for _, c := range []struct{ gpus, policy, first string }{
		{"1", "pack", "n1: fullest host: leaves 0 of 2 GPUs"},
		{"1", "spread", "n3: emptiest host: leaves 1 of 2 GPUs"},
		{"1", "balanced", "n3: fewest tasks for what is free: leaves 1 of 2 GPUs"},
		{"1", "simple", "n2: this host"},
		{"1", "frag", "n2: least fragmentation: leaves 2 of 4 GPUs"},
		{"2", "topology", "n2: GPUs of one NVLink island, this host: leaves 1 of 4 GPUs"},
	} {
		offers := n2.ok("offers", "-G", c.gpus, "--policy", c.policy)
		_, first, _ := strings.Cut(offers, "now ")
		if first, _, _ = strings.Cut(first, "\n"); strings.TrimSpace(first) != c.first {
			t.Errorf("%s offers first: got %q, want %q\n%s", c.policy, first, c.first, offers)
		}
	}
	if got := n2.nodeOf("-G", "1", "--policy", "spread"); got != "n3" {
		t.Errorf("spread places a job on %s, want %q", got, "n3")
	}

	// A job file sets the policy. Without one the daemon's own counts.
	file := filepath.Join(t.TempDir(), "job.yaml")
	if err := os.WriteFile(file, []byte("command: [\"true\"]\nresources: {cpus: 1, gpus: 1}\npolicy: pack\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := n2.untilState(n2.ok("submit", "-F", file), "SUCCEEDED").Tasks[0].Node; got != "n1" {
		t.Errorf("a job file with the policy pack runs on %s, want %q", got, "n1")
	}
	if offers := n3.ok("offers", "-G", "1"); !strings.Contains(offers, "emptiest host") {
		t.Errorf("a daemon with the policy spread: want the emptiest host first, got\n%s", offers)
	}
	n1.fails(2, []string{`policy "best": want one of balanced, frag, pack, simple, spread, topology`}, "submit", "--policy", "best", "--", "true")

	// Two halves of a GPU are on one device, as the policy chooses.
	var devices []string
	for range 2 {
		doc := n2.untilState(n2.ok("submit", "--gpu-share", "0.5", "--policy", "pack", "-w", "n3", "--", "sleep", "600"), "RUNNING")
		devices = append(devices, doc.Tasks[0].GPUs...)
	}
	if len(devices) != 2 || devices[0] != devices[1] {
		t.Errorf("two halves are on %v, want one device", devices)
	}
}
