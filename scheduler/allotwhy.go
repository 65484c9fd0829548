package scheduler

// What people are told about tasks that wait because of a limit of their user over the whole cluster.

import (
	"fmt"
	"slices"
	"strings"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
)

// notMore tells people which limit keeps a user from holding this need in addition; empty if, as far as is known, none
// does.
func notMore(a *allotments, user string, need contract.Held) string {
	held := a.held(user)
	var with []string // daemons whose jobs hold some of it
	for key, o := range a.heard.of[user] {
		if a.Now.Sub(o.at) <= heldKept && o.Held != (contract.Held{}) {
			held, with = held.Plus(o.Held), append(with, nameOf(a.hosts, key.peer))
		}
	}
	why := a.Config.Limits.OverInCluster(user, held, need)
	if why == "" || len(with) == 0 {
		return why
	}
	slices.Sort(with)
	with = slices.Compact(with)
	if n := len(with) - namedMost; n > 0 {
		with = append(with[:namedMost], fmt.Sprintf("%d more", n))
	}
	return contract.Clip(why + ", some of it for jobs that " + strings.Join(with, ", ") + " accepted")
}

// namedMost bounds the daemons that a reason names.
const namedMost = 3

// nameOf returns the name of a daemon for people.
func nameOf(hs *hosts, p job.Peer) string {
	if w := hs.workers[p]; w != nil {
		return w.Name()
	}
	return p.Short()
}

// whyLater tells people why the limits of its user over the cluster keep a task from starting now; empty if, as far as
// is known, they do not.
func (a *allotments) whyLater(user string, need contract.Held, g *shape, priority int) string {
	if why := notMore(a, user, need); why != "" {
		return why
	}
	x := a.users[user]
	if x == nil {
		return ""
	}
	room, _ := a.room(user)
	if h := x.goesFirst(g, priority); h != nil && room.Minus(h.need()).Fits(need) == 0 {
		t := h.queue.first()
		return fmt.Sprintf("job %s of user %s has priority %d and goes first, by the limits over the cluster", t.e.job.ID, user, t.priority())
	}
	return ""
}

// whyCapped tells people why a shape waits for an allotment.
func (a *allotments) whyCapped(g *shape) string {
	if why := a.whyLater(g.User, g.need(), g, g.queue.first().priority()); why != "" {
		return why
	}
	if x := a.users[g.User]; x != nil && x.asks != nil {
		return "the other daemons are asked what user " + g.User + " holds in the cluster"
	}
	return "jobs of user " + g.User + " that other daemons have accepted go first, by the limits over the cluster"
}
