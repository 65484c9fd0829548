package api

// Events of the picture: what has changed since it was last told, encoded once for all who read.

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/picture"
)

// Bounds of the ring of events.
const (
	maxEvents     = 8192
	maxEventBytes = 8 << 20
)

// seen says who besides a job's user may see a member's jobs.
type seen struct {
	own       bool
	operators []string
}

// may reports whether a requester may see the row of a job of this user.
func (s *seen) may(a *requester, user string) bool { return !s.own || s.all(a, user) }

// all reports whether a requester may see everything in the row.
func (s *seen) all(a *requester, user string) bool {
	return a.operator || a.user != "" && (a.user == user || slices.Contains(s.operators, a.user))
}

// viewEvent is an event in the ring, as it is sent.
type viewEvent struct {
	kind  EventKind
	job   job.ID
	user  string
	nodes []job.Peer // that it is about
	sight *seen      // nil: everybody may see it
	frame []byte
	full  []byte // for those who may see everything; nil: frame
}

// change is an event before it is encoded. Its document is a field of the same name.
type change struct {
	viewEvent
	field    string
	doc, all []byte // all: the document for those who may see everything
	node     job.Peer
	detail   string
}

// tell adds an event to the ring.
func (w *view) tell(c *change) {
	now := time.Now().UTC()
	w.ring.Add(now, func(number uint64) (viewEvent, int) {
		e := c.viewEvent
		id := w.epoch + "-" + strconv.FormatUint(number, 10)
		e.frame = frameOf(id, now, c, c.doc)
		if c.all != nil {
			e.full = frameOf(id, now, c, c.all)
		}
		return e, len(e.frame) + len(e.full)
	})
}

// frameOf returns a server-sent event. Its document is that of Event.
func frameOf(id string, at time.Time, c *change, doc []byte) []byte {
	head := Event{Schema: SchemaEvent, Kind: c.kind, At: at, ID: c.job, NodeID: c.node, Detail: c.detail, EventID: id}
	text, err := json.Marshal(head)
	if err != nil { // no such event is made
		return nil
	}
	var b bytes.Buffer
	b.Grow(len(text) + len(doc) + 128)
	fmt.Fprintf(&b, "id: %s\nevent: %s\ndata: ", id, c.kind)
	if c.field == "" {
		b.Write(text)
	} else {
		b.Write(text[:len(text)-1])
		fmt.Fprintf(&b, ",%q:", c.field)
		b.Write(doc)
		b.WriteByte('}')
	}
	b.WriteString("\n\n")
	return b.Bytes()
}

// jobEvents tells of a job that has changed, and of its tasks.
func (w *view) jobEvents(m *viewMember, old, now *picture.Row, doc *Job) {
	if old != nil && bytes.Equal(old.Text, now.Text) && bytes.Equal(old.Full, now.Full) {
		return
	}
	e := viewEvent{kind: EventJob, job: now.ID, user: now.User, sight: m.sight}
	for _, t := range now.Tasks {
		if t.Node != "" && !slices.Contains(e.nodes, t.Node) {
			e.nodes = append(e.nodes, t.Node)
		}
	}
	w.tell(&change{viewEvent: e, field: "job", doc: now.Text, all: now.Full})
	for i, t := range now.Tasks {
		if old != nil && slices.Contains(old.Tasks, t) {
			continue
		}
		te := e
		te.kind, te.nodes = EventTask, nil
		if t.Node != "" {
			te.nodes = []job.Peer{t.Node}
		}
		task := doc.Tasks[i]
		c := change{viewEvent: te, field: "task"}
		if task.PID != 0 {
			c.all = textOf(&task)
			task.PID = 0
		}
		c.doc = textOf(&task)
		w.tell(&c)
	}
}

// goneEvent tells that a job was deleted.
func (w *view) goneEvent(m *viewMember, r *picture.Row) {
	e := viewEvent{kind: EventGone, job: r.ID, user: r.User, sight: m.sight}
	w.tell(&change{viewEvent: e, detail: "the job was deleted"})
}

// nodeEvents tells what has changed at a node, and which of its GPUs have. Measured values alone are no event: they change
// all the time, and listings have them.
func (w *view) nodeEvents(m *viewMember, old, now *Node) {
	if !bytes.Equal(textOf(plainNode(old)), textOf(plainNode(now))) {
		e := viewEvent{kind: EventNode, nodes: []job.Peer{now.ID}}
		w.tell(&change{viewEvent: e, field: "node", doc: textOf(plainNode(now)), node: m.Peer})
	}
	for i := range now.GPUs {
		g := plainGPU(now.GPUs[i])
		at := -1
		if old != nil {
			at = slices.IndexFunc(old.GPUs, func(o GPU) bool { return o.UUID == g.UUID })
		}
		text := textOf(&g)
		if at >= 0 {
			o := plainGPU(old.GPUs[at])
			if bytes.Equal(textOf(&o), text) {
				continue
			}
		}
		e := viewEvent{kind: EventGPU, nodes: []job.Peer{now.ID}}
		w.tell(&change{viewEvent: e, field: "gpu", doc: textOf(&now.GPUs[i]), node: m.Peer})
	}
}

// plainNode returns a node without its GPUs and the values that are measured; nil for nil.
func plainNode(n *Node) *Node {
	if n == nil {
		return nil
	}
	plain := *n
	plain.GPUs, plain.Usage = []GPU{}, nil
	return &plain
}

// plainGPU returns a GPU without the values that are measured.
func plainGPU(g GPU) GPU {
	g.MemoryUsed, g.Utilization, g.GPUReading = 0, 0, GPUReading{IdleSince: g.IdleSince}
	return g
}

// memberEvent tells of a member that is new, or in another state.
func (w *view) memberEvent(m *Member) {
	doc := peerDocument(*m)
	e := viewEvent{kind: EventMember, nodes: []job.Peer{m.Peer}}
	w.tell(&change{viewEvent: e, field: "member", doc: textOf(&doc), node: m.Peer})
}

// contactEvent tells that a member can be followed now, or that it is silent.
func (w *view) contactEvent(kind EventKind, p job.Peer, detail string) {
	if p == w.self {
		return
	}
	w.tell(&change{viewEvent: viewEvent{kind: kind, nodes: []job.Peer{p}}, node: p, detail: detail})
}

// textOf returns a document as JSON.
func textOf(doc any) []byte {
	text, err := json.Marshal(doc)
	if err != nil { // every document can be encoded
		return []byte("null")
	}
	return text
}
