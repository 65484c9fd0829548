package jobs

// How much memory a job holds.

import (
	"unsafe"

	"github.com/musterhq/muster/job"
)

// The sizes of what a job consists of, in bytes.
const (
	jobBytes     = int(unsafe.Sizeof(Job{}))
	chunkBytes   = int(unsafe.Sizeof(chunk{}))
	mixedBytes   = int(unsafe.Sizeof(mixed{}))
	cellBytes    = int(unsafe.Sizeof(cell{}))
	noteBytes    = int(unsafe.Sizeof(note{}))
	textBytes    = int(unsafe.Sizeof(""))
	actBytes     = int(unsafe.Sizeof(job.Act{}))
	rangeBytes   = int(unsafe.Sizeof(job.Range{}))
	valueBytes   = int(unsafe.Sizeof(value{})) + 4
	outcomeBytes = int(unsafe.Sizeof(outcome{}))
	// outcomesBytes is for the entry in the map, too.
	outcomesBytes = int(unsafe.Sizeof(outcomes{})) + 24
	hostBytes     = 2 * int(unsafe.Sizeof(host{}))
	epochBytes    = int(unsafe.Sizeof(job.Epoch{}))
	termBytes     = int(unsafe.Sizeof(term{}))
	eachBytes     = int(unsafe.Sizeof(each{}))
)

// Memory returns about how many bytes of memory the job holds now, without its job file. It takes the same time for a job
// of any size.
func Memory(j *Job) int {
	ts := &j.tasks
	n := jobBytes + len(j.Cancelled) + j.acts.bytes() + j.Waits.bytes()
	n += len(ts.chunks)*chunkBytes + ts.held + ts.values.bytes() + ts.history.held
	return n + cap(ts.hosts.list)*hostBytes + cap(ts.epochs)*epochBytes
}

// bytes returns the memory of the chunk's tasks, with their notes.
func (m *mixed) bytes() int {
	n := mixedBytes + len(m.values) + cap(m.cells)*cellBytes
	for i := range m.cells {
		n += m.cells[i].note.bytes()
	}
	return n
}

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

func (vs *values) bytes() int {
	n := cap(vs.list) * valueBytes
	for i := range vs.list {
		n += len(vs.list[i].reason.Detail)
	}
	return n
}

func (as *acts) bytes() int {
	n := len(as.list) * actBytes
	for i := range as.list {
		n += len(as.list[i].Reason) + len(as.list[i].Tasks)*rangeBytes
	}
	return n
}

func (w *Waits) bytes() int {
	if w == nil {
		return 0
	}
	n := len(w.terms)*termBytes + len(w.each)*eachBytes
	for i := range w.each {
		n += (len(w.each[i].met.words) + len(w.each[i].never.words) + len(w.each[i].dirty.words)) * 8
	}
	return n
}
