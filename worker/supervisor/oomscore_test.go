package supervisor

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/output"
	"github.com/musterhq/muster/worker/runner/protocol"
)

// The OOM scores make the kernel kill a task, or a process that the task has forked, before the runner.
func TestKernelKillsTheRunnerLast(t *testing.T) {
	t.Parallel()
	if out, err := exec.CommandContext(t.Context(), "/bin/sh", "-c", "echo -999 >/proc/self/oom_score_adj").CombinedOutput(); err != nil {
		t.Skipf("the score may not be lowered here: %s", out)
	}
	own, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, "groups", testDir(t), "1")
	for i := range 20 {
		k := r.shell(i, "(cat /proc/self/oom_score_adj); cat /proc/self/oom_score_adj")
		if e := r.run(k); e.State != job.Succeeded {
			t.Fatalf("%+v, want State %v", e, job.Succeeded)
		}
		if out, want := r.output(k.Attempt, output.Stdout), strings.Repeat(string(own), 2); out != want {
			t.Errorf("scores of the task and its child: %q, want %q", out, want)
		}
	}
	info, err := protocol.Dir(r.dir).ReadInfo(1)
	if err != nil {
		t.Fatal(err)
	}
	score, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", info.PID))
	if err != nil || strings.TrimSpace(string(score)) != "-999" {
		t.Errorf("score of the runner: %q, %v, want -999", score, err)
	}
}
