package top

// The three lists, as the user wants them: filtered and in order.

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/job"
)

// kind is one of the lists.
type kind int

const (
	ofNodes kind = iota
	ofGPUs
	ofTasks
	kinds
)

// noun names what is in a list.
func (k kind) noun() string { return [...]string{"nodes", "GPUs", "tasks"}[k] }

// wish is how the user wants a list.
type wish struct {
	order   string // the column; empty: the natural order
	reverse bool
	filter  string
	at      string // the key of the selected row
	row     int    // its index
	first   int    // the first row on the screen
}

// lists are the rows of all lists.
type lists struct {
	nodes []*node
	gpus  []*device
	tasks []*task
}

func (l *lists) len(k kind) int { return [...]int{len(l.nodes), len(l.gpus), len(l.tasks)}[k] }

// key identifies a row, so that it stays selected when the order changes.
func (l *lists) key(k kind, i int) string {
	if i < 0 || i >= l.len(k) {
		return ""
	}
	switch k {
	case ofNodes:
		return string(l.nodes[i].id)
	case ofGPUs:
		return string(l.gpus[i].node.id) + " " + l.gpus[i].uuid
	case ofTasks, kinds:
	}
	return l.tasks[i].label()
}

// hosts fills the lists of nodes and GPUs. If only is not empty, they show only this node.
func (l *lists) hosts(c *cluster, only job.Peer, wishes *[kinds]wish, now time.Time) {
	l.nodes, l.gpus = l.nodes[:0], l.gpus[:0]
	nodes, gpus := strings.ToLower(wishes[ofNodes].filter), strings.ToLower(wishes[ofGPUs].filter)
	for _, n := range c.nodes {
		if only != "" && n.id != only {
			continue
		}
		if has(nodes, n.name, string(n.state), n.labels, n.model()) {
			l.nodes = append(l.nodes, n)
		}
		for _, d := range n.gpus {
			if gpus == "" || has(gpus, n.name, d.model.is(), string(d.health.is()), d.uuid, string(first(d.jobs)), c.holder(d)) {
				l.gpus = append(l.gpus, d)
			}
		}
	}
	slices.SortFunc(l.nodes, byNode)
	slices.SortFunc(l.gpus, byGPU)
	sortBy(l.nodes, nodeColumns(), &wishes[ofNodes], now)
	sortBy(l.gpus, gpuColumns(c), &wishes[ofGPUs], now)
}

// work fills the list of tasks. If anew is false, it only removes old rows and inserts new ones, unless these are many.
func (l *lists) work(c *cluster, only job.Peer, w *wish, anew bool, now time.Time) {
	const many = 512
	filter := strings.ToLower(w.filter)
	wanted := func(t *task) bool { return !t.gone && t.mayRunOn(only) && t.matches(filter) }
	order := orderOf(taskColumns(), w, byTask, now)
	if anew || len(c.fresh) > many {
		l.tasks = l.tasks[:0]
		for _, x := range c.jobs {
			for i := range x.tasks {
				if t := &x.tasks[i]; wanted(t) {
					l.tasks = append(l.tasks, t)
				}
			}
		}
		slices.SortFunc(l.tasks, order)
	} else {
		if c.gone {
			l.tasks = slices.DeleteFunc(l.tasks, func(t *task) bool { return t.gone })
		}
		for _, t := range c.fresh {
			if wanted(t) {
				at, _ := slices.BinarySearchFunc(l.tasks, t, order)
				l.tasks = slices.Insert(l.tasks, at, t)
			}
		}
	}
	c.fresh, c.gone = nil, false
}

// mayRunOn reports whether a task belongs to the list of a node; an empty node means all nodes. The tasks of a large
// job are not listed one by one, so some of them may run on the node.
func (t *task) mayRunOn(node job.Peer) bool {
	return node == "" || t.node.is() == node || t.number == whole && t.count.active > 0
}

// matches reports whether the task has the text of a filter, which is in lower case.
func (t *task) matches(filter string) bool {
	return filter == "" || has(filter, string(t.id), t.user.is(), t.name, t.place.is(), string(t.state.is()), t.state.is().Code(), t.why.is())
}

// has reports whether one of the texts contains the filter, which is in lower case.
func has(filter string, texts ...string) bool {
	return filter == "" || slices.ContainsFunc(texts, func(s string) bool { return strings.Contains(strings.ToLower(s), filter) })
}

func first(ids []job.ID) job.ID {
	if len(ids) == 0 {
		return ""
	}
	return ids[0]
}

// sortBy sorts rows that are in the natural order by the column that the user wants.
func sortBy[T any](rows []T, columns []column[T], w *wish, now time.Time) {
	key := keyOf(columns, w)
	if key == nil {
		return
	}
	type ranked struct {
		rank

		row T
	}
	all := make([]ranked, len(rows))
	for i, x := range rows {
		all[i] = ranked{key(x, now), x}
	}
	slices.SortStableFunc(all, func(a, b ranked) int { return w.turned(a.compare(b.rank)) })
	for i, x := range all {
		rows[i] = x.row
	}
}

// orderOf returns the order that the user wants: that of a column, and then the natural one.
func orderOf[T any](columns []column[T], w *wish, natural func(a, b T) int, now time.Time) func(a, b T) int {
	key := keyOf(columns, w)
	if key == nil {
		return natural
	}
	return func(a, b T) int {
		if order := w.turned(key(a, now).compare(key(b, now))); order != 0 {
			return order
		}
		return natural(a, b)
	}
}

func keyOf[T any](columns []column[T], w *wish) func(T, time.Time) rank {
	i := slices.IndexFunc(columns, func(c column[T]) bool { return c.head == w.order && c.key != nil })
	if i < 0 {
		return nil
	}
	return columns[i].key
}

func (w *wish) turned(order int) int {
	if w.reverse {
		return -order
	}
	return order
}

// rank is what rows are sorted by: a number, and a text where numbers are equal.
type rank struct {
	n    float64
	text string
}

func (r rank) compare(o rank) int {
	return cmp.Or(cmp.Compare(r.n, o.n), strings.Compare(r.text, o.text))
}

// The natural orders.

func byNode(a, b *node) int {
	return cmp.Or(strings.Compare(a.name, b.name), strings.Compare(string(a.id), string(b.id)))
}

func byGPU(a, b *device) int {
	return cmp.Or(byNode(a.node, b.node), cmp.Compare(a.index, b.index), strings.Compare(a.uuid, b.uuid))
}

// byTask puts running tasks first, then waiting, then ended ones; within each, the newest job first.
func byTask(a, b *task) int {
	if order := cmp.Compare(a.stage, b.stage); order != 0 {
		return order
	}
	if order := cmp.Compare(b.submitted, a.submitted); order != 0 {
		return order
	}
	return cmp.Or(strings.Compare(string(a.id), string(b.id)), cmp.Compare(a.number, b.number))
}

func stageOf(s job.State) int8 {
	switch {
	case s.Active():
		return 0
	case s.Ended():
		return 2
	}
	return 1
}
