package scheduler

// Jobs that have ended: when they are archived, and when they are purged.

import (
	"errors"
	"slices"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/state"
	"github.com/musterhq/muster/scheduler/step"
)

const retryWait = time.Second // before what could not be proposed or read is tried again

// history archives final jobs, so that they leave memory, and purges old ones.
type history struct {
	*step.Turn
	entries *entries
	files   *files

	saves   *step.Timer     // when the changed rows are due; nil if none have changed
	due     bool            // they are due
	rows    uint64          // index of the last journal entry that the rows on disk reflect
	tailed  []*entry        // jobs whose tails of standard error, and job files, leave memory once their rows are on disk
	final   []*entry        // jobs to archive, the oldest end first
	ended   []ending        // jobs that have ended, the oldest end first
	purging map[uint64]bool // the drawn numbers of jobs whose Purge is under way
}

const (
	// maxUnsaved is how many changed jobs may wait to be saved, so that no step saves many more.
	maxUnsaved = 1024
	// maxUnsavedBulk is how many bytes of their job files may be in memory.
	maxUnsavedBulk = 4 << 20
)

// saveDue reports whether the changed rows are to be saved now. Most jobs change several times within Config.SaveEvery,
// and the journal has the changes meanwhile: after a crash it delivers the entries that the rows do not reflect. A deletion
// is saved at once, together with all changed rows, because a save says which entries of the journal all rows reflect.
func (h *history) saveDue() bool {
	switch {
	case h.Config.SaveEvery == 0, h.due, len(h.Effects.Gone) > 0, len(h.entries.unsaved) >= maxUnsaved, h.entries.bulk >= maxUnsavedBulk:
		h.due = false
		h.Stop(h.saves)
		h.saves = nil
		return true
	case h.saves == nil && len(h.entries.unsaved) > 0:
		h.saves = h.After(h.Config.SaveEvery, func() { h.due = true })
	}
	return false
}

// takeRows adds the changed rows to the effects when they are due.
func (h *history) takeRows() {
	if !h.saveDue() {
		return
	}
	for _, e := range h.entries.unsaved {
		e.saving = false
		if h.entries.byID[e.job.ID] != e {
			continue
		}
		rows, err := e.job.TakeRows()
		if err != nil {
			h.Notify(step.Notice{Kind: step.RowDefect, Attempt: job.Attempt{Job: e.job.ID}, Detail: err.Error()})
		}
		h.Effects.Rows = append(h.Effects.Rows, rows...)
		if !e.tailed && (e.job.Len() > 1 || e.job.File.Text() != nil) {
			e.tailed = true
			h.tailed = append(h.tailed, e)
		}
	}
	clear(h.entries.unsaved)
	h.entries.unsaved, h.entries.bulk = h.entries.unsaved[:0], 0
}

// noteEnd notes when a job has ended, so that it is purged in time, and when it is final, so that it is archived.
func (h *history) noteEnd(e *entry) {
	if e.ended.IsZero() && e.job.Ended() {
		e.ended = h.Now
		h.files.forget(e)
		at := h.entries.steady()
		if closed := h.endOf(e); !h.Lead && closed.Before(at) {
			at = closed // the time that an earlier life of the daemon recorded
		}
		h.ended = append(h.ended, ending{e.job.ID.Drawn(), at.UnixNano()})
		h.purgeSurplus()
	}
	if !e.final && e.job.Final() {
		e.final = true
		h.final = append(h.final, e)
	}
}

// unarchive puts an archived job back into memory, because a record is about to change it. If its rows are missing or
// damaged, it stays archived.
func (h *history) unarchive(u step.Unarchived) {
	x, there := h.entries.table.Archived(u.Job)
	if !there {
		return // it was purged, or is back already
	}
	j, err := state.Decode(u.Rows)
	if err == nil && (j.ID != u.Job || !j.Final() || j.State() != x.State() || j.User != x.User()) {
		err = errOtherJob
	}
	if err != nil {
		h.Notify(step.Notice{Kind: step.RowsDamaged, Attempt: job.Attempt{Job: u.Job}, Detail: err.Error()})
		return
	}
	h.entries.table.Unarchive(j)
	e := h.entries.add(j)
	if e.ended = x.Ended(); e.ended.IsZero() {
		e.ended = h.Now
	}
	e.final = true
	h.final = append(h.final, e)
}

var errOtherJob = errors.New("they do not fit the index entry of the job")

// reopened forgets that a job has ended, after a requeue. The age of the job starts again.
func (h *history) reopened(e *entry) {
	if !e.ended.IsZero() && !e.job.Ended() {
		e.ended = time.Time{}
		h.entries.bear(e)
		h.forgetEnd(e.job.ID)
	}
	if e.final && !e.job.Final() {
		e.final = false
		h.final = slices.DeleteFunc(h.final, func(other *entry) bool { return other == e })
	}
}

