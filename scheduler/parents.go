package scheduler

// Parents: the jobs that jobs of this owner depend on. The table of jobs judges those that it has. The owners of all
// others are asked, and what they say is recorded, so that a dependency that was met stays met.
// See docs/adr, ADR 86.

import (
	"maps"
	"slices"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/state"
	"github.com/musterhq/muster/scheduler/step"
)

// parents follows the parents that the table cannot judge alone, while this daemon leads.
type parents struct {
	*step.Turn
	entries *entries

	followed map[job.ID]*parent
	line     []job.ID // parents beyond MaxParents, in the order in which they get their turn
	inLine   map[job.ID]bool
	news     []job.ParentRecord // to be proposed
	under    map[job.ID]int     // how many records about a parent are proposed and not yet applied
	starts   []job.ID           // parents of this owner that this step checks for a start
}

// The bounds of what is followed.
const (
	MaxParents = 16384 // that are followed at a time
	maxNews    = 4096  // records that wait for their turn; a parent beyond that is asked again
	maxLinks   = 1 << 20
	maxAgo     = 367 * 24 * time.Hour // more than any delay
	// A parent may cause parentBurst records at once, and further ones every parentGap. An owner whose jobs change more
	// often is asked again later.
	parentBurst = 1024
	parentGap   = 100 * time.Millisecond
)

// parent is a job whose owner is asked.
type parent struct {
	seen   job.Progress // what its owner said last, without the tasks
	at     time.Time    // when it did
	told   bool         // its owner has said something
	silent string       // why its owner cannot be asked; empty if it answers
	tasks  bool         // the state of each task is asked for
	spent  time.Time    // the allowance of records is used up to this time: each one costs parentGap; see seen
	again  bool         // a timer asks again
}

// update starts or stops following a job after a change of what other jobs await from it.
func (ps *parents) update(id job.ID) {
	if !ps.Lead {
		return
	}
	a, p := ps.entries.table.Parents.Awaited(id), ps.followed[id]
	if a.Start {
		ps.starts = append(ps.starts, id)
	}
	switch {
	case !a.Ask:
		ps.leave(id)
	case p == nil && len(ps.followed) >= MaxParents:
		if !ps.inLine[id] {
			ps.inLine[id], ps.line = true, append(ps.line, id)
		}
	case p == nil:
		ps.followed[id] = &parent{tasks: a.Tasks}
		ps.Effects.Follow = append(ps.Effects.Follow, job.Follow{Job: id, Tasks: a.Tasks})
	case a.Tasks: // another job has just begun to wait for the parent's tasks
		p.tasks = true
		ps.Effects.Follow = append(ps.Effects.Follow, job.Follow{Job: id, Tasks: true})
	case p.told && p.silent == "": // another job has just begun to wait for the parent
		x := p.seen
		x.Ago += ps.Now.Sub(p.at)
		ps.learn(ps.recordOf(x))
	}
}

// leave stops following a job, if it is followed.
func (ps *parents) leave(id job.ID) {
	if ps.followed[id] == nil {
		return
	}
	delete(ps.followed, id)
	ps.Effects.Unfollow = append(ps.Effects.Unfollow, id)
	ps.next()
}

// next follows jobs in line, the first one first, while there is room.
func (ps *parents) next() {
	for len(ps.line) > 0 && len(ps.followed) < MaxParents {
		id := ps.line[0]
		ps.line = ps.line[1:]
		delete(ps.inLine, id)
		ps.update(id)
	}
}

// takeOver follows all parents when the ownership begins.
func (ps *parents) takeOver() {
	for _, id := range ps.entries.table.Parents.All() {
		ps.update(id)
	}
}

// lostLead stops following all jobs. The next owner asks again.
func (ps *parents) lostLead() {
	ps.Effects.Unfollow = append(ps.Effects.Unfollow, slices.Sorted(maps.Keys(ps.followed))...)
	clear(ps.followed)
	clear(ps.under)
	clear(ps.inLine)
	ps.line, ps.news, ps.starts = nil, nil, nil
}

