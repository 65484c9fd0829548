package sim

// The forecasts of hosts for queued offers, and whether they come true.

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
)

// outlook is the forecast of a host for the start of a job.
type outlook struct {
	since  time.Duration // of the first forecast
	by     time.Duration // the latest start of the job there; 0: unknown
	shared time.Duration // when it last let others use what it had set aside for the job
	offer  uint64        // of the last forecast
	keeps  bool          // it keeps what the job needs by then
	booked time.Duration // since when it says so
	shown  time.Duration // since when it forecasts a start for that offer
	// due is the first start that was forecast since the job was first in line everywhere, alone, if that was at dueOf.
	due, dueOf time.Duration
}

// foresees records the forecast of a host for a queued offer. Nothing is set aside in one turn for longer than in all
// turns before it together, except in the first turn (P8).
func (w *world) foresees(h *host, f contract.Forecast) {
	j := w.offerOf[f.Offer]
	if j == nil {
		w.fail("%s tells what it expects of offer %x, which nobody made", h.peer, f.Offer)
		return
	}
	if j.outlooks == nil {
		j.outlooks = map[*host]*outlook{}
	}
	x := j.outlooks[h]
	if x == nil {
		x = &outlook{since: w.now}
		j.outlooks[h] = x
	}
	switch {
	case f.Kept > h.cfg.SetAside+w.now-j.acceptAt+settleTime:
		w.fail("P8: %s keeps what is free for %v for %s, which has waited for %v", h.peer, f.Kept, j, w.now-j.acceptAt)
	case f.Shared > 0:
		x.shared = w.now
	}
	if x.by == 0 || x.offer != f.Offer {
		x.shown = w.now
	}
	if keeps := f.Start > 0 && !f.Elsewhere; !keeps || !x.keeps || x.offer != f.Offer {
		x.offer, x.keeps, x.booked = f.Offer, keeps, w.now
	}
	if x.by > 0 && (f.Start == 0 || w.now+f.Start > x.by+settleTime) {
		j.moved = w.now
	}
	if x.by = 0; f.Start > 0 {
		x.by = w.now + f.Start
		if by := x.by + settleTime; j.dueBy == 0 || by < j.dueBy {
			j.dueBy = by
		}
		if x.dueOf != j.alone {
			x.due, x.dueOf = x.by, j.alone
		}
		x.due = min(x.due, x.by)
	}
	if w.foreseen != nil {
		w.foreseen(j, h, x)
	}
}

// sharedSince reports whether any of the hosts has let others use what it had set aside for the job since a time, or
// may do so now.
func (j *work) sharedSince(hosts []*host, at time.Duration) bool {
	return slices.ContainsFunc(hosts, func(h *host) bool {
		x := j.outlooks[h]
		return x != nil && x.shared > 0 && x.shared+2*h.cfg.SetAside+(j.world().now-x.since) > at
	})
}

// dueAt returns the latest start of the job at the host, by the host's forecast since the job is first in line
// everywhere. It returns 0 if that is unknown, or if another host has booked the job.
func (j *work) dueAt(h *host) time.Duration {
	switch x := j.outlooks[h]; {
	case x == nil, j.newest[h].elsewhere:
		return 0
	case x.dueOf == j.alone:
		return x.due
	default:
		return x.by
	}
}

// TestBackfillDelaysNoBooking runs jobs of three owners that have time limits, and often end earlier. While a job is
// the first in line, no host delays the start that it has forecast for the job. Without limits the same jobs make those
// for all GPUs of a host wait longer.
func TestBackfillDelaysNoBooking(t *testing.T) {
	var took, whole [2]time.Duration // until the last end; mean wait of the jobs for all GPUs of a host
	for i, limits := range []bool{true, false} {
		w := newTestWorld(t, 91, options{})
		for range 3 {
			w.addHost(hostSpec{gpus: "8xH100", cpus: 64})
		}
		owners := []*owner{w.addOwner(nil), w.addOwner(nil), w.addOwner(w.hosts[0])}
		for n := range 240 {
			limit := time.Duration(2+w.chance.IntN(40)) * time.Minute
			runs := limit * time.Duration(20+w.chance.IntN(80)) / 100
			j := w.newWork(owners[n%3], "ada", gpus([]int{1, 1, 1, 2, 2, 4, 8}[w.chance.IntN(7)]), runs)
			if limits {
				j.spec.TimeLimit, j.spec.Grace = job.Duration(limit), job.Duration(time.Second)
			}
			j.submitAt(time.Duration(n) * 20 * time.Second)
		}
		type told struct {
			j *work
			h *host
		}
		first := map[told]time.Duration{} // of jobs that were the first in line at their forecast
		checked, forecasts := 0, 0
		w.foreseen = func(j *work, h *host, x *outlook) {
			forecasts++
			if !j.firstInLine(h) || j.newest[h].elsewhere {
				delete(first, told{j, h})
				return
			}
			before, known := first[told{j, h}]
			if known && (x.by == 0 || x.by > before+time.Second) {
				w.fail("P9: %s was to start at %s by %v, now by %v", j, h.peer, before, x.by)
			}
			if x.by > 0 {
				first[told{j, h}] = x.by
			}
		}
		w.start()
		w.runUntil(30*time.Hour, func() bool {
			for k, by := range first {
				if k.j.newest[k.h].elsewhere { // another host has booked it since
					delete(first, k)
					continue
				}
				if k.j.starts > 0 || k.j.assigned {
					if at := cmp.Or(k.j.startAt, w.now); at > by+startSlack {
						w.fail("P9: %s was to start at %s by %v, and started at %v", k.j, k.h.peer, by, at)
					}
					checked++
					delete(first, k)
				} else if w.now > by+startSlack {
					w.fail("P9: %s was to start at %s by %v, and waits at %v", k.j, k.h.peer, by, w.now)
				}
			}
			return !slices.ContainsFunc(w.works, func(j *work) bool { return !j.state.Ended() })
		})
		w.report()
		large := time.Duration(0)
		for _, j := range w.works {
			if j.state != job.Succeeded {
				t.Errorf("%s is %s, want %v", j, j.state, job.Succeeded)
			}
			took[i] = max(took[i], j.endAt)
			if j.spec.Resources.GPUs == 8 {
				whole[i] += j.startAt - j.acceptAt
				large++
			}
		}
		whole[i] /= large
		if limits && checked < 10 {
			t.Errorf("only %[2]d of %[1]d forecasts were checked to the start, want at least 10", forecasts, checked)
		}
		t.Logf("limits known: %v; 240 jobs took %v; those for 8 GPUs waited %v; %d forecasts, %d of first jobs came true", limits, took[i], whole[i], forecasts, checked)
	}
	if whole[0] >= whole[1] {
		t.Errorf("the jobs for 8 GPUs wait no longer without limits than with them")
	}
}

// startSlack is the time from the end of a task to the start of the next: messages, disks, and the journal.
const startSlack = 10 * time.Second

// firstInLine reports whether no waiting job that could run at the host was accepted before this one.
func (j *work) firstInLine(h *host) bool {
	return !slices.ContainsFunc(j.world().works, func(k *work) bool {
		return k != j && k.id != "" && k.state == job.Pending && !k.assigned && k.acceptAt <= j.acceptAt && k.could(h)
	})
}
