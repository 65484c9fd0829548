//go:build e2e

package e2e

// A host on which the jobs of every user fail takes no tasks for a while, and says so.

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/musterhq/muster/api"
)

// submitAs submits as another user of this machine and waits for the end.
func (d *daemon) submitAs(uid uint32, args ...string) {
	d.t.Helper()
	for _, dir := range []string{d.dir, d.socket} {
		if err := os.Chmod(dir, 0o777); err != nil { //nolint:gosec // other users must reach the socket
			d.t.Fatal(err)
		}
	}
	program := filepath.Join(d.dir, "muster") // the original may be in a directory that other users cannot read
	if _, err := os.Stat(program); err != nil {
		text, err := os.ReadFile(binary(d.t))
		if err != nil {
			d.t.Fatal(err)
		}
		if err := os.WriteFile(program, text, 0o755); err != nil { //nolint:gosec // other users run it
			d.t.Fatal(err)
		}
	}
	cmd := exec.Command(program, append([]string{"submit", "--wait"}, args...)...)
	cmd.Env = []string{"MUSTER_SOCKET=" + d.socket, "PATH=" + os.Getenv("PATH"), "HOME=/"}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	if out, err := cmd.CombinedOutput(); err != nil && cmd.ProcessState.ExitCode() != 1 {
		d.t.Fatalf("submit %q as %d: %v, want exit code 0 or 1\n%s", args, uid, err, out)
	}
}

func TestHostIsPausedAfterFailuresOfManyUsers(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("needs root, to submit as several users")
	}
	amy := newDaemon(t, "amy", "--gpus", "none", "--cpus", "4").start()
	for range 10 { // invalid commands of a single user
		amy.submitAs(0, "--", "false")
	}
	if n := amy.node("amy"); n.State != "ready" {
		t.Fatalf("the failures of a single user paused the host: got %+v, want ready", n)
	}
	for _, uid := range []uint32{1, 2} { // daemon and bin are users of every Linux
		amy.submitAs(uid, "--", "false")
	}
	n := amy.untilNode("amy", "paused", func(n api.Node) bool { return n.State == "draining" })
	if !strings.Contains(n.Detail, "5 different jobs failed in a row") || n.Drain != nil {
		t.Errorf("node: got %+v, want the reason, and no drain", n)
	}
	id := amy.ok("submit", "--", "true")
	amy.until(id, "PENDING", func(j api.Job) bool { return j.State == "PENDING" && j.Reason == "NodesDraining" })
	for _, verb := range [][]string{{"nodes"}, {"node", "show", "amy"}, {"why", id}, {"offers", "-c", "1"}} {
		if out := amy.ok(verb...); !strings.Contains(out, "5 different jobs failed in a row") {
			t.Errorf("%q: want the reason, got\n%s", verb, out)
		}
	}
	amy.ok("node", "resume", "amy")
	amy.untilState(id, "SUCCEEDED")
}
