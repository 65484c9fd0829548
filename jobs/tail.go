package jobs

// The ends of tasks' standard errors: of a job of many tasks they are on disk alone.

import (
	"encoding/binary"

	"github.com/musterhq/muster/job"
)

// DropTails frees the memory of the tails that TakeRows has given, which must be on disk.
// The tails of a job of one task stay: whoever waits for it reads them at once.
func (j *Job) DropTails() {
	if j.tasks.n == 1 {
		return
	}
	kept := j.dirty.taken[:0]
	for _, i := range j.dirty.taken {
		x := j.tasks.cell(i)
		if x.flags&flagTail != 0 { // it has another since
			kept = append(kept, i)
		} else if x.note != nil {
			n := *x.note
			n.tail = ""
			if x.note = &n; n.empty() {
				x.note = nil
			}
		}
	}
	j.dirty.taken = kept
}

// TailParts are the parts, from the first to before the last, of the tails of the tasks
// from index first to before last.
func TailParts(first, last int) (from, to string) {
	return part(partTail, uint32(first)), part(partTail, uint32(last))
}

// AddTails puts tails from disk into a view whose job has dropped them.
func AddTails(v *job.Job, rows []job.Row) {
	tails := map[int]string{}
	for _, r := range rows {
		if len(r.Part) == 5 && r.Part[0] == partTail {
			tails[int(binary.BigEndian.Uint32([]byte(r.Part[1:])))] = string(r.Data)
		}
	}
	for i := range v.Tasks {
		if t := &v.Tasks[i]; t.Exit != nil && t.Exit.Tail == "" {
			t.Exit.Tail = tails[t.Index]
		}
	}
}
