//go:build e2e

package e2e

// Commands in running tasks.

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestExecRunsCommandsInTheTask(t *testing.T) {
	t.Parallel()
	amy, ben, _ := three(t)
	g := newGate(t)
	id := amy.ok(append([]string{"submit", "-w", "cat", "--env", "COLOUR=blue", "--"}, g.script("true")...)...)
	doc := amy.untilState(id, "RUNNING")
	if r := ben.muster("exec", id, "--", "sh", "-c", "echo $COLOUR; pwd; echo wrong >&2; exit 7"); r.code != 7 || r.stderr != "wrong\n" ||
		!strings.HasPrefix(r.stdout, "blue\n/") || !strings.HasSuffix(strings.TrimSpace(r.stdout), "/scratch") {
		t.Errorf("got %+v, want exit code 7 with the variables and the directory of the task", r)
	}
	if r := ben.musterIn(strings.NewReader("from here\n"), "exec", "-i", id+".0", "--", "cat"); r.code != 0 || r.stdout != "from here\n" {
		t.Errorf("with input: got %+v, want the input", r)
	}
	if r := ben.muster("exec", id, "--", "cat"); r.code != 0 || r.stdout != "" {
		t.Errorf("without input: got %+v, want no output", r)
	}
	if r := ben.muster("exec", id, "--", "sh", "-c", "kill -TERM $$"); r.code != 128+15 {
		t.Errorf("ended by a signal: got %+v, want 143", r)
	}
	ben.fails(127, []string{"no-such-program-xyz"}, "exec", id, "--", "no-such-program-xyz")
	ben.fails(2, []string{"terminal"}, "exec", "-t", id, "--", "true")
	if big := ben.muster("exec", id, "--", "sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' x"); len(big.stdout) != 3_000_000 {
		t.Errorf("got %d bytes, want 3,000,000", len(big.stdout))
	}
	// A command ends when its client ends. The remaining commands end with the task.
	for _, gone := range []string{"client", "task"} {
		at := filepath.Join(t.TempDir(), "pid")
		script := "echo begun > " + at + "; sleep 1000; true"
		client := exec.Command(binary(t), "exec", id, "--", "sh", "-c", script)
		client.Env = append(os.Environ(), "MUSTER_SOCKET="+ben.socket)
		if err := client.Start(); err != nil {
			t.Fatal(err)
		}
		pid := 0
		eventually(t, "the command runs", func() bool {
			_, err := os.Stat(at)
			if all := running("sh\x00-c\x00" + script + "\x00"); err == nil && len(all) > 0 {
				pid, _ = strconv.Atoi(all[0])
			}
			return pid > 0
		})
		if gone == "client" {
			_ = client.Process.Kill()
		} else {
			g.open()
		}
		eventually(t, "the command ends with the "+gone, func() bool { return !alive(pid) })
		_ = client.Wait()
	}
	amy.untilState(id, "SUCCEEDED")
	if alive(doc.Tasks[0].PID) {
		t.Error("the task is still running")
	}
	ben.fails(125, []string{"SUCCEEDED", "not running"}, "exec", id, "--", "true")
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for late := time.Now().Add(patience); !is(); <-tick.C {
		if time.Now().After(late) {
			t.Fatalf("after %s still not true: %s", patience, what)
		}
	}
}

func TestExecOpensATerminal(t *testing.T) {
	t.Parallel()
	amy, ben, _ := three(t)
	g := newGate(t)
	id := amy.ok(append([]string{"submit", "-w", "cat", "--"}, g.script("true")...)...)
	amy.untilState(id, "RUNNING")
	s := onTerminal(t, ben.client("exec", "-it", id, "--", "sh"), 31, 97)
	s.typeLine("tty; echo kind=$TERM")
	s.waitLine("/dev/pts/")
	s.waitLine("kind=vt100")
	s.typeLine("stty size; echo done")
	s.waitLine("31 97")
	s.resizesAndInterrupts()
	s.typeLine("exit 9")
	s.waitExit(9)
	g.open()
}

// TestCommandsOfAUserAreBounded checks that one user cannot take a host's whole capacity for commands.
func TestCommandsOfAUserAreBounded(t *testing.T) {
	amy := newDaemon(t, "amy", "--gpus", "none", "--cpus", "2").start()
	g := newGate(t)
	id := amy.ok(append([]string{"submit", "--"}, g.script("true")...)...)
	amy.untilState(id, "RUNNING")
	const most = 32
	for range most {
		client := exec.Command(binary(t), "exec", "-i", id, "--", "sh", "-c", "echo up; read line")
		client.Env = append(os.Environ(), "MUSTER_SOCKET="+amy.socket)
		stdin, err1 := client.StdinPipe()
		stdout, err2 := client.StdoutPipe()
		if err := errors.Join(err1, err2, client.Start()); err != nil {
			t.Fatal(err)
		}
		defer client.Wait()
		defer stdin.Close() // this lets the command end
		if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "up\n" {
			t.Fatalf("got %q, %v, want up", line, err)
		}
	}
	amy.fails(125, []string{"32 commands open in tasks on this node, the maximum"}, "exec", id, "--", "true")
	g.open()
	amy.untilState(id, "SUCCEEDED")
	id = amy.ok(append([]string{"submit", "--"}, g.script("true")...)...)
	amy.untilState(id, "RUNNING")
	amy.ok("exec", id, "--", "true")
	g.open()
}
