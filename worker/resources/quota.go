package resources

// Quotas: whether a user holds as much of this host as the limits allow. admission/arbitration.go asks Over whether to decline an
// offer, and offers.go sends the Decline.

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/step"
)

// quotas records what users hold here, what they may hold, and whose offers were declined for that.
type quotas struct {
	limits   Limits
	asLimits *contract.UserLimits     // the limits of users in limits
	usage    map[string]contract.Held // by user
	Refusals Refusals
}

func newQuotas(l Limits, t *step.Turn) quotas {
	q := quotas{usage: map[string]contract.Held{}, Refusals: newRefusals(t)}
	q.set(l)
	return q
}

// set replaces the limits.
func (q *quotas) set(l Limits) {
	q.limits, q.asLimits = l, &contract.UserLimits{PerUser: l.PerUser, Users: l.Users}
}

// use adds a need to the usage of a user, or with sign -1 subtracts it.
func (q *quotas) use(user string, need job.Resources, sign int) {
	if sign < 0 {
		q.Refusals.notify(user)
	}
	q.shift(user, need, sign)
}

// shift does the same without a notice to refused schedulers. A caller other than use reverts the change before anything
// else happens.
func (q *quotas) shift(user string, need job.Resources, sign int) {
	u := q.usage[user]
	u.Add(need, sign)
	if u.Tasks == 0 {
		delete(q.usage, user)
		return
	}
	q.usage[user] = u
}

// Bounded reports whether the user has any limit.
func (q *quotas) Bounded(user string) bool {
	return slices.ContainsFunc(contract.HeldQuantities, func(what contract.Quantity) bool {
		_, _, set := q.asLimits.Most(user, what)
		return set
	})
}

// Never returns why the user's limits can never allow a task with this need and this time limit, for people, or "" if they can.
func (q *quotas) Never(user string, need job.Resources, limit time.Duration) string {
	return cmp.Or(q.asLimits.Never(user, need), q.asLimits.NeverHolds(user, limit))
}

// Over returns which limit the user would exceed with this need, for people, or "" if none.
func (q *quotas) Over(user string, need job.Resources) string {
	if len(q.limits.PerUser)+len(q.limits.Users) == 0 {
		return ""
	}
	has := q.usage[user]
	with := has
	with.Add(need, 1)
	for _, what := range contract.HeldQuantities {
		if most, setting, set := q.asLimits.Most(user, what); set && with.Exceeds(what, most) {
			return contract.Clip(fmt.Sprintf("%s on this host (%s)", has.Over(user, what, most), setting))
		}
	}
	return ""
}
