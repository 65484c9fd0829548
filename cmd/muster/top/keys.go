package top

// What keys do.

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/musterhq/muster/job"
)

// prompt is a line that the user types, or a yes-or-no question.
type prompt struct {
	label string
	text  string
	asks  bool // it is a question: y means yes, any other key no
	// filter means that the list is filtered by the text while the user types.
	filter bool
	done   func(text string) []any
}

// maxPrompt bounds what the user types, in bytes.
const maxPrompt = 256

func (p *prompt) write(s string) {
	if s = clean(s); !p.asks && len(p.text)+len(s) <= maxPrompt {
		p.text += s
	}
}

// bindings are the keys, in the order of the help.
var bindings = []struct{ keys, does string }{
	{"↑ ↓ PgUp PgDn Home End", "choose a row (also k j)"},
	{"Tab", "go to the other list"},
	{"g", "nodes or GPUs in the upper list"},
	{"s S r", "sort by the next column, the one before; reverse"},
	{"/", "show only rows with a text; Esc shows all"},
	{"Enter", "only this node, or all; all about this job"},
	{"c", "cancel the task; asks first (C: the whole job)"},
	{"l", "output of the task, as it grows; Ctrl-C comes back"},
	{"e", "a command in the task"},
	{"w", "why the job waits, and where it could run"},
	{"?", "this help"},
	{"q", "leave"},
}

// press carries out a key.
func (m *model) press(k pressed) []any {
	if k.key == "ctrl+c" {
		return []any{quit{}}
	}
	if m.prompt != nil {
		return m.answer(k)
	}
	if m.help {
		m.help = false
		return nil
	}
	rows := m.split()
	page := rows.upper
	if m.focus == ofTasks {
		page = rows.tasks
	}
	page = max(page-1, 1)
	switch k.key {
	case "q":
		return []any{quit{}}
	case "ctrl+z":
		return []any{suspend{}}
	case "?", "h", "f1":
		m.help = true
	case "tab", "shift+tab":
		if m.focus == ofTasks {
			m.focus = m.upper
		} else {
			m.focus = ofTasks
		}
	case "up", "k":
		m.move(m.focus, -1)
	case "down", "j":
		m.move(m.focus, 1)
	case "pgup":
		m.move(m.focus, -page)
	case "pgdown":
		m.move(m.focus, page)
	case "home":
		m.move(m.focus, -m.lists.len(m.focus))
	case "end":
		m.move(m.focus, m.lists.len(m.focus))
	case "g":
		m.turn()
	case "s", "S", "r":
		m.sort(k.key)
	case "/":
		m.filter()
	case "esc":
		m.escape()
	default:
		return m.act(k.key)
	}
	return nil
}

// turn switches the upper half between nodes and GPUs.
func (m *model) turn() {
	upper := ofNodes
	if m.upper == ofNodes {
		upper = ofGPUs
	}
	if m.focus != ofTasks {
		m.focus = upper
	}
	m.upper = upper
	m.move(upper, 0)
}

// escape removes the filter of the list; without a filter, it shows all nodes again.
func (m *model) escape() {
	switch w := &m.wishes[m.focus]; {
	case w.filter != "":
		w.filter = ""
	case m.only != "" && !m.fixed:
		m.only = ""
	}
	m.stale.wish = true
}

// sort sorts the list by its next column or the one before, or reverses it.
func (m *model) sort(key string) {
	w := &m.wishes[m.focus]
	m.stale.wish = true
	if key == "r" {
		w.reverse = !w.reverse
		return
	}
	heads := append([]string{""}, sortable(m, m.focus)...)
	step := 1
	if key == "S" {
		step = len(heads) - 1
	}
	w.order = heads[(slices.Index(heads, w.order)+step)%len(heads)]
	w.reverse = slices.Contains([]string{"GPUS", "UTIL", "GPU MEM", "MEMORY", "POWER", "TEMP", "CPUS", "TASKS", "TIME", "PRIO"}, w.order) // the most first
	w.first, w.row, w.at = 0, 0, ""
}

// sortable returns the columns by which a list can be sorted.
func sortable(m *model, k kind) []string {
	switch k {
	case ofNodes:
		return heads(nodeColumns(), m.width)
	case ofGPUs:
		return heads(gpuColumns(m.cluster), m.width)
	case ofTasks, kinds:
	}
	return heads(taskColumns(), m.width)
}

func heads[T any](columns []column[T], width int) (all []string) {
	for _, c := range columns {
		if c.key != nil && c.from <= width {
			all = append(all, c.head)
		}
	}
	return all
}

