package top

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/cmd/muster/table"
)

// glass is a terminal with what this package needs: two screens, cursor positions, and erasing.
type glass struct {
	t      *testing.T
	wide   int
	high   int
	x, y   int
	wraps  bool
	second bool // the alternate screen is shown
	cells  [2][][]rune
	wrote  int
	single bool // there is no alternate screen
	broken error
	// anything means that sequences of bubbletea are accepted, too.
	anything bool
}

func newGlass(t *testing.T, wide, high int) *glass {
	t.Helper()
	g := &glass{t: t, wraps: true}
	g.resize(wide, high)
	return g
}

// resize keeps what it can, at other places, as terminals do.
func (g *glass) resize(wide, high int) {
	g.wide, g.high = wide, high
	for i := range g.cells {
		g.cells[i] = make([][]rune, high)
		for y := range g.cells[i] {
			g.cells[i][y] = []rune(strings.Repeat("~", wide))
		}
	}
}

func (g *glass) screen() [][]rune {
	if g.second && !g.single {
		return g.cells[1]
	}
	return g.cells[0]
}

var sequence = regexp.MustCompile(`^\x1b\[([?>=]?)([0-9;]*)(\$?[A-Za-z])`)

func (g *glass) Write(b []byte) (int, error) {
	g.wrote += len(b)
	for s := string(b); s != ""; {
		if m := sequence.FindStringSubmatch(s); m != nil {
			g.control(m[1]+m[3], m[2])
			s = s[len(m[0]):]
			continue
		}
		r := []rune(s)[0]
		s = s[len(string(r)):]
		if control := r < ' ' || r == 0x7f; control && (r != '\r' || !g.anything) {
			g.t.Errorf("the terminal got %q, want printable text", r)
		}
		g.put(r)
	}
	return len(b), g.broken
}

// put writes a letter, which has as many columns as in listings.
func (g *glass) put(r rune) {
	n := table.Width(string(r))
	if g.x+n > g.wide {
		if !g.wraps {
			g.x = g.wide - n
		} else {
			g.x, g.y = 0, g.y+1
		}
	}
	for i := range n {
		if g.y < g.high {
			g.screen()[g.y][g.x] = r * rune(1-i) // 0 stands for the second half
		}
		g.x++
	}
}

func (g *glass) control(what, args string) {
	switch what {
	case "H":
		y, x, _ := strings.Cut(args, ";")
		row, _ := strconv.Atoi(y)
		column, _ := strconv.Atoi(x)
		g.y, g.x = min(max(row, 1), g.high)-1, min(max(column, 1), g.wide)-1
	case "K":
		for x := min(g.x, g.wide-1); x < g.wide; x++ {
			g.screen()[g.y][x] = ' '
		}
	case "J":
		for _, l := range g.screen() {
			for x := range l {
				l[x] = ' '
			}
		}
	case "?h", "?l":
		switch args {
		case "1049":
			g.second = what == "?h"
		case "7":
			g.wraps = what == "?h"
		}
	case "m":
	default:
		if g.anything {
			return
		}
		g.t.Errorf("the terminal got %s with %q, want a known sequence", what, args)
	}
}

func (g *glass) shows() string {
	var b strings.Builder
	for _, l := range g.screen() {
		b.WriteString(strings.TrimRight(strings.ReplaceAll(string(l), "\x00", ""), " ") + "\n")
	}
	return strings.TrimRight(b.String(), "\n")
}

