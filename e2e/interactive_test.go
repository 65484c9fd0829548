//go:build e2e

package e2e

// Jobs that get input from their client, through a pipe or through a terminal.

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
)

// client returns a command of muster that uses this daemon and is not started.
func (d *daemon) client(args ...string) *exec.Cmd {
	cmd := exec.Command(d.program, args...)
	cmd.Env = append(os.Environ(), "MUSTER_SOCKET="+d.socket, "TERM=vt100", "PS1=> ", "SHELL=/bin/sh")
	return cmd
}

// newest returns the job that was submitted last.
func (d *daemon) newest() string {
	d.t.Helper()
	return string(d.doc("last").ID)
}

// screen is a command on a terminal.
type screen struct {
	t     *testing.T
	cmd   *exec.Cmd
	near  *os.File
	lines chan string
}

// onTerminal starts a command on a terminal of this size.
func onTerminal(t *testing.T, cmd *exec.Cmd, rows, cols uint16) *screen {
	t.Helper()
	near, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: rows, Cols: cols})
	if err != nil {
		t.Fatal(err)
	}
	s := &screen{t, cmd, near, make(chan string, 10000)}
	t.Cleanup(func() {
		_ = near.Close()
		_ = cmd.Process.Kill()
	})
	go func() {
		defer close(s.lines)
		for in := bufio.NewScanner(near); in.Scan(); {
			s.lines <- strings.TrimSpace(in.Text())
		}
	}()
	return s
}

func (s *screen) typeLine(text string) {
	s.t.Helper()
	if _, err := s.near.WriteString(text + "\r"); err != nil {
		s.t.Fatal(err)
	}
}

// resizesAndInterrupts changes the size of the terminal, and ends a program in its foreground with Ctrl-C. A shell must
// be at its prompt.
func (s *screen) resizesAndInterrupts() {
	s.t.Helper()
	if err := pty.Setsize(s.near, &pty.Winsize{Rows: 40, Cols: 120}); err != nil {
		s.t.Fatal(err)
	}
	_ = s.cmd.Process.Signal(syscall.SIGWINCH)
	s.typeLine("until stty size | grep -q '40 120'; do sleep 0.05; done; echo resi''zed")
	s.waitLine("resized")
	s.typeLine("sh -c 'echo asl''eep; exec sleep 1000'") // when it prints, it is the foreground process of the terminal
	s.waitLine("asleep")
	s.typeLine("\x03")
}

// waitLine waits for a line that has these words and is not the echo of a command with "echo" in it.
func (s *screen) waitLine(want string) string {
	s.t.Helper()
	late := time.NewTimer(patience)
	defer late.Stop()
	var said []string
	for {
		select {
		case line, ok := <-s.lines:
			if !ok {
				s.t.Fatalf("the terminal ended before %q; got %q", want, said)
			}
			said = append(said, line)
			if strings.Contains(line, want) && !strings.Contains(line, "echo") {
				return line
			}
		case <-late.C:
			s.t.Fatalf("no %q on the terminal; got %q", want, said)
		}
	}
}

// waitExit waits for the end of the command.
func (s *screen) waitExit(want int) {
	s.t.Helper()
	late := time.AfterFunc(patience, func() { _ = s.cmd.Process.Kill() })
	defer late.Stop()
	for range s.lines { // until it ends
	}
	if err := s.cmd.Wait(); s.cmd.ProcessState.ExitCode() != want {
		s.t.Errorf("exit %d, want %d (%v)", s.cmd.ProcessState.ExitCode(), want, err)
	}
}