// forgetEnd forgets when a job has ended, and that its Purge is under way.
func (h *history) forgetEnd(id job.ID) {
	number := id.Drawn()
	delete(h.purging, number)
	if i := slices.IndexFunc(h.ended, func(x ending) bool { return x.number == number }); i == 0 {
		h.ended = h.ended[1:] // the usual case
	} else if i > 0 {
		h.ended = slices.Delete(h.ended, i, i+1)
	}
}

// Saved has the jobs that an earlier life of the daemon has saved as rows.
type Saved struct {
	Applied uint64 // index of the last entry that the rows reflect

	rows  []job.Row     // of the job that is being read
	whole []*state.Job  // jobs that are not final
	final []state.Entry // index entries of final jobs

	moved []job.Row // rows of jobs whose large file an older version had in the header
	bytes int       // of the files in these
}

// Moved returns rows for Journal.Save with Applied. Older versions kept large job files in the header, and these rows
// give them a place of their own. Moved returns none while there are few of them, unless all is set, and returns none
// of them twice.
func (s *Saved) Moved(all bool) []job.Row {
	if !all && s.bytes < maxUnsavedBulk {
		return nil
	}
	rows := s.moved
	s.moved, s.bytes = nil, 0
	return rows
}

// Add takes the next row. The rows of a job come together, its header first. An error says that a row cannot be read,
// so the data directory is damaged.
func (s *Saved) Add(r job.Row) error {
	if len(s.rows) > 0 && s.rows[0].Job != r.Job {
		if err := s.flush(); err != nil {
			return err
		}
	}
	s.rows = append(s.rows, r)
	return nil
}

// End notes that there are no more rows.
func (s *Saved) End() error { return s.flush() }

func (s *Saved) flush() error {
	if len(s.rows) == 0 {
		return nil
	}
	j, err := state.Decode(s.rows)
	s.rows = s.rows[:0]
	if err != nil {
		return err
	}
	if j.Final() {
		s.final = append(s.final, state.ArchivedEntry(j, j.ClosedAt()))
		return nil
	}
	s.whole = append(s.whole, j)
	if j.File.Text() == nil {
		return nil
	}
	rows, err := j.TakeRows()
	if err != nil {
		return err
	}
	s.moved = append(s.moved, rows...)
	s.bytes += j.File.Size()
	j.File.Drop()
	return nil
}

// retire archives the final jobs beyond Config.KeepWhole. A job whose rows are not on disk yet is not archived, and no
// job after it.
func (h *history) retire() {
	for len(h.final) > h.Config.KeepWhole {
		e := h.final[0]
		if h.entries.byID[e.job.ID] == e {
			if e.changedAt > h.rows {
				return
			}
			h.entries.remove(e.job.ID)
			h.entries.table.Archive(e.job, h.endOf(e))
		}
		h.final[0] = nil
		h.final = h.final[1:]
	}
}

// rowsKept notes up to which entry of the journal the rows on disk reflect it. It frees the tails and the job files
// that are on disk by then.
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
		e.job.File.Drop()
	}
	clear(h.tailed[len(rest):])
	h.tailed = rest
}

// ending is the end of a job.
type ending struct {
	number uint64 // the drawn number in the job's id
	at     int64  // ns since 1970, by the clock of this daemon
}

const (
	purgeEvery = time.Hour
	purgeBatch = 256 // the most that are proposed at a time
)

// purgeOld proposes to purge the jobs that ended longer ago than Config.KeepFor. It arms its own timer again. An end in
// the future counts as now: the wall clock was set back.
func (h *history) purgeOld() {
	now, n := h.entries.steady().UnixNano(), 0
	for i := range h.ended {
		x := &h.ended[i]
		x.at = min(x.at, now)
		if n < purgeBatch && now-x.at >= int64(h.Config.KeepFor) && h.purge(*x) {
			n++
		}
	}
	pause := purgeEvery
	if n >= purgeBatch {
		pause = retryWait
	}
	h.After(pause, h.purgeOld)
}

// purgeSurplus proposes to purge the oldest ended jobs beyond Config.KeepEnded.
func (h *history) purgeSurplus() {
	surplus := len(h.ended) - h.Config.KeepEnded
	for i := 0; i < min(surplus, purgeBatch); i++ {
		h.purge(h.ended[i])
	}
}

func (h *history) purge(x ending) bool {
	if h.purging[x.number] || !h.Lead {
		return false
	}
	h.purging[x.number] = true
	h.Propose(job.PurgeRecord{Job: job.NewID(h.Config.Group, x.number)})
	return true
}

// purged deletes the soft state of a job after its Purge was committed.
func (h *history) purged(id job.ID) {
	h.entries.remove(id)
	h.forgetEnd(id)
	h.Effects.Gone = append(h.Effects.Gone, id)
}

// endOf returns when the job ended, as far as this daemon knows.
func (h *history) endOf(e *entry) time.Time {
	if at := e.job.ClosedAt(); !at.IsZero() {
		return at
	}
	return e.ended
}

// lostLead forgets which purges are under way.
func (h *history) lostLead() { clear(h.purging) }
