package central

// Tasks: the parts of a job that are placed as one.

import (
	"container/heap"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/internal/sim/load"
	"github.com/musterhq/muster/internal/sim/record"
	"github.com/musterhq/muster/job"
)

// item is one task, or one gang.
type item struct {
	job, task int
	shape     *shape
	submit    time.Duration
	priority  int

	preemptible bool
	left        time.Duration // of its work
	attained    float64       // GPU-seconds up to its last end
	resumes     bool          // its next start resumes earlier work, which costs time
	since       time.Duration // start of this run
	costs       time.Duration // what that start costs
	paced       time.Duration // when the speed of this run last changed
	done        time.Duration // part of left that was done by paced
	speed       float64       // since then
	order       int           // number of this start, counting all starts
	where       []record.Alloc
	key         float64 // sort key in the queue
	at          int     // index in ends
	slot        int     // index in run.running; -1: it does not run
	end         time.Duration
}

// shape is what equal tasks ask for. If one does not fit, no other with the same shape does.
type shape struct {
	number  int
	spec    job.Spec
	need    job.Resources // of one member
	members int
	models  []string // in the spelling of contract.ModelName; empty: any
	milli   int      // thousandths of each device
	devices int      // of each member
	blocked bool     // the first of the queue does not fit
	queue   []*item  // waiting items, by key, then submission
}

func (x *item) gpus() int { return x.shape.members * x.shape.devices }

// prepare builds the cluster and all tasks.
func (r *run) prepare(l *load.Load) error {
	r.cluster = newCluster(l.Machines)
	shapes := map[string]*shape{}
	for i := range l.Jobs {
		j := &l.Jobs[i]
		layout, err := j.Spec.Layout()
		if err != nil {
			return fmt.Errorf("job %s: %w", j.Name, err)
		}
		members := max(1, j.Spec.Nodes)
		key := fmt.Sprintf("%+v|%d|%s|%v", j.Spec.Need(), members, j.Spec.Constraint, j.Spec.Policy)
		s := shapes[key]
		if s == nil {
			need := j.Spec.Need()
			s = &shape{number: len(shapes), spec: j.Spec, need: need, members: members, milli: gpu.Milli(need), devices: gpu.Count(need)}
			if need.GPUModel != "" && s.devices > 0 {
				s.models = strings.Split(contract.ModelName(need.GPUModel), job.ModelOr)
			}
			shapes[key] = s
			if !r.cluster.could(s) {
				return fmt.Errorf("job %s: %d machines that have what it asks for do not exist", j.Name, members)
			}
			r.waiting.shapes = append(r.waiting.shapes, s)
		}
		for task := range layout.Tasks() / layout.Size() {
			r.arrivals = append(r.arrivals, &item{job: i, task: task, shape: s, submit: j.Submit, priority: j.Spec.Priority, preemptible: j.Spec.Preemptible, left: j.Runs})
		}
	}
	slices.SortStableFunc(r.arrivals, func(a, b *item) int { return int(a.submit - b.submit) })
	r.waiting.order = r.options.Order
	var err error
	r.places, err = r.newPlacer(l.Machines)
	return err
}

// ends are the running tasks by the time of their end.
type ends struct{ items []*item }

func (e *ends) Len() int { return len(e.items) }

func (e *ends) Less(i, j int) bool {
	a, b := e.items[i], e.items[j]
	return a.end < b.end || a.end == b.end && a.order < b.order
}

func (e *ends) Swap(i, j int) {
	e.items[i], e.items[j] = e.items[j], e.items[i]
	e.items[i].at, e.items[j].at = i, j
}

// Push is for package heap.
func (e *ends) Push(x any) {
	t := x.(*item)
	t.at = len(e.items)
	e.items = append(e.items, t)
}

// Pop is for package heap.
func (e *ends) Pop() any {
	last := len(e.items) - 1
	x := e.items[last]
	e.items = e.items[:last]
	return x
}

func (e *ends) add(x *item, end time.Duration) {
	x.end = end
	heap.Push(e, x)
}

func (e *ends) drop(x *item) { heap.Remove(e, x.at) }

func (e *ends) first() (time.Duration, bool) {
	if len(e.items) == 0 {
		return 0, false
	}
	return e.items[0].end, true
}

// due removes and returns a task that ends by this time; nil if there is none.
func (e *ends) due(at time.Duration) *item {
	if t, ok := e.first(); !ok || t > at {
		return nil
	}
	return heap.Pop(e).(*item)
}
