//go:build e2e

package e2e

// A path that loses large packets: messages that fit into small ones arrive, larger ones never do.

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/musterhq/muster/api"
)

// losesLargePackets makes a host of the lab receive no packet of more than 1,400 bytes from now on. The returned
// function ends that.
func (l *lab) losesLargePackets(i int) (end func()) {
	l.t.Helper()
	nft := func(args ...string) error {
		return exec.Command("ip", append([]string{"netns", "exec", l.host(i), "nft"}, args...)...).Run()
	}
	for _, args := range [][]string{
		{"add", "table", "inet", "large"},
		{"add", "chain", "inet", "large", "in", "{ type filter hook input priority 0; }"},
		{"add", "rule", "inet", "large", "in", "meta", "length", ">", "1400", "drop"},
	} {
		if err := nft(args...); err != nil {
			l.t.Skipf("nft %q: %v", args, err)
		}
	}
	return func() { _ = nft("delete", "table", "inet", "large") }
}

// A job file that does not fit into a small packet does not reach the host. The job says so, and the other jobs there
// are not affected: those that run keep their contact, and new ones start.
func TestJobFileBeyondThePathDoesNotBlockOthers(t *testing.T) {
	t.Parallel()
	l := newLab(t, 2)
	all := l.daemons(2, "--gpus", "none", "--cpus", "4")
	amy, ben := all[0], all[1]
	runs := amy.ok("submit", "--constraint", "name=n2", "--", "sleep", "1000")
	amy.untilState(runs, "RUNNING")
	end := l.losesLargePackets(1)
	large := amy.ok("submit", "-F", jobFileOf(t, 200<<10, "n2"))
	amy.until(large, "kept back", func(j api.Job) bool {
		return j.State == "PENDING" && strings.Contains(amy.ok("why", large), "broke off")
	})
	for range 3 {
		amy.until(amy.ok("submit", "--constraint", "name=n2", "--", "true"), "SUCCEEDED", func(j api.Job) bool {
			if j := amy.show(large); j.State != "PENDING" {
				t.Fatalf("the large job is %s at a host that it cannot reach, want PENDING", j.State)
			}
			return j.State == "SUCCEEDED"
		})
	}
	if j := amy.show(runs); j.State != "RUNNING" || j.Tasks[0].Attempt != 1 || j.Reason != "" {
		t.Errorf("the task that ran before: got %s, attempt %d, %s, want RUNNING, 1, no reason", j.State, j.Tasks[0].Attempt, j.Reason)
	}
	end()
	ben.ok("cancel", runs)
	amy.untilState(runs, "CANCELLED")
}
