package scheduler

// Hosts with room where a waiting task does not go, because it or its job has failed there: what people are told.
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

// away is a host that could run a task, and where the task does not go now in any case.
type away struct {
	host   *fleet.Host
	until  time.Time
	failed bool // it has failed there, and waits for another host
	left   bool // its job leaves the host out
}

// awayFrom returns these hosts, by name. Those where its Starts are kept back are among them.
func awayFrom(pl *placement, t *task) (out []away) {
	if len(t.avoid) == 0 && len(t.e.shuns) == 0 && pl.leftOut.by[t.e] == nil || !t.leads() {
		return nil
	}
	pl.pending.join(t)
	x := pl.asks(t)
	for _, each := range x.Avoid {
		h := pl.hosts.fleet.Host(each.Peer)
		if h == nil || !h.Open() || !pl.hosts.fleet.Could(x.Shape, h) || slices.ContainsFunc(out, func(o away) bool { return o.host == h }) {
			continue
		}
		if a, avoided := x.Avoids(pl.now, h); avoided && a.Hard {
			out = append(out, away{h, a.Until, a.Failed, a.LeftOut})
		}
	}
	slices.SortFunc(out, func(a, b away) int { return cmp.Compare(a.host.Name(), b.host.Name()) })
	return out
}

// why tells why the task does not go to the host.
func (a *away) why(e *entry) string {
	until := a.until.UTC().Format("15:04 UTC")
	switch {
	case a.left:
		return "left out: tasks of the job fail there at once, until " + until
	case a.failed:
		return "it has failed there, and waits until " + until + " for room on another node"
	case e.shuns.Ends(a.until):
		return e.shunned
	}
	return "it was declined there, and asks again at " + until
}

// namedAway is how many hosts a reason names.
const namedAway = 3

// roomElsewhere is the reason of a task that fits on so many hosts now, and goes to none of them because it or its job has
// failed there. It has no word if that is not why it waits.
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

// notWhereAway moves the hosts where the next task of the job does not go from those that may run it now to those that may
// later.
func notWhereAway(pl *placement, e *entry, x *contract.Explanation) {
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
