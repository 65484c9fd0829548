package timerslack

import (
	"bytes"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The service manager starts daemons with the same timer slack.
func TestUnit(t *testing.T) {
	unit, err := os.ReadFile("../../packaging/muster.service.in")
	if err != nil {
		t.Fatal(err)
	}
	if want := "\nTimerSlackNSec=" + Ours.String() + "\n"; !strings.Contains(string(unit), want) {
		t.Errorf("muster.service.in has no line %q", want)
	}
}

func TestStart(t *testing.T) {
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
	if after, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0); err != nil || time.Duration(after) != own {
		t.Errorf("timer slack of the thread afterwards is %d ns, %v; want %d", after, err, own)
	}
}
