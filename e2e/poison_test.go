//go:build e2e

package e2e

// A task that kills its host each time is held after a few hosts.

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// poison is a command that gets its host killed (see revive), unless the file mild exists: it writes the name of its
// host.
func poison(dir string) []string {
	return []string{"sh", "-c", fmt.Sprintf(`cd %s; [ -e mild ] && exit 0
host=${MUSTER_SCRATCH%%%%/data/*}; echo "$host" >>runs; touch "$host/kill"; exec sleep 600`, dir)}
}

// revive kills the daemon and the runner of each host on which the task runs, and restarts the daemons that have died.
// It does not wait for them, because the task may not have ended yet.
func revive(hosts []*daemon) {
	for _, h := range hosts {
		if os.Remove(filepath.Join(h.dir, "kill")) == nil {
			h.kill()
			h.killRunners()
		}
		select {
		case <-h.done:
			h.launch()
		default:
		}
	}
}

// poisoned returns the hosts on which the task has run, in order.
func poisoned(dir string, hosts []*daemon) []string {
	text, _ := os.ReadFile(filepath.Join(dir, "runs")) // there is no file before the first run
	var names []string
	for line := range strings.Lines(string(text)) {
		i := slices.IndexFunc(hosts, func(h *daemon) bool { return h.dir == strings.TrimSpace(line) })
		if i < 0 {
			return []string{"an unknown host"}
		}
		names = append(names, hosts[i].name)
	}
	return names
}

func TestPoisonTaskIsHeld(t *testing.T) {
	t.Parallel()
	const (
		hostsLost = 3 // the task is held after it has lost this number of hosts
		mostRuns  = 6 // while another host is away, the same host may be used again
	)
	owner := newDaemon(t, "owner", "--no-worker").start()
	inv := owner.invite("--uses", "3")
	var hosts []*daemon
	for _, name := range []string{"amy", "ben", "cat"} {
		hosts = append(hosts, newDaemon(t, name, "--gpus", "none", "--cpus", "4").start(inv.flags()...))
	}
	owner.untilNodes(4)
	dir := t.TempDir()
	id := owner.ok(append([]string{"submit", "-J", "poison", "--"}, poison(dir)...)...)
	held := func() string {
		revive(hosts)
		runs := poisoned(dir, hosts)
		if len(runs) > mostRuns {
			t.Fatalf("ran %d times: got %v, want at most 6", len(runs), runs)
		}
		if j := owner.show(id); j.State != "HELD" {
			return fmt.Sprintf("the job is %s, its task ran on %v", j.State, runs)
		}
		return ""
	}
	untilRight(t, 4*patience, held)
	runs := poisoned(dir, hosts)
	t.Logf("ran on %v", runs)
	reason := owner.show(id).ReasonDetail
	for _, h := range hosts {
		if !slices.Contains(runs, h.name) || !strings.Contains(reason, h.name) {
			t.Errorf("held after %v with the reason %q: want that both name %d different hosts", runs, reason, hostsLost)
		}
	}
	if out := owner.ok("why", id); !strings.Contains(out, reason) {
		t.Errorf("why: want %q, got\n%s", reason, out)
	}
	untilRight(t, patience, func() string { // no host is drained because of it
		revive(hosts)
		for _, h := range hosts {
			if n := owner.node(h.name); n.State != "ready" {
				return h.name + " is " + string(n.State)
			}
		}
		return ""
	})
	for _, h := range hosts {
		owner.untilState(owner.ok("submit", "-w", h.name, "--", "true"), "SUCCEEDED")
	}
	if again := poisoned(dir, hosts); len(again) != len(runs) {
		t.Errorf("ran again though it is held: got %v, want %v", again, len(runs))
	}

	// A person releases the task, and earlier losses no longer count.
	owner.ok("release", id)
	untilRight(t, 4*patience, func() string {
		revive(hosts)
		if now := poisoned(dir, hosts); len(now) == len(runs) {
			return fmt.Sprintf("released, but it does not run: %+v", owner.show(id))
		}
		return ""
	})
	if err := os.WriteFile(filepath.Join(dir, "mild"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	untilRight(t, 4*patience, func() string {
		revive(hosts)
		if j := owner.show(id); j.State != "SUCCEEDED" {
			return fmt.Sprintf("the job is %s: %s", j.State, j.ReasonDetail)
		}
		return ""
	})
}