func TestStandardInputReachesTheTask(t *testing.T) {
	t.Parallel()
	amy, ben, _ := three(t)
	big := make([]byte, 10<<20)
	source := rand.NewChaCha8([32]byte{1})
	_, _ = source.Read(big)
	for _, flags := range [][]string{{"-w", "ben"}, {"-w", "cat"}} {
		args := append(append([]string{"run"}, flags...), "--", "cat")
		if r := ben.musterIn(strings.NewReader("x\n"), args...); r.code != 0 || r.stdout != "x\n" {
			t.Errorf("%v: got %+v, want the input", flags, r)
		}
		r := ben.musterIn(bytes.NewReader(big), args...)
		if got := sha256.Sum256([]byte(r.stdout)); r.code != 0 || got != sha256.Sum256(big) {
			t.Errorf("%v: exit %d, %d bytes, want 0 and the %d bytes unchanged; %s", flags, r.code, len(r.stdout), len(big), r.stderr)
		}
	}
	// Without input the task reads end of file at once, and a job that reads nothing ends as without input.
	if r := amy.muster("run", "--", "sh", "-c", "cat; exit 3"); r.code != 3 || r.stdout != "" {
		t.Errorf("from /dev/null: got %+v, want 3 without output", r)
	}
	if r := amy.musterIn(bytes.NewReader(big), "run", "--", "sh", "-c", "exit 4"); r.code != 4 {
		t.Errorf("a task that does not read: got %+v, want 4", r)
	}
	if r := amy.musterIn(bytes.NewReader(big), "run", "--", "sh", "-c", "head -c 3; exec <&-; echo closed"); r.code != 0 || !strings.HasSuffix(r.stdout, "closed\n") {
		t.Errorf("a task that closes its input: exit %d, %d bytes, want 0, closed", r.code, len(r.stdout))
	}
	// An open pipe without data does not keep the client from ending with its job.
	silent, keep, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	defer keep.Close()
	cmd := amy.client("run", "--", "echo", "done")
	cmd.Stdin = silent
	if out, err := cmd.Output(); err != nil || string(out) != "done\n" {
		t.Errorf("got %q, %v, want done", out, err)
	}
	// A job that may run again gets no input, and a warning says so.
	if r := amy.musterIn(strings.NewReader("x\n"), "run", "--retries", "1", "--", "cat"); r.code != 0 || r.stdout != "" || !strings.Contains(r.stderr, "not passed on") {
		t.Errorf("with retries: got %+v, want 0 without input, and a warning", r)
	}
	file := filepath.Join(t.TempDir(), "j.yaml")
	write(t, file, "command: [cat]\nstdin: true\nrequeue: false\n")
	amy.fails(2, []string{"muster run"}, "submit", "-F", file)
	if r := amy.musterIn(strings.NewReader("x\n"), "run", "-J", "fed", "--", "cat"); r.code != 0 {
		t.Fatalf("got %+v, want exit code 0", r)
	}
	amy.fails(1, []string{"input from a client", "submit it again"}, "requeue", amy.newest())
}

// TestInputSurvivesRestarts kills the client's daemon and then that of the task while input is being sent.
func TestInputSurvivesRestarts(t *testing.T) {
	t.Parallel()
	_, ben, cat := three(t)
	cmd := ben.client("run", "-w", "cat", "--", "cat")
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err1 != nil || err2 != nil || cmd.Start() != nil {
		t.Fatal(err1, err2)
	}
	defer cmd.Process.Kill()
	part := make([]byte, 2<<20)
	source := rand.NewChaCha8([32]byte{2})
	want := sha256.New()
	sent := make(chan error, 1)
	next := make(chan bool)
	go func() {
		for range 3 {
			_, _ = source.Read(part)
			want.Write(part)
			if _, err := in.Write(part); err != nil {
				sent <- err
				return
			}
			next <- true
		}
		sent <- in.Close()
	}()
	got := sha256.New()
	read := func(n int64) {
		t.Helper()
		if m, err := io.CopyN(got, out, n); err != nil {
			t.Fatalf("got %d of %d bytes: %v", m, n, err)
		}
	}
	read(1 << 20) // in the middle of the input
	ben.kill()
	ben.start()
	read(1 << 20)
	<-next
	read(1 << 20)
	cat.kill()
	cat.start()
	<-next
	<-next
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	rest, err := io.Copy(got, out)
	if err != nil || cmd.Wait() != nil || rest != 3<<20 || !bytes.Equal(got.Sum(nil), want.Sum(nil)) {
		t.Errorf("got %d more bytes, want %d, unchanged; %v, %v", rest, 3<<20, err, cmd.ProcessState)
	}
}

