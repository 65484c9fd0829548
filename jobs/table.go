package jobs

// The table: the jobs of a group, whole and archived ones.

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/musterhq/muster/job"
)

// Table is the state of one group. It is used by one goroutine.
type Table struct {
	group job.Group
	jobs  map[uint64]*Job // not archived, by the drawn bits of their ids
	index index
	keys  map[string]*Job // not archived, by user and idempotency key
}

// NewTable is the empty table of a group.
func NewTable(group job.Group) *Table {
	return &Table{group: group, jobs: map[uint64]*Job{}, index: newIndex(), keys: map[string]*Job{}}
}

// Job is a job that is not archived, or nil.
func (t *Table) Job(id job.ID) *Job {
	if j := t.jobs[id.Drawn()]; j != nil && j.ID == id {
		return j
	}
	return nil
}

// Len is how many jobs there are, archived ones included.
func (t *Table) Len() int { return t.index.entries.Len() }

// Whole is how many of them are not archived.
func (t *Table) Whole() int { return len(t.jobs) }

// Jobs are all jobs that are not archived, in the order of the journal.
func (t *Table) Jobs() []*Job {
	out := make([]*Job, 0, len(t.jobs))
	for _, j := range t.jobs {
		out = append(out, j)
	}
	slices.SortFunc(out, func(a, b *Job) int {
		return cmp.Or(cmp.Compare(a.Seq, b.Seq), a.Submitted.Compare(b.Submitted), cmp.Compare(a.ID, b.ID))
	})
	return out
}

// Keyed is the job that a user submitted under an idempotency key; archived says that
// only its id is known. The id is empty if there is none.
func (t *Table) Keyed(user, key string) (id job.ID, archived bool) {
	if j := t.keys[keyOf(user, key)]; j != nil {
		return j.ID, false
	}
	if number, there := t.index.keys[keySum(user, key)]; there && key != "" {
		return job.NewID(t.group, number), true
	}
	return "", false
}

// add takes in a job.
func (t *Table) add(j *Job) {
	t.jobs[j.ID.Drawn()] = j
	t.index.add(j)
	if j.Key != "" {
		t.keys[keyOf(j.User, j.Key)] = j
	}
}

// remove drops a job but for its index entry.
func (t *Table) remove(j *Job) {
	delete(t.jobs, j.ID.Drawn())
	if j.Key != "" && t.keys[keyOf(j.User, j.Key)] == j {
		delete(t.keys, keyOf(j.User, j.Key))
	}
}

// ID is the id of an entry's job.
func (t *Table) ID(e Entry) job.ID { return job.NewID(t.group, e.number) }

// Of is the job of an entry; nil if it is archived.
func (t *Table) Of(e Entry) *Job {
	if e.Archived() {
		return nil
	}
	return t.jobs[e.number]
}

// Archived is the entry of a job that is archived.
func (t *Table) Archived(id job.ID) (Entry, bool) {
	e, there := t.index.find(id.Drawn())
	return e, there && t.ID(e) == id
}

// Entry is that of a job, whole or archived.
func (t *Table) Entry(id job.ID) (Entry, bool) {
	if j := t.Job(id); j != nil {
		return entryOf(j), true
	}
	return t.Archived(id)
}

// Scan calls f with the entries from a place on, in the order of listings, until f says
// no. The zero Entry is the first place.
func (t *Table) Scan(from Entry, f func(Entry) bool) {
	if from == (Entry{}) {
		t.index.entries.Scan(f)
		return
	}
	t.index.entries.Ascend(from, f)
}

// ArchivedStates is how many archived jobs are in each state.
func (t *Table) ArchivedStates() map[job.State]int { return maps.Clone(t.index.states) }

// Archive keeps of a final job, whose rows are on disk, only its entry. ended is when it
// ended, as well as the caller can tell.
func (t *Table) Archive(j *Job, ended time.Time) {
	t.remove(j)
	t.index.put(ArchivedEntry(j, ended))
}

// Load takes in a job that was read from its rows.
func (t *Table) Load(j *Job) { t.add(j) }

// LoadArchived takes in the entry of a job of which only that is to be kept.
func (t *Table) LoadArchived(e Entry) { t.index.put(e) }