// Whatever was on the screen, it shows the last frame. Names have letters about whose width terminals disagree.
func TestCanvasShowsTheLastFrame(t *testing.T) {
	time.Local = time.UTC
	f := sim()
	f.nodes[1].Name, f.jobs[0].Name = "sim日本", "trai\u0301n👍"
	odd := []string{"⌛ sweep", "1\u20e3 later", "⏩⏩⏩", "plain", "é–·█"}
	for _, p := range []paint{colours, attribute} {
		g := newGlass(t, 100, 30)
		c := &canvas{out: g, paint: p}
		m := shown(f, 100, 30)
		c.resize(100)
		random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // no secret
		names := []string{"g", "tab", "down", "up", "end", "s", "S", "r", "?", "/", "x", "backspace", "esc", "c", "n", "w", "pgdown"}
		for i := range 1000 {
			now := noon.Add(time.Duration(i) * time.Second)
			switch x := random.IntN(20); {
			case x == 0:
				wide, high := 60+random.IntN(150), 15+random.IntN(50)
				g.resize(wide, high)
				c.resize(wide)
				m.update(sized{wide, high}, now)
			case x == 1:
				_, _ = c.Write([]byte(ansi.SetModeAltScreenSaveCursor + ansi.EraseEntireScreen))
			case x == 2:
				_, _ = c.Write([]byte(ansi.ResetModeAltScreenSaveCursor))
			case x < 8:
				j := running(random.IntN(6), odd[random.IntN(len(odd))], "amy", random.IntN(3), 0)
				m.update(changes{[]api.Event{{Kind: api.EventJob, ID: j.ID, Job: &j}}}, now)
			case x < 10:
				m.update(ticked{}, now)
			default:
				keys(m, now, names[random.IntN(len(names))])
			}
			lines := m.drawn()
			if err := c.draw(lines); err != nil {
				t.Fatal(err)
			}
			if g.second != c.on || g.wraps == c.on {
				t.Fatalf("step %d: the alternate screen is %t, lines wrap: got %t, want the opposite of each other", i, g.second, g.wraps)
			}
			if want := wanted(lines, g); c.on && g.shows() != want {
				t.Fatalf("step %d: got the screen\n%s\nwant\n%s", i, g.shows(), want)
			}
		}
	}
}

// wanted returns what a screen shows of some lines.
func wanted(lines []line, g *glass) string {
	all := make([]string, 0, len(lines))
	for _, l := range lines {
		s := strings.Map(func(r rune) rune {
			if table.Width(string(r)) == 0 {
				return -1
			}
			return r
		}, l.text())
		if n := table.Width(s); n > g.wide {
			s = s[:g.wide-1] + s[len(s)-1:] // the letters that follow go to the last place
		}
		all = append(all, strings.TrimRight(s, " "))
	}
	return strings.TrimRight(strings.Join(all, "\n"), "\n")
}

// The last letter of a line that fills the screen stays.
func TestCanvasKeepsTheLastLetterOfAFullLine(t *testing.T) {
	g := newGlass(t, 80, 24)
	c := &canvas{out: g, paint: colours}
	c.resize(80)
	_, _ = c.Write([]byte(ansi.SetModeAltScreenSaveCursor))
	full := strings.Repeat("0123456789", 8)
	for _, l := range []line{{text(full)}, {text(full), text("")}, {text(full)}, {text(full[:79]), text("9"), text("")}, {text(full[:79]), {"9", bad}}} {
		if _ = c.draw([]line{l}); g.shows() != full {
			t.Errorf("%v: want a full line, got the screen\n%s", l, g.shows())
		}
	}
}

// On a terminal without an alternate screen the shell goes on in an empty line below the frame.
func TestCanvasLeavesASingleScreenClean(t *testing.T) {
	g := newGlass(t, 80, 24)
	g.single = true
	c := &canvas{out: g, paint: colours}
	c.resize(80)
	_, _ = c.Write([]byte(ansi.SetModeAltScreenSaveCursor))
	m := shown(sim(), 80, 24)
	_ = c.draw(m.drawn())
	c.setAtomic()
	g.wrote = 0
	_, _ = c.Write([]byte(ansi.ResetModeAltScreenSaveCursor + "$ ls"))
	lines := strings.Split(g.shows(), "\n")
	if len(lines) != 24 || lines[23] != "$ ls" || !strings.HasPrefix(lines[0], "muster top") || !g.wraps {
		t.Errorf("got the screen\n%s\nwant the prompt in the last line", g.shows())
	}
	if most := len(ansi.SetModeAutoWrap+ansi.CursorPosition(1, 24)+ansi.EraseLineRight+ansi.ResetModeAltScreenSaveCursor) + len("$ ls"); g.wrote > most {
		t.Errorf("got %d bytes to leave, want at most %d", g.wrote, most) // nothing that the next program would have to undo
	}
}

