//go:build e2e

package e2e

// The view of the cluster on a terminal, in tmux. Without tmux the test is skipped.

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/internal/testkit/needtest"
	"github.com/musterhq/muster/job"
)

// pane is a terminal of tmux, in which a program runs.
type pane struct {
	t      *testing.T
	socket string
}

// inTmux runs a program on a terminal of this size, until the test ends.
func inTmux(t *testing.T, columns, lines int, env []string, program ...string) pane {
	t.Helper()
	needtest.Tmux(t)
	dir, err := os.MkdirTemp("", "t") //nolint:usetesting // short: a socket's path has 107 letters
	if err != nil {
		t.Fatal(err)
	}
	p := pane{t, filepath.Join(dir, "s")}
	t.Cleanup(func() {
		_, _ = p.tmux("kill-server")
		os.RemoveAll(dir)
	})
	cmd := exec.Command("tmux", append([]string{"-u", "-f", "/dev/null", "-S", p.socket, "new-session", "-d", "-x", strconv.Itoa(columns), "-y", strconv.Itoa(lines)}, program...)...)
	cmd.Env = append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("tmux: %v: %s", err, out)
	}
	return p
}

func (p pane) tmux(args ...string) (string, error) {
	cmd := exec.Command("tmux", append([]string{"-u", "-S", p.socket}, args...)...)
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// keys presses keys, by their names in tmux.
func (p pane) keys(names ...string) {
	p.t.Helper()
	if out, err := p.tmux(append([]string{"send-keys"}, names...)...); err != nil {
		p.t.Fatalf("send-keys: %v: %s", err, out)
	}
}

func (p pane) resize(columns, lines int) {
	p.t.Helper()
	if out, err := p.tmux("resize-window", "-x", strconv.Itoa(columns), "-y", strconv.Itoa(lines)); err != nil {
		p.t.Fatalf("resize-window: %v: %s", err, out)
	}
}

// shows waits until the screen has all these words and none of those after "not".
func (p pane) shows(words ...string) {
	p.t.Helper()
	untilRight(p.t, patience, func() string {
		screen, err := p.tmux("capture-pane", "-p")
		if err != nil {
			return err.Error() + ": " + screen
		}
		want := true
		for _, w := range words {
			if w == "not" {
				want = false
			} else if strings.Contains(screen, w) != want {
				return "the screen is\n" + screen + "\nwith " + strconv.Quote(w) + ": want " + strconv.FormatBool(want)
			}
		}
		return ""
	})
}

// colour matches a sequence that sets a colour of letters; 39 is that of the terminal.
var colour = regexp.MustCompile(`\x1b\[[0-9;]*3[0-8]m`)

func TestTopShowsTheClusterAndEndsCleanly(t *testing.T) {
	t.Parallel()
	amy, ben, _ := three(t)
	g := newGate(t)
	train := strings.TrimSpace(amy.ok(append([]string{"submit", "-J", "train", "-G", "2", "--"}, g.script("")...)...))
	sweep := strings.TrimSpace(amy.ok("submit", "-J", "sweep", "-a", "0-9", "-G", "8", "--", "true"))
	amy.untilState(train, "RUNNING")
	p := inTmux(t, 80, 24, []string{"MUSTER_SOCKET=" + amy.socket, "NO_COLOR=1", "TZ=UTC"}, amy.program, "top")
	p.shows("3 nodes · 8 GPUs, 2 held", "amy", "ben", "cat", " 2/8", train, sweep, "q leave", "not", "…")
	p.keys("g")
	p.shows("/train", "free", "30°C", "50W", "0%")
	p.resize(200, 60)
	p.shows("MODEL", "h100-80gb (sim)", "0B/80GiB", "HELD BY")
	if screen, _ := p.tmux("capture-pane", "-p", "-e"); colour.MatchString(screen) {
		t.Errorf("got colours with NO_COLOR: %q", screen)
	}
	p.resize(60, 20)
	p.shows("needs 80×24", "60×20", "not", "train")
	p.resize(80, 24)
	p.shows("/train", "q leave")

	p.keys("/", "train", "Enter")
	p.shows("/train", "not", sweep)
	p.keys("w")
	p.shows("$ muster why "+train, "RUNNING", "back to muster top", "not", "TIME GPUS")
	p.keys("Enter")
	p.shows("TIME GPUS", "not", "back to muster top")
	p.keys("l")
	p.shows("$ muster logs -f "+train, "not", "TIME GPUS")
	p.keys("C-c") // ends the other verb only
	p.shows("TIME GPUS")
	p.keys("e")
	p.shows("run in " + train + ": sh")
	p.keys("C-u", "echo in $MUSTER_JOB_NAME; read x", "Enter")
	p.shows("in train", "not", "TIME GPUS")
	p.keys("Enter")
	p.shows("TIME GPUS")

	p.keys("c")
	p.shows("ends 1 task on cat?")
	p.keys("n")
	p.shows("nothing was changed")
	amy.untilState(train, "RUNNING")
	p.keys("c")
	p.shows("ends 1 task on cat?")
	p.keys("y")
	p.shows(train + " is cancelled")
	amy.until(train, "cancelled", func(j api.Job) bool { return j.State == job.Cancelled })

	p.keys("g")
	ben.kill()
	p.shows("1 silent", "suspect", "–/")
	amy.kill()
	p.shows("no news for", "no daemon answers on", "ben")
	amy.start()
	p.shows("amy", "cat", "not", "no news for")
	p.keys("q")
	untilRight(t, patience, func() string {
		if out, err := p.tmux("list-sessions"); err == nil {
			return "top goes on: " + out
		}
		return ""
	})

	once := amy.ok("top", "--once", "--node", "cat")
	if !strings.Contains(once, "\n cat ") || strings.Contains(once, "\n amy ") || !strings.Contains(once, "no answer from ben") || strings.Contains(once, "\x1b") {
		t.Errorf("one frame: want cat without amy, got\n%s", once)
	}
	amy.fails(2, []string{"--once"}, "top")
	amy.fails(2, []string{"200ms"}, "top", "--once", "--refresh", "0.1")
	amy.fails(1, []string{"nowhere"}, "top", "--once", "--node", "nowhere")
}

// SIGINT is for the verb that has the terminal, and top may see it only after that verb has ended: top survives it.
func TestTopOutlivesInterruptedVerbs(t *testing.T) {
	t.Parallel()
	amy := newDaemon(t, "amy", "--gpus", "none").start()
	id := strings.TrimSpace(amy.ok("submit", "-J", "train", "--", "sh", "-c", "echo step one; sleep 600"))
	amy.untilState(id, "RUNNING")
	p := inTmux(t, 80, 24, []string{"MUSTER_SOCKET=" + amy.socket}, "sh", "-c",
		`trap : INT; "$0" top; echo "top ended with $?"; stty -a; cat`, amy.program)
	p.shows("q leave", id)
	top := p.child()
	for range 5 {
		p.keys("l")
		p.shows("$ muster logs -f "+id, "step one", "not", "q leave")
		p.keys("C-c")
		p.shows("q leave", "not", "step one")
		if err := syscall.Kill(top, syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
	}
	p.keys("?")
	p.shows("this help")
	if err := syscall.Kill(top, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.shows("top ended with 0", " icanon", " echo", "not", "q leave")
}

// child returns the process id of the only child of the program that runs in the pane.
func (p pane) child() int {
	p.t.Helper()
	shell, err := p.tmux("display-message", "-p", "#{pane_pid}")
	if err != nil {
		p.t.Fatalf("display-message: %v: %s", err, shell)
	}
	shell = strings.TrimSpace(shell)
	children, err := os.ReadFile(filepath.Join("/proc", shell, "task", shell, "children"))
	if err != nil {
		p.t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(children)))
	if err != nil {
		p.t.Fatalf("the children of %s: %v", shell, err)
	}
	return pid
}
