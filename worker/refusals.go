package worker

// Refusals: the schedulers whose offers were declined because of a user's quota. They are told when the user may hold
// more.

import (
	"container/list"
	"maps"
	"slices"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
)

// refusal is a user whose quota was reached, and a scheduler whose offer was declined for that.
type refusal struct {
	user string
	peer job.Peer
}

// refusals records which schedulers to tell. If there are more than maxRefusals, the oldest are dropped.
type refusals struct {
	list    *list.List                            // of refusal, the oldest first
	of      map[string]map[job.Peer]*list.Element // by user
	pending map[job.Peer]map[string]struct{}      // users that may hold more, by scheduler that was not told yet
}

func newRefusals() refusals {
	return refusals{list: list.New(), of: map[string]map[job.Peer]*list.Element{}, pending: map[job.Peer]map[string]struct{}{}}
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

// notify makes announce tell the user's refused schedulers that the user may hold more. Each is told once.
func (r *refusals) notify(user string) {
	for p := range r.of[user] {
		r.drop(user, p)
		if r.pending[p] == nil {
			r.pending[p] = map[string]struct{}{}
		}
		r.pending[p][user] = struct{}{}
	}
}

// notifyAll calls notify for all users, because the limits have changed.
func (r *refusals) notifyAll() {
	for user := range r.of {
		r.notify(user)
	}
}

// take removes and returns users of whom a scheduler has to be told, as many as fit into one message.
func (r *refusals) take(p job.Peer) []string {
	users := r.pending[p]
	if len(users) == 0 {
		return nil
	}
	names := slices.Sorted(maps.Keys(users))
	names = names[:min(len(names), lease.MaxUnderQuota)]
	for _, name := range names {
		delete(users, name)
	}
	if len(users) == 0 {
		delete(r.pending, p)
	}
	return names
}

// forget drops a scheduler whose session has ended.
func (r *refusals) forget(p job.Peer) {
	delete(r.pending, p)
	for user := range r.of {
		r.drop(user, p)
	}
}
