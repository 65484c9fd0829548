package fleet

// Quotas: what a host has refused to a user because of what the user's tasks hold there. It is kept with the host, so
// that all tasks of the user know it, and one of them asks again for all.

import (
	"slices"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/job"
)

const (
	// quotaMost bounds the needs that are remembered as refused for one user at one host.
	quotaMost = 8
	// maxQuotas bounds the users whose refusals are remembered for one host.
	maxQuotas = 1024
)

// Quotas holds what one host has refused to users because of their quotas.
type Quotas struct {
	users map[string]*quota
	seq   uint64 // counts the refusals and the quotas that were opened
}

type quota struct {
	refused []job.Resources // the host refused each of these needs, and would refuse larger ones
	probe   uint64          // the id of the claim that finds out whether the host still refuses; 0: none
	open    bool            // a probe may be sent: the user may hold less there now
	why     string          // the reason that the host gave, for people
	lacks   bool            // the host has no account of the user: it refuses everything
	asked   int             // refusals since the host last said that the user holds less
	seq     uint64          // Quotas.seq when the quota was last refused or opened
}

// covers says whether the host refused this need, or one that takes no more.
func (q *quota) covers(need job.Resources) bool {
	return slices.ContainsFunc(q.refused, func(r job.Resources) bool {
		return noLarger(r, need)
	})
}

// noLarger says whether r takes no more of any host than need does.
func noLarger(r, need job.Resources) bool {
	return r.CPUs <= need.CPUs && r.Memory <= need.Memory && milliOf(r) <= milliOf(need) && (need.Exclusive || !r.Exclusive)
}

// milliOf returns how many thousandths of devices the need takes in all.
func milliOf(need job.Resources) int { return gpu.Count(need) * gpu.Milli(need) }

// Over returns why the host would refuse the need to the user. It is empty if the host is not known to refuse it, or if
// a task may find out.
func (qs *Quotas) Over(user string, need job.Resources) string {
	q := qs.users[user]
	if q == nil || !q.covers(need) || q.open && q.probe == 0 {
		return ""
	}
	return q.why
}

// refuse notes that the host refused the need to the user. times is how often it did so since it last said that the
// user holds less. If there are too many users, the one whose refusal is the oldest is forgotten, and returned as
// forgotten.
func (qs *Quotas) refuse(user string, need job.Resources, why string) (times int, forgotten string) {
	q := qs.users[user]
	if q != nil && q.lacks { // the host has an account now
		*q = quota{}
	}
	if q == nil {
		if len(qs.users) >= maxQuotas {
			forgotten = qs.oldest()
			delete(qs.users, forgotten)
		}
		q = &quota{}
		if qs.users == nil {
			qs.users = map[string]*quota{}
		}
		qs.users[user] = q
	}
	if q.open || !q.covers(need) { // else the host refuses another of several offers that it had at the same time
		q.asked++
	}
	q.open, q.probe = false, 0
	if q.why = why; why == "" {
		q.why = "its user holds enough there"
	}
	q.refuse(need)
	qs.seq++
	q.seq = qs.seq
	return q.asked, forgotten
}

// refuseUser notes that the host has no account of the user. It returns the same as refuse.
func (qs *Quotas) refuseUser(user string) (times int, forgotten string) {
	asked := 1
	if q := qs.users[user]; q != nil && q.lacks {
		if asked = q.asked; q.open {
			asked++
		}
	}
	_, forgotten = qs.refuse(user, job.Resources{}, "it has no such user")
	q := qs.users[user]
	q.lacks, q.asked = true, asked
	return q.asked, forgotten
}

// lacks says whether the host is known to have no account of the user. It is false while a task may find out.
func (qs *Quotas) lacks(user string) bool {
	q := qs.users[user]
	return q != nil && q.lacks && (!q.open || q.probe != 0)
}

// Lacked says whether the host had no account of the user when it was asked last.
func (qs *Quotas) Lacked(user string) bool {
	q := qs.users[user]
	return q != nil && q.lacks
}

// refuse adds a need to those that are refused. It drops needs that are not smaller, because the new one covers them.
func (q *quota) refuse(need job.Resources) {
	if q.covers(need) {
		return
	}
	q.refused = slices.DeleteFunc(q.refused, func(r job.Resources) bool {
		return noLarger(need, r)
	})
	if last := len(q.refused) - 1; len(q.refused) >= quotaMost {
		// One need that is no larger than two of them stands for both.
		need = smaller(q.refused[last], need)
		q.refused = q.refused[:last]
	}
	q.refused = append(q.refused, need)
}

// smaller returns a need that is not larger than either.
func smaller(a, b job.Resources) job.Resources {
	if milliOf(b) < milliOf(a) {
		a.GPUs, a.GPUShare = b.GPUs, b.GPUShare
	}
	a.CPUs, a.Memory, a.Exclusive = min(a.CPUs, b.CPUs), min(a.Memory, b.Memory), a.Exclusive && b.Exclusive
	return a
}

// oldest returns the user whose quota was refused or opened longest ago.
func (qs *Quotas) oldest() string {
	oldest := ""
	for user, q := range qs.users {
		if o := qs.users[oldest]; o == nil || q.seq < o.seq {
			oldest = user
		}
	}
	return oldest
}

// Ease notes the host's word that the user holds less there. It resets the count of refusals.
func (qs *Quotas) Ease(user string) {
	if q := qs.users[user]; q != nil {
		q.asked = 0
	}
}

// Open lets one claim of the user be a probe. It returns false if the host has refused the user nothing.
func (qs *Quotas) Open(user string) bool {
	q := qs.users[user]
	if q == nil {
		return false
	}
	q.open = true
	qs.seq++
	q.seq = qs.seq
	return true
}

// Forget forgets what was refused to the user.
func (qs *Quotas) Forget(user string) { delete(qs.users, user) }

// Clear forgets all refusals of the host.
func (qs *Quotas) Clear() { clear(qs.users) }

// Users returns the number of users to whom the host has refused something.
func (qs *Quotas) Users() int { return len(qs.users) }

// ask makes the claim the probe of its user's quota, if one may be sent.
func (qs *Quotas) ask(c *Claim) {
	if q := qs.users[c.User]; q != nil && q.open && q.covers(c.Need) {
		q.probe = c.ID
	}
}

// IsProbe says whether the claim is a probe: it finds out whether the host still refuses.
func (qs *Quotas) IsProbe(c *Claim) bool {
	q := qs.users[c.User]
	return q != nil && q.probe == c.ID
}

// Probed ends the probe if the claim is one, so that the next claim may be one. It returns whether the claim was one.
func (qs *Quotas) Probed(c *Claim) bool {
	if !qs.IsProbe(c) {
		return false
	}
	qs.users[c.User].probe = 0
	return true
}
