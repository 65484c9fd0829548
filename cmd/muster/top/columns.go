package top

// The columns of the lists. To show another figure, add a row to a table here.

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/cmd/muster/table"
	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/job"
)

// column is a column of a list.
type column[T any] struct {
	head  string // also its name as a sort order
	least int    // its least width
	most  int    // its greatest width, if the screen has space for it; 0: least
	from  int    // least width of a screen on which it is shown
	right bool   // its cells are aligned to the right
	cell  func(x T, width int, now time.Time) cell
	key   func(x T, now time.Time) rank // nil: the list cannot be sorted by it
	all   bool                          // its key is a reading, so sorting by it needs the readings of all GPUs
}

// look is how a text is drawn.
type look int

const (
	plain look = iota
	faint
	strong
	good
	warn
	bad
	chosen
)

// cell is a text and its look.
type cell struct {
	text string
	look look
}

func text(s string) cell { return cell{text: s} }

// none is the cell of an unknown value.
var none = cell{unknown, faint}

func number(n float64) rank { return rank{n: n} }
func word(s string) rank    { return rank{text: strings.ToLower(s)} }

func nodeColumns() []column[*node] {
	return []column[*node]{
		{head: "NODE", least: 8, most: 28, cell: func(n *node, _ int, _ time.Time) cell { return text(n.name) }, key: func(n *node, _ time.Time) rank { return word(n.name) }},
		{head: "STATE", least: 8, cell: nodeState, key: func(n *node, _ time.Time) rank { return word(string(n.state)) }},
		{head: "GPUS", least: 5, right: true, cell: nodeHeld, key: func(n *node, _ time.Time) rank { return number(n.held()) }},
		{head: "UTIL", least: 14, most: 32, cell: func(n *node, w int, now time.Time) cell { return bar(n.sums(now).busy, w) }, key: func(n *node, now time.Time) rank { return number(n.sums(now).busy) }, all: true},
		{head: "GPU MEM", least: 14, most: 32, cell: func(n *node, w int, now time.Time) cell { return bar(n.sums(now).full, w) }, key: func(n *node, now time.Time) rank { return number(n.sums(now).full) }, all: true},
		{head: "POWER", least: 6, right: true, cell: func(n *node, _ int, now time.Time) cell { return watts(n.sums(now).power) }, key: func(n *node, now time.Time) rank { return number(n.sums(now).power) }, all: true},
		{head: "TEMP", least: 4, right: true, cell: func(n *node, _ int, now time.Time) cell { return degrees(n.sums(now).heat) }, key: func(n *node, now time.Time) rank { return number(float64(n.sums(now).heat)) }, all: true},
		{head: "CPUS", least: 7, right: true, cell: nodeCPUs, key: func(n *node, _ time.Time) rank { return number(float64(n.cpus - n.cpusFree)) }},
		{head: "TASKS", least: 5, right: true, cell: nodeTasks, key: func(n *node, _ time.Time) rank { return number(float64(n.running)) }},
		{head: "MEMORY", least: 17, from: 100, right: true, cell: nodeMemory, key: func(n *node, _ time.Time) rank { return number(float64(n.memory - n.memFree)) }},
		{head: "HISTORY", least: 10, most: history, from: 110, cell: func(n *node, w int, _ time.Time) cell { return text(spark(n.past(w), w)) }},
		{head: "MODEL", least: 12, most: 20, from: 140, cell: func(n *node, _ int, _ time.Time) cell { return text(n.model()) }, key: func(n *node, _ time.Time) rank { return word(n.model()) }},
		{head: "WHY", least: 10, most: 50, from: 120, cell: func(n *node, _ int, _ time.Time) cell { return cell{n.detail, warn} }},
	}
}

func nodeState(n *node, _ int, now time.Time) cell {
	switch n.state {
	case api.NodeReady:
		return cell{"ready", good}
	case api.NodeDraining:
		return cell{"draining", warn}
	case api.NodeSuspect:
		return cell{"suspect", warn}
	case api.NodeLost:
	}
	if n.seen.IsZero() {
		return cell{string(n.state), bad}
	}
	return cell{string(n.state) + " " + about(now.Sub(n.seen)), bad}
}

// about writes a duration in its largest unit.
func about(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", max(d, 0)/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh", d/time.Hour)
	}
	return fmt.Sprintf("%dd", d/(24*time.Hour))
}

