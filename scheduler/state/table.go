package state

// The table: the jobs of a group, archived or not.

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/musterhq/muster/job"
)

// Table holds the jobs of one group. It is not safe for concurrent use.
type Table struct {
	group job.Group
	jobs  map[uint64]*Job // not archived, by the random bits of their IDs
	index index
	keys  map[string]*Job // not archived, by user and idempotency key

	Parents Parents // the jobs that others wait for
}

// NewTable returns the empty table of a group.
func NewTable(group job.Group) *Table {
	t := &Table{group: group, jobs: map[uint64]*Job{}, index: newIndex(), keys: map[string]*Job{}}
	t.Parents = Parents{group: group, table: t, of: map[job.ID]*parent{}}
	return t
}

// Job returns a job, or nil if there is none or it is archived.
func (t *Table) Job(id job.ID) *Job {
	if j := t.jobs[id.Drawn()]; j != nil && j.ID == id {
		return j
	}
	return nil
}

// Len returns the number of jobs, including archived ones.
func (t *Table) Len() int { return t.index.entries.Len() }

// Whole returns the number of jobs that are not archived.
func (t *Table) Whole() int { return len(t.jobs) }

// Jobs returns all jobs that are not archived, in the order of the journal.
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

// Keyed returns the ID of the job that a user submitted with an idempotency key, and whether it is archived. The ID is
// empty if there is none.
func (t *Table) Keyed(user, key string) (id job.ID, archived bool) {
	if j := t.keys[keyOf(user, key)]; j != nil {
		return j.ID, false
	}
	if number, there := t.index.keys[keySum(user, key)]; there && key != "" {
		return job.NewID(t.group, number), true
	}
	return "", false
}

// add adds a job to the table and to the index.
func (t *Table) add(j *Job) {
	t.jobs[j.ID.Drawn()] = j
	t.index.add(j)
	if j.Key != "" {
		t.keys[keyOf(j.User, j.Key)] = j
	}
}

// remove removes a job from the table. Its index entry stays.
func (t *Table) remove(j *Job) {
	delete(t.jobs, j.ID.Drawn())
	if j.Key != "" && t.keys[keyOf(j.User, j.Key)] == j {
		delete(t.keys, keyOf(j.User, j.Key))
	}
}

// ID returns the ID of an entry's job.
func (t *Table) ID(e Entry) job.ID { return job.NewID(t.group, e.number) }

// Of returns the job of an entry, or nil if it is archived.
func (t *Table) Of(e Entry) *Job {
	if e.Archived() {
		return nil
	}
	return t.jobs[e.number]
}

// Archived returns the entry of a job if it is archived.
func (t *Table) Archived(id job.ID) (Entry, bool) {
	e, there := t.index.find(id.Drawn())
	return e, there && t.ID(e) == id
}

// Entry returns the entry of a job, archived or not.
func (t *Table) Entry(id job.ID) (Entry, bool) {
	if j := t.Job(id); j != nil {
		return entryOf(j), true
	}
	return t.Archived(id)
}

// Scan calls f with each entry in the order of listings, beginning at from, until f returns false. The zero Entry means
// the beginning.
func (t *Table) Scan(from Entry, f func(Entry) bool) {
	if from == (Entry{}) {
		t.index.entries.Scan(f)
		return
	}
	t.index.entries.Ascend(from, f)
}

// ArchivedStates returns the number of archived jobs in each state.
func (t *Table) ArchivedStates() map[job.State]int { return maps.Clone(t.index.states) }

// Archive removes a job from memory, except for its entry. The job must be final and its rows on disk. ended is when it
// ended; zero if the caller does not know.
func (t *Table) Archive(j *Job, ended time.Time) {
	t.remove(j)
	t.index.put(ArchivedEntry(j, ended))
}

// Unarchive puts an archived job back into memory. j was decoded from its rows.
func (t *Table) Unarchive(j *Job) {
	if x, there := t.Archived(j.ID); there {
		t.index.drop(x)
		t.add(j)
	}
}

// Load adds a job that was decoded from its rows.
func (t *Table) Load(j *Job) {
	t.add(j)
	t.Parents.load(j)
}

// LoadArchived adds the entry of an archived job.
func (t *Table) LoadArchived(e Entry) { t.index.put(e) }