// While another program has the terminal nothing is drawn.
func TestCanvasDrawsNothingForOtherPrograms(t *testing.T) {
	g := newGlass(t, 80, 24)
	c := &canvas{out: g, paint: attribute}
	m := shown(sim(), 80, 24)
	for i := range 10 {
		m.update(ticked{}, noon.Add(time.Duration(i)*time.Minute))
		c.resize(80)
		if err := c.draw(m.drawn()); err != nil || g.wrote > 0 {
			t.Fatalf("before the alternate screen is there: got %d bytes, %v, want 0", g.wrote, err)
		}
	}
	_, _ = c.Write([]byte(ansi.SetModeAltScreenSaveCursor))
	if want := wanted(m.drawn(), g); g.shows() != want {
		t.Errorf("got the screen\n%s\nwant\n%s", g.shows(), want)
	}
	g.wrote = 0
	for range 10 {
		_ = c.draw(m.drawn())
	}
	if g.wrote > 0 {
		t.Errorf("got %d bytes although nothing has changed, want 0", g.wrote)
	}
	g.broken = errors.New("hung up")
	m.update(ticked{}, noon.Add(time.Hour))
	if err := c.draw(m.drawn()); !errors.Is(err, g.broken) {
		t.Errorf("a terminal that is gone: got %v, want %v", err, g.broken)
	}
}

// A second later only the clock and the times of tasks have changed, and only they are written.
func TestCanvasWritesOnlyChanges(t *testing.T) {
	f := large(20, 8, 200)
	m := shown(f, 200, 60)
	g := newGlass(t, 200, 60)
	c := &canvas{out: g, paint: colours}
	c.resize(200)
	_, _ = c.Write([]byte(ansi.SetModeAltScreenSaveCursor))
	var all bytes.Buffer
	c.out = &all
	_ = c.draw(m.drawn())
	whole := all.Len()
	all.Reset()
	for i := range 60 {
		m.update(ticked{}, noon.Add(time.Duration(i)*time.Second))
		_ = c.draw(m.drawn())
	}
	if each := all.Len() / 60; each == 0 || each > whole/20 {
		t.Errorf("got %d bytes a second, want at most a twentieth of the whole screen, %d", each, whole)
	}
}

// A terminal that supports it is asked to show each change at once.
func TestCanvasUsesSynchronizedOutput(t *testing.T) {
	var out bytes.Buffer
	c := &canvas{out: &out, paint: bare}
	c.resize(80)
	s := screen{canvas: c}
	if got := s.answered(nil, "a key"); got != "a key" {
		t.Errorf("another message became %v, want it unchanged", got)
	}
	_, _ = c.Write([]byte(ansi.SetModeAltScreenSaveCursor))
	_ = c.draw([]line{{text("one")}})
	if strings.Contains(out.String(), ansi.SetModeSynchronizedOutput) {
		t.Error("want no synchronized output before the terminal has answered")
	}
	for _, r := range []struct {
		mode  ansi.Mode
		value ansi.ModeSetting
		can   bool
	}{{ansi.ModeSynchronizedOutput, ansi.ModeNotRecognized, false}, {ansi.ModeUnicodeCore, ansi.ModeReset, false}, {ansi.ModeSynchronizedOutput, ansi.ModeReset, true}} {
		if got := s.answered(nil, tea.ModeReportMsg{Mode: r.mode, Value: r.value}); got != nil || c.atomic != r.can {
			t.Errorf("%v: got %v, %t, want nil, %t", r, got, c.atomic, r.can)
		}
	}
	out.Reset()
	_ = c.draw([]line{{text("two")}})
	if got := out.String(); !strings.HasPrefix(got, ansi.SetModeSynchronizedOutput) || !strings.HasSuffix(got, ansi.ResetModeSynchronizedOutput) {
		t.Errorf("wrote %q, want it in one synchronized update", got)
	}
}
