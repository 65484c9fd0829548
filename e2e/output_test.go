//go:build e2e

package e2e

// The output of a job: complete and in order, whichever daemon dies, and within its limit on disk.

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/musterhq/muster/api"
)

// numbers returns the output of seq 1 to n.
func numbers(n int) []byte {
	var b bytes.Buffer
	for i := 1; i <= n; i++ {
		fmt.Fprintln(&b, i)
	}
	return b.Bytes()
}

// reader compares the output of a follower with the expected output, byte by byte, and reports its progress.
type reader struct {
	want []byte
	at   int
	bad  bool
	far  chan int // closed at the first wrong byte
}

func (r *reader) Write(p []byte) (int, error) {
	if r.bad || r.at+len(p) > len(r.want) || !bytes.Equal(p, r.want[r.at:r.at+len(p)]) {
		if !r.bad {
			close(r.far)
		}
		r.bad = true
		return len(p), nil
	}
	r.at += len(p)
	select {
	case r.far <- r.at:
	default:
	}
	return len(p), nil
}

// TestFollowIsCompleteDespiteRestarts follows, at ben, a job that amy owns and cat runs, while each of them is killed and
// restarted in turn.
func TestFollowIsCompleteDespiteRestarts(t *testing.T) {
	t.Parallel()
	amy, ben, cat := three(t)
	const parts, each = 24, 120_000
	want := numbers(parts * each)
	id := amy.ok("submit", "-G", "1", "--", "sh", "-c",
		fmt.Sprintf("k=0; while [ $k -lt %d ]; do seq $((k*%d+1)) $(((k+1)*%[2]d)); k=$((k+1)); sleep 0.2; done", parts, each))
	out := &reader{want: want, far: make(chan int)}
	follow := exec.Command(binary(t), "logs", "-f", id)
	follow.Env = append(os.Environ(), "MUSTER_SOCKET="+ben.socket)
	var stderr bytes.Buffer
	follow.Stdout, follow.Stderr = out, &stderr
	if err := follow.Start(); err != nil {
		t.Fatal(err)
	}
	for i, d := range []*daemon{cat, amy, ben} {
		for at := range out.far {
			if at > (i+1)*len(want)/6 {
				break
			}
		}
		d.kill()
		d.start()
	}
	go func() {
		for range out.far { // let it run
		}
	}()
	err := follow.Wait()
	if err != nil || out.bad || out.at != len(want) {
		t.Errorf("logs -f: got %v, right up to byte %d, want %d, then wrong: %v\n%s", err, out.at, len(want), out.bad, stderr.String())
	}
	if doc := amy.untilState(id, "SUCCEEDED"); doc.Tasks[0].Attempt != 1 {
		t.Errorf("the task ran again: got %+v, want attempt 1", doc.Tasks[0])
	}
	if got := ben.ok("logs", id); got+"\n" != string(want) {
		t.Errorf("logs afterwards: got %d bytes, want %d, unchanged", len(got)+1, len(want))
	}
}

