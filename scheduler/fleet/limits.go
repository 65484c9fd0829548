package fleet

// Limits of users, as hosts tell them: what a user can never have at a host.
// See docs/adr, ADR 170.

import (
	"encoding/json"
	"math"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
)

// neverHolds returns why the user can never hold so much at the host, for people, or "" if that is not known.
func neverHolds(h *Host, user string, need job.Resources) string {
	return h.Profile.Limits.Never(user, contract.Whole(need, h.Profile.CPUs, len(h.Profile.GPUs)))
}

// neverGoes returns why no task of the user can have this priority at the host, for people, or "" if that is not known. At the own
// host the priority was compared when the job was accepted: its daemon knows best what it allows.
func neverGoes(h *Host, user string, priority int) string {
	if h.Local {
		return ""
	}
	return h.Profile.Limits.NeverOf(user, priority)
}

// sameLimits holds each kind of limits once, by their text.
type sameLimits map[string]*contract.UserLimits

// maxSameLimits bounds what sameLimits remembers. Beyond it all are forgotten: hosts then share limits only with those that
// come later, which makes searches slower.
const maxSameLimits = 64

// share returns limits that are equal to these, and the same for all hosts that have equal ones.
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

// limitCap is what a user may hold of a host at most.
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

// none says whether the user may hold nothing of that kind at all.
func (c limitCap) none(need job.Resources) bool {
	return c.tasks == 0 || c.gpus == 0 && gpu.Count(need) > 0
}
