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
	slack    = 64 // so many more before the oldest are dropped together
)

// Row is a job in a listing: what it is found and sorted by, and its documents.
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

// rowBytes is about what a row takes beside its documents.
const rowBytes = 512

// Size returns for about how many bytes the row counts.
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

// kind counts the jobs of one kind. Of those that come after from in a listing, some may be missing.
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

// Get returns the row of a job; nil: it is not here.
func (s *Shelf) Get(id job.ID) *Row { return s.rows[id] }

// Size returns about how many bytes the rows take.
func (s *Shelf) Size() int64 { return s.bytes }

// All calls each with every row, in no order.
func (s *Shelf) All(each func(*Row)) {
	for _, r := range s.rows {
		each(r)
	}
}

// Put adds or replaces a row. It returns the rows that are dropped for it, which may have the new one.
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

// Refuse says that a row is not kept for want of room.
func (s *Shelf) Refuse(r *Row) {
	s.Remove(r.ID)
	s.Miss(r.State, r.Position())
}

// Miss says that of the jobs of the kind of this state those from a position on may be missing.
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

// Remove removes a job and returns its row; nil: it was not here.
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

// From returns where in a listing of jobs in these states (none means all) rows may be missing; no ID: nowhere.
func (s *Shelf) From(states []job.State) (from job.Position) {
	for i, k := range s.kinds {
		chosen := len(states) == 0 || slices.ContainsFunc(states, func(s job.State) bool { return kindOf(s) == i })
		if chosen && k.from.ID != "" && (from.ID == "" || k.from.Compare(from) < 0) {
			from = k.from
		}
	}
	return from
}

// Froms returns From for jobs that have not ended, and for those that have.
func (s *Shelf) Froms() (open, ended job.Position) { return s.kinds[0].from, s.kinds[1].from }
