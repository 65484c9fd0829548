package sim

// What hosts keep for waiting jobs (P10): where a host has booked a job, no other host keeps anything for it.

import (
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
)

// asked is the newest offer of a job to a host.
type asked struct {
	id        uint64
	at        time.Duration
	since     time.Duration // of its first arrival
	queued    time.Duration // since when it is neither spare nor elsewhere
	spare     bool
	elsewhere bool // it says that another host has booked the job
	preempt   bool
}

// renewMost is how long a queued offer may stay without a renewal.
const renewMost = 30 * time.Second

// An owner that has elected another host within changedMost has the others keep something for at most patienceMost
// longer, counted from the last time. It has to elect again when a host no longer forecasts the start that it had
// forecast.
const (
	changedMost  = 3 * time.Minute
	patienceMost = 30 * time.Second
)

// nearMost is the time within which a job must start for hosts without a forecast to release their bookings.
const nearMost = time.Hour - renewMost

// heldFor is what a host keeps for a job of the free GPUs there, and since when it keeps any of them.
type heldFor struct {
	gpus  int
	since time.Duration
}

// dropped forgets an offer that is withdrawn or declined.
func (w *world) dropped(h *host, offer uint64) {
	if j := w.offerOf[offer]; j != nil && j.newest[h].id == offer {
		delete(j.newest, h)
		j.left[h] = w.now
	}
}

// keeps records the report of what a host keeps.
func (w *world) keeps(h *host, all []contract.Kept) {
	before := w.kept[h]
	now := make(map[job.ID]heldFor, len(all))
	for _, k := range all {
		if k.Job == "" || len(k.GPUs) == 0 {
			continue
		}
		x, there := before[k.Job]
		if !there {
			x.since = w.now
		}
		x.gpus = len(k.GPUs)
		now[k.Job] = x
	}
	w.kept[h] = now
}

// comesThrough reports whether the owner and the host have been able to reach each other for a while.
func (w *world) comesThrough(j *work, h *host) bool {
	return h.takes(j.owner) && h.links[j.owner.peer].usable() > renewMost+settleTime
}

// bookedAt reports whether the host has said for a while when the job starts there, and that it keeps what the job
// needs.
func (j *work) bookedAt(h *host) bool {
	w, x, a := j.world(), j.outlooks[h], j.newest[h]
	return x != nil && x.by > 0 && x.keeps && x.offer == a.id && !a.elsewhere && w.now-x.booked > settleTime && w.now-a.at < renewMost && w.comesThrough(j, h)
}

// lookAtKeeps checks that no other host keeps anything for a job that a host has booked (P10). If the start is far
// away, hosts without a forecast may keep something. A job that has not started by the time of a forecast is left out:
// all hosts may keep something for it for a while.
func (w *world) lookAtKeeps(j *work) {
	if j.spec.Nodes > 1 || j.dueBy == 0 || w.now > j.dueBy {
		return
	}
	var at *host
	for _, h := range w.hosts {
		if j.bookedAt(h) {
			at = h
		}
	}
	if at == nil {
		return
	}
	w.stats.booked += w.opt.sampling
	for _, h := range w.hosts {
		x, there := w.kept[h][j.id]
		if !there || h == at || j.newest[h].preempt || !w.comesThrough(j, h) {
			continue
		}
		y, most := j.outlooks[h], settleTime
		shows := y != nil && y.by > 0 && y.offer == j.newest[h].id
		if !shows && j.outlooks[at].by-w.now > nearMost { // the job may start sooner there
			continue
		}
		since := max(x.since, j.again, j.moved, j.outlooks[at].booked)
		if shows { // until then it may have kept it, and now it may be elected
			since = max(since, y.shown)
		}
		if last := max(j.again, j.moved); last > 0 && w.now-last < changedMost {
			most += patienceMost
		}
		if w.stats.twice += time.Duration(x.gpus) * w.opt.sampling; w.now-since > most && w.now-j.newest[h].at < renewMost {
			w.fail("P10: %s keeps %d GPUs for %s since %v, which %s has booked by %v", h.peer, x.gpus, j, x.since, at.peer, j.outlooks[at].by)
		}
	}
}
