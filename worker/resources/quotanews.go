package resources

// Refusals: the schedulers whose offers were declined because of a user's quota. They are told when the user may hold
// more, the scheduler whose task has the highest priority first. A task that needs more of the limit than is left does not
// keep smaller tasks of the user waiting, because nobody would tell this host that it was cancelled.
// See docs/adr, ADR 61 and ADR 167.

import (
	"container/list"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/leaseclock"
	"github.com/musterhq/muster/worker/step"
)

// refusal is a user whose quota was reached, and a scheduler whose offers were declined for that.
type refusal struct {
	user     string
	peer     job.Peer
	priority int // the highest one of those offers
}

// head is the priority of the tasks of a user whose schedulers were told that he may hold more. Until these schedulers
// have had time to offer the tasks, no task of the user with a lower priority starts.
type head struct {
	priority int
	timer    *step.Timer // ends it
}

// MaxRefusals bounds the recorded pairs of a scheduler and a user whose quota was reached. Each takes some 200 bytes.
// A scheduler whose pair was dropped offers again after a while on its own.
const MaxRefusals = 8192

// headFor is how long schedulers have to offer those tasks. It is more than a round trip and announceEvery.
const headFor = time.Second

// Refusals records which schedulers to tell. If there are more than MaxRefusals, the oldest are dropped.
type Refusals struct {
	turn    *step.Turn
	heads   map[string]head                       // by user
	list    *list.List                            // of refusal, the oldest first
	of      map[string]map[job.Peer]*list.Element // by user
	pending map[job.Peer]map[string]struct{}      // users that may hold more, by scheduler that was not told yet
}

func newRefusals(t *step.Turn) Refusals {
	return Refusals{turn: t, heads: map[string]head{}, list: list.New(), of: map[string]map[job.Peer]*list.Element{}, pending: map[job.Peer]map[string]struct{}{}}
}

// Add records that offers of a scheduler were declined because of a user's quota.
func (r *Refusals) Add(user string, p job.Peer, priority int) {
	if e := r.of[user][p]; e != nil {
		e.Value = refusal{user, p, max(priority, e.Value.(refusal).priority)}
		r.list.MoveToBack(e)
		return
	}
	if r.list.Len() >= MaxRefusals {
		oldest := r.list.Front().Value.(refusal)
		r.drop(oldest.user, oldest.peer)
	}
	if r.of[user] == nil {
		r.of[user] = map[job.Peer]*list.Element{}
	}
	r.of[user][p] = r.list.PushBack(refusal{user, p, priority})
}

func (r *Refusals) drop(user string, p job.Peer) {
	e := r.of[user][p]
	if e == nil {
		return
	}
	r.list.Remove(e)
	if delete(r.of[user], p); len(r.of[user]) == 0 {
		delete(r.of, user)
	}
}

// notify makes announce tell the user's refused schedulers that the user may hold more. Each is told once. Those whose
// task has the highest priority are told now, and the next ones after headFor.
func (r *Refusals) notify(user string) { r.notifyBelow(user, job.MaxPriority+1) }

// notifyBelow does the same, but only for schedulers whose tasks have a lower priority than bound.
func (r *Refusals) notifyBelow(user string, bound int) {
	first := -1
	for _, e := range r.of[user] {
		if n := e.Value.(refusal).priority; n < bound {
			first = max(first, n)
		}
	}
	if first < 0 {
		return
	}
	for p, e := range r.of[user] {
		if e.Value.(refusal).priority != first {
			continue
		}
		r.drop(user, p)
		if r.pending[p] == nil {
			r.pending[p] = map[string]struct{}{}
		}
		r.pending[p][user] = struct{}{}
	}
	r.turn.Timers.Stop(r.heads[user].timer)
	r.heads[user] = head{priority: first, timer: r.turn.Timers.Set(r.turn.Now().Add(headFor), func(leaseclock.Moment) {
		delete(r.heads, user)
		r.notifyBelow(user, first)
	})}
}

// Behind returns why a task of a user has to wait for another task of the same user, for people, or "".
func (r *Refusals) Behind(user string, priority int) string {
	if h, waits := r.heads[user]; waits && priority < h.priority {
		return contract.Clip(fmt.Sprintf("a task of priority %d of user %s, which had to wait for the limits of this host, goes first", h.priority, user))
	}
	return ""
}

// notifyAll calls notify for all users, because the limits have changed.
func (r *Refusals) notifyAll() {
	for _, user := range slices.Sorted(maps.Keys(r.of)) {
		r.notify(user)
	}
}

// Untold returns how many schedulers are to be told that users may hold more.
func (r *Refusals) Untold() int { return len(r.pending) }

// Size returns how many refusals are known, including those of which a scheduler is still to be told.
func (r *Refusals) Size() int {
	n := r.list.Len()
	for _, users := range r.pending {
		n += len(users)
	}
	return n
}

// Take removes and returns users about whom a scheduler has to be told, as many as fit into one message.
func (r *Refusals) Take(p job.Peer) []string {
	users := r.pending[p]
	if len(users) == 0 {
		return nil
	}
	names := slices.Sorted(maps.Keys(users))
	names = names[:min(len(names), contract.MaxUnderQuota)]
	for _, name := range names {
		delete(users, name)
	}
	if len(users) == 0 {
		delete(r.pending, p)
	}
	return names
}

// Forget drops a scheduler whose session has ended.
func (r *Refusals) Forget(p job.Peer) {
	delete(r.pending, p)
	for user := range r.of {
		r.drop(user, p)
	}
}
