package top

// The model: what is known and what the user sees of it. It depends only on messages and the time, and returns the
// effects to carry out.

import (
	"slices"
	"time"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/job"
)

// The messages of the feed. Keys and sizes come from the terminal.
type (
	opened   struct{}                 // the stream of events is open
	silenced struct{ why string }     // the daemon does not answer
	changes  struct{ of []api.Event } // what has happened
	measured struct {                 // the answer to measure
		gpus  []api.GPU
		tag   string
		same  bool
		bytes int
		err   error
	}
	notice struct { // the result of something that the user has asked for
		text   string
		failed bool
	}
	ticked  struct{}
	sized   struct{ width, height int }
	pressed struct{ key, text string } // name of the key, and the text that it types
	pasted  struct{ text string }
)

// The effects that the model asks for.
type (
	load    struct{}
	measure struct {
		nodes []job.Peer // empty: all
		tag   string
	}
	cancel struct {
		id    job.ID
		task  int // whole: all tasks
		label string
	}
	verb struct {
		args []string
		stay bool // the user wants to read the output before the view comes back
	}
	quit    struct{}
	suspend struct{}
)

// How much may be asked of the daemon.
const (
	quietRate   = 2 << 10  // bytes a second of readings of the GPUs on the screen
	sortedRate  = 64 << 10 // of readings of all GPUs, if a list is sorted by them
	loadRate    = 128 << 10
	loadPause   = 2 * time.Second // between two listings at least
	longest     = time.Minute     // and at most
	maxQueued   = 10_000          // events that come while everything is listed
	fewGPUs     = 32              // up to this number all GPUs are always measured
	mostNodes   = 100             // nodes whose GPUs are measured at a time
	saidFor     = 10 * time.Second
	rebuildRows = 1000 // longer lists are updated only with each tick
)

// link is the state of the requests to the daemon.
type link struct {
	open      bool
	why       string    // why the daemon does not answer
	lost      time.Time // since when it does not answer
	stale     bool      // everything must be listed
	loading   bool
	began     bool // everything has been listed once
	nextLoad  time.Time
	queue     []api.Event // events that came during the listing
	measuring bool
	nextRead  time.Time
	lastRead  time.Time
	nodes     []job.Peer // whose GPUs were measured last
	tag       string
}

// said is what the user is told for a while.
type said struct {
	text   string
	failed bool
	until  time.Time
}

// model is the whole state of the view.
type model struct {
	now     time.Time
	refresh time.Duration
	only    job.Peer // the node that is shown alone; empty: all
	fixed   bool     // the user cannot leave it
	cluster *cluster
	link    link
	wishes  [kinds]wish
	lists   lists
	totals  totals
	stale   stale
	upper   kind // what the upper half shows
	focus   kind // the list that has the keys
	prompt  *prompt
	said    said
	help    bool
	width   int
	height  int
}

// stale says what must be computed again.
type stale struct {
	lists bool // something has changed
	wish  bool // the user wants other rows, or another order
	frame bool
	next  time.Time // events cause no frame before this time: the first is shown at once, and those that follow with the tick
}

func newModel(only job.Peer, refresh time.Duration) *model {
	return &model{only: only, fixed: only != "", refresh: refresh, cluster: newCluster(), totals: totals{busy: -1}, focus: ofTasks, upper: ofNodes}
}

// update handles a message, and returns the effects to carry out.
func (m *model) update(msg any, now time.Time) (effects []any) {
	m.now = now
	switch msg := msg.(type) {
	case opened:
		m.link.open, m.link.why, m.link.stale = true, "", true
	case silenced:
		if m.link.open || m.link.lost.IsZero() {
			m.link.lost = now
		}
		m.link.open, m.link.why = false, clean(msg.why)
	case changes:
		m.hear(msg.of)
	case hosts:
		m.cluster.list(msg)
	case page:
		m.cluster.add(msg)
		m.stale.lists, m.stale.frame = true, false
		return nil
	case loaded:
		m.load(msg)
	case measured:
		m.measured(msg)
	case notice:
		m.say(msg.text, msg.failed)
	case sized:
		m.width, m.height = msg.width, msg.height
	case pressed:
		effects = m.press(msg)
	case pasted:
		if m.prompt != nil {
			m.prompt.write(msg.text)
			m.filterNow()
		}
	}
	_, tick := msg.(ticked)
	if tick {
		m.stale.lists = m.cluster.forget(now) || m.stale.lists
		m.cluster.moved = m.cluster.moved || m.wishes[m.upper].order != "" // the order may depend on readings or on ages
	}
	_, events := msg.(changes)
	m.stale.frame = !events || m.small() && !now.Before(m.stale.next)
	if events && m.stale.frame {
		m.stale.next = now.Add(m.refresh)
	}
	if m.stale.frame && m.link.began && (tick || m.stale.lists || m.stale.wish) {
		m.rebuild()
	}
	return append(effects, m.ask()...)
}

// small reports whether the lists are short enough to show a change at once, and not with the next tick.
func (m *model) small() bool { return len(m.cluster.jobs)+m.cluster.gpus < rebuildRows }

func (m *model) say(text string, failed bool) {
	m.said = said{clean(text), failed, m.now.Add(saidFor)}
}