// held returns how much of the node's GPUs jobs hold.
func (n *node) held() (held float64) {
	for _, d := range n.gpus {
		held += d.held()
	}
	return held
}

// held returns how much of the GPU jobs hold, from 0 to 1.
func (d *device) held() float64 {
	if len(d.jobs) == 0 {
		return 0
	}
	return min(max(0, 1-d.free), 1)
}

// share writes a number of GPUs, in which a share of a GPU counts as a fraction.
func share(gpus float64) string { return strconv.FormatFloat(math.Round(gpus*1000)/1000, 'f', -1, 64) }

// model returns the model of the first GPU; the other GPUs of a host are usually the same.
func (n *node) model() string {
	if len(n.gpus) == 0 {
		return ""
	}
	return n.gpus[0].label()
}

func (d *device) label() string {
	if d.simulated {
		return d.model.is() + " (sim)"
	}
	return d.model.is()
}

func nodeHeld(n *node, _ int, _ time.Time) cell {
	if !n.answers() {
		return cell{fmt.Sprintf("%s/%d", unknown, len(n.gpus)), faint}
	}
	return text(fmt.Sprintf("%s/%d", share(n.held()), len(n.gpus)))
}

func nodeCPUs(n *node, _ int, _ time.Time) cell {
	if !n.answers() {
		return cell{fmt.Sprintf("%s/%d", unknown, n.cpus), faint}
	}
	return text(fmt.Sprintf("%d/%d", n.cpus-n.cpusFree, n.cpus))
}

func nodeMemory(n *node, _ int, _ time.Time) cell {
	if !n.answers() {
		return cell{unknown + "/" + job.Size(n.memory).String(), faint}
	}
	return text(job.Size(n.memory-n.memFree).String() + "/" + job.Size(n.memory).String())
}

func nodeTasks(n *node, _ int, _ time.Time) cell {
	if !n.answers() {
		return none
	}
	return text(strconv.Itoa(n.running))
}

// sums sum up the readings of a node's GPUs: busy and full are means, power is a sum, heat the maximum. GPUs without a
// reading are left out. If no GPU has one, busy and full are -1, and power and heat are 0.
type sums struct {
	busy, full, power float64
	heat              int
}

func (n *node) sums(now time.Time) sums {
	s := sums{busy: -1, full: -1}
	known, memory := 0, int64(0)
	busy, used := 0, int64(0)
	for _, d := range n.gpus {
		r, ok := d.known()
		if !ok || d.stale(now) > 0 {
			continue
		}
		if r.busy >= 0 {
			busy, known = busy+int(r.busy), known+1
		}
		if r.used >= 0 {
			used, memory = used+r.used, memory+d.memory
		}
		s.power, s.heat = s.power+float64(r.power), max(s.heat, int(r.heat))
	}
	if known > 0 {
		s.busy = float64(busy) / float64(known)
	}
	if memory > 0 {
		s.full = 100 * float64(used) / float64(memory)
	}
	return s
}

// past returns the mean of the last readings of all GPUs.
func (n *node) past(width int) []int8 {
	all := make([]int8, 0, width)
	for i := width; i > 0; i-- {
		sum, known := 0, 0
		for _, d := range n.gpus {
			if at := len(d.past) - i; at >= 0 && d.past[at] >= 0 {
				sum, known = sum+int(d.past[at]), known+1
			}
		}
		if known == 0 {
			all = append(all, -1)
		} else {
			all = append(all, int8(sum/known)) //nolint:gosec // at most 100
		}
	}
	return all
}

