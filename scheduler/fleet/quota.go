package fleet

// Quotas: that a user may not hold more at a host is a fact about the two. It is kept at the host, so that all tasks
// of the user know it and one of them asks for all.

import (
	"slices"

	"github.com/musterhq/muster/job"
)

const (
	// quotaMost bounds the needs that are remembered as refused for one user at one host.
	quotaMost = 8
	// maxQuotas bounds the users of whom a host's refusals are remembered.
	maxQuotas = 1024
)

// Quotas are what one host has refused to users for the sum of what each holds there.
type Quotas struct {
	users map[string]*quota
	seq   uint64 // rises with each refusal and with each quota that is opened
}

type quota struct {
	refused []job.Resources // the user gets none of these, nor more
	probe   uint64          // the claim that finds out whether the user gets them now; 0: none
	open    bool            // the user may hold less there by now: a probe may go
	why     string          // the host's own word, for people
	asked   int             // refusals since the host last said that the user holds less
	seq     uint64          // of Quotas when it was last refused or opened
}

// covers says whether the host refused this need, or one that is no larger.
func (q *quota) covers(need job.Resources) bool {
	return slices.ContainsFunc(q.refused, func(r job.Resources) bool {
		return r.CPUs <= need.CPUs && r.Memory <= need.Memory && milliOf(r) <= milliOf(need)
	})
}

// milliOf is how many thousandths of devices the need holds.
func milliOf(need job.Resources) int { return gpusOf(need) * shareMilli(need) }

// over is why the host would refuse the user's need; empty if it is not known to, or if a task may find out.
func (qs *Quotas) over(user string, need job.Resources) string {
	q := qs.users[user]
	if q == nil || !q.covers(need) || q.open && q.probe == 0 {
		return ""
	}
	return q.why
}

// Refuse remembers that the host refused the need to the user. times is how often it did since it last said that the
// user holds less. At the bound of users the one who was refused longest ago is forgotten; it is empty otherwise.
func (qs *Quotas) Refuse(user string, need job.Resources, why string) (times int, forgotten string) {
	q := qs.users[user]
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
	q.open, q.probe = false, 0
	if q.why = why; why == "" {
		q.why = "its user holds enough there"
	}
	q.refuse(need)
	q.asked++
	qs.seq++
	q.seq = qs.seq
	return q.asked, forgotten
}

// refuse adds a need. Those that are no smaller go: they are refused with it.
func (q *quota) refuse(need job.Resources) {
	if q.covers(need) {
		return
	}
	q.refused = slices.DeleteFunc(q.refused, func(r job.Resources) bool {
		return need.CPUs <= r.CPUs && need.Memory <= r.Memory && milliOf(need) <= milliOf(r)
	})
	if last := len(q.refused) - 1; len(q.refused) >= quotaMost {
		// One need that is no larger than two of them stands for both.
		need = smaller(q.refused[last], need)
		q.refused = q.refused[:last]
	}
	q.refused = append(q.refused, need)
}

func smaller(a, b job.Resources) job.Resources {
	if milliOf(b) < milliOf(a) {
		a.GPUs, a.GPUShare = b.GPUs, b.GPUShare
	}
	a.CPUs, a.Memory = min(a.CPUs, b.CPUs), min(a.Memory, b.Memory)
	return a
}

func (qs *Quotas) oldest() string {
	oldest := ""
	for user, q := range qs.users {
		if o := qs.users[oldest]; o == nil || q.seq < o.seq {
			oldest = user
		}
	}
	return oldest
}

// Ease notes the host's word that the user holds less there. The refusals are counted anew.
func (qs *Quotas) Ease(user string) {
	if q := qs.users[user]; q != nil {
		q.asked = 0
	}
}

// Open lets one claim of the user ask the host again. It is false if the host has refused nothing.
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

// Forget drops what was refused to the user.
func (qs *Quotas) Forget(user string) { delete(qs.users, user) }

// Clear drops all refusals of the host.
func (qs *Quotas) Clear() { clear(qs.users) }

// Users counts those to whom something is refused.
func (qs *Quotas) Users() int { return len(qs.users) }

// ask notes that the claim finds out for its user's other tasks whether the user may hold more there.
func (qs *Quotas) ask(c *Claim) {
	if q := qs.users[c.User]; q != nil && q.open && q.covers(c.Need) {
		q.probe = c.ID
	}
}

// IsProbe says whether the claim finds out for its user's other tasks whether the user may hold more there.
func (qs *Quotas) IsProbe(c *Claim) bool {
	q := qs.users[c.User]
	return q != nil && q.probe == c.ID
}

// Probed ends the probe if the claim is one: the next task may ask. It says whether the claim was one.
func (qs *Quotas) Probed(c *Claim) bool {
	if !qs.IsProbe(c) {
		return false
	}
	qs.users[c.User].probe = 0
	return true
}