func TestTerminalFromTheStart(t *testing.T) {
	t.Parallel()
	amy, ben, cat := three(t)
	s := onTerminal(t, ben.client("run", "-it", "-w", "cat", "--", "sh"), 31, 97)
	s.typeLine("tty; echo kind=$TERM")
	s.waitLine("/dev/pts/")
	s.waitLine("kind=vt100")
	s.typeLine("stty size; echo done")
	s.waitLine("31 97")
	s.resizesAndInterrupts()
	s.typeLine("echo aw''ake")
	s.waitLine("awake")
	id := amy.newest()
	if j := amy.show(id); j.State != "RUNNING" || j.Tasks[0].Node != "cat" {
		t.Errorf("got %+v, want RUNNING on cat", j)
	}
	// The daemons of the client and of the task are killed and started again, one after the other.
	for _, d := range []*daemon{cat, ben} {
		d.kill()
		s.typeLine("echo typed meanw''hile at " + d.name)
		d.start()
		s.waitLine("typed meanwhile at " + d.name)
	}
	s.typeLine("exit 9")
	s.waitExit(9)
	amy.untilState(id, "FAILED")
	if log := amy.ok("logs", id); !strings.Contains(log, "31 97") || !strings.Contains(log, "typed meanwhile at cat") {
		t.Errorf("log: got %q, want the size and what was typed", log)
	}
	ben.fails(2, []string{"not a terminal"}, "run", "-it", "--", "true")
	// The size is set before the first command.
	s = onTerminal(t, ben.client("run", "-it", "-w", "cat", "--", "stty", "size"), 17, 71)
	s.waitLine("17 71")
	s.waitExit(0)
	s = onTerminal(t, ben.client("run", "-it", "-w", "cat", "--", "stty", "size"), 0, 0) // it reports no size
	s.waitLine("24 80")
	s.waitExit(0)
}

// TestTaskEndsWhenItsClientIsGone checks that a task ends soon if its client is told to end, and after client-timeout
// if the client is killed.
func TestTaskEndsWhenItsClientIsGone(t *testing.T) {
	t.Parallel()
	amy := newDaemon(t, "amy", "--gpus", "none", "--client-timeout", "5s").start()
	sink := filepath.Join(t.TempDir(), "said")
	for _, c := range []struct {
		sig   syscall.Signal
		gets  string // the signal that the task waits for
		other string // one that it ignores
		words string
	}{{syscall.SIGHUP, "TERM", "HUP", "its client has ended before its input"}, {syscall.SIGKILL, "HUP", "TERM", "its client was gone for 5s"}} {
		s := onTerminal(t, amy.client("run", "-it", "--", "sh", "-c", "trap 'echo "+c.gets+" >> "+sink+"; exit' "+c.gets+"; trap '' "+c.other+"; echo re''ady; while :; do sleep 0.1; done"), 24, 80)
		s.waitLine("ready")
		id := amy.newest()
		_ = s.cmd.Process.Signal(c.sig)
		for range s.lines { // until it ends
		}
		_ = s.cmd.Wait()
		if j := amy.untilState(id, "CANCELLED"); !strings.Contains(j.Reason+j.ReasonDetail, c.words) {
			t.Errorf("after %s: got the reason %q %q, want that its client is gone", c.sig, j.Reason, j.ReasonDetail)
		}
	}
	if text, err := os.ReadFile(sink); string(text) != "TERM\nHUP\n" {
		t.Errorf("got %q, %v, want TERM and HUP", text, err)
	}
	// A job that has all its input needs no client.
	cmd := amy.client("run", "--", "sh", "-c", "cat; echo fed; sleep 6; echo ended")
	cmd.Stdin = strings.NewReader("in\n")
	out, err := cmd.StdoutPipe()
	if err != nil || cmd.Start() != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(out); lines.Scan() && lines.Text() != "fed"; { // until it has all its input
	}
	id := amy.newest()
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	amy.untilState(id, "SUCCEEDED")
	if log := amy.ok("logs", id); log != "in\nfed\nended" {
		t.Errorf("log: got %q, want %q", log, "in\nfed\nended")
	}
}

