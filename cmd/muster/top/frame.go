package top

// One frame: the lines of the screen.

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/cmd/muster/table"
)

// The smallest screen.
const (
	leastWidth  = 80
	leastHeight = 24
)

// line is a line of the screen, made of pieces.
type line []cell

// sgr are the escape sequences of the looks: with colours, and without.
var sgr = map[look][2]string{
	faint: {"2", "2"}, strong: {"1", "1"}, good: {"32", ""}, warn: {"33", "1"}, bad: {"1;31", "1"}, chosen: {"7", "7"},
}

// paint says how looks are written.
type paint int

const (
	colours   paint = iota
	attribute       // bold, faint and reverse only
	bare            // nothing but text
)

// write writes a line.
func (l line) write(b io.StringWriter, p paint) {
	for _, c := range l {
		code := ""
		if p != bare {
			code = sgr[c.look][p]
		}
		if code == "" {
			_, _ = b.WriteString(c.text) // into memory
			continue
		}
		_, _ = b.WriteString("\x1b[" + code + "m" + c.text + "\x1b[m")
	}
}

// split is how many rows each list gets on the screen, without its heading.
type split struct{ upper, tasks int }

// split divides the lines between the lists. Each gets what it needs, but none gets all lines.
func (m *model) split() split {
	if m.height == 0 { // no screen: all rows
		return split{m.lists.len(m.upper), m.lists.len(ofTasks)}
	}
	room := m.height - 1 - len(warningsOf(m)) - len(footLines(m)) - 2 // the totals, and two headings
	room = max(room, 2)
	upper, tasks := m.lists.len(m.upper), m.lists.len(ofTasks)
	half := room / 2
	switch {
	case upper <= half:
		upper = max(upper, 1)
	case tasks < room-half:
		upper = min(upper, room-max(tasks, 1))
	default:
		upper = half
	}
	return split{upper, room - upper}
}

// drawn returns the lines of the screen.
func (m *model) drawn() []line {
	lines := screenLines(m)
	if m.width > 0 {
		for i, l := range lines {
			lines[i] = l.within(m.width)
		}
	}
	return lines
}

// frame returns the screen as a text.
func (m *model) frame(p paint) string {
	var b strings.Builder
	for i, l := range m.drawn() {
		if i > 0 {
			b.WriteByte('\n')
		}
		if p == bare {
			l = line{text(strings.TrimRight(l.text(), " "))}
		}
		l.write(&b, p)
	}
	return b.String()
}

// text returns the line without looks.
func (l line) text() string {
	var b strings.Builder
	l.write(&b, bare)
	return b.String()
}

func screenLines(m *model) []line {
	if m.height > 0 && (m.width < leastWidth || m.height < leastHeight) {
		return []line{{text(fmt.Sprintf("muster top needs %d×%d", leastWidth, leastHeight))}, {text(fmt.Sprintf("this is %d×%d", m.width, m.height))}, {text("q: leave")}}[:max(min(m.height, 3), 1)]
	}
	head, foot := headLines(m), footLines(m)
	var body []line
	if m.help {
		body = helpLines()
	} else {
		s := m.split()
		if m.upper == ofNodes {
			body = list(m, ofNodes, m.lists.nodes, nodeColumns(), s.upper)
		} else {
			body = list(m, ofGPUs, m.lists.gpus, gpuColumns(m.cluster), s.upper)
		}
		body = append(body, list(m, ofTasks, m.lists.tasks, taskColumns(), s.tasks)...)
	}
	lines := append(head, body...)
	if m.height > 0 {
		for len(lines) < m.height-len(foot) {
			lines = append(lines, nil)
		}
		lines = lines[:m.height-len(foot)]
	}
	return append(lines, foot...)
}

// within cuts a line to the width of the screen.
func (l line) within(width int) line {
	for i, c := range l {
		w := table.Width(c.text)
		if w > width {
			l[i].text = table.Cut(c.text, width)
			return l[:i+1]
		}
		width -= w
	}
	return l
}

