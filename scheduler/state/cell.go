package state

// Cells: the tasks that are or were assigned to a host.

import (
	"slices"
	"unsafe"

	"github.com/musterhq/muster/internal/store/storepb"
	"github.com/musterhq/muster/job"
)

// cell is one task in 88 bytes. Times are ns since 1970, 0 for none.
type cell struct {
	started, ended, closed int64 // closed: when the owner recorded the end
	began, exited          int64 // Began and Ended of the exit, by the host's clock
	placed                 int64 // when the newest attempt was assigned
	note                   *note
	attempt, runs          uint32
	host, epoch            uint32
	settled                uint32 // the attempt at the last requeue; see job.Task
	code                   int32
	text                   uint16 // isolation of the exit: index in texts plus 1, or 0
	flags                  uint16
	state, exit            uint8 // numbers of states; see stateOf
	signal                 uint8
}

// The flags of a cell.
const (
	flagAssigned uint16 = 1 << iota
	flagExit            // it has an exit
	flagRan             // a process ran in the attempt of the exit
	flagSame            // the times of the exit are those of the task; only on disk
	flagNote            // it is in dirty.notes
	flagTail            // it is in dirty.tails
	flagCancel          // it was told to end, and ends as CANCELLED
	flagRequeue         // it was told to end, and runs again. With flagCancel it means instead: told because a member of its gang ended
	flagUsage           // it is in dirty.usage; not on disk
)

// note holds the fields that only some tasks have. Only its tail and its usage ever change.
type note struct {
	reason     job.Reason
	exitReason string
	devices    []string
	lost       []job.Peer
	tail       string // the end of the standard error
	isolation  string // set if the list of texts is full
	usage      string // see job.Exit
}

// The sizes of a cell, of a note, and of a text without its bytes, in bytes of memory.
const (
	cellBytes = int(unsafe.Sizeof(cell{}))
	noteBytes = int(unsafe.Sizeof(note{}))
	textBytes = int(unsafe.Sizeof(""))
)

// bytes returns the memory of a note.
func (n *note) bytes() int {
	if n == nil {
		return 0
	}
	size := noteBytes + len(n.reason.Detail) + len(n.exitReason) + len(n.tail) + len(n.isolation) + len(n.usage)
	for _, d := range n.devices {
		size += textBytes + len(d)
	}
	return size + len(n.lost)*textBytes
}

func (n *note) empty() bool {
	return n.reason == (job.Reason{}) && n.exitReason == "" && n.isolation == "" && n.tail == "" && n.usage == "" && len(n.devices) == 0 && len(n.lost) == 0
}

// task returns the task with this index, which the cell holds.
func (x *cell) task(index int, cm *common) job.Task {
	h := &cm.hosts.list[x.host]
	t := job.Task{
		Index: index, State: stateOf(x.state), Attempt: int(x.attempt), Runs: int(x.runs),
		Node: h.peer, NodeName: h.name, Store: h.store, Fencing: h.fencing, Epoch: cm.epochs[x.epoch], Settled: int(x.settled),
		Assigned: x.flags&flagAssigned != 0, Ending: endingOf(x.flags), Placed: storepb.Time(x.placed), Started: storepb.Time(x.started), Ended: storepb.Time(x.ended), Closed: storepb.Time(x.closed),
	}
	if x.flags&flagExit != 0 {
		t.Exit = &job.Exit{
			State: stateOf(x.exit), Code: int(x.code), Signal: int(x.signal), Started: x.flags&flagRan != 0,
			Began: storepb.Time(x.began), Ended: storepb.Time(x.exited),
		}
		if x.text > 0 {
			t.Exit.Isolation = cm.texts[x.text-1]
		}
	}
	if n := x.note; n != nil {
		t.Reason, t.Devices, t.Lost = n.reason, n.devices, n.lost
		if t.Exit != nil {
			t.Exit.Reason, t.Exit.Tail, t.Exit.Usage = n.exitReason, n.tail, n.usage
			if n.isolation != "" {
				t.Exit.Isolation = n.isolation
			}
		}
	}
	return t
}

func endingOf(flags uint16) job.Ending {
	switch {
	case flags&flagCancel != 0 && flags&flagRequeue != 0:
		return job.EndsGang
	case flags&flagCancel != 0:
		return job.EndsCancelled
	case flags&flagRequeue != 0:
		return job.EndsRequeued
	}
	return job.NotEnding
}

// fill writes a task to its cell, except its note. It returns the note that the caller must set.
func (x *cell) fill(t *job.Task, cm *common) *note {
	*x = cell{
		started: storepb.Nanos(t.Started), ended: storepb.Nanos(t.Ended), closed: storepb.Nanos(t.Closed), placed: storepb.Nanos(t.Placed),
		attempt: uint32(t.Attempt), runs: uint32(t.Runs),
		host: cm.hosts.of(host{t.Node, t.NodeName, t.Store, t.Fencing}), epoch: cm.epochOf(t.Epoch), settled: uint32(t.Settled),
		state: number(t.State), flags: x.flags & (flagNote | flagTail | flagUsage), note: x.note,
	}
	if t.Assigned {
		x.flags |= flagAssigned
	}
	switch t.Ending {
	case job.NotEnding:
	case job.EndsCancelled:
		x.flags |= flagCancel
	case job.EndsRequeued:
		x.flags |= flagRequeue
	case job.EndsGang:
		x.flags |= flagCancel | flagRequeue
	}
	n := &note{reason: t.Reason, devices: t.Devices, lost: t.Lost}
	if e := t.Exit; e != nil {
		x.flags |= flagExit
		if e.Started {
			x.flags |= flagRan
		}
		x.exit, x.code, x.signal = number(e.State), int32(e.Code), uint8(e.Signal)
		x.began, x.exited = storepb.Nanos(e.Began), storepb.Nanos(e.Ended)
		n.exitReason, n.tail, n.usage = e.Reason, e.Tail, e.Usage
		if x.text = cm.textOf(e.Isolation); x.text == 0 {
			n.isolation = e.Isolation
		}
	}
	return n
}

// sameExit reports whether two cells have the same exit.
func (x *cell) sameExit(y *cell) bool {
	return x.exit == y.exit && x.code == y.code && x.signal == y.signal && x.began == y.began && x.exited == y.exited
}

// sameButTexts reports whether two notes are the same, except for what has rows of its own: their tails and usage.
func (n *note) sameButTexts(o *note) bool {
	return n.reason == o.reason && n.exitReason == o.exitReason && n.isolation == o.isolation &&
		slices.Equal(n.devices, o.devices) && slices.Equal(n.lost, o.lost)
}
