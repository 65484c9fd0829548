package top

// Frames: what is on the screen.

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/cmd/muster/table"
	"github.com/musterhq/muster/job"
)

var write = flag.Bool("update", false, "write the frames anew")

// golden compares a frame with the file of this name.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".txt")
	var b strings.Builder
	for l := range strings.Lines(got + "\n") {
		b.WriteString(strings.TrimRight(l, " \n") + "\n")
	}
	got = b.String()
	if *write {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
	}
}

// fits checks that a frame has the size of the screen.
func fits(t *testing.T, what string, m *model) {
	t.Helper()
	lines := strings.Split(m.frame(bare), "\n")
	if len(lines) > m.height {
		t.Errorf("%s: got %d lines, want at most %d", what, len(lines), m.height)
	}
	for i, l := range lines {
		if w := table.Width(l); w > m.width {
			t.Errorf("%s: line %d has %d columns, want at most %d: %q", what, i, w, m.width, l)
		}
	}
}

func TestFramesMatchFiles(t *testing.T) {
	time.Local = time.UTC
	for _, size := range [][2]int{{80, 24}, {200, 60}} {
		for _, view := range []struct {
			name string
			keys []string
		}{{"nodes", nil}, {"gpus", []string{"g"}}, {"help", []string{"?"}}, {"cancel", []string{"down", "c"}}, {"filter", []string{"/", "a", "m", "y"}}} {
			m := shown(sim(), size[0], size[1])
			keys(m, noon, view.keys...)
			name := fmt.Sprintf("%s-%dx%d", view.name, size[0], size[1])
			fits(t, name, m)
			golden(t, name, m.frame(bare))
		}
	}
}

// On screens of any width the names of columns are whole: a column that does not fit is left out.
func TestColumnsThatDoNotFitAreLeftOut(t *testing.T) {
	time.Local = time.UTC
	for width := leastWidth; width <= 220; width++ {
		for _, view := range [][]string{nil, {"g"}} {
			m := shown(sim(), width, 30)
			keys(m, noon, view...)
			what := fmt.Sprintf("%q, %d columns", view, width)
			fits(t, what, m)
			for l := range strings.SplitSeq(m.frame(bare), "\n") {
				if (strings.HasPrefix(l, " NODE") || strings.HasPrefix(l, " TASK")) && strings.Contains(l, "…") {
					t.Errorf("%s: got a cut name of a column: %s", what, l)
				}
			}
			if got := m.frame(bare); len(view) > 0 && width >= 100 && !strings.Contains(got, "(sim)") {
				t.Errorf("%s: simulated GPUs are not marked:\n%s", what, got)
			}
		}
	}
}

func TestLostNodesAreShown(t *testing.T) {
	time.Local = time.UTC
	m := shown(sim(), 80, 24)
	later := noon.Add(2 * time.Minute)
	m.update(changes{[]api.Event{
		{Kind: api.EventMember, NodeID: peer(1), Member: &api.Peer{ID: peer(1), Name: "sim2", State: api.NodeLost}},
		{Kind: api.EventJob, ID: idOf(2), Job: unreachable(running(2, "sweep", "ben", 1, 0))},
	}}, later)
	golden(t, "lost-nodes-80x24", m.frame(bare))
	keys(m, later, "g")
	golden(t, "lost-gpus-80x24", m.frame(bare))
}

func unreachable(j api.Job) *api.Job {
	j.State, j.Tasks[0].State = job.Unreachable, job.Unreachable
	j.Counts = map[job.State]int{job.Unreachable: 1}
	return &j
}

// Every size shows something that fits, and too small ones say so.
func TestFrameFitsAnySize(t *testing.T) {
	f := sim()
	for _, size := range [][2]int{{80, 24}, {80, 200}, {99, 24}, {100, 25}, {111, 30}, {120, 24}, {139, 40}, {300, 24}, {79, 24}, {80, 23}, {1, 1}, {10, 2}, {500, 300}} {
		m := shown(f, 80, 24)
		m.update(sized{size[0], size[1]}, noon)
		for _, k := range []string{"", "g", "tab", "end", "s", "s", "?", "?", "tab", "c", "n", "/", "x"} {
			if k != "" {
				keys(m, noon, k)
			}
			if size[0] >= leastWidth {
				fits(t, fmt.Sprint(size, k), m)
			}
		}
		small := size[0] < leastWidth || size[1] < leastHeight
		if says := strings.Contains(m.frame(bare), "needs 80×24"); says != small && size[0] > 20 {
			t.Errorf("%v: says that it is too small: got %v, want the opposite", size, says)
		}
		if !small && !strings.Contains(m.frame(bare), "NODE") {
			t.Errorf("%v: got no list, want one", size)
		}
	}
}