func TestOutputIsBounded(t *testing.T) {
	t.Parallel()
	amy := newDaemon(t, "amy", "--gpus", "none", "--no-worker").start()
	ben := newDaemon(t, "ben", "--gpus", "none", "--cpus", "4", "--output-limit", "1MiB").start(amy.invite().flags()...)
	amy.untilNodes(2)
	const n = 2_000_000
	want := numbers(n)
	id := amy.ok("submit", "--", "sh", "-c", fmt.Sprintf("seq 1 %d; echo the last word >&2; exit 3", n))
	if doc := amy.untilState(id, "FAILED"); *doc.ExitCode != 3 {
		t.Errorf("exit code %d, want 3", *doc.ExitCode)
	}
	var disk int64
	_ = filepath.WalkDir(filepath.Join(ben.dir, "data", "run", "tasks"), func(_ string, e fs.DirEntry, err error) error {
		if info, ierr := e.Info(); err == nil && ierr == nil && info.Mode().IsRegular() {
			disk += info.Size()
		}
		return nil
	})
	if disk > 1<<20 || disk < 3<<18 {
		t.Errorf("got %d bytes on disk, want 3/4 to 1 MiB", disk)
	}
	head := want[:256<<10]
	for _, d := range []*daemon{amy, ben} {
		got := d.muster("logs", id).stdout
		before, after, ok := strings.Cut(strings.TrimPrefix(got, string(head)), " bytes cut here ---\n")
		var cut int
		if k, err := fmt.Sscanf(before, "\n--- muster: %d", &cut); !ok || k != 1 || err != nil {
			t.Fatalf("logs at %s: got %d bytes, after the head %.80q, want the head and a cut", d.name, len(got), strings.TrimPrefix(got, string(head)))
		}
		if rest := string(want[len(head)+cut:]) + "the last word\n"; after != rest {
			t.Errorf("logs at %s: got %d bytes after the cut, want %d", d.name, len(after), len(rest))
		}
	}
	if got := amy.ok("logs", "-n", "2", id); got != fmt.Sprintf("%d\nthe last word", n) {
		t.Errorf("last lines: got %q, want the last two", got)
	}
	if got := amy.ok("logs", "--stderr", id); got != "the last word" {
		t.Errorf("stderr: got %q, want %q", got, "the last word")
	}
	ben.kill() // the host is gone, but not its last output
	if got := amy.ok("show", id); !strings.Contains(got, "stderr: the last word") {
		t.Errorf("show: want the last line of stderr, got\n%s", got)
	}
}

// TestOutputKeepsStreamsAndBytes writes to both streams in turn, with all byte values.
func TestOutputKeepsStreamsAndBytes(t *testing.T) {
	t.Parallel()
	amy := newDaemon(t, "amy", "--gpus", "none", "--cpus", "4").start()
	gates := []gate{newGate(t), newGate(t)} // used in turn: a gate is closed before a task waits at it again
	id := amy.ok("submit", "--", "sh", "-c", fmt.Sprintf(
		`for i in 1 2 3; do echo out $i; read x <%s; echo err $i >&2; read x <%s; done; printf '\0\377\n'; echo again >/dev/stderr`, gates[0].path, gates[1].path))
	so := ""
	for i := range 6 { // each line is in the log before the next is written
		so += fmt.Sprintf("%s %d\n", []string{"out", "err"}[i%2], i/2+1)
		amy.until(id, "in the log", func(api.Job) bool { return amy.muster("logs", id).stdout == so })
		gates[i%2].open()
	}
	amy.untilState(id, "SUCCEEDED")
	for args, want := range map[string]string{
		"":         "out 1\nerr 1\nout 2\nerr 2\nout 3\nerr 3\n\x00\xff\nagain\n",
		"--stderr": "err 1\nerr 2\nerr 3\nagain\n",
		"-n 2":     "\x00\xff\nagain\n",
	} {
		if got := amy.muster(append(append([]string{"logs"}, strings.Fields(args)...), id)...).stdout; got != want {
			t.Errorf("logs %s: got %q, want %q", args, got, want)
		}
	}
	r := amy.muster("run", "--", "sh", "-c", "echo out; echo err >&2")
	if r.stdout != "out\n" || r.stderr != "err\n" {
		t.Errorf("run: stdout %q, stderr %q, want out, err", r.stdout, r.stderr)
	}
	silent := strings.TrimSpace(amy.ok("submit", "-W", "--", "true"))
	if got := amy.ok("logs", silent); got != "" {
		t.Errorf("logs of a job without output: got %q, want none", got)
	}
	long := amy.ok("submit", "-W", "--", "sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' x")
	if got := amy.ok("logs", long); got != strings.Repeat("x", 3_000_000) {
		t.Errorf("a line of 3 MB: got %d bytes in the log, want the same line", len(got))
	}
}
