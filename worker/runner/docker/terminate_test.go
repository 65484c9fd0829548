package docker

import (
	"bytes"
	"context"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/moby/docker-image-spec/specs-go/v1"
	"github.com/moby/moby/api/types/image"
	"github.com/moby/moby/client"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/worker/runner/proc"
)

// contained is a process in a PID namespace whose first process is docker-init.
type contained struct {
	running

	cmd *exec.Cmd
	mu  sync.Mutex
	buf bytes.Buffer // guarded by mu
}

func (c *contained) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.buf.Write(p)
}

func (c *contained) output() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.buf.String()
}

// contain runs a script as the command of a container. It returns when the script has written "up".
func contain(t *testing.T, script string) *contained {
	t.Helper()
	docker, err := exec.LookPath("docker-init")
	if err != nil {
		t.Skip(err)
	}
	if out, err := exec.CommandContext(t.Context(), "unshare", "--pid", "--fork", "true").CombinedOutput(); err != nil {
		t.Skipf("no PID namespace: %v, %s", err, out)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	c := &contained{cmd: exec.CommandContext(ctx, "unshare", "--pid", "--fork", "--kill-child", docker, "--", "sh", "-c", script)}
	c.cmd.Stdout = c
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	until(t, "the script", func() bool { return c.output() == "up\n" })
	first, err := find(proc.Children(c.cmd.Process.Pid)[0])
	if err != nil {
		t.Fatal(err)
	}
	c.first, c.init, c.local, c.stop = first, true, true, unix.SIGTERM
	return c
}

func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("time-out while waiting for %s", what)
		}
	}
}

const saves = `sh -c 'trap "sleep 0.3; echo saved; exit 0" TERM; echo up; while :; do sleep 0.01; done'; echo never`

// TERM ends the shell of a container. The program that it started still has the grace.
func TestProgramInAContainerHasTheGrace(t *testing.T) {
	t.Parallel()
	c := contain(t, saves)
	c.End(unix.SIGTERM)
	_ = c.cmd.Wait() // its exit code is what counts
	if code := c.cmd.ProcessState.ExitCode(); code != 143 || c.output() != "up\nsaved\n" {
		t.Errorf(`exit code %d, output %q, want 143 and "up\nsaved\n"`, code, c.output())
	}
}

// After the grace, remaining processes are killed, and the exit code is that of the command.
func TestContainerIsKilledAfterTheGrace(t *testing.T) {
	t.Parallel()
	c := contain(t, `trap "exit 7" TERM; (trap "" TERM; echo up; while :; do sleep 1; done) & while :; do sleep 0.01; done`)
	c.End(unix.SIGTERM)
	until(t, "the end of the command", c.commandEnded)
	if c.first.diesWithin(300 * time.Millisecond) {
		t.Error("the container has ended before its processes")
	}
	c.Signal(unix.SIGKILL)
	_ = c.cmd.Wait() // as above
	if code := c.cmd.ProcessState.ExitCode(); code != 7 {
		t.Errorf("exit code %d, want 7", code)
	}
}

// The image's stop signal is for its program. Processes started by the program get TERM.
func TestStopSignalIsForTheProgramOfTheImage(t *testing.T) {
	t.Parallel()
	c := contain(t, `trap "wait; echo quit; exit 5" QUIT; sh -c 'trap "echo child; exit 0" TERM; echo up; while :; do sleep 0.01; done' & while :; do sleep 0.01; done`)
	c.stop = unix.SIGQUIT
	c.End(unix.SIGTERM)
	_ = c.cmd.Wait() // as above
	if code := c.cmd.ProcessState.ExitCode(); code != 5 || c.output() != "up\nchild\nquit\n" {
		t.Errorf(`exit code %d, output %q, want 5 and "up\nchild\nquit\n"`, code, c.output())
	}
	for _, tt := range []struct {
		named      string
		command    []string
		entrypoint []string
		want       unix.Signal
	}{
		{"SIGQUIT", nil, nil, unix.SIGQUIT},
		{"INT", nil, nil, unix.SIGINT},
		{"SIGQUIT", []string{"script"}, nil, unix.SIGTERM},
		{"SIGQUIT", []string{"script"}, []string{"serve"}, unix.SIGQUIT},
		{"", nil, nil, unix.SIGTERM},
		{"SIGSTOP", nil, nil, unix.SIGTERM},
		{"nonsense", nil, nil, unix.SIGTERM},
	} {
		img := client.ImageInspectResult{InspectResponse: image.InspectResponse{Config: &v1.DockerOCIImageConfig{
			ImageConfig: ocispec.ImageConfig{StopSignal: tt.named, Entrypoint: tt.entrypoint},
		}}}
		if got := stopSignalOf(img, tt.command); got != tt.want {
			t.Errorf("%+v: %v, want %v", tt, got, tt.want)
		}
	}
	if got := stopSignalOf(client.ImageInspectResult{}, nil); got != unix.SIGTERM {
		t.Errorf("an image without a configuration: %v, want %v", got, unix.SIGTERM)
	}
}
