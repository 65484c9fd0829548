package scheduler

// Which shape has the task that is to be placed next.

import "container/heap"

// shapeHeap is a heap of shapes with waiting tasks, by the rank of their first task.
type shapeHeap struct{ shapes []*shape }

func (h *shapeHeap) Len() int { return len(h.shapes) }

func (h *shapeHeap) Less(i, j int) bool {
	return rank(h.shapes[i].queue.first(), h.shapes[j].queue.first()) < 0
}

func (h *shapeHeap) Swap(i, j int) {
	h.shapes[i], h.shapes[j] = h.shapes[j], h.shapes[i]
	h.shapes[i].at, h.shapes[j].at = i, j
}

// Push implements heap.Interface.
func (h *shapeHeap) Push(x any) {
	g, _ := x.(*shape)
	g.at = len(h.shapes)
	h.shapes = append(h.shapes, g)
}

// Pop implements heap.Interface.
func (h *shapeHeap) Pop() any {
	last := len(h.shapes) - 1
	g := h.shapes[last]
	h.shapes[last] = nil
	h.shapes = h.shapes[:last]
	return g
}

// put adds a shape. It does nothing if the heap holds the shape.
func (h *shapeHeap) put(g *shape) {
	if !g.ready {
		g.ready = true
		heap.Push(h, g)
	}
}

// remove removes a shape. It does nothing if the heap does not hold the shape.
func (h *shapeHeap) remove(g *shape) {
	if g.ready {
		heap.Remove(h, g.at)
		g.ready = false
	}
}

// first returns the shape whose first task ranks before all others; nil if the heap is empty.
func (h *shapeHeap) first() *shape {
	if len(h.shapes) == 0 {
		return nil
	}
	return h.shapes[0]
}

// sort restores the order of the heap after the ranks of its shapes have changed.
func (h *shapeHeap) sort() { heap.Init(h) }
