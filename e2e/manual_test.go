//go:build e2e

package e2e

// The screens of the manual: each is run again, and must show the same except for ids, times and the like.

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/internal/testkit/needtest"
)

var update = flag.Bool("update", false, "write the screens of the manual anew")

const screensDir = "../cmd/muster/manual/screens"

// stage is the cluster on which the screens are run.
type stage struct {
	env  []string
	n1   *daemon           // the daemon that is asked about the cluster
	real *strings.Replacer // the words that are shown in place of values of this run
}

func newStage(t *testing.T) stage {
	t.Helper()
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("a-token-of-the-manual\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	addr := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	same := []string{"--cpus", "4", "--memory", "8GiB", "--cgroups-off", "--docker-host", "none"}
	overTCP := []string{"--http", addr, "--http-token", token}
	if os.Getuid() == 0 {
		overTCP = append(overTCP, "--http-user", "mail")
	}
	n1 := newDaemon(t, "n1", slices.Concat(same, []string{"--gpus", "sim:8xH100-80GB", "--label", "rack=r1"}, overTCP)...).start()
	flags := n1.invite("--uses", "2").flags()
	n2 := newDaemon(t, "n2", append(same, "--gpus", "sim:4xA100-40GB", "--label", "rack=r2")...).start(flags...)
	n3 := newDaemon(t, "n3", append(same, "--gpus", "none")...).start(flags...)
	n4 := newDaemon(t, "n4", append(same, "--gpus", "none")...).start()
	for _, d := range []*daemon{n1, n2, n3} {
		d.untilNodes(3)
	}
	return stage{
		n1: n1,
		env: append(os.Environ(), "PATH="+filepath.Dir(n1.program)+":"+os.Getenv("PATH"), "MUSTER_SOCKET="+n1.socket, "S4="+n4.socket,
			fmt.Sprintf("N3=%d", n3.cmd.Process.Pid), "HTTP="+addr, "TOKEN="+token, "TZ=UTC", "LC_ALL=C.UTF-8"),
		real: strings.NewReplacer(n1.dir, "/run/muster", n4.dir, "/run/muster"),
	}
}

// last are the screens that change the cluster for all later ones.
var last = []string{"muster-node-declare-dead", "muster-join"}

// A mark precedes the output of each command in that of the shell.
const mark = "\x01command\x01"

// untilAtRest waits until no node holds a task. A job of the screen before ends before n1 learns that its node is free.
func (s stage) untilAtRest() {
	s.n1.t.Helper()
	until(s.n1, "the cluster", "at rest", s.n1.nodes, func(list api.Listing[api.Node]) bool {
		return !slices.ContainsFunc(list.Items, func(n api.Node) bool {
			return n.State == "ready" && n.Free.CPUs != n.CPUs
		})
	})
}

// play runs the commands of a screen in one shell, and returns the screen with their output.
func (s stage) play(t *testing.T, text string) string {
	t.Helper()
	s.untilAtRest()
	dir := t.TempDir()
	var script strings.Builder
	script.WriteString("cp \"$TOKEN\" token\n")
	var shown []string
	for line := range strings.Lines(text) {
		command, hidden := strings.CutPrefix(line, "% ")
		if !hidden {
			var ok bool
			if command, ok = strings.CutPrefix(line, "$ "); !ok {
				continue
			}
		}
		shown = append(shown, line)
		if hidden {
			fmt.Fprintf(&script, "printf '%s\\n'\n{ %s\n} >hidden 2>&1\n", mark, strings.TrimSpace(command))
		} else {
			fmt.Fprintf(&script, "printf '%s\\n'\n%s\n", mark, strings.TrimSpace(command))
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 6*patience) // a node counts as lost after a while
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", script.String())
	cmd.Dir, cmd.Env = dir, s.env
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		hidden, _ := os.ReadFile(filepath.Join(dir, "hidden"))
		t.Fatalf("did not end: %v\n%s\n%s", err, out, hidden)
	}
	parts := strings.Split(string(out), mark+"\n")
	if len(parts) != len(shown)+1 {
		t.Fatalf("got %d commands and %d outputs, want the same number:\n%s", len(shown), len(parts)-1, out)
	}
	var b strings.Builder
	for i, line := range shown {
		b.WriteString(line)
		if !strings.HasPrefix(line, "% ") {
			b.WriteString(s.real.Replace(strings.ReplaceAll(parts[i+1], dir, "/home/ada")))
		}
	}
	return b.String()
}

// variable is a text that differs from run to run, and the word for it.
var variable = []struct {
	what *regexp.Regexp
	word string
}{
	{regexp.MustCompile(`\b[0-9a-z]{10}-[0-9a-z]{13}\b`), "JOB"},
	{regexp.MustCompile(`…-[0-9a-z]{13}\b`), "…-GROUP"},
	{regexp.MustCompile(`\b12D3KooW\w+`), "PEER"},
	{regexp.MustCompile(`GPU-sim-[0-9a-f-]+`), "GPU"},
	{regexp.MustCompile(`muster1-\S+`), "TOKEN"},
	{regexp.MustCompile(`( --bootstrap \S+)+`), " --bootstrap ADDRESS"},
	{regexp.MustCompile(`(/ip4/\S+ ?)+`), "ADDRESS "},
	{regexp.MustCompile(`joined cluster \w+`), "joined cluster NAME"},
	{regexp.MustCompile(`\b\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d(\.\d+)?)?( UTC|Z)?`), "WHEN"},
	{regexp.MustCompile(`\b\d\d-\d\d \d\d:\d\d\b`), "WHEN"},
	{regexp.MustCompile(`/(tcp|udp)/\d+`), "/$1/PORT"},
	{regexp.MustCompile(`muster-dev-\d+`), "muster-dev-N"},
	{regexp.MustCompile(`#code=\w+`), "#code=CODE"},
	{regexp.MustCompile(`\b(\d+h)?(\d+m)?\d+(\.\d+)?(ms|µs|s)\b`), "TIME"},
	{regexp.MustCompile(`\b(\d+h)?\d+m\b`), "TIME"},
	{regexp.MustCompile(`\b\d+(\.\d+)?(GiB|MiB|TiB)\b`), "SIZE"},
	{regexp.MustCompile(`\b\d{4,7}\b`), "NUMBER"}, // processes and ports
	{regexp.MustCompile(`(?m)^(muster|version +) \S+$`), "$1 VERSION"},
	{regexp.MustCompile(`\b[\d.]+%`), "PERCENT"},
	{regexp.MustCompile(`\b\d+\.\d\d\b`), "HOURS"},
	{regexp.MustCompile(`(?m)^in use +.*$(\n +(disks|network): .*$)*`), "in use USE"}, // nothing is known about a node's first seconds
	{regexp.MustCompile(`(?m)^used +cpu .*$`), "used USE"},                            // of a task that lasts a millisecond
	{regexp.MustCompile(`(?m)^(now|has room) +(\w+): .*$`), "$1 $2: WHY"},             // it depends on what ran before
	{regexp.MustCompile(`[ \t]+`), " "},
	{regexp.MustCompile(`(?m) +$`), ""},
}

// plain returns a screen with the variable texts replaced.
func plain(text string) string {
	if who, err := user.Current(); err == nil {
		text = regexp.MustCompile(`\b`+regexp.QuoteMeta(who.Username)+`\b`).ReplaceAllString(text, "root")
	}
	for _, v := range variable {
		text = v.what.ReplaceAllString(text, v.word)
	}
	return text
}

// waiting are the screens that wait: for a task that runs for a while, and for a host to be lost.
var waiting = []string{"muster-usage", "muster-node-declare-dead"}

// TestManualScreens runs the examples of the manual. With -update it writes them again; then run `make manual`.
func TestManualScreens(t *testing.T) {
	playScreens(t, func(name string) bool { return !slices.Contains(waiting, name) })
}

func TestManualScreensThatWait(t *testing.T) {
	t.Parallel()
	playScreens(t, func(name string) bool { return slices.Contains(waiting, name) })
}

func playScreens(t *testing.T, wanted func(name string) bool) {
	t.Helper()
	for _, tool := range []string{"bash", "curl", "jq"} {
		needtest.Runs(t, tool, "--version")
	}
	files, err := filepath.Glob(screensDir + "/*.txt")
	if err != nil || len(files) < 30 {
		t.Fatalf("got %d screens, %v, want at least 30", len(files), err)
	}
	for _, name := range last {
		file := screensDir + "/" + name + ".txt"
		files = append(slices.DeleteFunc(files, func(f string) bool { return f == file }), file)
	}
	s := newStage(t)
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		if !wanted(name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := s.play(t, string(text))
			if plain(got) == plain(string(text)) {
				return
			}
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
				return
			}
			t.Errorf("got\n%s\nwant\n%s\n`go test -tags e2e -run ManualScreens ./e2e -update` writes it", plain(got), plain(string(text)))
		})
	}
}
