package scheduler

// Jobs that ended: when they are archived, and when they are forgotten.

import (
	"slices"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/jobs"
)

// history is what has ended: final jobs leave memory, and old ones are forgotten.
type history struct {
	*turn
	entries *entries

	rows    uint64          // entries of the journal up to this one are in the rows on disk
	tailed  []*entry        // whose tails may leave memory once their rows are on disk
	final   []*entry        // jobs to archive, oldest end first
	ended   []ending        // jobs that ended, oldest first
	purging map[uint64]bool // numbers of those whose Purge is under way
}

// takeRows hands out the rows of the jobs that this step has changed.
func (h *history) takeRows() {
	for _, e := range h.entries.unsaved {
		e.saving = false
		if h.entries.byID[e.job.ID] != e {
			continue
		}
		rows, err := e.job.TakeRows()
		if err != nil {
			h.notify(Notice{Kind: RowDefect, Attempt: job.Attempt{Job: e.job.ID}, Detail: err.Error()})
		}
		h.fx.Rows = append(h.fx.Rows, rows...)
		if !e.tailed && e.job.Len() > 1 {
			e.tailed = true
			h.tailed = append(h.tailed, e)
		}
	}
	clear(h.entries.unsaved)
	h.entries.unsaved = h.entries.unsaved[:0]
}

// noteEnd has the job forgotten in its turn once it has ended, and archived once
// nothing can change it.
func (h *history) noteEnd(e *entry) {
	if e.ended.IsZero() && e.job.Ended() {
		e.ended = h.now
		at := h.entries.steady()
		if closed := h.endOf(e); !h.lead && closed.Before(at) {
			at = closed // as an earlier life recorded it
		}
		h.ended = append(h.ended, ending{e.job.ID.Drawn(), at.UnixNano()})
		h.purgeSurplus()
	}
	if !e.final && e.job.Final() {
		e.final = true
		h.final = append(h.final, e)
	}
}

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

// retire archives the final jobs beyond those that are kept whole. One whose rows are
// not on disk yet waits, and so do those after it.
func (h *history) retire() {
	for len(h.final) > h.cfg.KeepWhole {
		e := h.final[0]
		if h.entries.byID[e.job.ID] == e {
			if e.changedAt > h.rows {
				return
			}
			delete(h.entries.byID, e.job.ID)
			h.entries.table.Archive(e.job, h.endOf(e))
		}
		h.final[0] = nil
		h.final = h.final[1:]
	}
}

// rowsKept notes how far the rows on disk reflect the journal.
func (h *history) rowsKept(applied uint64) {
	h.rows = max(h.rows, applied)
	rest := h.tailed[:0]
	for _, e := range h.tailed {
		if e.changedAt > h.rows {
			rest = append(rest, e)
			continue
		}
		e.tailed = false
		e.job.DropTails()
	}
	clear(h.tailed[len(rest):])
	h.tailed = rest
}

// ending is the end of a job, by the drawn bits of its id.
type ending struct {
	number uint64
	at     int64 // ns since 1970, by this daemon's clock
}

const (
	purgeEvery = time.Hour
	purgeBatch = 256 // proposed at a time
)

// purgeOld proposes to forget what ended too long ago; the timer renews itself.
// An end that lies in the future, as a wall clock that was set back leaves it,
// counts from now.
func (h *history) purgeOld() {
	now, n := h.entries.steady().UnixNano(), 0
	for i := range h.ended {
		x := &h.ended[i]
		x.at = min(x.at, now)
		if n < purgeBatch && now-x.at >= int64(h.cfg.KeepFor) && h.purge(*x) {
			n++
		}
	}
	pause := purgeEvery
	if n >= purgeBatch {
		pause = retryWait
	}
	h.after(pause, h.purgeOld)
}

// purgeSurplus proposes to forget the oldest beyond the number that is kept.
func (h *history) purgeSurplus() {
	surplus := len(h.ended) - h.cfg.KeepEnded
	for i := 0; i < min(surplus, purgeBatch); i++ {
		h.purge(h.ended[i])
	}
}

func (h *history) purge(x ending) bool {
	if h.purging[x.number] || !h.lead {
		return false
	}
	h.purging[x.number] = true
	h.propose(job.PurgeRecord{Job: job.NewID(h.cfg.Group, x.number)})
	return true
}

// purged forgets what is known of a job beyond the journal, which has forgotten it.
func (h *history) purged(id job.ID) {
	delete(h.entries.byID, id)
	number := id.Drawn()
	delete(h.purging, number)
	if i := slices.IndexFunc(h.ended, func(x ending) bool { return x.number == number }); i == 0 {
		h.ended = h.ended[1:] // as nearly always
	} else if i > 0 {
		h.ended = slices.Delete(h.ended, i, i+1)
	}
	h.fx.Gone = append(h.fx.Gone, id)
}

// endOf is when the job ended, as well as this daemon can tell.
func (h *history) endOf(e *entry) time.Time {
	if at := e.job.ClosedAt(); !at.IsZero() {
		return at
	}
	return e.ended
}

// lostLead forgets which purges are under way.
func (h *history) lostLead() { clear(h.purging) }
