package state

// The tails of the tasks' standard error, and what tasks used. For a job of several tasks they are kept only on disk.

import (
	"encoding/binary"

	"github.com/musterhq/muster/job"
)

// DropTails frees the memory of the tails and usage that TakeRows has returned. They must be on disk by now. Those of a job
// of one task stay in memory, because a client that waits for the job reads the tail at once.
func (j *Job) DropTails() {
	if j.tasks.n == 1 {
		return
	}
	kept := j.dirty.taken[:0]
	for _, i := range j.dirty.taken {
		x := j.tasks.cell(i)
		if x.flags&(flagTail|flagUsage) != 0 { // it has a newer one, which is not saved yet
			kept = append(kept, i)
		} else if x.note != nil {
			n := *x.note
			n.tail, n.usage = "", ""
			j.tasks.held -= x.note.bytes()
			if x.note = &n; n.empty() {
				x.note = nil
			}
			j.tasks.held += x.note.bytes()
		}
	}
	j.dirty.taken = kept
}

// TailParts returns the range of the parts that hold the tails of the tasks from index first to before last. The part
// to is not in the range.
func TailParts(first, last int) (from, to string) {
	return part(partTail, uint32(first)), part(partTail, uint32(last))
}

// AddTails sets the tails of tasks from their rows on disk, if the job has dropped them.
func AddTails(tasks []job.Task, rows []job.Row) {
	tails := map[int]string{}
	for _, r := range rows {
		if len(r.Part) == 5 && r.Part[0] == partTail {
			tails[int(binary.BigEndian.Uint32([]byte(r.Part[1:])))] = string(r.Data)
		}
	}
	for i := range tasks {
		if t := &tasks[i]; t.Exit != nil && t.Exit.Tail == "" {
			t.Exit.Tail = tails[t.Index]
		}
	}
}

// UsageParts returns the range of the parts that hold the usage of the tasks from index first to before last.
func UsageParts(first, last int) (from, to string) {
	return part(partUsage, uint32(first)), part(partUsage, uint32(last))
}

// AddUsage sets the usage of tasks from their rows on disk, if the job has dropped it or was read without it.
func AddUsage(tasks []job.Task, rows []job.Row) {
	used := map[int]string{}
	for _, r := range rows {
		if len(r.Part) == 5 && r.Part[0] == partUsage {
			used[int(binary.BigEndian.Uint32([]byte(r.Part[1:])))] = string(r.Data)
		}
	}
	for i := range tasks {
		if t := &tasks[i]; t.Exit != nil && t.Exit.Usage == "" {
			t.Exit.Usage = used[t.Index]
		}
	}
}
