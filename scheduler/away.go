package scheduler

// What people are told about hosts that have room for a waiting task, but that the task avoids because it or its job
// has failed there.
// See docs/adr, ADR 169.

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/fleet"
)

// away is a host that could run a task, but that the task strictly avoids for now.
type away struct {
	host   *fleet.Host
	until  time.Time
	failed bool // the task has failed there, and waits for another host
	left   bool // its job leaves the host out
}

// awayFrom returns the hosts that a task strictly avoids for now, by name. Among them are hosts where Starts of its job
// are kept back.
func awayFrom(pl *placement, t *task) (out []away) {
	if len(t.avoid) == 0 && len(t.e.avoidedHosts) == 0 && pl.leftOut.by[t.e] == nil || !t.leads() {
		return nil
	}
	pl.pending.join(t)
	x := pl.asks(t)
	for _, each := range x.Avoid {
		h := pl.hosts.fleet.Host(each.Peer)
		if h == nil || !h.Open() || !pl.hosts.fleet.Could(x.Shape, h) || slices.ContainsFunc(out, func(o away) bool { return o.host == h }) {
			continue
		}
		if a, avoided := x.Avoids(pl.Now, h); avoided && a.Hard {
			out = append(out, away{h, a.Until, a.Failed, a.LeftOut})
		}
	}
	slices.SortFunc(out, func(a, b away) int { return cmp.Compare(a.host.Name(), b.host.Name()) })
	return out
}

// why tells people why the task avoids the host.
func (a *away) why(e *entry) string {
	until := a.until.UTC().Format("15:04 UTC")
	switch {
	case a.left:
		return "left out: tasks of the job fail there at once, until " + until
	case a.failed:
		return "it has failed there, and waits until " + until + " for room on another node"
	case e.avoidedHosts.Ends(a.until):
		return e.avoidedWhy
	}
	return "it was declined there, and asks again at " + until
}

// namedAway is how many hosts a reason names.
const namedAway = 3

// roomElsewhere returns the reason of a task that fits on this many hosts now, but avoids all of them because it or its
// job has failed there. The reason has no word if the task waits for something else.
func roomElsewhere(pl *placement, t *task, fits int) job.Reason {
	if fits == 0 {
		return job.Reason{}
	}
	n, failed := 0, []away(nil)
	for _, a := range awayFrom(pl, t) {
		if lacks(a.host, t.shape.Need) != "" || t.shape.OverQuota(a.host) != "" {
			continue
		}
		if n++; a.failed {
			failed = append(failed, a)
		}
	}
	if n < fits || len(failed) == 0 {
		return job.Reason{}
	}
	until, names, left := failed[0].until, []string(nil), true
	for _, a := range failed {
		if left = left && a.left; a.until.Before(until) {
			until = a.until
		}
		names = append(names, a.host.Name())
	}
	if more := len(names) - namedAway; more > 0 {
		names = append(names[:namedAway], fmt.Sprintf("%d more", more))
	}
	what := "failed"
	if left {
		what = "tasks of its job fail at once"
	}
	return job.Reason{Word: job.ReasonResources, Detail: contract.Clip(fmt.Sprintf(
		"%s on %s; waits until %s for room on another node", what, strings.Join(names, ", "), until.UTC().Format("15:04 UTC")))}
}

// avoidAwayHost takes the hosts that the next task of the job avoids out of those that may run it now, and adds them to
// those that may later.
func avoidAwayHost(pl *placement, e *entry, x *contract.Explanation) {
	i, soft := e.find(e.job.NextPending(0))
	if !soft {
		return
	}
	all := awayFrom(pl, e.tasks[i])
	x.Now = slices.DeleteFunc(x.Now, func(c contract.Candidate) bool {
		k := slices.IndexFunc(all, func(a away) bool { return a.host.Peer == c.Node })
		if k < 0 {
			return false
		}
		c.Why = all[k].why(e)
		x.Later = append(x.Later, c)
		return true
	})
}
