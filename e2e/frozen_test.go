//go:build e2e

package e2e

// Hosts whose disk does not answer.

import (
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/musterhq/muster/api"
)

// freeze makes every write to the file system at dir wait until thaw is called, or the test ends. A separate process
// thaws it if the tests are killed in between, because nothing could end the daemons that wait for it.
func freeze(t *testing.T, dir string) (thaw func()) {
	t.Helper()
	late := exec.Command("sh", "-c", `sleep 300; fsfreeze --unfreeze "$0"`, dir)
	late.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := late.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-late.Process.Pid, syscall.SIGKILL)
		_ = late.Wait()
	})
	thaw = func() { _ = exec.Command("fsfreeze", "--unfreeze", dir).Run() }
	t.Cleanup(thaw)
	if out, err := exec.Command("fsfreeze", "--freeze", dir).CombinedOutput(); err != nil {
		t.Skipf("no file system can be frozen here: %v: %s", err, out)
	}
	return thaw
}

// TestFrozenDiskOfAWorkerLosesNoTask freezes the disk of a worker's data directory. A task there is cancelled, the exit
// of another one is reported, a new one runs elsewhere, and the node says what is wrong. After a thaw it takes tasks
// again.
func TestFrozenDiskOfAWorkerLosesNoTask(t *testing.T) {
	t.Parallel()
	amy := newDaemon(t, "amy", "--gpus", "none", "--cpus", "4").start()
	ben := newDaemon(t, "ben", "--gpus", "none", "--cpus", "4")
	mountDisk(t, "ext4", ben.dir+"/data")
	ben.start(amy.invite().flags()...)
	amy.untilNodes(2)
	g := newGate(t)
	ends := amy.ok(append([]string{"submit", "-w", "ben", "--"}, g.script("exit 7")...)...)
	stays := amy.ok("submit", "-w", "ben", "--", "sleep", "1000")
	for _, id := range []string{ends, stays} {
		amy.untilState(id, "RUNNING")
	}
	thaw := freeze(t, ben.dir+"/data")
	amy.ok("cancel", stays)
	moves := amy.ok("submit", "--prefer", "name=ben", "--", "true")
	g.open()
	amy.untilState(stays, "CANCELLED")
	if j := amy.untilState(ends, "FAILED"); *j.Tasks[0].ExitCode != 7 {
		t.Errorf("exit code %d, want 7", *j.Tasks[0].ExitCode)
	}
	if j := amy.untilState(moves, "SUCCEEDED"); j.Tasks[0].Node != "amy" {
		t.Errorf("it ran on %s, want amy", j.Tasks[0].Node)
	}
	amy.untilNode("ben", "not ready", func(n api.Node) bool {
		return n.State != api.NodeReady && strings.Contains(n.Detail, "does not answer")
	})
	thaw()
	amy.untilNode("ben", "ready", func(n api.Node) bool { return n.State == api.NodeReady })
	amy.untilState(amy.ok("submit", "-w", "ben", "--", "true"), "SUCCEEDED")
	if j := amy.show(ends); j.State != "FAILED" || *j.Tasks[0].ExitCode != 7 {
		t.Errorf("after the thaw it is %+v, want FAILED with 7", j)
	}
}

// TestFrozenDiskOfTheOwnerFailsSubmitsSoon freezes the disk of the daemon that accepts jobs. A submission fails soon,
// with the reason, and requests that only read are answered.
func TestFrozenDiskOfTheOwnerFailsSubmitsSoon(t *testing.T) {
	t.Parallel()
	amy := newDaemon(t, "amy", "--gpus", "none", "--cpus", "4")
	mountDisk(t, "ext4", amy.dir+"/data")
	amy.start()
	id := amy.ok("submit", "--", "sleep", "1000")
	amy.untilState(id, "RUNNING")
	thaw := freeze(t, amy.dir+"/data")
	began := time.Now()
	r := amy.fails(1, []string{"does not answer"}, "submit", "--", "true")
	t.Logf("submit took %v: %s", time.Since(began), r.stderr)
	if j := amy.show(id); j.State != "RUNNING" {
		t.Errorf("the job is %s, want RUNNING", j.State)
	}
	amy.ok("nodes")
	thaw()
	amy.until(amy.untilAccepted("true"), "SUCCEEDED", func(j api.Job) bool { return j.State == "SUCCEEDED" })
}
