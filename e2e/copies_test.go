//go:build e2e

package e2e

// Two daemons on copies of one data directory.

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// A daemon on a copy of the data directory of a running one ends with 78 before it starts anything, and names both addresses.
// The other one goes on, and the member that reached both says so.
func TestCopiedDataDirectory(t *testing.T) {
	amy := newDaemon(t, "amy").start()
	bob := newDaemon(t, "bob")
	bob.start(amy.invite().flags()...)
	amy.untilNodes(2)

	twin := newDaemon(t, "bob")
	if out, err := exec.Command("cp", "-a", filepath.Join(bob.dir, "data"), filepath.Join(twin.dir, "data")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	time.Sleep(2100 * time.Millisecond) // so that the older one is older for certain
	twin.launch()
	select {
	case <-twin.done:
	case <-time.After(time.Minute):
		t.Fatalf("the copy runs:\n%s", twin.log())
	}
	<-twin.said
	if code := twin.cmd.ProcessState.ExitCode(); code != 78 {
		t.Errorf("the copy ended with %d:\n%s", code, twin.log())
	}
	port := func(d *daemon) string {
		listen := d.args[slices.Index(d.args, "--listen")+1]
		return listen[strings.LastIndex(listen, "/")+1:]
	}
	if text := twin.log(); !strings.Contains(text, "runs at /ip4/127.0.0.1/") || !strings.Contains(text, port(bob)) || strings.Contains(text, "msg=ready") {
		t.Errorf("the copy says:\n%s", text)
	}
	if out := amy.muster("doctor"); !strings.Contains(out.stdout, "two daemons with the identity") || !strings.Contains(out.stdout, port(bob)) || !strings.Contains(out.stdout, port(twin)) {
		t.Errorf("doctor of a member: %s", out.stdout)
	}
	if id := strings.TrimSpace(amy.ok("submit", "-w", "bob", "--", "true")); id != "" {
		amy.untilState(id, "SUCCEEDED")
	}
}
