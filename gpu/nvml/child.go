package nvml

// The child process: how it starts, and how it ends with its parent.

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// child is a started agent process.
type child struct {
	in   io.WriteCloser
	out  io.ReadCloser
	term func()          // sends TERM
	kill func()          // may be called again
	done <-chan struct{} // closed when the process is gone
	last func() string   // how it ended and its last output; valid once done is closed
}

// pipesLinger is how long the child's pipes may stay open after its end.
const pipesLinger = time.Second

// endStep is how long a child may take for each step of its end: to notice that its input is closed, and to follow TERM.
// A child that works needs milliseconds. Both together are shorter than minPause.
const endStep = 200 * time.Millisecond

// end ends the process: it closes its input, then sends TERM, then KILL. It does not wait. A process in an
// uninterruptible call of the kernel's driver ends only when the call does.
func (c *child) end() {
	_ = c.in.Close() // no error matters: the process is being ended
	go func() {
		for _, next := range []func(){c.term, c.kill} {
			timer := time.NewTimer(endStep)
			select {
			case <-c.done:
				timer.Stop()
				return
			case <-timer.C:
				next()
			}
		}
	}()
}

// spawn starts the program, with the variables of env beside this process's own. One goroutine, locked to a thread of its own, starts it and waits for its end: on Linux a
// child that dies with its parent dies with the thread that started it.
func spawn(command []string, env ...string) (*child, error) {
	in, stdin, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("nvml: pipe to the agent: %w", err)
	}
	stdout, out, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("nvml: pipe from the agent: %w", err), in.Close(), stdin.Close())
	}
	end := &tail{}
	cmd := &exec.Cmd{Path: command[0], Args: command, Env: append(os.Environ(), env...), Stdin: in, Stdout: out, Stderr: end, SysProcAttr: dieWithParent(), WaitDelay: pipesLinger}
	started, done := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			end.note(cmd.Wait())
		}
	}()
	err = errors.Join(<-started, in.Close(), out.Close())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("nvml: start %s: %w", command[0], err), stdin.Close(), stdout.Close())
	}
	signal := func(s os.Signal) func() {
		return func() { _ = cmd.Process.Signal(s) } // fails only if the process is gone
	}
	return &child{in: stdin, out: stdout, term: signal(syscall.SIGTERM), kill: signal(os.Kill), done: done, last: end.String}, nil
}

// tailBytes is how much of the child's last output is kept.
const tailBytes = 2048

// tail keeps the end of what is written to it.
type tail struct {
	mu    sync.Mutex
	text  []byte // guarded by mu
	ended error  // guarded by mu
}

// Write keeps the end of p.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	t.text = t.text[max(0, len(t.text)-tailBytes):]
	return len(p), nil
}

func (t *tail) note(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = err
}

// String returns how the process ended and its last output, on one line.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	ended := "it ended"
	if t.ended != nil {
		ended = t.ended.Error()
	}
	if words := strings.Join(strings.Fields(string(t.text)), " "); words != "" {
		ended += ": " + words
	}
	return ended
}
