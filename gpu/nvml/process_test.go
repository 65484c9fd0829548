package nvml

// Tests with real child processes, and with the real library if there is one.

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/gpu/gputest"
)

// agentVariable makes the test binary an agent of the given kind.
const agentVariable = "MUSTER_TEST_AGENT"

func TestMain(m *testing.M) {
	switch os.Getenv(agentVariable) {
	case "":
		m.Run()
	case "serve":
		if err := Serve(context.Background(), os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	case "hang": // like a call into a hung driver, it notices neither requests nor the end of its input
		fmt.Fprintln(os.Stderr, os.Getpid())
		fmt.Println(`{"hello":{}}`)
		pause()
	case "parent": // starts a hung agent, prints its PID, and waits to be killed
		os.Setenv(agentVariable, "hang")
		c, err := spawn([]string{os.Args[0]})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return
		}
		a := startAgent(c, func(gpu.Fault) {})
		<-a.ready
		for !strings.Contains(c.last(), ":") { // its PID has not arrived yet
			runtime.Gosched()
		}
		fmt.Println(c.last())
		pause()
	}
}

// pause blocks for ever.
func pause() {
	r, w, err := os.Pipe()
	if err == nil {
		_, err = r.Read(make([]byte, 1))
	}
	fmt.Fprintln(os.Stderr, err)
	runtime.KeepAlive(w)
}

// testAgent returns a driver whose child is this test binary as an agent.
func testAgent(t *testing.T, kind string, timeout time.Duration) (*Driver, *bytes.Buffer) {
	t.Helper()
	t.Setenv(agentVariable, kind)
	cfg := DefaultConfig()
	cfg.Command, cfg.Timeout = []string{os.Args[0]}, timeout
	log := &bytes.Buffer{}
	d, err := New(cfg, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d, log
}

// TestRealHardwareFulfilsContract checks the real driver against the contract, on a machine with a GPU.
func TestRealHardwareFulfilsContract(t *testing.T) {
	d, log := testAgent(t, "serve", 30*time.Second)
	devices, err := d.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(devices) == 0 {
		if n := strings.Count(log.String(), "\n"); n != 1 || !strings.Contains(log.String(), "no NVIDIA driver") {
			t.Errorf(`%d lines in the log: %s, want 1 and String() "no NVIDIA driver" in it`, n, log)
		}
		t.Skipf("no GPU here: %s", d.none.why)
	}
	statuses, err := d.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	shown, err := json.MarshalIndent(map[string]any{"devices": devices, "statuses": statuses}, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s", shown)
	for i := range devices {
		if devices[i].Compute == "" || devices[i].Driver == "" || devices[i].PCI == "" || statuses[i].Temperature == 0 {
			t.Errorf("%+v, %+v: lacks fields that real hardware reports", devices[i], statuses[i])
		}
	}
	gputest.TestDriver(t, d)
}

func TestRealChildThatHangsIsKilled(t *testing.T) {
	d, log := testAgent(t, "hang", 200*time.Millisecond)
	if _, err := d.List(t.Context()); !errors.Is(err, errSlow) {
		t.Fatalf("List: %v, want errSlow", err)
	}
	select {
	case <-d.reaped:
	case <-time.NewTimer(30 * time.Second).C:
		t.Fatal("the child still runs")
	}
	if strings.Count(log.String(), "\n") != 1 {
		t.Errorf("want one line in the log: %s", log)
	}
}

// TestErrorOfARealChildThatDies has a child that ends as if the library lacked a symbol.
func TestErrorOfARealChildThatDies(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Command = []string{"/bin/sh", "-c", `echo '{"hello":{}}'; read request; echo symbol lookup error: undefined symbol: nvmlFoo >&2; exit 127`}
	d, err := New(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if _, err := d.List(t.Context()); err == nil || !strings.Contains(err.Error(), "undefined symbol: nvmlFoo") || !strings.Contains(err.Error(), "127") {
		t.Errorf(`List: %v, want an error, "undefined symbol: nvmlFoo" in it and "127" in it`, err)
	}
}

func TestTailKeepsTheEndOfTheOutput(t *testing.T) {
	tl := &tail{}
	for range 1000 {
		fmt.Fprintln(tl, "a line that nobody reads")
	}
	fmt.Fprintln(tl, "the last words")
	if s := tl.String(); !strings.HasSuffix(s, "the last words") || len(s) > tailBytes+20 {
		t.Errorf(`kept %d bytes: %s, want suffix "the last words" and at most %v`, len(s), s, tailBytes+20)
	}
}

func TestChildDiesWithItsParent(t *testing.T) {
	if dieWithParent() == nil {
		t.Skip("this system does not end children with their parents")
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), agentVariable+"=parent")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	_, number, _ := strings.Cut(strings.TrimSpace(line), "it ended: ")
	pid, err := strconv.Atoi(number)
	if err != nil {
		t.Fatalf("the parent printed %q, want a PID", line)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	deadline, tick := time.Now().Add(30*time.Second), time.NewTicker(10*time.Millisecond)
	defer tick.Stop()
	for !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) && !isZombie(pid) {
		if time.Now().After(deadline) {
			t.Fatalf("process %d outlived its parent", pid)
		}
		<-tick.C
	}
}

// isZombie reports whether the process has ended and was not reaped yet.
func isZombie(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && strings.Contains(string(stat), ") Z ")
}
