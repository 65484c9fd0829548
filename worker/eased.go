package worker

// Quotas that ease: which schedulers were refused for the quota of a user, and
// are to hear of it when he may hold more.

import (
	"container/list"
	"maps"
	"slices"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
)

// quotaRefusal is a user and a scheduler that was refused for his quota.
type quotaRefusal struct {
	user string
	peer job.Peer
}

// refusals remembers whom to tell; the oldest are forgotten when there are too
// many.
type refusals struct {
	list *list.List                            // of quotaRefusal, the oldest first
	of   map[string]map[job.Peer]*list.Element // by user
}

func newRefusals() refusals {
	return refusals{list: list.New(), of: map[string]map[job.Peer]*list.Element{}}
}

func (r *refusals) add(user string, p job.Peer) {
	if e := r.of[user][p]; e != nil {
		r.list.MoveToBack(e)
		return
	}
	if r.list.Len() >= maxRefusals {
		oldest := r.list.Front().Value.(quotaRefusal)
		r.drop(oldest.user, oldest.peer)
	}
	if r.of[user] == nil {
		r.of[user] = map[job.Peer]*list.Element{}
	}
	r.of[user][p] = r.list.PushBack(quotaRefusal{user, p})
}

func (r *refusals) drop(user string, p job.Peer) {
	e := r.of[user][p]
	if e == nil {
		return
	}
	r.list.Remove(e)
	if delete(r.of[user], p); len(r.of[user]) == 0 {
		delete(r.of, user)
	}
}

// refuseQuota declines an offer for the quota of its user.
func (c *Core) refuseQuota(o *offer, why string) {
	c.decline(o.key.peer, o.msg, job.Reason{Word: job.ReasonQuota, Detail: why}, false)
	if c.connected(o.key.peer) {
		c.refusals.add(o.msg.User, o.key.peer)
	}
}

// ease has all who were refused for the quota of a user told, once, that he may
// hold more.
func (c *Core) ease(user string) {
	for p := range c.refusals.of[user] {
		c.refusals.drop(user, p)
		if c.eased[p] == nil {
			c.eased[p] = map[string]struct{}{}
		}
		c.eased[p][user] = struct{}{}
	}
}

// easeAll does so for all users: the limits have changed.
func (c *Core) easeAll() {
	for user := range c.refusals.of {
		c.ease(user)
	}
}

// takeEased takes the users that a scheduler is told of in one message.
func (c *Core) takeEased(p job.Peer) []string {
	users := c.eased[p]
	if len(users) == 0 {
		return nil
	}
	names := slices.Sorted(maps.Keys(users))
	names = names[:min(len(names), lease.MaxUnderQuota)]
	for _, name := range names {
		delete(users, name)
	}
	if len(users) == 0 {
		delete(c.eased, p)
	}
	return names
}

// forgetRefusals forgets a scheduler whose session has ended.
func (c *Core) forgetRefusals(p job.Peer) {
	delete(c.eased, p)
	for user := range c.refusals.of {
		c.refusals.drop(user, p)
	}
}
