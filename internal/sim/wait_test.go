package sim

// Nothing starves (P1): from time to time the world checks which job is first in line at each host, and for how long.

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
)

// standing is the job that is first in line at a host.
type standing struct {
	j       *work
	fitting bool
	since   time.Duration // it has been first and has fitted
}

// ranks is the order that holds at every host: priority, then age as it is told, then name.
func ranks(a, b *work) int {
	return cmp.Or(cmp.Compare(b.told(), a.told()), cmp.Compare(a.level, b.level), cmp.Compare(a.rankAt, b.rankAt), cmp.Compare(a.id, b.id))
}

// sample looks at all lines, and schedules itself again.
func (w *world) sample() {
	w.after(w.opt.sampling, w.sample)
	w.waiting = w.waiting[:0]
	for _, j := range w.works {
		j.firstAt = 0
		if j.id != "" && j.state == job.Pending && !j.assigned && !j.cancelled && j.mayBegin() {
			w.waiting = append(w.waiting, j)
		} else {
			j.alone = 0
		}
	}
	w.stats.waited += time.Duration(len(w.waiting)) * w.opt.sampling
	if len(w.waiting) == 0 {
		for _, h := range w.hosts {
			*h.line() = standing{}
		}
		return
	}
	slices.SortFunc(w.waiting, func(a, b *work) int { return cmp.Compare(a.acceptAt, b.acceptAt) })
	for _, o := range w.owners {
		w.youngest[o] = 0
	}
	for _, j := range w.waiting { // an owner keeps its own jobs in order, whatever its clock says
		if j.ageUnknown() {
			continue
		}
		j.rankAt = max(j.bornAt, w.youngest[j.owner])
		w.youngest[j.owner] = j.rankAt
	}
	slices.SortFunc(w.waiting, ranks)
	for _, h := range w.hosts {
		w.lookAt(h)
	}
	for _, j := range w.waiting {
		w.lookAlone(j)
		w.lookAtKeeps(j)
	}
}

// mayBegin reports whether the begin time of the job is reached. Its owner knows that: once it is reached, a clock that
// is set back does not matter.
func (j *work) mayBegin() bool {
	if j.spec.Begin == nil || !j.spec.Begin.After(j.owner.now()) {
		return true
	}
	if !j.owner.up {
		return false
	}
	x, there := j.owner.core.View().Job(j.id)
	return there && x.Tasks[0].Reason.Word != job.ReasonBeginTime
}

// takes reports whether the host can be expected to accept jobs of the owner.
func (h *host) takes(o *owner) bool {
	if !h.up || h.draining.On || h.w.now < h.diskBadUntil+settleTime {
		return false
	}
	return h.links[o.peer].usable() > settleTime
}

// lookAt finds the job that is first at the host, and checks whether it has waited too long.
func (w *world) lookAt(h *host) {
	var first *work
	for _, j := range w.waiting {
		if j.could(h) && h.takes(j.owner) && !j.overQuota(h) && !j.waitsElsewhere(h) {
			first = j
			break
		}
	}
	if first == nil {
		*h.line() = standing{}
		return
	}
	first.firstAt++
	free := h.free()
	fits := first.fits(&free)
	if first != h.line().j || !fits || !h.line().fitting || first.turnAt > h.line().since {
		*h.line() = standing{j: first, fitting: fits, since: w.now}
		return
	}
	wait := w.now - h.line().since
	first.fitWait = max(first.fitWait, wait)
	if wait > fitBound {
		if why := h.closedWhy(first, &free); why != "" || w.rivals(first, h) {
			*h.line() = standing{}
			return
		}
		w.fail("P1: %s is first in line at %s, fits, and has waited there for %v; in all for %v; %s", first, h.peer, wait, w.now-first.acceptAt, first.why())
	}
}

// ageUnknown reports whether the job's owner was restarted and has not offered it since: its age by the owner's clock is
// unknown.
func (j *work) ageUnknown() bool { return j.bornIn != j.owner.life }

