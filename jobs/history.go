package jobs

// How the earlier attempts of the tasks of a job went. The newest attempt is in the task itself, so a task with one
// attempt has nothing here. See docs/adr, ADR 84.

import (
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/jobs/jobspb"
	"github.com/musterhq/muster/store/storepb"
)

const (
	// maxJobOutcomes bounds the outcomes that one job keeps, about 70 bytes each. Its tasks share them equally, and each
	// has at least one and at most job.MaxOutcomes.
	maxJobOutcomes = 1 << 18
	// maxOutcomeReason bounds the reason of an outcome, in bytes.
	maxOutcomeReason = 256
)

// outcomes holds the outcomes of the earlier attempts of one task.
type outcomes struct {
	list  []outcome // oldest first
	older uint32    // attempts before those in list, whose outcomes are not kept
	dirty bool      // it is in history.dirty
}

// outcome is a job.Outcome in memory. Times are ns since 1970, 0 for none.
type outcome struct {
	began, ended  int64
	reason        string
	n, host       uint32
	code          int32
	signal, state uint8
	started       bool
}

// history holds the outcomes of all tasks that have some.
type history struct {
	of   map[uint32]*outcomes // by task; nil while no task has any
	each int                  // how many each task keeps
	// dirty has the indexes of tasks whose outcomes have changed since TakeRows was last called.
	dirty []uint32
}

func newHistory(tasks int) history {
	return history{each: max(1, min(job.MaxOutcomes, maxJobOutcomes/tasks))}
}

func (h *history) put(index int, o *outcomes) {
	if h.of == nil {
		h.of = map[uint32]*outcomes{}
	}
	h.of[uint32(index)] = o
}

func (h *history) change(index int, o *outcomes) {
	if !o.dirty {
		o.dirty = true
		h.dirty = append(h.dirty, uint32(index))
	}
}

// clean notes that all outcomes are saved.
func (h *history) clean() {
	for _, i := range h.dirty {
		h.of[i].dirty = false
	}
	h.dirty = h.dirty[:0]
}

// newest returns the number of the newest attempt of a task whose outcome is kept.
func (h *history) newest(index int) int {
	if o := h.of[uint32(index)]; o != nil {
		return int(o.list[len(o.list)-1].n)
	}
	return 0
}

// keep adds an outcome of a task. If there are too many, it drops the oldest.
func (h *history) keep(index int, x outcome) {
	o := h.of[uint32(index)]
	if o == nil {
		o = &outcomes{}
		h.put(index, o)
	}
	if len(o.list) >= h.each {
		o.list = append(o.list[:0], o.list[1:]...)
		o.older++
	}
	o.list = append(o.list, x)
	h.change(index, o)
}

// replace replaces how an attempt of a task ended, if that is kept.
func (h *history) replace(index, n int, x job.Exit) {
	o := h.of[uint32(index)]
	if o == nil {
		return
	}
	for i := range o.list {
		if o.list[i].n == uint32(n) {
			o.list[i].set(x)
			h.change(index, o)
		}
	}
}

// set replaces how the attempt ended.
func (o *outcome) set(x job.Exit) {
	o.began, o.ended = storepb.Nanos(x.Began), storepb.Nanos(x.Ended)
	if o.reason = x.Reason; len(o.reason) > maxOutcomeReason {
		o.reason = strings.Clone(strings.ToValidUTF8(o.reason[:maxOutcomeReason], ""))
	}
	o.code, o.signal, o.state, o.started = int32(x.Code), uint8(x.Signal), number(x.State), x.Started
}

// exit returns how the attempt ended.
func (o *outcome) exit() job.Exit {
	return job.Exit{
		State: stateOf(o.state), Code: int(o.code), Signal: int(o.signal), Reason: o.reason, Started: o.started,
		Began: storepb.Time(o.began), Ended: storepb.Time(o.ended),
	}
}

func (o *outcomes) encode() ([]byte, error) {
	m := &jobspb.Outcomes{Older: o.older}
	for i := range o.list {
		x := &o.list[i]
		m.List = append(m.List, &jobspb.Outcome{N: x.n, Host: x.host, Exit: storepb.FromExit(new(x.exit()))})
	}
	return proto.Marshal(m)
}
