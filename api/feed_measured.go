package api

// What is measured at a node, as a line of its own in feeds: it changes with each sample, and the rest of a node's document
// hardly ever.

import (
	"bytes"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/musterhq/muster/api/view"
)

// feedMeasured has the measured values of a node. Those of its GPUs are in the order of its document.
type feedMeasured struct {
	Usage  *NodeNow   `json:"usage"`
	ReadAt *time.Time `json:"read_at,omitempty"`
	Memory []int64    `json:"memory_used,omitempty"`
	Busy   []int      `json:"utilization,omitempty"`
	Heat   []int      `json:"temperature,omitempty"`
	Power  []float64  `json:"power,omitempty"`
}

// measuredOf returns the measured values of a node.
func measuredOf(n *Node) *feedMeasured {
	m := &feedMeasured{Usage: n.Usage}
	for i := range n.GPUs {
		g := &n.GPUs[i]
		m.ReadAt = g.ReadAt // of all at once
		m.Memory, m.Busy = append(m.Memory, g.MemoryUsed), append(m.Busy, g.Utilization)
		m.Heat, m.Power = append(m.Heat, g.Temperature), append(m.Power, g.Power)
	}
	return m
}

// valid reports whether each GPU has each value, and can have it.
func (m *feedMeasured) valid() bool {
	n := len(m.Memory)
	if len(m.Busy) != n || len(m.Heat) != n || len(m.Power) != n || !m.Usage.plausible() {
		return false
	}
	for i := range n {
		if !measuredOnGPU(m.Memory[i], m.Busy[i], m.Power[i]) {
			return false
		}
	}
	return true
}

// on returns the document of a node with these values. It returns false if they are of another number of GPUs.
func (m *feedMeasured) on(n *Node) (*Node, bool) {
	if len(m.Memory) != len(n.GPUs) {
		return nil, false
	}
	now := *n // listings may have the old one
	now.Usage, now.GPUs = m.Usage, slices.Clone(n.GPUs)
	for i := range now.GPUs {
		g := &now.GPUs[i]
		g.MemoryUsed, g.Utilization, g.Temperature, g.Power, g.ReadAt = m.Memory[i], m.Busy[i], m.Heat[i], m.Power[i], m.ReadAt
	}
	return &now, true
}

// nodeLines tells of a node: all if more has changed than what is measured, or else only that. Nothing else is encoded.
type nodeLines struct {
	plain    *Node // what was told last
	measured *feedMeasured
	whole    *wholeNode
}

// wholeNode is the newest document of the node, for readers of earlier versions: it is encoded only if there are any.
type wholeNode struct{ atomic.Pointer[Node] }

// line returns the line about the whole node.
func (w *wholeNode) line() []byte { return encodeLine(feedLine{Node: w.Load()}) }

// tell tells of the node as it is now. The node must not be changed after that.
func (o *nodeLines) tell(lines *view.Log, n *Node) {
	plain, measured := plainNode(n), measuredOf(n)
	plain.GPUs = make([]GPU, 0, len(n.GPUs))
	for _, g := range n.GPUs {
		plain.GPUs = append(plain.GPUs, plainGPU(g))
	}
	same := sameNode(plain, o.plain)
	if same && reflect.DeepEqual(measured, o.measured) {
		return
	}
	o.plain, o.measured = plain, measured
	o.whole.Store(n) // before the lines, so that no reader of them gets an older one
	line := encodeLine(feedLine{Measured: measured})
	if !same {
		lines.Set(keyNode, encodeLine(feedLine{Node: n}))
	}
	lines.Set(keyMeasured, line) // after the node's: it is the newest in any case
}

// sameNode reports whether the documents are the same.
func sameNode(a, b *Node) bool {
	return a != nil && b != nil && (reflect.DeepEqual(a, b) || bytes.Equal(textOf(a), textOf(b)))
}

// reader is what the reader of a feed gets.
type reader struct {
	jobs     bool
	measured bool // else it is of an earlier version, and gets whole nodes only
	whole    *wholeNode
}

// text returns what the reader gets of a line; nil: nothing.
func (r reader) text(l view.Line) []byte {
	switch {
	case l.Key == keyMeasured && !r.measured:
		return r.whole.line()
	case l.Key == keyNode && !r.measured: // one with measured values follows
		return nil
	case (l.Key == keyQueue || strings.HasPrefix(l.Key, keyJob)) && !r.jobs:
		return nil
	}
	return l.Text
}
