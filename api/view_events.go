package api

// Events of the picture: what has changed since it was last told, encoded once for all who read.

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/musterhq/muster/api/view"
	"github.com/musterhq/muster/job"
)

// Bounds of the ring of events.
const (
	maxEvents     = 8192
	maxEventBytes = 8 << 20 // of view.Weight: who reads the whole ring is sent 128 MiB at most
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
	frame []byte     // packed; those who may see everything see more
}

// change is an event before it is encoded. Its document is a field of the same name.
type change struct {
	viewEvent
	field     string
	doc, more []byte // more: the document for those who may see everything
	node      job.Peer
	detail    string
}

// tell adds an event to the ring.
func (w *clusterView) tell(c *change) {
	now := time.Now().UTC()
	w.ring.Add(now, func(number uint64) (viewEvent, int) {
		e := c.viewEvent
		id := w.epoch + "-" + strconv.FormatUint(number, 10)
		var more []byte
		if c.more != nil {
			more = frameOf(id, now, c, c.more)
		}
		e.frame = w.packer.Pack(frameOf(id, now, c, c.doc), more)
		return e, view.Weight(e.frame)
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
func (w *clusterView) jobEvents(m *viewMember, old, now *view.Row, doc *jobDocs) {
	var before Job // no tasks: they are all new
	if old != nil {
		if view.Same(old.Packed, now.Packed) {
			return
		}
		_ = json.Unmarshal(w.packer.Append(nil, old.Packed, false), &before) // we have encoded it
	}
	e := viewEvent{kind: EventJob, job: now.ID, user: now.User, sight: m.sight}
	for i := range doc.Tasks {
		if p := doc.Tasks[i].NodeID; p != "" && !slices.Contains(e.nodes, p) {
			e.nodes = append(e.nodes, p)
		}
	}
	w.tell(&change{viewEvent: e, field: "job", doc: doc.text, more: doc.more})
	for _, task := range doc.Tasks {
		if slices.ContainsFunc(before.Tasks, func(t Task) bool { return sameStep(&t, &task) }) {
			continue
		}
		te := e
		te.kind, te.nodes = EventTask, nil
		if task.NodeID != "" {
			te.nodes = []job.Peer{task.NodeID}
		}
		c := change{viewEvent: te, field: "task"}
		if task.PID != 0 {
			c.more = textOf(&task)
			task.PID = 0
		}
		c.doc = textOf(&task)
		w.tell(&c)
	}
}

// sameStep reports whether nothing has happened to a task between two of its documents.
func sameStep(a, b *Task) bool {
	return a.Task == b.Task && a.Attempt == b.Attempt && a.State == b.State && a.NodeID == b.NodeID && a.Reason == b.Reason
}

// goneEvent tells that a job was deleted.
func (w *clusterView) goneEvent(m *viewMember, r *view.Row) {
	e := viewEvent{kind: EventGone, job: r.ID, user: r.User, sight: m.sight}
	w.tell(&change{viewEvent: e, detail: "the job was deleted"})
}

// nodeEvents tells what has changed at a node, and which of its GPUs have. Measured values alone are no event: they change
// all the time, and listings have them.
func (w *clusterView) nodeEvents(m *viewMember, old, now *Node) {
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
func (w *clusterView) memberEvent(m *Member) {
	doc := peerDocument(*m)
	e := viewEvent{kind: EventMember, nodes: []job.Peer{m.Peer}}
	w.tell(&change{viewEvent: e, field: "member", doc: textOf(&doc), node: m.Peer})
}

// contactEvent tells that a member can be followed now, or that it is silent.
func (w *clusterView) contactEvent(kind EventKind, p job.Peer, detail string) {
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
