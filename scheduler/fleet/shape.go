package fleet

// Requests: what a task asks for.

import (
	"cmp"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
)

// Shape is what a user asks for. All tasks of the user that ask for the same have one Shape, whatever their jobs.
type Shape struct {
	User    string
	Project string
	Need    job.Resources // its GPUModel is as contract.ModelName returns it
	Foot    Footprint     // of Need
	Pool    *Pool         // the hosts that meet the other clauses
	Gang    int           // how many hosts an element needs at once; 0: one
	// Priority is that of the jobs, before any of their tasks is raised because it has waited for long. Hosts may not
	// allow the user every priority.
	Priority int
	// TimeLimit is that of its tasks, 0 for none; negative: they may differ. Hosts may not allow the user every time
	// limit.
	TimeLimit job.Duration
	limits    allowed
	// never holds the hosts that said that they can never run the shape.
	never map[job.Peer]refusal
}

// refusal is the word of a host that it can never run a shape.
type refusal struct {
	hellos uint64 // Host.hellos at that time
	why    string // for people
}

// Request is what one task asks for.
type Request struct {
	*Shape
	Rank    Rank
	Limited bool // the task has a time limit
	Gang    bool // it is a member of a gang
	Gathers bool // as Claim.Gathers
	Overdue bool // nothing ends the task once it runs
}

// Refuse notes the host's word that it can never run the shape, and why. The word counts until the host says Hello again.
func (s *Shape) Refuse(h *Host, why string) {
	if s.never == nil {
		s.never = map[job.Peer]refusal{}
	}
	s.never[h.Peer] = refusal{h.told.hellos, why}
}

// Forget forgets the word of a host that is not known any more.
func (s *Shape) Forget(h *Host) { delete(s.never, h.Peer) }

// excluded says whether the host has said that it can never run the shape, or that it runs no tasks of the user, or whether
// the shape is more than the user may ever have there.
func (s *Shape) excluded(h *Host) bool {
	return len(s.never) > 0 && s.RefusedBy(h) != "" || !runsTasksOf(h, s.User) || !s.allowedAt(h)
}

// allowed caches whether the limits that were last compared with a shape allow it, because most hosts of a cluster have
// the same limits.
type allowed struct {
	by *contract.UserLimits
	is bool
}

// allowedAt says whether the user may ever have the shape at the host.
func (s *Shape) allowedAt(h *Host) bool {
	l := h.Profile.Limits
	if l == nil {
		return true
	}
	same := !h.Local && !s.Need.Exclusive // otherwise the answer depends on more than the limits
	if same && l == s.limits.by {
		return s.limits.is
	}
	is := neverHolds(h, s.User, s.Need) == "" && neverGoes(h, s.User, s.Priority) == "" && (s.TimeLimit < 0 || l.NeverFor(s.User, s.TimeLimit) == "")
	if same {
		s.limits = allowed{l, is}
	}
	return is
}

// RefusedBy returns why the host has said that it can never run the shape. It is empty if it has not.
func (s *Shape) RefusedBy(h *Host) string {
	if x, said := s.never[h.Peer]; said && x.hellos == h.told.hellos {
		return cmp.Or(x.why, "it gave no reason")
	}
	return ""
}

// OverQuota returns why the host would refuse the shape because of the user's quota. It is empty if the host is not
// known to refuse it, or if a task may find out.
func (s *Shape) OverQuota(h *Host) string {
	if h.Quotas.Users() == 0 {
		return ""
	}
	return h.Quotas.Over(s.User, s.Need)
}

// FitsNow says whether the request fits at the host now.
func (r *Request) FitsNow(h *Host) bool {
	return !h.Claims.full() && h.Devices.Suffices(r.Need, h.LeftFor(&r.Rank))
}

// Rivals says whether a host is in the pools of both shapes.
func Rivals(a, b *Shape) bool {
	if a.Pool == b.Pool {
		return true
	}
	for i, word := range a.Pool.has[:min(len(a.Pool.has), len(b.Pool.has))] {
		if word&b.Pool.has[i] != 0 {
			return true
		}
	}
	return false
}
