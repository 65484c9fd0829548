package view

// The shelf: the jobs of one member, within bounds.

import (
	"path"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/job"
)

// Bounds of a shelf. The jobs that were submitted last are kept.
const (
	MaxOpen  = 16384 // jobs that have not ended
	MaxEnded = 512
	slack    = 64 // jobs above the bound before the oldest are dropped, all at once
)

// Row is a job in a listing: the fields by which it is found and sorted, and its documents.
type Row struct {
	ID             job.ID
	User, Name     string
	State          job.State
	Priority       int
	Submitted      time.Time
	Started, Ended int64  // in ns since 1970; 0: not yet
	Packed         []byte // its documents, as a Packer packs them
}

// Position returns the job's place in a listing.
func (r *Row) Position() job.Position { return job.Position{Submitted: r.Submitted, ID: r.ID} }

// rowBytes is about how much memory a row takes without its documents.
const rowBytes = 512

// Size returns about how many bytes the row counts in the bounds of memory.
func (r *Row) Size() int64 {
	if r == nil {
		return 0
	}
	return int64(rowBytes + Weight(r.Packed))
}

// Match reports whether a query selects the job, as job.Query.Match does for a whole job.
func (r *Row) Match(q *job.Query) bool {
	switch {
	case !strings.HasPrefix(string(r.ID), q.Prefix),
		q.User != "" && q.User != r.User,
		q.After.ID != "" && q.After.Compare(r.Position()) >= 0,
		q.Ended && !r.State.Ended(),
		len(q.IDs) > 0 && !slices.Contains(q.IDs, r.ID),
		len(q.States) > 0 && !slices.Contains(q.States, r.State):
		return false
	}
	ok, err := path.Match(q.Name, r.Name)
	return q.Name == "" || err == nil && ok
}

// Shelf holds the jobs of one member: those that have not ended, and the latest that have.
type Shelf struct {
	rows  map[job.ID]*Row
	kinds [2]kind // not ended, ended
	bytes int64
}

// kind counts the jobs of one kind. In a listing, jobs from the position from on may be missing.
type kind struct {
	jobs int
	from job.Position
}

// NewShelf returns an empty shelf.
func NewShelf() *Shelf { return &Shelf{rows: map[job.ID]*Row{}} }

func kindOf(s job.State) int {
	if s.Ended() {
		return 1
	}
	return 0
}

// Get returns the row of a job; nil if the shelf does not have the job.
func (s *Shelf) Get(id job.ID) *Row { return s.rows[id] }

// Size returns about how many bytes the rows take.
func (s *Shelf) Size() int64 { return s.bytes }

// All calls each with every row, in no order.
func (s *Shelf) All(each func(*Row)) {
	for _, r := range s.rows {
		each(r)
	}
}

// Put adds or replaces a row. It returns the rows that it dropped to stay within the bounds; the new row may be one of them.
func (s *Shelf) Put(r *Row) (dropped []*Row) {
	s.Remove(r.ID)
	k := &s.kinds[kindOf(r.State)]
	if k.from.ID != "" && k.from.Compare(r.Position()) <= 0 {
		return []*Row{r}
	}
	s.rows[r.ID] = r
	s.bytes += r.Size()
	k.jobs++
	return s.trim(kindOf(r.State), [2]int{MaxOpen, MaxEnded}[kindOf(r.State)])
}

// Refuse removes a row that the caller has no memory for, and notes that it is missing.
func (s *Shelf) Refuse(r *Row) {
	s.Remove(r.ID)
	s.Miss(r.State, r.Position())
}

// Miss notes that jobs may be missing from a position on. It applies to jobs of the same kind (ended or not) as state.
func (s *Shelf) Miss(state job.State, from job.Position) {
	k := &s.kinds[kindOf(state)]
	if from.ID != "" && (k.from.ID == "" || from.Compare(k.from) < 0) {
		k.from = from
	}
}

// trim drops the oldest rows of a kind if there are too many.
func (s *Shelf) trim(of, most int) []*Row {
	k := &s.kinds[of]
	if k.jobs <= most+slack {
		return nil
	}
	all := make([]*Row, 0, k.jobs)
	for _, r := range s.rows {
		if kindOf(r.State) == of {
			all = append(all, r)
		}
	}
	slices.SortFunc(all, func(a, b *Row) int { return a.Position().Compare(b.Position()) })
	dropped := all[most:]
	k.from = dropped[0].Position()
	for _, r := range dropped {
		s.Remove(r.ID)
	}
	return dropped
}

// Remove removes a job and returns its row; nil if the shelf did not have the job.
func (s *Shelf) Remove(id job.ID) *Row {
	r := s.rows[id]
	if r != nil {
		delete(s.rows, id)
		s.kinds[kindOf(r.State)].jobs--
		s.bytes -= r.Size()
	}
	return r
}

// Retain removes all jobs but these, and returns their rows.
func (s *Shelf) Retain(keep map[job.ID]bool) (removed []*Row) {
	for id := range s.rows {
		if !keep[id] {
			removed = append(removed, s.Remove(id))
		}
	}
	return removed
}

// From returns the position in a listing of jobs in these states (none means all) from which rows may be missing. A
// position without an ID means that none are missing.
func (s *Shelf) From(states []job.State) (from job.Position) {
	for i, k := range s.kinds {
		chosen := len(states) == 0 || slices.ContainsFunc(states, func(s job.State) bool { return kindOf(s) == i })
		if chosen && k.from.ID != "" && (from.ID == "" || k.from.Compare(from) < 0) {
			from = k.from
		}
	}
	return from
}

// Froms returns From for jobs that have not ended, and From for jobs that have.
func (s *Shelf) Froms() (open, ended job.Position) { return s.kinds[0].from, s.kinds[1].from }
