//go:build e2e

package e2e

// The terminal of a user is restored, however `run -it` ends.

import (
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// modes returns the modes of the terminal.
func (s *screen) modes() unix.Termios {
	s.t.Helper()
	raw, err := s.near.SyscallConn() // Fd would make reads block
	if err != nil {
		s.t.Fatal(err)
	}
	var modes *unix.Termios
	var inner error
	if err := raw.Control(func(fd uintptr) { modes, inner = unix.IoctlGetTermios(int(fd), unix.TCGETS) }); err != nil || inner != nil {
		s.t.Fatalf("modes of the terminal: got %v, %v, want nil", err, inner)
	}
	return *modes
}

// TestTerminalIsRestored ends `run -it` in several ways: by signals to the client, by a cancel, and by the end of its
// task.
func TestTerminalIsRestored(t *testing.T) {
	amy := newDaemon(t, "amy", "--gpus", "none", "--client-timeout", "5s").start()
	for _, c := range []struct {
		name string
		end  func(s *screen)
	}{
		{"told to end", func(s *screen) { _ = s.cmd.Process.Signal(syscall.SIGTERM) }},
		{"interrupted", func(s *screen) { _ = s.cmd.Process.Signal(syscall.SIGINT) }},
		{"its task is cancelled", func(*screen) { amy.ok("cancel", amy.newest()) }},
		{"its task ends", func(s *screen) { s.typeLine("exit 3") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := onTerminal(t, amy.client("run", "-it", "--", "sh"), 24, 80)
			before := s.modes()
			s.typeLine("echo aw''ake")
			s.waitLine("awake")
			if s.modes().Lflag&unix.ICANON != 0 {
				t.Fatal("the terminal is not raw: keys arrive line by line")
			}
			c.end(s)
			for range s.lines { // until it ends
			}
			_ = s.cmd.Wait() // each way has a code of its own
			if after := s.modes(); after != before {
				t.Errorf("terminal: got %+v, want %+v", after, before)
			}
		})
	}
}
