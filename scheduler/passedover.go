package scheduler

// Why a task waits though it fits at a host now.

import (
	"cmp"
	"slices"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/fleet"
)

// passedOverWhy returns why a task waits though it fits at a host now: the host keeps what is free for other tasks. They
// are named if the host has named them. In a step it is computed once for all tasks of the shape that have the same time
// limit and avoid no host.
func passedOverWhy(p *placement, g *shape, t *task) job.Reason {
	limit, apart := contract.LimitOf(&t.e.job.Spec), awayFrom(p, t)
	if known := &g.passed; known.at == p.Steps && known.limit == limit && len(apart) == 0 {
		return known.why
	}
	var why job.Reason
	asked := fleet.Asked{Job: t.e.job.ID, Need: g.Need, Priority: t.priority(), Limit: limit}
	for h := range p.hosts.fleet.Candidates(&g.Shape) {
		if _, lack := h.Devices.Fit(g.Need, &h.Free); lack != "" || !h.Open() || g.OverQuota(h) != "" {
			continue
		}
		if i := slices.IndexFunc(apart, func(x away) bool { return x.host == h }); i >= 0 {
			why = cmp.Or(why, job.Reason{Word: job.ReasonResources, Detail: contract.Clip(h.Name() + ": " + apart[i].why(t.e))})
			continue
		}
		if kept := fleet.KeptFrom(h, asked, p.Now); kept != "" {
			why = job.Reason{Word: job.ReasonPriority, Detail: contract.Clip(h.Name() + " " + kept)}
			break
		}
		why = job.Reason{Word: job.ReasonPriority, Detail: h.Name() + " has room, and takes tasks that go before it first"}
	}
	if why.Word == "" {
		why.Word = job.ReasonPriority
	}
	if len(apart) == 0 {
		g.passed = passedOver{why, limit, p.Steps}
	}
	return why
}