// recordOf returns the record of what an owner said.
func (ps *parents) recordOf(x job.Progress) job.ParentRecord {
	r := job.ParentRecord{Parent: x.Job, State: x.State, Started: x.Started, Tasks: x.Tasks, At: ps.Now}
	if x.Started {
		r.Since = ps.Now.Add(-min(max(0, x.Ago), maxAgo))
	}
	return r
}

// seen takes note of what the owner of a parent says.
func (ps *parents) seen(x job.Progress) {
	p := ps.followed[x.Job]
	if p == nil {
		return // nobody waits for it any more
	}
	r := ps.recordOf(x)
	p.silent, p.told, p.seen, p.at = "", true, x, ps.Now
	p.seen.Tasks = job.TaskStates{}
	if !ps.entries.table.Parents.Learns(r) {
		return
	}
	if earliest := ps.Now.Add(-parentBurst * parentGap); p.spent.Before(earliest) {
		p.spent = earliest
	}
	if p.spent.After(ps.Now) || len(ps.news) >= maxNews {
		ps.askAgain(x.Job)
		return
	}
	p.spent = p.spent.Add(parentGap)
	ps.learn(r)
}

// learn notes a record that is proposed at the end of the step if it changes anything and there is room for it.
func (ps *parents) learn(r job.ParentRecord) { ps.news = append(ps.news, r) }

// askAgain asks the owner of a parent again after a pause.
func (ps *parents) askAgain(id job.ID) {
	p := ps.followed[id]
	if p == nil || p.again {
		return
	}
	p.again = true
	ps.After(retryWait, func() {
		p.again = false
		if ps.followed[id] == p {
			ps.Effects.Follow = append(ps.Effects.Follow, job.Follow{Job: id, Tasks: p.tasks})
		}
	})
}

// tell proposes what was learnt. It drops requests to follow jobs that this step has left.
func (ps *parents) tell() {
	ps.Effects.Follow = slices.DeleteFunc(ps.Effects.Follow, func(x job.Follow) bool { return ps.followed[x.Job] == nil })
	n := 0
	for ; n < len(ps.news) && ps.Outgoing < step.MaxOutgoing; n++ {
		if r := ps.news[n]; ps.entries.table.Parents.Learns(r) {
			ps.under[r.Parent]++
			ps.Propose(r)
		}
	}
	clear(ps.news[:n])
	if ps.news = ps.news[n:]; len(ps.news) == 0 {
		ps.news = nil
	}
}

// applied notes that a record about a parent was applied.
func (ps *parents) applied(id job.ID) {
	ps.settled(id)
	if !ps.entries.table.Parents.Awaited(id).Ask {
		ps.leave(id)
	}
}

func (ps *parents) settled(id job.ID) {
	if ps.under[id]--; ps.under[id] <= 0 {
		delete(ps.under, id)
	}
}

// refused looks again at a parent about which the journal took no record.
func (ps *parents) refused(id job.ID) {
	ps.settled(id)
	ps.askAgain(id)
	if ps.followed[id] == nil {
		ps.After(retryWait, func() { ps.update(id) })
	}
}

// silent notes that the owner of some parents cannot be asked. This says nothing about the parents themselves.
func (ps *parents) silent(ids []job.ID, detail string) {
	for _, id := range ids {
		if p := ps.followed[id]; p != nil {
			p.silent = detail
		}
	}
}

// waits returns why a task may not run yet as far as other jobs are concerned. The word is empty if it may. all says
// that the same holds for each task of the job.
func (ps *parents) waits(e *entry, index int) (word string, all bool) {
	switch e.job.Waits.Of(index) {
	case state.WaitOn:
		return job.ReasonDependency, !e.job.Waits.Each()
	case state.WaitNever:
		return job.ReasonDependencyNeverSatisfied, !e.job.Waits.Each()
	case state.WaitNone:
	}
	if e.parents.until.After(ps.Now) {
		return job.ReasonDependency, true
	}
	return "", true
}

// delayed notes until when a job waits after the start of others. It reports whether this has changed and is still
// ahead.
func (ps *parents) delayed(e *entry) bool {
	w, due := &e.parents, e.job.Waits.DueAt()
	if due.Equal(w.due) {
		return false
	}
	w.due, w.until = due, ps.Now.Add(min(due.Sub(ps.entries.wall()), e.job.Waits.Delay()))
	return w.until.After(ps.Now)
}