func gpuColumns(c *cluster) []column[*device] {
	return []column[*device]{
		{head: "NODE", least: 8, most: 24, cell: func(d *device, _ int, _ time.Time) cell { return text(d.node.name) }, key: func(d *device, _ time.Time) rank { return word(d.node.name) }},
		{head: "#", least: 2, right: true, cell: func(d *device, _ int, _ time.Time) cell { return text(strconv.Itoa(int(d.index))) }},
		{head: "UTIL", least: 13, most: 36, cell: gpuBusy, key: func(d *device, _ time.Time) rank { r, _ := d.known(); return number(float64(r.busy)) }, all: true},
		{head: "MEMORY", least: 13, most: 36, cell: gpuFull, key: func(d *device, _ time.Time) rank { r, _ := d.known(); return number(float64(r.used)) }, all: true},
		{head: "USED", least: 15, from: 120, right: true, cell: gpuUsed},
		{head: "POWER", least: 5, right: true, cell: func(d *device, _ int, _ time.Time) cell { r, _ := d.known(); return watts(float64(r.power)) }, key: func(d *device, _ time.Time) rank { r, _ := d.known(); return number(float64(r.power)) }, all: true},
		{head: "TEMP", least: 4, right: true, cell: func(d *device, _ int, _ time.Time) cell { r, _ := d.known(); return degrees(int(r.heat)) }, key: func(d *device, _ time.Time) rank { r, _ := d.known(); return number(float64(r.heat)) }, all: true},
		{head: "HISTORY", least: 8, most: history, cell: func(d *device, w int, _ time.Time) cell { return text(spark(d.past, w)) }},
		{head: "MODEL", least: 15, most: 20, from: 100, cell: func(d *device, _ int, _ time.Time) cell { return text(d.label()) }, key: func(d *device, _ time.Time) rank { return word(d.model.is()) }},
		{head: "HELD BY", least: 14, most: 48, cell: func(d *device, _ int, now time.Time) cell { return c.state(d, now) }, key: func(d *device, _ time.Time) rank { return word(c.holder(d)) }},
	}
}

func gpuBusy(d *device, w int, _ time.Time) cell {
	r, _ := d.known()
	return bar(float64(r.busy), w)
}

func gpuFull(d *device, w int, _ time.Time) cell {
	r, _ := d.known()
	if r.used < 0 || d.memory <= 0 {
		return bar(-1, w)
	}
	return bar(100*float64(r.used)/float64(d.memory), w)
}

func gpuUsed(d *device, _ int, _ time.Time) cell {
	r, ok := d.known()
	if !ok || r.used < 0 {
		return cell{unknown + "/" + job.Size(d.memory).String(), faint}
	}
	return text(job.Size(r.used).String() + "/" + job.Size(d.memory).String())
}

// holder returns the job that holds a GPU, with its user.
func (c *cluster) holder(d *device) string {
	id := first(d.jobs)
	if id == "" {
		return ""
	}
	w := c.jobs[id]
	if w == nil || w.name == "" {
		return string(id)
	}
	return w.user.is() + "/" + w.name
}

// state returns what is wrong with a GPU, or else who holds it.
func (c *cluster) state(d *device, now time.Time) cell {
	switch {
	case !d.node.answers():
		return cell{"node " + string(d.node.state), bad}
	case d.health.is() != gpu.Healthy:
		return cell{strings.TrimSuffix(string(d.health.is())+": "+d.detail, ": "), bad}
	case d.stale(now) > 0:
		return cell{"read " + short(d.stale(now)) + " ago", warn}
	case len(d.jobs) == 0:
		return cell{"free", faint}
	case len(d.jobs) > 1:
		return text(fmt.Sprintf("%s and %d more", c.holder(d), len(d.jobs)-1))
	case d.free > 0:
		return text(fmt.Sprintf("%s %s", share(d.held()), c.holder(d)))
	}
	return text(c.holder(d))
}

func taskColumns() []column[*task] {
	return []column[*task]{
		{head: "TASK", least: 24, most: 30, cell: func(t *task, _ int, _ time.Time) cell { return text(t.label()) }, key: func(t *task, _ time.Time) rank { return word(t.label()) }},
		{head: "USER", least: 6, most: 16, cell: func(t *task, _ int, _ time.Time) cell { return text(t.user.is()) }, key: func(t *task, _ time.Time) rank { return word(t.user.is()) }},
		{head: "NAME", least: 10, most: 40, cell: func(t *task, _ int, _ time.Time) cell { return text(t.name) }, key: func(t *task, _ time.Time) rank { return word(t.name) }},
		{head: "ST", least: 3, cell: taskState, key: func(t *task, _ time.Time) rank { return word(t.state.is().Code()) }},
		{head: "TIME", least: 6, right: true, cell: taskTime, key: func(t *task, _ time.Time) rank { return number(-float64(t.began)) }},
		{head: "GPUS", least: 4, right: true, cell: func(t *task, _ int, _ time.Time) cell { return text(strconv.FormatFloat(float64(t.gpus), 'g', 4, 32)) }, key: func(t *task, _ time.Time) rank { return number(float64(t.gpus)) }},
		{head: "CPUS", least: 4, from: 100, right: true, cell: func(t *task, _ int, _ time.Time) cell { return text(strconv.Itoa(int(t.need.cpus))) }, key: func(t *task, _ time.Time) rank { return number(float64(t.need.cpus)) }},
		{head: "MEMORY", least: 8, from: 110, right: true, cell: taskMemory, key: func(t *task, _ time.Time) rank { return number(float64(t.need.memory)) }},
		{head: "PRIO", least: 4, from: 120, right: true, cell: func(t *task, _ int, _ time.Time) cell { return text(strconv.Itoa(int(t.priority))) }, key: func(t *task, _ time.Time) rank { return number(float64(t.priority)) }},
		{head: "NODE OR REASON", least: 14, most: 60, cell: taskPlace, key: func(t *task, _ time.Time) rank { return word(cmp.Or(t.place.is(), t.why.is())) }},
	}
}

