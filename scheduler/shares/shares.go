// Package shares knows what users and projects have used on the known hosts, as the hosts report it, and the standings by which
// waiting tasks of one priority are ordered. The standings are a snapshot: they change seldom, and never within a plan.
// See docs/adr, ADR 90.
package shares

import (
	"math"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/internal/fairshare"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/step"
)

const (
	// MaxAccounts bounds the accounts whose usage is known. What further ones have used does not count.
	MaxAccounts = 1 << 16
	// rebaseAfter is the number of half-lives after which all amounts are rescaled, long before they grow beyond a
	// float64.
	rebaseAfter = 256
)

// Shares knows what accounts have used. Stored amounts do not decay. Instead, a new amount is scaled up by the time from
// zero to its report, so stored amounts need no update as time passes.
type Shares struct {
	*step.Turn

	delivers func() fairshare.Use // what all known hosts have together
	weights  fairshare.Weights
	reports  map[job.Peer][]reportedUse // the last report of each host
	sums     map[fairshare.Account]*sum // over all hosts
	zero     time.Time
	table    *fairshare.Table // the snapshot; nil: no host has reported yet
	tableAt  time.Time
	news     bool // a host has reported since the snapshot
	armed    bool // a timer for the next snapshot is set
}

// New returns shares of which nothing is known yet.
func New(t *step.Turn, w fairshare.Weights, delivers func() fairshare.Use) *Shares {
	return &Shares{Turn: t, delivers: delivers, weights: w, reports: map[job.Peer][]reportedUse{}, sums: map[fairshare.Account]*sum{}}
}

// SetWeights replaces the weights. Amounts are scaled by the half-life, so a new half-life makes all reported usage
// void. Hosts report it again within half a minute.
func (ss *Shares) SetWeights(w fairshare.Weights) {
	if w.HalfLife != ss.weights.HalfLife {
		clear(ss.reports)
		clear(ss.sums)
	}
	ss.weights, ss.table, ss.news = w, nil, true
}

// Size returns how many accounts are known, and how many hosts have reported.
func (ss *Shares) Size() (accounts, hosts int) { return len(ss.sums), len(ss.reports) }

// Used returns what an account has used on all hosts, decayed to now.
func (ss *Shares) Used(who fairshare.Account) fairshare.Use {
	s := ss.sums[who]
	if s == nil {
		return fairshare.Use{}
	}
	return s.used.Times(1 / ss.scale())
}

// Counts reports whether usage orders tasks at all.
func (ss *Shares) Counts() bool { return ss.weights.On() }

// Known reports whether any host has told what was used.
func (ss *Shares) Known() bool { return ss.table != nil }

// Of returns the standing of an account by the latest snapshot.
func (ss *Shares) Of(who fairshare.Account) fairshare.Standing { return ss.table.Of(who) }

// reportedUse is what one account has used on one host.
type reportedUse struct {
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
func (ss *Shares) scale() float64 {
	if len(ss.reports) == 0 {
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
	for _, entries := range ss.reports {
		for i := range entries {
			entries[i].used = entries[i].used.Times(k)
		}
	}
	ss.zero = ss.Now
	return 1
}

// Hear stores what a host reports, in place of its earlier report. A report counts only up to what the GPUs and CPUs of
// the host's profile could have delivered.
func (ss *Shares) Hear(p *contract.Profile, u *contract.Usage) {
	if u == nil || !ss.weights.On() {
		return
	}
	ss.Forget(p.Peer)
	k := ss.scale()
	left := Deliver(p).Times(fairshare.Forever(ss.weights.HalfLife))
	entries := make([]reportedUse, 0, len(u.Entries))
	for _, e := range u.Entries {
		used := e.Used.Capped(left)
		left = left.Plus(used, -1)
		s := ss.sums[e.Account]
		if s == nil {
			if len(ss.sums) >= MaxAccounts {
				continue
			}
			s = &sum{}
			ss.sums[e.Account] = s
		}
		used = used.Times(k)
		s.used = s.used.Plus(used, 1)
		s.hosts++
		entries = append(entries, reportedUse{e.Account, used})
	}
	ss.reports[p.Peer] = entries
	ss.news = true
}

// Forget drops the report of a host.
func (ss *Shares) Forget(p job.Peer) {
	for _, e := range ss.reports[p] {
		s := ss.sums[e.account]
		s.used = s.used.Plus(e.used, -1)
		if s.hosts--; s.hosts == 0 {
			delete(ss.sums, e.account)
		}
	}
	delete(ss.reports, p)
}

// Deliver returns what a host with this profile can deliver: its GPUs and CPUs.
func Deliver(p *contract.Profile) fairshare.Use {
	return fairshare.Use{GPU: float64(len(p.GPUs)), CPU: float64(p.CPUs)}
}

// Refresh makes a new snapshot if usage was reported since the last one, and the last one is old enough. If it is too
// new, a timer calls again when it is time.
func (ss *Shares) Refresh(again func()) bool {
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
	ss.news, ss.tableAt = false, ss.Now
	ss.table = fairshare.NewTable(&ss.weights, ss.delivers())
	k := 1 / ss.scale()
	for a, s := range ss.sums {
		ss.table.Add(a, s.used.Times(k))
	}
	return true
}