// rivals reports whether another job has so nearly the same age that the host may take it for the older one: the host
// measures with its own clock how long it has known an offer. This also holds for any job of unknown age.
func (w *world) rivals(first *work, h *host) bool {
	if first.ageUnknown() {
		return true
	}
	near := (w.now-first.rankAt)/50 + time.Second
	return slices.ContainsFunc(w.waiting, func(j *work) bool {
		return j != first && (w.overdue(j) || j.told() == first.told() && (j.ageUnknown() || w.sharesDecide(j, first) || w.levelsDecide(j, first) || (j.rankAt-first.rankAt).Abs() < near)) && j.could(h) && h.takes(j.owner) && !j.overQuota(h)
	})
}

// sharesDecide reports whether past use may put a job before the first one, whatever their ages. Each host counts this
// use by itself. If the first one has run before, another one may have got its turn meanwhile.
func (w *world) sharesDecide(j, first *work) bool {
	return w.opt.shares.On() && j.told() == first.told() &&
		(j.user != first.user || j.spec.Project != first.spec.Project || first.turnAt > 0)
}

// levelsDecide reports whether levels may put a job before the first one, whatever their ages. The level of a job that
// has run, or that was not offered yet, is unknown.
func (w *world) levelsDecide(j, first *work) bool {
	unknown := func(j *work) bool { return !j.leveled || len(j.tries) > 0 }
	return w.opt.order != contract.ByAge && (j.level < first.level || unknown(j) || unknown(first))
}

// told is the priority by which hosts order the job: the highest one if it has waited for too long.
func (j *work) told() int {
	if j.leveled {
		return j.priority
	}
	return j.spec.Priority
}

// overdue reports whether the job may go before all others because it has waited for long. Its owner decides when.
func (w *world) overdue(j *work) bool {
	return w.opt.maxWait > 0 && w.now-j.acceptAt >= w.opt.maxWait
}

// closedWhy returns a good reason why the host gives the job nothing.
func (h *host) closedWhy(j *work, free *contract.Free) string {
	v := h.core.View()
	if v.Closed.Word != "" {
		return v.Closed.String()
	}
	free.GPUs = slices.DeleteFunc(free.GPUs, func(g contract.FreeGPU) bool { return v.Quarantined[g.UUID] != "" })
	if !j.fits(free) {
		return "devices are set aside"
	}
	return ""
}

// longestPause is an upper bound of any pause of one task, after a failure or a refusal.
const longestPause = 80 * time.Second

// lookAlone checks a job that is first wherever it could run: it starts when the tasks that run there now have ended.
func (w *world) lookAlone(j *work) {
	var able []*host
	if j.firstAt > 0 {
		for _, l := range j.owner.order {
			switch {
			case !j.could(l.h) || !l.h.takes(j.owner):
			case j.overQuota(l.h), // its user's other tasks end and start there: when its turn comes is unknown
				w.rivals(j, l.h): // the host may keep its capacity for a job that it takes for the older one
				j.alone = 0
				return
			default:
				able = append(able, l.h)
			}
		}
	}
	if j.firstAt == 0 || j.firstAt != len(able) {
		j.alone = 0
		return
	}
	if j.alone == 0 || !slices.Equal(able, j.aloneAt) {
		j.alone, j.aloneAt, j.aloneEnd = w.now, able, 0
	}
	if w.now < j.alone+longestPause {
		return // it may still be paused, and its capacity given to others
	}
	if j.aloneEnd == 0 {
		for _, h := range able {
			j.aloneEnd = max(j.aloneEnd, h.roomAt(j))
		}
	}
	end := j.aloneEnd
	for _, h := range able { // until the time limits have passed, others may run that end by then
		end = max(end, j.dueAt(h))
	}
	if w.now <= end+turnBound {
		return
	}
	if j.sharedSince(able, j.alone) { // others may have started there meanwhile
		j.alone = 0
		return
	}
	for _, h := range able { // some may be closed for a good reason
		if v := h.core.View(); v.Closed.Word != "" || len(v.Quarantined) > 0 {
			j.alone = 0
			return
		}
	}
	w.fail("P1: %s has been first in line at all %d hosts that could run it since %v (%s); from then on all had room by %v, had nothing else been started there, and by %v by the time limits; %s",
		j, len(able), j.alone, j.hostNames(), j.aloneEnd, end, j.why())
}