// Unknown values are dashes, and never zero.
func TestUnknownValuesAreDashes(t *testing.T) {
	f := sim()
	for i := range f.gpus {
		f.gpus[i].Utilization, f.gpus[i].MemoryUsed, f.gpus[i].Power, f.gpus[i].Temperature, f.gpus[i].ReadAt = -1, -1, 0, 0, nil
	}
	m := shown(f, 120, 40)
	for _, k := range []string{"", "g"} {
		if k != "" {
			keys(m, noon, k)
		}
		frame := m.frame(bare)
		for _, zero := range []string{" 0%", " 0W", " 0°C", "util"} {
			if strings.Contains(frame, zero) {
				t.Errorf("got %q for an unknown value, want none:\n%s", zero, frame)
			}
		}
		if !strings.Contains(frame, unknown) {
			t.Errorf("want %s, got\n%s", unknown, frame)
		}
	}
}

// Texts of other users never reach the terminal unchanged.
func TestHostileTextsDoNotReachTheTerminal(t *testing.T) {
	evil := "\x1b]52;c;aGk=\a\x1b[2J\u202e\u0085日本語\r\n\x9b31m\xff" + strings.Repeat("é\u0301", 500)
	f := sim()
	for i := range f.nodes {
		f.nodes[i].Name, f.nodes[i].Detail, f.nodes[i].State = evil, evil, api.NodeState(evil)
		f.nodes[i].Labels = map[string]string{evil: evil}
	}
	for i := range f.gpus {
		f.gpus[i].Class, f.gpus[i].Model, f.gpus[i].Detail = evil, evil, evil
		f.gpus[i].Jobs = []job.ID{job.ID(evil), job.ID("\x1b]0;own\a\r\n-mdxchras0wg7e")}
	}
	f.gpus[1].Jobs, f.gpus[1].Job = nil, job.ID(evil)
	f.gpus[2].UUID = evil
	for i := range f.jobs {
		j := &f.jobs[i]
		if j.Name, j.User, j.Reason = evil, evil, evil; i == 1 {
			j.ID, j.State = job.ID(evil), job.State(evil)
		}
		for k := range j.Tasks {
			j.Tasks[k].Node, j.Tasks[k].Reason = evil, evil
		}
	}
	f.gpus[0].Health = "unhealthy"
	m := shown(f, 160, 50)
	m.update(silenced{evil}, noon)
	m.update(notice{evil, true}, noon)
	for _, k := range []string{"", "g", "c", "n", "C"} {
		if k != "" {
			keys(m, noon, k)
		}
		fits(t, "hostile "+k, m)
		plainText(t, m.frame(bare))
	}
	m.update(pressed{"esc", ""}, noon)
	keys(m, noon, "/")
	m.update(pasted{evil}, noon)
	plainText(t, m.frame(bare))
	once, err := Once(context.Background(), Config{Daemon: f, Refresh: time.Second}, 0)
	if err != nil {
		t.Fatal(err)
	}
	plainText(t, once)
}

func plainText(t *testing.T, frame string) {
	t.Helper()
	if !utf8.ValidString(frame) {
		t.Errorf("invalid UTF-8: %q", frame[:min(len(frame), 400)])
	}
	for _, r := range strings.ReplaceAll(frame, "\n", "") {
		if r < ' ' || r >= 0x7f && r < 0xa0 || r == '\u202e' {
			t.Errorf("got %q in %q, want printable text", r, frame[:min(len(frame), 400)])
			return
		}
	}
}

// Without colours there are none; bold, faint and reverse stay.
func TestFramesWithoutColoursHaveNone(t *testing.T) {
	m := shown(sim(), 100, 30)
	for _, c := range []string{"\x1b[3", "\x1b[1;3"} {
		if strings.Contains(m.frame(attribute), c) {
			t.Errorf("got the colour %q, want none", c)
		}
		if c == "\x1b[3" && !strings.Contains(m.frame(colours), c) {
			t.Error("got no colours, want some")
		}
	}
	if strings.Contains(m.frame(bare), "\x1b") {
		t.Error("a bare frame has an escape sequence")
	}
}

// Without a terminal all rows are printed, and no cell is cut.
func TestOutputWithoutATerminalHasAllRows(t *testing.T) {
	f := sim()
	f.jobs[0].Name = strings.Repeat("a-long-name-", 9)
	for i := range 50 {
		f.jobs = append(f.jobs, waiting(100+i, "more", "amy"))
	}
	got, err := Once(context.Background(), Config{Daemon: f, Refresh: time.Second}, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{f.jobs[0].Name, string(idOf(149)), "sim3", "3 nodes", "h100-80gb (sim)"} {
		if !strings.Contains(got, want) {
			t.Errorf("want %q, got\n%s", want, got)
		}
	}
	if strings.ContainsAny(got, "…\x1b›") {
		t.Errorf("something is cut or marked:\n%s", got)
	}
}
