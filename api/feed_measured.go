package api

// Measured values of a node have a line of their own in feeds: they change with each sample, while the rest of a node's
// document hardly ever changes.

import (
	"bytes"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/musterhq/muster/api/view"
)

// feedMeasured has the measured values of a node. The values of its GPUs are in the order of its document.
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
		m.ReadAt = g.ReadAt // all GPUs are read at once
		m.Memory, m.Busy = append(m.Memory, g.MemoryUsed), append(m.Busy, g.Utilization)
		m.Heat, m.Power = append(m.Heat, g.Temperature), append(m.Power, g.Power)
	}
	return m
}

// valid reports whether each GPU has a possible value of each kind.
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

// on returns a copy of a node's document with these values. It returns false if the number of GPUs differs.
func (m *feedMeasured) on(n *Node) (*Node, bool) {
	if len(m.Memory) != len(n.GPUs) {
		return nil, false
	}
	now := *n // a copy: listings may still use the old one
	now.Usage, now.GPUs = m.Usage, slices.Clone(n.GPUs)
	for i := range now.GPUs {
		g := &now.GPUs[i]
		g.MemoryUsed, g.Utilization, g.Temperature, g.Power, g.ReadAt = m.Memory[i], m.Busy[i], m.Heat[i], m.Power[i], m.ReadAt
	}
	return &now, true
}

// nodeLines writes the lines about a node: the whole node if more than measured values has changed, else only the measured
// values.
type nodeLines struct {
	plain    *Node // the last node that was written, without measured values
	measured *feedMeasured
	whole    *wholeNode
}

// wholeNode is the newest document of the node, for readers of earlier versions. It is encoded only if there are such
// readers.
type wholeNode struct{ atomic.Pointer[Node] }

// line encodes the line about the whole node.
func (w *wholeNode) line() []byte { return encodeLine(feedLine{Node: w.Load()}) }

// tell writes the lines about the present node. The caller must not change the node afterwards.
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
	o.whole.Store(n) // before the lines are set, so that no reader of the lines gets an older node
	line := encodeLine(feedLine{Measured: measured})
	if !same {
		lines.Set(keyNode, encodeLine(feedLine{Node: n}))
	}
	lines.Set(keyMeasured, line) // after the node's line, so that it is always the newer one
}

// sameNode reports whether the documents are the same.
func sameNode(a, b *Node) bool {
	return a != nil && b != nil && (reflect.DeepEqual(a, b) || bytes.Equal(textOf(a), textOf(b)))
}

// reader says which lines the reader of a feed gets.
type reader struct {
	jobs     bool
	measured bool // if false, the reader has an earlier version, and gets only whole nodes
	whole    *wholeNode
}

// text returns the text that the reader gets for a line; nil if it gets none.
func (r reader) text(l view.Line) []byte {
	switch {
	case l.Key == keyMeasured && !r.measured:
		return r.whole.line()
	case l.Key == keyNode && !r.measured: // the line with key keyMeasured follows, for which it gets the whole node
		return nil
	case (l.Key == keyQueue || strings.HasPrefix(l.Key, keyJob)) && !r.jobs:
		return nil
	}
	return l.Text
}