// hear notes events. During a listing it also keeps them, because the answer may be older than the events.
func (m *model) hear(events []api.Event) {
	m.stale.lists = true
	for i := range events {
		if m.cluster.hear(&events[i], m.now) {
			m.link.stale = true
		}
	}
	if !m.link.loading {
		return
	}
	if m.link.queue = append(m.link.queue, events...); len(m.link.queue) > maxQueued {
		m.link.queue, m.link.stale = nil, true
	}
}

func (m *model) load(l loaded) {
	m.link.loading = false
	m.link.nextLoad = m.now.Add(pace(loadPause, l.bytes, loadRate))
	if l.err != nil {
		m.link.stale = true
		m.say(l.err.Error(), true)
	} else {
		m.cluster.listed(l.left)
		m.link.began = true
	}
	m.stale.lists = true
	for i := range m.link.queue { // the answer may be older than these events
		m.cluster.hear(&m.link.queue[i], m.now)
	}
	m.link.queue = nil
}

func (m *model) measured(a measured) {
	m.link.measuring = false
	m.link.lastRead = m.now
	rate := quietRate
	if len(m.link.nodes) == 0 {
		rate = sortedRate
	}
	m.link.nextRead = m.now.Add(pace(m.refresh, a.bytes, rate))
	if a.err != nil {
		m.link.tag = ""
		return // the stream of events says so, too
	}
	m.link.tag = a.tag
	if a.same { // the same readings again are not newer: a node that no longer measures returns the same for ever
		return
	}
	m.cluster.measure(a.gpus, m.now)
	m.cluster.moved = m.cluster.moved || m.sortsReadings()
}

// pace returns how long to wait after an answer of this size, so that answers stay below rate bytes a second.
func pace(least time.Duration, bytes, rate int) time.Duration {
	return min(max(least, time.Duration(bytes)*time.Second/time.Duration(rate)), longest)
}

// ask returns what the daemon must be asked now.
func (m *model) ask() (effects []any) {
	l := &m.link
	if !l.open {
		return nil
	}
	if l.stale && !l.loading && !m.now.Before(l.nextLoad) {
		l.stale, l.loading = false, true
		effects = append(effects, load{})
	}
	if l.measuring || l.loading || !l.began {
		return effects
	}
	nodes, any := m.watched()
	if !any {
		return effects
	}
	next := l.nextRead
	if !slices.Equal(nodes, l.nodes) { // other nodes are on the screen now
		l.tag = ""
		next = l.lastRead.Add(min(m.refresh, time.Second))
	}
	if m.now.Before(next) {
		return effects
	}
	l.nodes, l.measuring = nodes, true
	return append(effects, measure{nodes, l.tag})
}

// watched returns the nodes whose GPUs are to be measured: those on the screen, or none if all nodes are meant. any is
// false if nothing is to be measured.
func (m *model) watched() (nodes []job.Peer, any bool) {
	if m.cluster.gpus == 0 || m.width == 0 && m.height == 0 {
		return nil, false
	}
	if m.only != "" {
		return []job.Peer{m.only}, true
	}
	if m.cluster.gpus <= fewGPUs || m.sortsReadings() {
		return nil, true
	}
	first, rows := m.wishes[m.upper].first, m.split().upper
	for i := first; i < min(first+rows, m.lists.len(m.upper)) && len(nodes) < mostNodes; i++ {
		var n *node
		if m.upper == ofNodes {
			n = m.lists.nodes[i]
		} else {
			n = m.lists.gpus[i].node
		}
		if len(n.gpus) > 0 && !slices.Contains(nodes, n.id) {
			nodes = append(nodes, n.id)
		}
	}
	slices.Sort(nodes)
	return nodes, len(nodes) > 0
}

// sortsReadings reports whether the upper list is sorted by readings.
func (m *model) sortsReadings() bool {
	order := m.wishes[m.upper].order
	if m.upper == ofNodes {
		return slices.ContainsFunc(nodeColumns(), func(c column[*node]) bool { return c.all && c.head == order })
	}
	return slices.ContainsFunc(gpuColumns(m.cluster), func(c column[*device]) bool { return c.all && c.head == order })
}

// rebuild updates the lists. The selected rows stay selected.
func (m *model) rebuild() {
	c := m.cluster
	if m.stale.wish || c.moved || c.anew {
		m.lists.hosts(c, m.only, &m.wishes, m.now)
	}
	m.lists.work(c, m.only, &m.wishes[ofTasks], m.stale.wish || c.anew, m.now)
	m.totals = c.totals(m.now)
	c.moved, c.anew, m.stale.lists, m.stale.wish = false, false, false, false
	for k := range m.wishes {
		w, n := &m.wishes[k], m.lists.len(kind(k))
		if w.at != "" && m.lists.key(kind(k), w.row) != w.at {
			for i := range n {
				if m.lists.key(kind(k), i) == w.at {
					w.row = i
					break
				}
			}
		}
		m.move(kind(k), 0)
	}
}

// move moves the selection of a list, and the part of it that is on the screen.
func (m *model) move(k kind, by int) {
	w, n := &m.wishes[k], m.lists.len(k)
	w.row = max(min(w.row+by, n-1), 0)
	if by != 0 || w.at != "" {
		w.at = m.lists.key(k, w.row)
	}
	s := m.split()
	rows := s.upper
	if k == ofTasks {
		rows = s.tasks
	}
	if w.row < w.first {
		w.first = w.row
	}
	if rows > 0 && w.row >= w.first+rows {
		w.first = w.row - rows + 1
	}
	w.first = max(min(w.first, n-rows), 0)
}