// headLines returns the top of the screen: the totals, and the warnings.
func headLines(m *model) []line {
	t := m.totals
	parts := []string{counted(t.nodes, "node")}
	if t.lost > 0 {
		parts[0] += fmt.Sprintf(" (%d silent)", t.lost)
	}
	parts = append(parts, fmt.Sprintf("%s, %s held", counted(t.gpus, "GPU"), share(t.held)))
	if t.busy >= 0 {
		parts = append(parts, fmt.Sprintf("util %d%%", t.busy))
	}
	if t.power > 0 && (m.width == 0 || m.width >= 100) {
		parts = append(parts, watts(t.power).text)
	}
	parts = append(parts, fmt.Sprintf("%s run, %d wait", counted(t.running, "task"), t.waiting))
	const name = "muster top"
	sums, clock := "  "+strings.Join(parts, " · "), ""
	if m.height > 0 {
		clock = m.now.Local().Format("15:04:05")
		free := m.width - len(name) - table.Width(sums)
		if free <= len(clock) {
			clock = ""
		}
		clock = fit(text(clock), max(free, 0), true).text
	}
	lines := []line{{{name, strong}, text(sums + clock)}}
	for _, w := range warningsOf(m) {
		lines = append(lines, line{{w, bad}})
	}
	return lines
}

// warningsOf returns why the view may be incomplete or out of date.
func warningsOf(m *model) (all []string) {
	if m.link.why != "" {
		all = append(all, fmt.Sprintf("no news for %s: %s", short(m.now.Sub(m.link.lost)), m.link.why))
	}
	if m.cluster.partial != "" {
		all = append(all, "no answer from "+m.cluster.partial)
	}
	if m.cluster.age > 5*time.Second {
		all = append(all, "the list of nodes was "+short(m.cluster.age)+" old when it came")
	}
	if m.cluster.left {
		all = append(all, fmt.Sprintf("only %d jobs are shown: there are more", maxJobs))
	}
	return all
}

// footLines returns the bottom of the screen: a question, a message, or the keys.
func footLines(m *model) []line {
	if m.height == 0 {
		return nil
	}
	switch {
	case m.prompt != nil && m.prompt.asks:
		return wrap(m.prompt.label, m.width, 3, strong)
	case m.prompt != nil:
		return []line{{{m.prompt.label, strong}, text(tail(m.prompt.text, m.width-table.Width(m.prompt.label)-1)), {" ", chosen}}}
	case m.said.text != "" && m.now.Before(m.said.until):
		look := plain
		if m.said.failed {
			look = bad
		}
		return wrap(m.said.text, m.width, 2, look)
	case m.help:
		return []line{{{"any key: back", faint}}}
	}
	return []line{{{"q leave  ? keys  g GPUs  s sort  / filter  c cancel  l logs  e exec  w why", faint}}}
}

// wrap breaks a text into a few lines.
func wrap(s string, width, most int, look look) (lines []line) {
	rest := []rune(s)
	for len(rest) > 0 && len(lines) < most {
		n, w := 0, 0
		for n < len(rest) && w+table.Width(string(rest[n])) <= width {
			w += table.Width(string(rest[n]))
			n++
		}
		if len(lines) == most-1 && n < len(rest) {
			lines = append(lines, line{{table.Cut(string(rest), width), look}})
			break
		}
		n = max(n, 1)
		lines = append(lines, line{{string(rest[:n]), look}})
		rest = rest[n:]
	}
	return lines
}

// tail returns the end of a text.
func tail(s string, width int) string {
	for table.Width(s) > max(width, 1) {
		s = string([]rune(s)[1:])
	}
	return s
}

func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func helpLines() []line {
	lines := []line{nil}
	for _, b := range bindings {
		lines = append(lines, line{fit(cell{"  " + b.keys, strong}, 28, false), text(b.does)})
	}
	return append(lines, nil, line{text("  – is what is not known. What is old says how old it is.")})
}

// list draws a list with its heading.
func list[T any](m *model, k kind, rows []T, columns []column[T], most int) []line {
	w := &m.wishes[k]
	if m.width > 0 {
		columns = slices.DeleteFunc(columns, func(c column[T]) bool { return c.from > m.width })
	}
	gap := "  "
	if m.width > 0 && m.width < 100 {
		gap = " "
	}
	columns = whatFits(columns, m.width, len(gap))
	first := max(min(w.first, len(rows)-most), 0)
	shown := rows[first:min(first+most, len(rows))]
	widths := spread(columnWidths(columns, shown, m), m.width, len(gap))
	lines := []line{heading(m, k, columns, widths, gap, most)}
	for i, x := range shown {
		l := append(line{text(" ")}, row(x, columns, widths, gap, m.now)...)
		if m.height > 0 && k == m.focus && first+i == w.row {
			l = l.chosen()
		}
		lines = append(lines, l)
	}
	if len(shown) == 0 {
		lines = append(lines, line{{emptyText(m, k), faint}})
	}
	return lines
}

