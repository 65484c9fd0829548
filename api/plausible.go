package api

// Checks of what other daemons report about their nodes and users. No member may make the totals of the cluster negative, or
// add states that do not exist.

import (
	"slices"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
)

const (
	maxUsed        = 1e15    // GPU-seconds or CPU-seconds of an account on one host: more than the largest one has in 30 years
	maxAccounts    = 1 << 14 // accounts in the answer of one daemon
	maxNodeBytes   = 1 << 49 // of memory, 512 TiB: the sum over 10,000 nodes is far below 2^63
	maxNodePercent = 1000    // some drivers report a little more than 100
)

var nodeStates = []NodeState{NodeReady, NodeDraining, NodeSuspect, NodeLost}

// plausible reports whether another daemon's document of its node has only possible values.
func (n *Node) plausible() bool {
	return slices.Contains(nodeStates, n.State) &&
		within(n.CPUs, job.MaxCPUs) && within(n.Memory, maxNodeBytes) && n.Disk >= 0 && within(n.RunningOr(0), contract.MaxLive) &&
		within(n.Free.CPUs, n.CPUs) && within(n.Free.Memory, n.Memory) && within(n.Free.GPUs, len(n.GPUs)) && len(n.GPUs) <= contract.MaxGPUs &&
		n.Usage.plausible() && !slices.ContainsFunc(n.GPUs, func(g GPU) bool { return !g.plausible() })
}

func (g *GPU) plausible() bool {
	return g.Index >= 0 && within(g.Memory, maxNodeBytes) && within(g.Free, 1) && measuredOnGPU(g.MemoryUsed, g.Utilization, g.Power) &&
		(g.Job == "" || isJob(g.Job)) && len(g.Jobs) <= contract.MaxLive && !slices.ContainsFunc(g.Jobs, func(id job.ID) bool { return !isJob(id) })
}

func isJob(id job.ID) bool {
	_, err := job.ParseID(string(id))
	return err == nil
}

// measuredOnGPU reports whether the values of a GPU are possible. -1 means that memory or percent is not known.
func measuredOnGPU(memory int64, percent int, power float64) bool {
	return memory >= -1 && memory <= maxNodeBytes && percent >= -1 && percent <= maxNodePercent && power >= 0
}

func (u *NodeNow) plausible() bool {
	return u == nil || !slices.ContainsFunc([]*float64{u.CPUs, u.Memory, u.Read, u.Write, u.Received, u.Sent, u.GPU}, func(x *float64) bool { return x != nil && *x < 0 })
}

// plausible reports whether another daemon's figures about users are possible.
func (u *UsersInfo) plausible() bool {
	for i := range u.Accounts {
		a := &u.Accounts[i]
		if !validUser(a.User) || job.CheckProject(a.Project) != nil || !within(a.Used.GPU, maxUsed) || !within(a.Used.CPU, maxUsed) || !within(a.Running, maxLoad) || !within(a.Waiting, maxLoad) {
			return false
		}
	}
	for user, l := range u.Limits.Users {
		if !validUser(user) || !l.plausible() {
			return false
		}
	}
	return len(u.Accounts) <= maxAccounts && within(u.Has.GPU, contract.MaxGPUs) && within(u.Has.CPU, job.MaxCPUs) && u.Limits.PerUser.plausible()
}

func (l UserLimit) plausible() bool {
	return !slices.ContainsFunc(l.all(), func(q **int64) bool { return *q != nil && **q < 0 })
}

// ofOneNode reports whether the totals are those of exactly one node, and possible.
func (s *Stats) ofOneNode() bool {
	n := 0
	for state, count := range s.Nodes {
		if !slices.Contains(nodeStates, state) || !within(count, 1) {
			return false
		}
		n += count
	}
	for _, a := range s.Models {
		if !a.plausible() {
			return false
		}
	}
	return n == 1 && plausibleCounts(s.Jobs) && s.GPUs.plausible() && s.CPUs.plausible(job.MaxCPUs) && s.Memory.plausible(maxNodeBytes) &&
		(s.Queue == nil || s.Queue.valid())
}

// plausibleCounts reports whether these numbers of jobs by state are possible for one daemon.
func plausibleCounts(jobs map[job.State]int) bool {
	for s, n := range jobs {
		if !within(n, maxCount) || !slices.Contains(job.States(), s) {
			return false
		}
	}
	return true
}

func (a Amount) plausible(most int64) bool { return within(a.Total, most) && within(a.Free, a.Total) }

func (a GPUAmount) plausible() bool {
	return within(a.Total, contract.MaxGPUs) && within(a.Free, a.Total) && (a.Held == nil || within(*a.Held, float64(a.Total)))
}

// within reports whether a number is from 0 to most.
func within[T int | int64 | float64](n, most T) bool { return n >= 0 && n <= most }
