//go:build e2e

package e2e

// Clients on a terminal that are told to end, as by the kernel when their terminal is closed. The terminal is restored,
// and nothing runs on.

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// cooked reports whether a terminal edits lines and echoes keys, as before a program makes it raw.
func (s *screen) cooked() bool {
	s.t.Helper()
	raw, err := s.near.SyscallConn()
	if err != nil {
		s.t.Fatal(err)
	}
	var modes *unix.Termios
	errModes := raw.Control(func(fd uintptr) { modes, err = unix.IoctlGetTermios(int(fd), unix.TCGETS) })
	if errModes != nil || err != nil {
		s.t.Fatal(errModes, err)
	}
	return modes.Lflag&unix.ICANON != 0 && modes.Lflag&unix.ECHO != 0
}

// checkCutOff starts a client on a terminal, which must print "ready", and cuts it off.
func checkCutOff(t *testing.T, cmd *exec.Cmd, by syscall.Signal) {
	t.Helper()
	s := onTerminal(t, cmd, 24, 80)
	s.waitLine("ready")
	eventually(t, "raw terminal", func() bool { return !s.cooked() })
	_ = cmd.Process.Signal(by)
	var last string
	for line := range s.lines { // until it ends
		last = line
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 130 {
		t.Errorf("%q, cut off by %v: exit %d, want 130 (%v)", cmd.Args, by, code, cmd.ProcessState)
	}
	if !s.cooked() || !strings.Contains(last, "muster: interrupted") {
		t.Errorf("%q, cut off by %v: got restored %v and the last line %q, want true, interrupted", cmd.Args, by, s.cooked(), last)
	}
}

// checkCutOffs cuts off clients of tasks on a terminal, and of commands in a task.
func checkCutOffs(t *testing.T, d *daemon, flags ...string) {
	t.Helper()
	const ready = "echo re''ady; exec sleep 1000"
	all := []syscall.Signal{syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGTERM}
	for _, by := range all {
		checkCutOff(t, d.client(append(append([]string{"run", "-it"}, flags...), "--", "sh", "-c", ready)...), by)
		if j := d.untilState(d.newest(), "CANCELLED"); !strings.Contains(j.Reason+j.ReasonDetail, "its client has ended before its input") {
			t.Errorf("cut off by %v: got the reason %q %q, want that its client has ended", by, j.Reason, j.ReasonDetail)
		}
	}
	id := d.ok(append(append([]string{"submit"}, flags...), "--", "sleep", "1000")...)
	d.untilState(id, "RUNNING")
	for _, by := range all {
		checkCutOff(t, d.client("exec", "-it", id, "--", "sh", "-c", ready), by)
	}
	d.ok("cancel", id)
	d.untilState(id, "CANCELLED")
}

func TestTerminalIsRestoredWhenClientsAreCutOff(t *testing.T) {
	d := newDaemon(t, "amy", "--gpus", "none").start()
	checkCutOffs(t, d)
	// Under nohup the client does not end with its terminal.
	out := filepath.Join(t.TempDir(), "out")
	cmd := d.client("run", "--", "sh", "-c", "echo ready; cat > "+out)
	cmd.Args = append([]string{"sh", "-c", `trap "" HUP; exec "$@"`, "nohup"}, cmd.Args...)
	cmd.Path = "/bin/sh"
	in, near, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	cmd.Stdin = in
	said, err := cmd.StdoutPipe()
	if err != nil || cmd.Start() != nil {
		t.Fatal(err)
	}
	_ = in.Close()
	lines := bufio.NewScanner(said)
	if !lines.Scan() || lines.Text() != "ready" {
		t.Fatalf("got %q, want ready", lines.Text())
	}
	_ = cmd.Process.Signal(syscall.SIGHUP)
	if _, err := near.WriteString("typed later\n"); err != nil {
		t.Fatal(err)
	}
	_ = near.Close()
	for lines.Scan() { // until it ends
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(out); string(text) != "typed later\n" {
		t.Errorf("got %q, %v, want the later line", text, err)
	}
}