// whatFits leaves out columns if the screen is too narrow, instead of cutting the last column. It first leaves out the
// columns that need the widest screen.
func whatFits[T any](columns []column[T], width, gap int) []column[T] {
	for width > 0 {
		needs, at := 1-gap, 0
		for i, c := range columns {
			needs += max(c.least, table.Width(c.head)) + gap
			if c.from > columns[at].from {
				at = i
			}
		}
		if needs <= width || columns[at].from == 0 {
			break
		}
		columns = slices.Delete(columns, at, at+1)
	}
	return columns
}

// chosen marks a row.
func (l line) chosen() line {
	return line{{"›" + strings.TrimPrefix(l.text(), " "), chosen}}
}

// emptyText says why a list is empty.
func emptyText(m *model, k kind) string {
	switch {
	case !m.link.began:
		return " …"
	case m.wishes[k].filter != "":
		return " no " + k.noun() + " with this text; Esc shows all"
	}
	return " no " + k.noun()
}

// bounds are the least and the greatest width of a column.
type bounds struct{ least, most int }

// columnWidths returns the bounds of the columns. Without a screen each is as wide as its widest cell.
func columnWidths[T any](columns []column[T], rows []T, m *model) []bounds {
	all := make([]bounds, len(columns))
	for i, c := range columns {
		all[i] = bounds{max(c.least, table.Width(c.head)), max(c.most, c.least)}
		if m.width > 0 {
			continue
		}
		for _, x := range rows {
			all[i].least = max(all[i].least, table.Width(strings.TrimRight(c.cell(x, c.least, m.now).text, " ")))
		}
		all[i].most = all[i].least
	}
	return all
}

// spread distributes the spare width. Each character goes to the column that has got the fewest so far and may still
// grow.
func spread(all []bounds, width, gap int) []int {
	widths := make([]int, len(all))
	room := width - 1 - gap*(len(all)-1)
	for i, b := range all {
		widths[i] = b.least
		room -= b.least
	}
	for ; room > 0; room-- {
		at := -1
		for i, b := range all {
			if widths[i] < b.most && (at < 0 || widths[i]-b.least < widths[at]-all[at].least) {
				at = i
			}
		}
		if at < 0 {
			break
		}
		widths[at]++
	}
	return widths
}

// heading returns the line above a list: its columns, how it is sorted, and how many rows there are.
func heading[T any](m *model, k kind, columns []column[T], widths []int, gap string, most int) line {
	w := &m.wishes[k]
	var b strings.Builder
	b.WriteByte(' ')
	for i, c := range columns {
		head := c.head
		if head == w.order {
			arrow := "▲"
			if w.reverse {
				arrow = "▼"
			}
			head = table.Cut(head, widths[i]-1) + arrow
		}
		b.WriteString(fit(text(head), widths[i], c.right).text)
		if i < len(columns)-1 {
			b.WriteString(gap)
		}
	}
	look := faint
	if k == m.focus && m.height > 0 {
		look = strong
	}
	s := b.String()
	note := ""
	if w.filter != "" {
		note = " /" + w.filter
	}
	if n := m.lists.len(k); m.height > 0 && n > most {
		note += fmt.Sprintf(" %d/%d", w.row+1, n)
	}
	if m.width > 0 && note != "" {
		note = table.Cut(note, m.width/2)
		s = table.Cut(strings.TrimRight(s, " "), m.width)
		if free := m.width - table.Width(s); free < table.Width(note) {
			s = string([]rune(s)[:max(len([]rune(s))-(table.Width(note)-free), 0)])
		}
		s += strings.Repeat(" ", max(m.width-table.Width(s)-table.Width(note), 0)) + note
	}
	return line{{s, look}}
}
