package state

// How the earlier attempts of the tasks of a job went. The newest attempt is in the task itself, so a task with one
// attempt has nothing here. See docs/adr, ADR 84.

import (
	"fmt"
	"unsafe"

	"google.golang.org/protobuf/proto"

	"github.com/musterhq/muster/internal/store/storepb"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/state/jobspb"
)

// maxJobOutcomes bounds the outcomes that one job keeps, about 80 bytes each. Its tasks share them equally, and each has
// at least one and at most job.MaxOutcomes.
const maxJobOutcomes = 1 << 18

// outcomes holds the outcomes of the earlier attempts of one task.
type outcomes struct {
	list  []outcome // oldest first
	older uint32    // attempts before those in list, whose outcomes are not kept
	dirty bool      // it is in history.dirty
}

// outcome is a job.Outcome in memory. Times are ns since 1970, 0 for none.
type outcome struct {
	placed        int64
	began, ended  int64
	reason        string
	n, host       uint32
	code          int32
	signal, state uint8
	started       bool
}

// The sizes of an outcome, and of the outcomes of a task with their entry in the map, in bytes of memory.
const (
	outcomeBytes  = int(unsafe.Sizeof(outcome{}))
	outcomesBytes = int(unsafe.Sizeof(outcomes{})) + 24
)

// history holds the outcomes of all tasks that have some.
type history struct {
	of   map[uint32]*outcomes // by task; nil while no task has any
	each int                  // how many each task keeps
	// hosts numbers the hosts of the job.
	hosts *hosts
	// dirty has the indexes of tasks whose outcomes have changed since TakeRows was last called.
	dirty []uint32
	held  int // bytes of memory of the outcomes
}

func newHistory(tasks int, hosts *hosts) history {
	return history{hosts: hosts, each: max(1, min(job.MaxOutcomes, maxJobOutcomes/tasks))}
}

func (h *history) put(index int, o *outcomes) {
	if h.of == nil {
		h.of = map[uint32]*outcomes{}
	}
	h.of[uint32(index)] = o
	h.held += outcomesBytes
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

// hostOf returns the host of an earlier attempt of a task; none if its outcome is not kept.
func (h *history) hostOf(index, n int) host {
	if o := h.of[uint32(index)]; o != nil {
		for i := range o.list {
			if o.list[i].n == uint32(n) {
				return h.hosts.list[o.list[i].host]
			}
		}
	}
	return host{}
}

// newest returns the number of the newest attempt of a task whose outcome is kept.
func (h *history) newest(index int) int {
	if o := h.of[uint32(index)]; o != nil {
		return int(o.list[len(o.list)-1].n)
	}
	return 0
}

// add adds an outcome of a task. If there are too many, it drops the oldest.
func (h *history) add(index int, x outcome) {
	o := h.of[uint32(index)]
	if o == nil {
		o = &outcomes{}
		h.put(index, o)
	}
	h.held += outcomeBytes + len(x.reason)
	if len(o.list) >= h.each {
		h.held -= outcomeBytes + len(o.list[0].reason)
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
			h.held -= len(o.list[i].reason)
			o.list[i].set(x)
			h.held += len(o.list[i].reason)
			h.change(index, o)
		}
	}
}

// set replaces how the attempt ended.
func (o *outcome) set(x job.Exit) {
	o.began, o.ended = storepb.Nanos(x.Began), storepb.Nanos(x.Ended)
	o.reason = clip(x.Reason)
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
		m.List = append(m.List, &jobspb.Outcome{N: x.n, Host: x.host, Exit: storepb.FromExit(new(x.exit())), Placed: x.placed})
	}
	return proto.Marshal(m)
}

// keep keeps the outcome of an attempt on the host that the task has.
func (h *history) keep(t *job.Task, n int, x job.Exit) {
	o := outcome{n: uint32(n), host: h.hosts.of(host{t.Node, t.NodeName, t.Store, t.Fencing}), placed: storepb.Nanos(t.Placed)}
	o.set(x)
	h.add(t.Index, o)
}

// keepNewest keeps the outcome of the newest attempt, which another one is about to replace in the task.
func (h *history) keepNewest(t *job.Task) {
	if t.Exit != nil && t.Attempt > h.newest(t.Index) {
		h.keep(t, t.Attempt, *t.Exit)
	}
	t.Exit = nil
}

// keepLost keeps the outcome of the newest attempt, whose host was lost.
func (h *history) keepLost(t *job.Task, r job.UnassignRecord) {
	h.keep(t, t.Attempt, job.Exit{State: job.NodeFail, Reason: r.Detail, Ended: r.At})
}

// keepLate keeps what a late success has changed. before is the task before this change.
func (h *history) keepLate(before job.Task, r job.ResultRecord) {
	newest := before.Attempt
	if newest > r.Attempt.N {
		h.keepNewest(&before)
		if newest > h.newest(before.Index) { // the newest attempt was planned, or had begun
			h.keep(&before, newest, job.Exit{State: job.Cancelled, Reason: "an earlier attempt succeeded", Ended: r.At})
		}
	}
	h.replace(before.Index, r.Attempt.N, r.Exit)
}

func (h *history) earlier(index int) *job.Earlier {
	o := h.of[uint32(index)]
	if o == nil {
		return nil
	}
	e := &job.Earlier{Older: int(o.older), Outcomes: make([]job.Outcome, len(o.list))}
	for i := range o.list {
		x := &o.list[i]
		host := &h.hosts.list[x.host]
		e.Outcomes[i] = job.Outcome{N: int(x.n), Node: host.peer, NodeName: host.name, Placed: storepb.Time(x.placed), Exit: x.exit()}
	}
	return e
}

// decode decodes the outcomes of one task.
func (h *history) decode(index int, data []byte) error {
	var m jobspb.Outcomes
	if err := proto.Unmarshal(data, &m); err != nil {
		return err
	}
	o := &outcomes{older: m.GetOlder()}
	if n := len(m.GetList()); n == 0 || n > job.MaxOutcomes {
		return fmt.Errorf("%w: %d outcomes", errBadRow, n)
	}
	last := uint32(0)
	for _, x := range m.GetList() {
		e := x.GetExit().Value()
		if x.GetN() <= last || int(x.GetHost()) >= len(h.hosts.list) || e == nil || e.Signal != int(uint8(e.Signal)) ||
			e.Code != int(int32(e.Code)) || len(e.Reason) > maxOutcomeReason {
			return fmt.Errorf("%w: outcome of attempt %d", errBadRow, x.GetN())
		}
		if !e.State.Ended() {
			return fmt.Errorf("%w: an attempt that ended as %.40q", errBadRow, e.State)
		}
		last = x.GetN()
		y := outcome{n: last, host: x.GetHost(), placed: x.GetPlaced()}
		y.set(*e)
		y.reason = shared(y.reason)
		o.list = append(o.list, y)
		h.held += outcomeBytes + len(y.reason)
	}
	h.put(index, o)
	return nil
}
