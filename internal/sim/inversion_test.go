package sim

// Priorities (P11): no task with a lower priority starts on what a waiting job with a higher one could have used
// sooner.

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
)

// knownFor is how long a host must have had the offer of a job for the job to be considered there when another one
// starts. Before that, the start may have been decided already. A host keeps its promise for contract.ReserveFor, and
// messages and disks take their time.
const knownFor = contract.ReserveFor + 2*settleTime

// unlimited is later than any end of a task.
const unlimited = 365 * 24 * time.Hour

// completes is the time within which a host has released what an attempt held after its processes have ended.
const completes = 30 * time.Second

// holding is what an attempt holds at a host, and until when at the latest by its time limit.
type holding struct {
	*contract.Record
	until time.Duration
}

// holdings are what the attempts at a host hold at a moment, ordered by when they release it, and what is free.
type holdings struct {
	at   time.Duration
	free contract.Free
	all  []holding
}

// holdings returns what attempts hold at the host. The host may already know which processes have ended.
func (h *host) holdings(ends bool) holdings {
	w := h.ref()
	out := holdings{at: w.now, free: h.free()}
	for _, r := range h.disk.records {
		if r.Phase != contract.PhaseReserved && r.Phase != contract.PhaseStarted {
			continue
		}
		x := holding{r, unlimited}
		if j := w.byID[r.Attempt.Job]; j != nil && contract.LimitOf(j.spec) > 0 {
			begins, launched := w.launchedAt[r.Attempt]
			if !launched {
				begins = w.now
			}
			x.until = begins + contract.ReserveFor + contract.LimitOf(j.spec)
		}
		if p := h.procs[r.Attempt]; ends && p != nil && p.over {
			x.until = min(x.until, max(w.now, p.overAt+completes))
		}
		out.all = append(out.all, x)
	}
	slices.SortFunc(out.all, func(a, b holding) int {
		return cmp.Or(cmp.Compare(a.until, b.until), compareAttempts(a.Attempt, b.Attempt))
	})
	return out
}

// fitsBy returns when the job fits at the host by the time limits of the tasks there, or unlimited if they do not tell.
// An attempt that is about to start there counts, or has at once released what it holds.
func (x *holdings) fitsBy(j *work, starting job.Attempt, counts bool) time.Duration {
	free, all, holders := x.free, slices.Clone(x.all), map[string]int{}
	free.GPUs = slices.Clone(free.GPUs)
	for _, x := range all {
		for _, d := range x.Devices {
			holders[d]++
		}
	}
	give := func(x holding) {
		free.CPUs += x.Need.CPUs
		free.Tasks--
		free.Exclusive = free.Exclusive && !x.Need.Exclusive
		for _, d := range x.Devices {
			if holders[d]--; holders[d] == 0 {
				free.GPUs = append(free.GPUs, contract.FreeGPU{UUID: d})
			}
		}
	}
	if i := slices.IndexFunc(all, func(x holding) bool { return x.Attempt == starting }); i >= 0 && !counts {
		give(all[i])
		all = slices.Delete(all, i, i+1)
	}
	if j.fits(&free) {
		return x.at
	}
	for _, each := range all {
		if give(each); j.fits(&free) {
			return each.until
		}
	}
	return unlimited
}

// decided is what a host held when it reserved what an attempt needs: by what it knew, and by which processes had
// ended.
type decided [2]holdings

// reserved records that a host reserves what an attempt needs.
func (w *world) reserved(h *host, a job.Attempt) {
	w.decided[a] = decided{h.holdings(false), h.holdings(true)}
}

// reserves reports whether the host has reserved something for the job. The owner may not know it yet.
func (h *host) reserves(j *work) bool {
	for a, r := range h.disk.records {
		if a.Job == j.id && (r.Phase == contract.PhaseReserved || r.Phase == contract.PhaseStarted) {
			return true
		}
	}
	return false
}

// firstHigher returns the job that is first in line at the host of a starting process, if it has a higher priority and
// the host must have known it at its decision, or else nil.
func (w *world) firstHigher(p *proc) *work {
	h, low := p.h, p.work()
	var first, left *work // left: it ranked before the others until a moment ago, when the host may have decided
	for _, j := range w.works {
		if at, was := j.left[h]; was && w.now-at < knownFor && j.told() > low.told() && (left == nil || ranks(j, left) < 0) {
			left = j
		}
		if j.id == "" || j.told() <= low.told() || j.newest[h].id == 0 ||
			j.assigned || j.cancelled || j.state.Ended() || !j.could(h) || w.now-j.newest[h].at > renewMost || h.reserves(j) {
			continue
		}
		if first == nil || ranks(j, first) < 0 {
			first = j
		}
	}
	if first == nil || left != nil && ranks(left, first) < 0 {
		return nil
	}
	switch a := first.newest[h]; {
	case first.spec.Nodes > 1, first.spec.Resources.GPUShare > 0, // what these lack is not computed here
		a.elsewhere, // its owner has another host keep what it needs
		w.now-max(a.since, a.queued) < knownFor || !w.comesThrough(first, h) || !w.comesThrough(low, h),
		first.overQuota(h), w.rivals(first, h):
		return nil
	}
	if v := h.core.View(); v.Closed.Word != "" || len(v.Quarantined) > 0 || len(w.kept[h]) >= contract.MaxKept {
		return nil
	}
	return first
}

// passes checks that a starting process does not delay the job with a higher priority that is first in line there.
func (w *world) passes(p *proc) {
	before, known := w.decided[p.attempt]
	delete(w.decided, p.attempt)
	if p.j == nil || p.j.spec.Nodes > 1 || w.now < knownFor || !known {
		return
	}
	j := w.firstHigher(p)
	if j == nil {
		return
	}
	w.stats.passed++
	why := ""
	for _, x := range [...]holdings{before[0], before[1], p.h.holdings(false), p.h.holdings(true)} {
		if why = x.delays(j, p); why == "" { // the host may have decided before others began or ended, or before it knew, or after
			return
		}
	}
	w.fail("P11: %s", why)
}

// delays returns how a starting process delays a job, or nothing if it does not.
func (x *holdings) delays(j *work, p *proc) string {
	h := p.h
	before, after := x.fitsBy(j, p.attempt, false), x.fitsBy(j, p.attempt, true)
	switch {
	case after < unlimited && after > before+settleTime:
		return fmt.Sprintf("%s of %s starts at %s, so %s fits there by %v, not by %v", p.attempt, p.work(), h.peer, j, after, before)
	case after < unlimited || j.newest[h].spare:
	case before < unlimited:
		return fmt.Sprintf("%s of %s starts at %s, and nothing shows any more when %s fits there, which was by %v", p.attempt, p.work(), h.peer, j, before)
	default:
		if n := len(p.task.Devices); n > 0 && len(x.free.GPUs) < gpu.Count(j.spec.Resources) {
			return fmt.Sprintf("%s of %s starts at %s on %d GPUs, which %s lacks, for which %d are free", p.attempt, p.work(), h.peer, n, j, len(x.free.GPUs))
		}
	}
	return ""
}
