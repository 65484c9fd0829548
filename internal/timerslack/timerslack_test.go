package timerslack

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A program that restarts itself does so once, and keeps its arguments, its environment and its process.
func TestRestartKeepsTheProcessAndItsArguments(t *testing.T) {
	const key = "MUSTER_TEST_RESTART"
	if os.Getenv(key) != "" {
		before, err := slackNow()
		fmt.Println(os.Getpid(), before, err)
		Restart()
		os.Exit(0)
	}
	for _, parent := range []time.Duration{Default, 2 * Ours} {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestRestartKeepsTheProcessAndItsArguments$")
		cmd.Env = append(os.Environ(), key+"=1")
		var out bytes.Buffer
		cmd.Stdout = &out
		runtime.LockOSThread()
		if err := Set(parent); err != nil {
			t.Fatal(err)
		}
		err := cmd.Start()
		if err := Set(Default); err != nil {
			t.Fatal(err)
		}
		runtime.UnlockOSThread()
		if err == nil {
			err = cmd.Wait()
		}
		if err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf("%d %s <nil>\n", cmd.Process.Pid, parent)
		if parent < Ours {
			want += fmt.Sprintf("%d %s <nil>\n", cmd.Process.Pid, Ours)
		}
		if out.String() != want {
			t.Errorf("started with a slack of %s: got %q, want %q", parent, &out, want)
		}
	}
}

func TestStartedProcessHasTheSlack(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const own = 70 * time.Microsecond
	if err := Set(own); err != nil {
		t.Fatal(err)
	}
	defer Set(Default)
	var out bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "/bin/cat", "/proc/self/timerslack_ns")
	cmd.Stdout = &out
	if err := Start(cmd.Start); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if got, want := strings.TrimSpace(out.String()), strconv.Itoa(int(Ours)); got != want {
		t.Errorf("timer slack of the process is %s ns, want %s", got, want)
	}
	if after, err := slackNow(); err != nil || after != own {
		t.Errorf("timer slack of the thread afterwards is %s, %v; want %s", after, err, own)
	}
}