// why returns what its owner says about a waiting job.
func (j *work) why() string {
	x, there := j.owner.core.View().Job(j.id)
	if !there {
		return "its owner does not know it"
	}
	return x.Tasks[0].Reason.String()
}

// better handles the start of a task: those that rank behind it lose their turn at its host.
func (w *world) better(p *proc) {
	for _, j := range w.waiting {
		if j.alone > 0 && (ranks(p.work(), j) < 0 || w.sharesDecide(p.work(), j)) && j.could(p.h) {
			j.alone = 0
		}
	}
	if first := p.h.line().j; first != nil && (ranks(p.work(), first) < 0 || w.sharesDecide(p.work(), first)) {
		*p.h.line() = standing{}
	}
}

// hostNames names the hosts that could run the job.
func (j *work) hostNames() string {
	var out []string
	for _, h := range j.world().hosts {
		if j.could(h) {
			out = append(out, string(h.peer))
		}
	}
	return strings.Join(out[:min(len(out), 8)], ", ")
}

// free returns what no attempt holds by the ledger: CPUs, and whole devices.
func (h *host) free() contract.Free {
	f := contract.Free{CPUs: h.cfg.Profile.CPUs}
	held := map[string]bool{}
	for _, r := range h.disk.records {
		if r.Phase == contract.PhaseReserved || r.Phase == contract.PhaseStarted {
			f.CPUs -= r.Need.CPUs
			f.Tasks++
			f.Exclusive = f.Exclusive || r.Need.Exclusive
			for _, d := range r.Devices {
				held[d] = true
			}
		}
	}
	for _, d := range h.cfg.Profile.GPUs {
		if !held[d.UUID] {
			f.GPUs = append(f.GPUs, contract.FreeGPU{UUID: d.UUID, Memory: d.Memory, Milli: 1000})
		}
	}
	return f
}

// roomAt returns when the job fits at the host if nothing else is started there.
func (h *host) roomAt(j *work) time.Duration {
	free := h.free()
	if j.fits(&free) {
		return h.w.now
	}
	procs := h.running()
	slices.SortFunc(procs, func(a, b *proc) int { return cmp.Compare(a.endsAt, b.endsAt) })
	holders := map[string]int{}
	for _, p := range procs {
		for _, d := range p.task.Devices {
			holders[d]++
		}
	}
	at := h.w.now + contract.ReserveFor // reservations lapse
	for _, p := range procs {
		at = max(at, p.endsAt)
		free.CPUs += p.task.Spec.Resources.CPUs
		free.Tasks--
		free.Exclusive = free.Exclusive && !p.j.spec.Exclusive
		for _, d := range p.task.Devices {
			if holders[d]--; holders[d] == 0 {
				free.GPUs = append(free.GPUs, contract.FreeGPU{UUID: d})
			}
		}
		if j.fits(&free) {
			break
		}
	}
	return at
}

// checkOffers checks that offers have a reason (P2): the starts of tasks, a few for each, and the minutes of waiting. A
// queued offer is renewed three times a minute, and a task that has waited long queues at up to 16 hosts.
func (w *world) checkOffers() {
	s := &w.stats
	bound := 12*(s.starts+len(w.works)) + max(10, 1+3*min(16, len(w.hosts)))*int(s.waited/time.Minute) + 100
	if s.offers > bound {
		w.fail("P2: %d offers for %d jobs, %d starts and %v of waiting; at most %d are explained", s.offers, len(w.works), s.starts, s.waited, bound)
	}
}

// stats are the figures of one world.
type stats struct {
	steps, rounds, messages, effects int
	offers, finds, fenced, ended     int
	mostOffers                       int
	jobs, starts, requeued           int
	waited                           time.Duration  // by all jobs together
	booked                           time.Duration  // of that by jobs that a host has booked
	twice                            time.Duration  // GPUs that other hosts kept for these, times how long
	passed                           int            // starts while a job of a higher priority waited at the host
	waits                            map[int]*waits // by the number of requested GPUs
}