func TestAllocHoldsNodesForSteps(t *testing.T) {
	t.Parallel()
	amy, ben, _ := three(t)
	s := onTerminal(t, ben.client("alloc", "-w", "cat", "-c", "1"), 24, 80)
	s.waitLine("holds cat")
	id := amy.newest()
	s.typeLine("echo id=$MUSTER_JOB_ID nodes=$MUSTER_NUM_NODES") // the shell runs on this host
	s.waitLine("id=" + id + " nodes=1")
	if j := amy.show(id); j.State != "RUNNING" || j.Name != "alloc" {
		t.Errorf("got %+v, want RUNNING, alloc", j)
	}
	program := binary(t)
	s.typeLine(program + " run --in $MUSTER_JOB_ID -- sh -c 'echo step of $MUSTER_JOB_ID; exit 6'; echo code=$?")
	s.waitLine("step of " + id)
	s.waitLine("code=6")
	s.typeLine("echo piped in | " + program + " run --in $MUSTER_JOB_ID -- sed s/piped/sent/; echo")
	s.waitLine("sent in")
	s.typeLine(program + " run --in $MUSTER_JOB_ID -it -- sh -c 'tty; stty size'; echo ba''ck")
	s.waitLine("/dev/pts/")
	s.waitLine("24 80")
	s.waitLine("back") // what is typed before goes to the step
	amy.fails(2, []string{"--cpus", "--in"}, "run", "--in", id, "--cpus", "2", "--", "true")
	s.typeLine("exit 5")
	s.waitExit(5)
	if j := amy.show(id); j.State != "SUCCEEDED" {
		t.Errorf("got %s (%s), want SUCCEEDED", j.State, j.ReasonDetail)
	}
	amy.fails(125, []string{"not running"}, "run", "--in", id, "--", "true")

	// With several tasks a step runs in each, and the highest code counts.
	r := amy.muster("alloc", "--array", "3-4", "--", "sh", "-c", program+" --socket "+amy.socket+` run --in $MUSTER_JOB_ID -- sh -c 'echo in $MUSTER_TASK; exit $MUSTER_TASK'`)
	if r.code != 4 || !strings.Contains(r.stdout, "3| in 3\n") || !strings.Contains(r.stdout, "4| in 4\n") {
		t.Errorf("got %+v, want 4 with the output of both", r)
	}
	if j := amy.doc("last"); j.State != "SUCCEEDED" || j.TaskCount != 2 {
		t.Errorf("got %+v, want SUCCEEDED with 2 tasks", j)
	}
	// Only the first task gets the input.
	r = amy.muster("alloc", "--array", "3-4", "--", "sh", "-c", "echo some input | "+program+" --socket "+amy.socket+` run --in $MUSTER_JOB_ID -- sh -c 'cat; echo end of $MUSTER_TASK'`)
	if lines := slices.Sorted(strings.Lines(r.stdout)); r.code != 0 || !slices.Equal(lines, []string{"3| end of 3\n", "3| some input\n", "4| end of 4\n"}) {
		t.Errorf("got %+v, want the input in the first task only", r)
	}
	// The time limit ends the job, not the shell.
	r = amy.muster("alloc", "-t", "1s", "--", "sh", "-c", "sleep 3; echo still here")
	if r.code != 0 || r.stdout != "still here\n" || !strings.Contains(r.stderr, "TIMEOUT") {
		t.Errorf("got %+v, want 0 and a message about the time limit", r)
	}
}

// TestInputIsNotHeldInMemory checks that input is passed on without being held in memory: 1 GiB, and a task that never
// reads.
func TestInputIsNotHeldInMemory(t *testing.T) {
	t.Parallel()
	atFullSize(t)
	_, ben, cat := three(t)
	gib := "head -c 1073741824 /dev/zero | " + ben.program + " --socket " + ben.socket + " run -w cat -- sh -c 'wc -c; sleep 1'"
	before := memory(t, cat, "VmHWM") + memory(t, ben, "VmHWM")
	out, err := exec.Command("sh", "-c", gib).Output()
	if strings.TrimSpace(string(out)) != "1073741824" {
		t.Errorf("got %q, %v, want 1073741824", out, err)
	}
	after := memory(t, cat, "VmHWM") + memory(t, ben, "VmHWM")
	t.Logf("both daemons: %.0f MB before, %.0f MB after", before/1e6, after/1e6)
	if after-before > 64<<20 {
		t.Errorf("daemons grew by %.0f MB, want at most 67", (after-before)/1e6)
	}
}

// dockerInput sends input to containers, through a pipe and through a terminal.
func dockerInput(t *testing.T, x dockerTest) {
	big := bytes.Repeat([]byte("0123456789abcdef"), 100_000)
	if r := x.d.musterIn(bytes.NewReader(big), x.in("run", "cat")...); r.code != 0 || r.stdout != string(big) {
		t.Errorf("exit %d, %d bytes of %d, want 0 and all, unchanged; %s", r.code, len(r.stdout), len(big), r.stderr)
	}
	s := onTerminal(t, x.d.client("run", "--image", busyImage, "-it", "--", "sh"), 31, 97)
	s.typeLine("stty size; echo kind=$TERM")
	s.waitLine("31 97")
	s.waitLine("kind=vt100")
	s.resizesAndInterrupts()
	s.typeLine("exit 9")
	s.waitExit(9)
	checkCutOffs(t, x.d, "--image", busyImage)
	r := x.d.muster("alloc", "--image", busyImage, "--", "sh", "-c", x.d.program+" --socket "+x.d.socket+` run --in $MUSTER_JOB_ID -- sh -c 'echo in the image; exit 7'`)
	if r.code != 7 || r.stdout != "in the image\n" {
		t.Errorf("got %+v, want 7 and the line", r)
	}
}
