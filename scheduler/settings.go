package scheduler

// What an operator may change while the scheduler runs. Jobs that are accepted stay as they are.

import (
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/internal/fairshare"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/backlog"
)

// SetShares replaces the weights of users and projects.
func (c *Core) SetShares(w fairshare.Weights) { c.pending.setWeights(w) }

// SetBacklog replaces the bounds of what waits.
func (c *Core) SetBacklog(b backlog.Limits) { c.entries.backlog.SetLimits(&b) }

// SetPriorities replaces the highest priorities that users may give their jobs.
func (c *Core) SetPriorities(p *contract.Priorities) { c.turn.Config.Priorities = p }

// SetLimits replaces the limits of users: the longest time limits of jobs that are submitted, and what tasks may hold in
// the whole cluster.
func (c *Core) SetLimits(to *contract.UserLimits) {
	if !c.turn.Config.Limits.Equal(to) {
		c.turn.Config.Limits = to
		c.plan.allotments.reset()
	}
}

// SwapAllotments takes in what another owner, of this or another daemon, says of users, and returns what this owner says
// of them.
func (c *Core) SwapAllotments(from job.Peer, states []contract.Allotment) []contract.Allotment {
	return c.plan.allotments.swap(from, states)
}
