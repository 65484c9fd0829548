package scheduler

// Shares: what users and projects have used on the known hosts, as the hosts report it, and the standings by which
// waiting tasks of one priority are ordered. The standings are a snapshot: they change seldom, and never within a plan.
// See docs/adr, ADR 90.

import (
	"math"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/internal/fairshare"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/step"
)

const (
	// maxAccounts bounds the accounts whose usage is known. What further ones have used does not count.
	maxAccounts = 1 << 16
	// rebaseAfter is the number of half-lives after which all amounts are rescaled, long before they grow beyond a
	// float64.
	rebaseAfter = 256
)

// shares knows what accounts have used. Stored amounts do not decay. Instead, a new amount is scaled up by the time from
// zero to its report, so stored amounts need no update as time passes.
type shares struct {
	*step.Turn
	hosts *hosts

	weights fairshare.Weights
	told    map[job.Peer][]toldUse     // the last report of each host
	sums    map[fairshare.Account]*sum // over all hosts
	zero    time.Time
	table   *fairshare.Table // the snapshot; nil: no host has reported yet
	tableAt time.Time
	news    bool // a host has reported since the snapshot
	armed   bool // a timer for the next snapshot is set
}

// toldUse is what one account has used on one host.
type toldUse struct {
	account fairshare.Account
	used    fairshare.Use
}

// sum is what one account has used on all hosts together.
type sum struct {
	used  fairshare.Use
	hosts int
}

// scale returns the factor for amounts that are reported now. When the factor would grow too large, it rescales all
// stored amounts.
func (ss *shares) scale() float64 {
	if len(ss.told) == 0 {
		ss.zero = ss.Now
	}
	lives := ss.Now.Sub(ss.zero).Seconds() / ss.weights.HalfLife.Seconds()
	if lives < rebaseAfter {
		return math.Exp2(lives)
	}
	k := math.Exp2(-lives)
	for _, s := range ss.sums {
		s.used = s.used.Times(k)
	}
	for _, entries := range ss.told {
		for i := range entries {
			entries[i].used = entries[i].used.Times(k)
		}
	}
	ss.zero = ss.Now
	return 1
}

// hear stores what a host reports, in place of its earlier report. A report counts only up to what the GPUs and CPUs of
// the host's profile could have delivered.
func (ss *shares) hear(w *worker, u *contract.Usage) {
	if u == nil || !ss.weights.On() {
		return
	}
	ss.forget(w.Peer)
	k := ss.scale()
	left := offeredBy(w).Times(fairshare.Forever(ss.weights.HalfLife))
	entries := make([]toldUse, 0, len(u.Entries))
	for _, e := range u.Entries {
		used := e.Used.Capped(left)
		left = left.Plus(used, -1)
		s := ss.sums[e.Account]
		if s == nil {
			if len(ss.sums) >= maxAccounts {
				continue
			}
			s = &sum{}
			ss.sums[e.Account] = s
		}
		used = used.Times(k)
		s.used = s.used.Plus(used, 1)
		s.hosts++
		entries = append(entries, toldUse{e.Account, used})
	}
	ss.told[w.Peer] = entries
	ss.news = true
}

// forget drops the report of a host.
func (ss *shares) forget(p job.Peer) {
	for _, e := range ss.told[p] {
		s := ss.sums[e.account]
		s.used = s.used.Plus(e.used, -1)
		if s.hosts--; s.hosts == 0 {
			delete(ss.sums, e.account)
		}
	}
	delete(ss.told, p)
}

// offeredBy returns the GPUs and CPUs of the host's profile.
func offeredBy(w *worker) fairshare.Use {
	return fairshare.Use{GPU: float64(len(w.Profile.GPUs)), CPU: float64(w.Profile.CPUs)}
}

// refresh makes a new snapshot if usage was reported since the last one, and the last one is old enough. If it is too
// new, a timer calls again when it is time.
func (ss *shares) refresh(again func()) bool {
	if !ss.news || !ss.weights.On() {
		return false
	}
	if at := ss.tableAt.Add(ss.weights.Period()); ss.table != nil && at.After(ss.Now) {
		if !ss.armed {
			ss.armed = true
			ss.At(at, func() { ss.armed = false; again() })
		}
		return false
	}
	has := fairshare.Use{}
	for _, w := range ss.hosts.workers {
		has = has.Plus(offeredBy(w), 1) // whole numbers, so that their order does not matter
	}
	ss.news, ss.tableAt = false, ss.Now
	ss.table = fairshare.NewTable(&ss.weights, has)
	k := 1 / ss.scale()
	for a, s := range ss.sums {
		ss.table.Add(a, s.used.Times(k))
	}
	return true
}

// Demand is what the jobs of one account run and wait for.
type Demand struct {
	fairshare.Account
	Running int     // tasks that are assigned to a host
	Waiting int     // tasks that are PENDING
	GPUs    float64 // that the running tasks hold; shares of a GPU count as such
}
