package scheduler

// Jobs that ended: a final one is archived as soon as its rows are on disk and enough
// others have ended since. It leaves memory but for its entry in the index.

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/jobs"
)

// Saved is what the rows of an earlier life tell. The rows of a job come together, its
// header first.
type Saved struct {
	Applied uint64 // index of the last entry that the rows reflect

	rows  []job.Row    // of the job that is being read
	whole []*jobs.Job  // that are not final
	final []jobs.Entry // of those that are
}

// Add takes the next row, in the order of the store. An error names a row that cannot be
// read: the data directory is damaged.
func (s *Saved) Add(r job.Row) error {
	if len(s.rows) > 0 && s.rows[0].Job != r.Job {
		if err := s.flush(); err != nil {
			return err
		}
	}
	s.rows = append(s.rows, r)
	return nil
}

// End says that there are no more rows.
func (s *Saved) End() error { return s.flush() }

func (s *Saved) flush() error {
	if len(s.rows) == 0 {
		return nil
	}
	j, err := jobs.Decode(s.rows)
	s.rows = s.rows[:0]
	if err != nil {
		return err
	}
	if j.Final() {
		s.final = append(s.final, jobs.ArchivedEntry(j, j.ClosedAt()))
	} else {
		s.whole = append(s.whole, j)
	}
	return nil
}

// restore brings back the jobs of an earlier life, the oldest first.
func (c *Core) restore(saved Saved) {
	for _, x := range saved.final {
		ended := x.Ended()
		if ended.IsZero() {
			ended = c.now
		}
		c.table.LoadArchived(x)
		c.ended = append(c.ended, ending{x.Number(), ended.UnixNano()})
	}
	for _, j := range saved.whole {
		c.wrote(j.Submitted)
		c.wrote(j.ClosedAt())
		c.table.Load(j)
	}
	for _, j := range c.table.Jobs() {
		c.settleAll(c.addEntry(j))
	}
	slices.SortFunc(c.ended, func(a, b ending) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.number, b.number))
	})
}

// retire archives the final jobs beyond those that are kept whole. One whose rows are
// not on disk yet waits, and so do those after it.
func (c *Core) retire() {
	for len(c.final) > c.cfg.KeepWhole {
		e := c.final[0]
		if c.jobs[e.job.ID] == e {
			if e.changedAt > c.rows {
				return
			}
			delete(c.jobs, e.job.ID)
			c.table.Archive(e.job, c.endOf(e))
		}
		c.final[0] = nil
		c.final = c.final[1:]
	}
}

// rowsKept notes how far the rows on disk reflect the journal.
func (c *Core) rowsKept(applied uint64) {
	c.rows = max(c.rows, applied)
	rest := c.tailed[:0]
	for _, e := range c.tailed {
		if e.changedAt > c.rows {
			rest = append(rest, e)
			continue
		}
		e.tailed = false
		e.job.DropTails()
	}
	clear(c.tailed[len(rest):])
	c.tailed = rest
}

// Listed is a job of a listing.
type Listed struct {
	ID        job.ID
	Submitted time.Time
	Job       *job.Job // as it looks now; nil if it is archived: its rows tell
	// Ended is when an archived job ended, as well as this daemon can tell.
	Ended time.Time
}

func (c *Core) listed(x jobs.Entry) Listed {
	if j := c.table.Of(x); j != nil {
		v := c.view(c.jobs[j.ID])
		return Listed{ID: j.ID, Submitted: x.Submitted(), Job: &v}
	}
	return Listed{ID: c.table.ID(x), Submitted: x.Submitted(), Ended: x.Ended()}
}

// Find is a job that is kept here, whole or archived.
func (c *Core) Find(id job.ID) (Listed, bool) {
	x, there := c.table.Entry(id)
	if !there {
		return Listed{}, false
	}
	return c.listed(x), true
}

// whole is a listed job with all that its rows tell: ErrNotFound if it was forgotten
// since it was listed.
func (l *Loop) whole(x Listed) (job.Job, error) {
	if x.Job != nil {
		return l.withTails(*x.Job)
	}
	rows, err := l.needs.Journal.Rows(x.ID, "", "")
	if err != nil {
		return job.Job{}, fmt.Errorf("scheduler: read job %s: %w", x.ID, err)
	}
	if len(rows) == 0 {
		return job.Job{}, fmt.Errorf("%w: %s", ErrNotFound, x.ID)
	}
	decoded, err := jobs.Decode(rows)
	if err != nil {
		return job.Job{}, fmt.Errorf("scheduler: read job %s: %w", x.ID, err)
	}
	j := decoded.View(0, viewTasks)
	j.Owner = l.self
	for i := range j.Tasks {
		if t := &j.Tasks[i]; t.Ended.IsZero() {
			t.Ended = x.Ended
		}
	}
	return j, nil
}

// withTails adds the ends of standard errors that are on disk alone.
func (l *Loop) withTails(j job.Job) (job.Job, error) {
	if j.Counts.Total() <= 1 || len(j.Tasks) == 0 {
		return j, nil
	}
	from, to := jobs.TailParts(j.Tasks[0].Index, j.Tasks[len(j.Tasks)-1].Index+1)
	rows, err := l.needs.Journal.Rows(j.ID, from, to)
	if err != nil {
		return job.Job{}, fmt.Errorf("scheduler: read job %s: %w", j.ID, err)
	}
	jobs.AddTails(&j, rows)
	return j, nil
}