func (m *model) filter() {
	k := m.focus
	m.prompt = &prompt{label: "only " + k.noun() + " with: ", text: m.wishes[k].filter, filter: true, done: func(string) []any { return nil }}
}

// filterNow applies the filter that the user is typing.
func (m *model) filterNow() {
	if m.prompt != nil && m.prompt.filter {
		m.wishes[m.focus].filter = m.prompt.text
		m.stale.wish = true
	}
}

// answer carries out a key while a prompt is open.
func (m *model) answer(k pressed) []any {
	p := m.prompt
	if p.asks {
		m.prompt = nil
		if k.key == "y" || k.key == "Y" {
			return p.done("")
		}
		m.say("nothing was changed", false)
		return nil
	}
	switch k.key {
	case "esc":
		if p.text = ""; p.filter {
			m.filterNow()
		}
		m.prompt = nil
		return nil
	case "enter":
		m.prompt = nil
		return p.done(p.text)
	case "backspace":
		if _, n := utf8.DecodeLastRuneInString(p.text); n > 0 {
			p.text = p.text[:len(p.text)-n]
		}
	case "ctrl+u":
		p.text = ""
	default:
		p.write(k.text)
	}
	m.filterNow()
	return nil
}

// act carries out a key that is about the selected row.
func (m *model) act(key string) []any {
	if m.focus != ofTasks {
		if key == "enter" && !m.fixed {
			m.confine()
		} else if strings.Contains("clewC", key) {
			m.say("choose a task first: Tab", true)
		}
		return nil
	}
	i := m.wishes[ofTasks].row
	if i >= len(m.lists.tasks) {
		return nil
	}
	t := m.lists.tasks[i]
	switch key {
	case "enter":
		return []any{verb{[]string{"show", string(t.id)}, true}}
	case "w":
		return []any{verb{[]string{"why", t.label()}, true}}
	case "l":
		return []any{verb{[]string{"logs", "-f", t.label()}, true}}
	case "e":
		return m.exec(t)
	case "c", "C":
		m.cancel(t, key == "C")
	}
	return nil
}

// confine shows only the selected node, or all nodes again.
func (m *model) confine() {
	if m.stale.wish = true; m.only != "" {
		m.only = ""
		return
	}
	i := m.wishes[m.upper].row
	switch {
	case i >= m.lists.len(m.upper):
	case m.upper == ofNodes:
		m.only = m.lists.nodes[i].id
	default:
		m.only = m.lists.gpus[i].node.id
	}
}

func (m *model) exec(t *task) []any {
	if t.state.is() != job.Running || t.number == whole {
		m.say(t.label()+": a command needs one task that runs", true)
		return nil
	}
	m.prompt = &prompt{label: "run in " + t.label() + ": ", text: "sh", done: func(text string) []any {
		if strings.TrimSpace(text) == "" {
			return nil
		}
		return []any{verb{[]string{"exec", "-it", t.label(), "--", "sh", "-c", text}, false}}
	}}
	return nil
}

// cancel asks whether a task, or a whole job, is to be cancelled, and says what that ends.
func (m *model) cancel(t *task, all bool) {
	if t.work.state.is().Ended() {
		m.say(t.label()+" has ended", true)
		return
	}
	x := cancel{t.id, int(t.number), t.label()}
	if all || t.gang || t.count.all == 1 {
		x.task, x.label = whole, string(t.id)
	}
	m.prompt = &prompt{label: "cancel " + x.label + t.hits(x.task == whole) + "? y: yes, any other key: no ", asks: true, done: func(string) []any { return []any{x} }}
}

// hits returns what a cancellation ends, for people.
func (t *task) hits(all bool) string {
	who := fmt.Sprintf(" (%s of %s)", dash(t.name), t.user.is())
	if !all {
		if t.state.is().Active() {
			return who + " on " + t.place.is()
		}
		return who + ", which waits"
	}
	var ends []string
	if n := t.count.active; n > 0 {
		var places []string
		for i := range t.tasks {
			x := &t.tasks[i]
			if x.state.is().Active() && x.number != whole && !slices.Contains(places, x.place.is()) {
				places = append(places, x.place.is())
			}
		}
		slices.Sort(places)
		on := ""
		if len(places) > 0 {
			on = " on " + strings.Join(places, ", ")
		}
		ends = append(ends, "ends "+counted(int(n), "task")+on)
	}
	if n := t.count.waiting; n > 0 {
		ends = append(ends, "drops "+counted(int(n), "task")+" before the start")
	}
	return who + ": " + strings.Join(ends, ", ")
}

func dash(s string) string {
	if s == "" {
		return unknown
	}
	return s
}