func taskState(t *task, _ int, _ time.Time) cell {
	state := t.state.is()
	code := cmp.Or(state.Code(), string(state))
	switch {
	case state == job.Running:
		return cell{code, good}
	case state == job.Unreachable || state == job.Held:
		return cell{code, warn}
	case state.Ended() && state != job.Succeeded:
		return cell{code, bad}
	}
	return text(code)
}

func taskTime(t *task, _ int, now time.Time) cell {
	if t.began == 0 {
		return cell{unknown, faint}
	}
	return text(short(t.since(now)))
}

func taskMemory(t *task, _ int, _ time.Time) cell {
	if t.need.memory == 0 {
		return none
	}
	return text(job.Size(t.need.memory).String())
}

func taskPlace(t *task, _ int, now time.Time) cell {
	s := t.place.is()
	if s == "" || t.state.is().Ended() {
		s = strings.TrimSpace(s + " " + t.why.is())
	}
	if t.told != 0 {
		return cell{"told " + short(t.told.since(now)) + " ago: " + s, warn}
	}
	return text(s)
}

// short writes a duration in at most six letters.
func short(d time.Duration) string {
	d = max(d, 0)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", d/time.Minute, d%time.Minute/time.Second)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
	case d < 100*24*time.Hour:
		return fmt.Sprintf("%dd%02dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
	}
	return fmt.Sprintf("%dd", d/(24*time.Hour))
}

func watts(p float64) cell {
	switch {
	case p <= 0 || math.IsNaN(p) || p > 1e9:
		return none
	case p >= 10_000:
		return text(fmt.Sprintf("%.1fkW", p/1000))
	}
	return text(fmt.Sprintf("%.0fW", p))
}

func degrees(c int) cell {
	switch {
	case c <= 0 || c > 999:
		return none
	case c >= 85:
		return cell{fmt.Sprintf("%d°C", c), warn}
	}
	return text(fmt.Sprintf("%d°C", c))
}

// bar draws a percentage, with the figure behind it. A negative percentage means not known.
func bar(percent float64, width int) cell {
	room := max(width-5, 1)
	if percent < 0 || math.IsNaN(percent) {
		return cell{strings.Repeat(" ", room) + "    " + unknown, faint}
	}
	percent = min(percent, 100)
	eighths := int(math.Round(percent / 100 * float64(room*8)))
	full, rest := eighths/8, eighths%8
	b := strings.Repeat("█", full)
	if rest > 0 {
		b += string([]rune("▏▎▍▌▋▊▉")[rest-1])
		full++
	}
	return text(b + strings.Repeat("░", room-full) + fmt.Sprintf("%4.0f%%", percent))
}

// spark draws the last percentages, the newest on the right. What is not known is left out.
func spark(past []int8, width int) string {
	past = past[max(0, len(past)-width):]
	var b strings.Builder
	b.WriteString(strings.Repeat(" ", width-len(past)))
	for _, p := range past {
		if p < 0 {
			b.WriteByte(' ')
		} else {
			b.WriteString(string([]rune("▁▂▃▄▅▆▇█")[min(int(p)*8/101, 7)]))
		}
	}
	return b.String()
}

// row draws the cells of a row.
func row[T any](x T, columns []column[T], widths []int, gap string, now time.Time) line {
	l := make(line, 0, 2*len(columns))
	for i, c := range columns {
		if i > 0 {
			l = append(l, cell{text: gap})
		}
		l = append(l, fit(c.cell(x, widths[i], now), widths[i], c.right))
	}
	return l
}

// fit makes a text as wide as its column.
func fit(c cell, width int, right bool) cell {
	c.text = table.Cut(c.text, width)
	pad := strings.Repeat(" ", max(width-table.Width(c.text), 0))
	if right {
		c.text = pad + c.text
	} else {
		c.text += pad
	}
	return c
}
