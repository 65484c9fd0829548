package api

// What is measured at a node, as a line of its own in feeds: it changes with each sample, and the rest of a node's document
// hardly ever.

import (
	"bytes"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/picture"
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

// valid reports whether each GPU has each value.
func (m *feedMeasured) valid() bool {
	n := len(m.Memory)
	return len(m.Busy) == n && len(m.Heat) == n && len(m.Power) == n
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

// nodeLines tells of a node: all if more has changed than what is measured, or else only that.
type nodeLines struct {
	plain, measured []byte // what was told last
}

// tell tells of the node as it is now.
func (o *nodeLines) tell(lines *picture.Log, n *Node) {
	plain := plainNode(n)
	for _, g := range n.GPUs {
		plain.GPUs = append(plain.GPUs, plainGPU(g))
	}
	text, measured := textOf(plain), encodeLine(feedLine{Measured: measuredOf(n)})
	same := bytes.Equal(text, o.plain)
	if same && bytes.Equal(measured, o.measured) {
		return
	}
	o.plain, o.measured = text, measured
	whole := encodeLine(feedLine{Node: n})
	if !same {
		lines.Set(keyNode, whole)
	}
	lines.Set(keyMeasured, measured) // after the node's: it is the newest in any case
	lines.Set(keyWhole, whole)
}

// forReader reports whether a reader gets a line. One of an earlier version gets whole nodes only.
func forReader(key string, withJobs, withMeasured bool) bool {
	switch {
	case key == keyNode || key == keyMeasured:
		return withMeasured
	case key == keyWhole:
		return !withMeasured
	case key == keyQueue || strings.HasPrefix(key, keyJob):
		return withJobs
	}
	return true
}
