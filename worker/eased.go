package worker

// Refusals for quota: which schedulers were refused for a user's quota, and which of them are to hear that the user may
// hold more again.

import (
	"container/list"
	"maps"
	"slices"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
)

// refusal is a user, and a scheduler that was refused for the user's quota.
type refusal struct {
	user string
	peer job.Peer
}

// refusals remembers whom to tell; the oldest are forgotten when there are too many.
type refusals struct {
	list  *list.List                            // of refusal, the oldest first
	of    map[string]map[job.Peer]*list.Element // by user
	eased map[job.Peer]map[string]struct{}      // users that may hold more, which the scheduler was not told yet
}

func newRefusals() refusals {
	return refusals{list: list.New(), of: map[string]map[job.Peer]*list.Element{}, eased: map[job.Peer]map[string]struct{}{}}
}

func (r *refusals) add(user string, p job.Peer) {
	if e := r.of[user][p]; e != nil {
		r.list.MoveToBack(e)
		return
	}
	if r.list.Len() >= maxRefusals {
		oldest := r.list.Front().Value.(refusal)
		r.drop(oldest.user, oldest.peer)
	}
	if r.of[user] == nil {
		r.of[user] = map[job.Peer]*list.Element{}
	}
	r.of[user][p] = r.list.PushBack(refusal{user, p})
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

// ease has all schedulers that were refused for the user's quota told, once, that the user may hold more.
func (r *refusals) ease(user string) {
	for p := range r.of[user] {
		r.drop(user, p)
		if r.eased[p] == nil {
			r.eased[p] = map[string]struct{}{}
		}
		r.eased[p][user] = struct{}{}
	}
}

// easeAll does so for all users: the limits have changed.
func (r *refusals) easeAll() {
	for user := range r.of {
		r.ease(user)
	}
}

// take returns the users of whom a scheduler is told in one message.
func (r *refusals) take(p job.Peer) []string {
	users := r.eased[p]
	if len(users) == 0 {
		return nil
	}
	names := slices.Sorted(maps.Keys(users))
	names = names[:min(len(names), lease.MaxUnderQuota)]
	for _, name := range names {
		delete(users, name)
	}
	if len(users) == 0 {
		delete(r.eased, p)
	}
	return names
}

// forget forgets a scheduler whose session has ended.
func (r *refusals) forget(p job.Peer) {
	delete(r.eased, p)
	for user := range r.of {
		r.drop(user, p)
	}
}