// waits are the waits of the jobs of one size.
type waits struct {
	jobs         int
	longest, fit time.Duration
	all          []time.Duration
}

func (s *stats) started(j *work) {
	if s.waits == nil {
		s.waits = map[int]*waits{}
	}
	n := gpu.Count(j.spec.Resources)
	x := s.waits[n]
	if x == nil {
		x = &waits{}
		s.waits[n] = x
	}
	wait := j.startAt - j.acceptAt
	x.jobs++
	x.all = append(x.all, wait)
	x.longest, x.fit = max(x.longest, wait), max(x.fit, j.fitWait)
	s.jobs++
}

// total gathers the figures of many worlds.
type total struct {
	mu     sync.Mutex
	sum    stats // guarded by mu
	failed []uint64
	worst  float64 // offers a start, of one world
}

func (t *total) add(seed uint64, s *stats, failed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if failed {
		t.failed = append(t.failed, seed)
	}
	t.sum.steps += s.steps
	t.sum.rounds += s.rounds
	t.sum.messages += s.messages
	t.sum.effects += s.effects
	t.sum.offers += s.offers
	t.sum.finds += s.finds
	t.sum.fenced += s.fenced
	t.sum.ended += s.ended
	t.sum.jobs += s.jobs
	t.sum.starts += s.starts
	t.sum.requeued += s.requeued
	t.sum.waited += s.waited
	t.sum.booked += s.booked
	t.sum.twice += s.twice
	t.sum.passed += s.passed
	t.sum.mostOffers = max(t.sum.mostOffers, s.mostOffers)
	if s.jobs > 0 {
		t.worst = max(t.worst, float64(s.offers)/float64(s.jobs))
	}
	if t.sum.waits == nil {
		t.sum.waits = map[int]*waits{}
	}
	for n, x := range s.waits {
		y := t.sum.waits[n]
		if y == nil {
			y = &waits{}
			t.sum.waits[n] = y
		}
		y.jobs += x.jobs
		y.all = append(y.all, x.all...)
		y.longest, y.fit = max(y.longest, x.longest), max(y.fit, x.fit)
	}
}

// String shows the table of waits, and the cost of the work.
func (s *stats) String() string {
	var out strings.Builder
	fmt.Fprintf(&out, "%6s %8s %12s %12s %12s %22s\n", "GPUs", "jobs", "median wait", "99th", "longest", "longest while it fits")
	sizes := make([]int, 0, len(s.waits))
	for n := range s.waits {
		sizes = append(sizes, n)
	}
	slices.Sort(sizes)
	for _, n := range sizes {
		x := s.waits[n]
		slices.Sort(x.all)
		round := func(d time.Duration) string { return d.Round(10 * time.Millisecond).String() }
		fmt.Fprintf(&out, "%6d %8d %12s %12s %12s %22s\n", n, x.jobs, round(x.all[len(x.all)/2]), round(x.all[len(x.all)*99/100]), round(x.longest), round(x.fit))
	}
	jobs := float64(max(s.jobs, 1))
	fmt.Fprintf(&out, "%d jobs started in %d attempts, %d ended, %d requeued; a job: %.1f steps of a scheduler, %.1f rounds of a worker, %.1f messages, %.1f effects, %.1f offers; at most %d offers of a task to a host in a minute; %d searches, %d tasks fenced\n"+
		"%v of waiting, %v of it by jobs that a host had booked, for which others kept %v of GPUs; %d starts while a job of a higher priority was first in line\n",
		s.jobs, s.starts, s.ended, s.requeued, float64(s.steps)/jobs, float64(s.rounds)/jobs, float64(s.messages)/jobs, float64(s.effects)/jobs, float64(s.offers)/jobs, s.mostOffers, s.finds, s.fenced,
		s.waited, s.booked, s.twice, s.passed)
	return out.String()
}
