package fleet

// Limits of users, as hosts announce them: what a user can never have at a host.
// See docs/adr, ADR 170.

import (
	"encoding/json"
	"math"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
)

// neverHolds tells people why the user can never hold the need at the host. It returns "" if no reason is known.
func neverHolds(h *Host, user string, need job.Resources) string {
	return h.Profile.Limits.Never(user, contract.Whole(need, h.Profile.CPUs, len(h.Profile.GPUs)))
}

// neverGoes tells people why no task of the user can have this priority at the host. It returns "" if no reason is
// known. It always returns "" for this daemon's own host, because the daemon checked the priority when it accepted the
// job.
func neverGoes(h *Host, user string, priority int) string {
	if h.Local {
		return ""
	}
	return h.Profile.Limits.NeverOf(user, priority)
}

// sameLimits holds one copy of equal limits, by their JSON text.
type sameLimits map[string]*contract.UserLimits

// maxSameLimits bounds what sameLimits remembers. Beyond it all are forgotten: hosts then share limits only with those that
// come later, which makes searches slower.
const maxSameLimits = 64

// share returns the one copy of these limits that all hosts with equal limits share.
func (all sameLimits) share(l *contract.UserLimits) *contract.UserLimits {
	if l == nil {
		return nil
	}
	key, err := json.Marshal(l) // its maps are sorted
	if err != nil {
		return l
	}
	if x := all[string(key)]; x != nil {
		return x
	}
	if len(all) >= maxSameLimits {
		clear(all)
	}
	all[string(key)] = l
	return l
}

// limitCap is the most that a user may hold of a host.
type limitCap struct{ tasks, cpus, memory, gpus int64 }

func capOf(h *Host, user string) limitCap {
	of := func(q contract.Quantity) int64 {
		if most, _, limited := h.Profile.Limits.Most(user, q); limited {
			return most
		}
		return math.MaxInt64
	}
	return limitCap{of(contract.LimitTasks), of(contract.LimitCPUs), of(contract.LimitMemory), of(contract.LimitGPUs)}
}

// none says whether the limits allow the user no task at all, or no GPU although the need has some.
func (c limitCap) none(need job.Resources) bool {
	return c.tasks == 0 || c.gpus == 0 && gpu.Count(need) > 0
}
