package api

// Events of the view: each change of a member is encoded once, for all streams.

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
	maxEventBytes = 8 << 20 // as view.Weight counts them: a client that reads the whole ring is sent 128 MiB at most
)

// seen says who besides a job's user may see a member's jobs: everybody, or with own only the operators.
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
	nodes []job.Peer // the nodes that the event is about
	sight *seen      // nil: everybody may see it
	frame []byte     // packed, with a second text for those who may see everything
}

// change is an event before it is encoded. The field of Event that field names holds its document doc.
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

// frameOf returns a server-sent event. Its data is an Event as JSON, with doc as the field that c names.
func frameOf(id string, at time.Time, c *change, doc []byte) []byte {
	head := Event{Schema: SchemaEvent, Kind: c.kind, At: at, ID: c.job, NodeID: c.node, Detail: c.detail, EventID: id}
	text, err := json.Marshal(head)
	if err != nil { // every event can be encoded
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

// jobEvents adds the events of a job that has changed: one for the job, and one for each of its tasks that has changed.
func (w *clusterView) jobEvents(m *viewMember, old, now *view.Row, doc *jobDocs) {
	var before Job // no tasks: they are all new
	if old != nil {
		if view.Same(old.Packed, now.Packed) {
			return
		}
		_ = json.Unmarshal(w.packer.Append(nil, old.Packed, false), &before) // valid: we have encoded it
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

// goneEvent adds the event that a job was deleted.
func (w *clusterView) goneEvent(m *viewMember, r *view.Row) {
	e := viewEvent{kind: EventGone, job: r.ID, user: r.User, sight: m.sight}
	w.tell(&change{viewEvent: e, detail: "the job was deleted"})
}

// nodeEvents adds an event if a node has changed, and one for each of its GPUs that has changed. Changes of measured values
// alone are no events: they change all the time, and listings have them.
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

// plainNode returns a node without its GPUs and without measured values; nil for nil.
func plainNode(n *Node) *Node {
	if n == nil {
		return nil
	}
	plain := *n
	plain.GPUs, plain.Usage = []GPU{}, nil
	return &plain
}

// plainGPU returns a GPU without measured values.
func plainGPU(g GPU) GPU {
	g.MemoryUsed, g.Utilization, g.GPUReading = 0, 0, GPUReading{IdleSince: g.IdleSince}
	return g
}

// memberEvent adds the event of a member that is new or has changed.
func (w *clusterView) memberEvent(m *Member) {
	doc := peerDocument(*m)
	e := viewEvent{kind: EventMember, nodes: []job.Peer{m.Peer}}
	w.tell(&change{viewEvent: e, field: "member", doc: textOf(&doc), node: m.Peer})
}

// contactEvent adds the event that a member can be followed now (EventOpen), or that it is silent (EventSilent).
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
