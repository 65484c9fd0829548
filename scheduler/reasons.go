package scheduler

// Reasons: the sentences that tell people why a task waits. A reason says in numbers what is wanted and what is free, and
// says nothing that is not known: "not enough free gpus" beside four idle GPUs sends people to the wrong place. It names no
// program of another user, only its PID, because everybody reads reasons.

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/internal/fairshare"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/fleet"
)

// silence returns the reason of a task whose host does not answer, or has another data directory than when it got the
// task: what becomes of the task, and what a person can do.
func silence(d *job.Task, spec job.Spec, ending job.Ending, answers bool) string {
	name := cmp.Or(d.NodeName, string(d.Node))
	does := name + " does not answer"
	switch {
	case answers:
		does = name + " has another data directory, which knows nothing of the task"
	case ending != job.NotEnding:
		does += "; it is told to end the task when it is back"
	}
	switch {
	case !spec.Holds() && d.Fencing.Certain:
		return does + "; its lease has not run out"
	case answers:
		return does + ": it may go on there; a reboot of that host settles it, or muster node declare-dead " + name
	case ending != job.NotEnding:
	case spec.Holds():
		does += "; the task goes on there and waits for it (partition: hold)"
	case d.Fencing.Known():
		does += "; the task may go on there and waits for it, because that host does not fence its tasks"
	default:
		does += "; the task may go on there and waits for it, because the version of that host does not say whether it fences its tasks"
	}
	return does + "; if that host is gone for good: muster node declare-dead " + name
}

// closedReason returns the reason if none of the hosts that could run the task takes tasks now.
func closedReason(x *fleet.Outlook) job.Reason {
	if x.Draining > 0 {
		detail := ""
		if x.Detail != "" {
			detail = " (" + x.Detail + ")"
		}
		return job.Reason{
			Word:   job.ReasonNodesDraining,
			Detail: contract.Clip(fmt.Sprintf("%d of %d nodes that could run it take no tasks%s", x.Draining, x.Able, detail)),
		}
	}
	if x.Open > 0 { // a gang needs more of them
		return job.Reason{Word: job.ReasonNoPeers, Detail: fmt.Sprintf("only %d of the %d nodes that could run it answer", x.Open, x.Able)}
	}
	return job.Reason{Word: job.ReasonNoPeers, Detail: fmt.Sprintf("none of the %d nodes that could run it answers", x.Able)}
}

// lackText says what is missing on how many hosts, as "not enough free gpus on 1 and cpus on 2 of 3 nodes that could run
// it". For a task that wants a host for itself, other tasks are in the way. For any other task, a task that has a host
// for itself is.
func lackText(lack map[string]int, open int, exclusive bool) string {
	var parts []string
	for _, what := range []string{"gpus", "cpus", "memory"} {
		if n := lack[what]; n > 0 {
			parts = append(parts, fmt.Sprintf("%s on %d", what, n))
		}
	}
	text := ""
	if len(parts) > 0 {
		text = "not enough free " + strings.Join(parts, " and ")
	}
	if n := lack["tasks"]; n > 0 {
		if text != "" {
			text += ", "
		}
		if exclusive {
			text += fmt.Sprintf("other tasks on %d", n)
		} else {
			text += fmt.Sprintf("a task that has the node for itself on %d", n)
		}
	}
	return fmt.Sprintf("%s of %d nodes that could run it", text, open)
}

// claimants are the accounts with waiting tasks of one priority, the one that has used least of its share first.
type claimants struct {
	steps      uint64
	byPriority map[int][]claimant
}

type claimant struct {
	standing fairshare.Standing
	account  fairshare.Account
}

// namedAccounts is how many of the accounts that go first a reason names.
const namedAccounts = 3

// ahead tells people which accounts go before the shape at this priority, because they have used less of their share. It
// is empty if none does. The accounts are collected once in a step, so that a listing of many tasks costs one look.
func (cs *claimants) ahead(p *pending, g *shape, priority int) string {
	if !p.shares.Known() {
		return ""
	}
	if cs.byPriority == nil || cs.steps != p.Steps {
		cs.collect(p)
	}
	all := cs.byPriority[priority]
	n, _ := slices.BinarySearchFunc(all, g.standing, func(c claimant, s fairshare.Standing) int { return c.standing.Compare(s) })
	if n == 0 {
		return ""
	}
	names := make([]string, 0, namedAccounts+1)
	for _, c := range all[:min(n, namedAccounts)] {
		names = append(names, c.account.String())
	}
	if n > namedAccounts {
		names = append(names, fmt.Sprintf("and %d more", n-namedAccounts))
	}
	return contract.Clip("behind users who have used less of their share: " + strings.Join(names, ", ") + "; see muster users")
}

func (cs *claimants) collect(p *pending) {
	cs.steps, cs.byPriority = p.Steps, map[int][]claimant{}
	for _, g := range p.shapes {
		if g.queue.len() > 0 {
			priority := g.queue.first().priority()
			cs.byPriority[priority] = append(cs.byPriority[priority], claimant{g.standing, g.account})
		}
	}
	for _, c := range p.queued.chunks {
		for _, w := range c.waits {
			g := w.task.shape
			cs.byPriority[w.place.Priority] = append(cs.byPriority[w.place.Priority], claimant{g.standing, g.account})
		}
	}
	for priority, all := range cs.byPriority {
		slices.SortFunc(all, func(a, b claimant) int {
			return cmp.Or(a.standing.Compare(b.standing), a.account.Compare(b.account))
		})
		cs.byPriority[priority] = slices.Compact(all)
	}
}
