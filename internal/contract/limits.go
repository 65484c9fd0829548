package contract

// Limits of users: how much a user may hold at a time on a host, or on all hosts together. A host tells schedulers its
// limits.
// See docs/adr, ADR 170.

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/job"
)

// Quantity is something that can be limited.
type Quantity string

// The quantities that tasks hold on one host. Memory is in bytes. A share of a GPU counts as that fraction of a GPU.
const (
	LimitCPUs   Quantity = "cpus"
	LimitGPUs   Quantity = "gpus"
	LimitMemory Quantity = "memory"
	LimitTasks  Quantity = "tasks"
)

// LimitScratch is what the tasks of a user hold on the disk of the data directory, in bytes. Tasks do not request it:
// the runner measures it, and ends tasks of a user who exceeds the limit.
const LimitScratch Quantity = "scratch"

// The quantities of jobs that wait for a host. The daemon's scheduler bounds them, not its worker.
const (
	LimitPendingJobs  Quantity = "pending_jobs"
	LimitPendingBytes Quantity = "pending_bytes" // of job files
)

// LimitPriority is the highest priority of tasks; see Priorities.
const LimitPriority Quantity = "priority"

// LimitTime is the longest time limit of tasks, in seconds. If it is set, tasks without a time limit are refused.
const LimitTime Quantity = "max_time"

// The quantities that tasks hold on all hosts together. See docs/adr, ADR 174.
const (
	LimitClusterCPUs   Quantity = "cluster_cpus"
	LimitClusterGPUs   Quantity = "cluster_gpus"
	LimitClusterMemory Quantity = "cluster_memory"
	LimitClusterTasks  Quantity = "cluster_tasks"
)

// ClusterQuantities lists the quantities for all hosts together. HeldQuantities lists all quantities that tasks hold.
// Both are in the order in which they are checked.
var (
	ClusterQuantities = []Quantity{LimitClusterTasks, LimitClusterGPUs, LimitClusterCPUs, LimitClusterMemory}
	HeldQuantities    = append([]Quantity{LimitTasks, LimitGPUs, LimitCPUs, LimitMemory}, ClusterQuantities...)
)

// Limit bounds some quantities. A quantity that is not in the map is not bounded.
type Limit map[Quantity]int64

// UserLimits says what users may hold on a host. It must not be changed once it has been sent.
type UserLimits struct {
	PerUser Limit
	Users   map[string]Limit // by user; each quantity here overrides that of PerUser
	// Member bounds all offers of the daemon that receives these limits, for all its users. It contains only the priority.
	Member Limit
	// More says that further users have limits of their own, which are left out. Then the limits of a user who is not in
	// Users are not known.
	More bool
}

// MaxLimits bounds Size, MaxLimitedUsers the users, and MaxQuantities the quantities of one user. A host that exceeds
// these bounds leaves out some users.
const (
	MaxLimits       = 24 << 10
	MaxLimitedUsers = 256
	MaxQuantities   = 16
)

// Size estimates how many bytes the limits take in a message; the estimate may be a little high.
func (l *UserLimits) Size() int {
	n := sizeOf("", l.PerUser) + sizeOf("", l.Member)
	for user, own := range l.Users {
		n += sizeOf(user, own)
	}
	return n
}

func sizeOf(user string, l Limit) int {
	n := len(user) + 8
	for q := range l {
		n += len(q) + 14
	}
	return n
}

// Most returns the limit of a user for a quantity, and the name of the setting. It returns false if there is no limit,
// or if the host does not send it.
func (l *UserLimits) Most(user string, q Quantity) (most int64, setting string, limited bool) {
	if l == nil {
		return 0, "", false
	}
	own, named := l.Users[user]
	if n, set := own[q]; set {
		return n, "limits.users." + user + "." + string(q), true
	}
	if n, set := l.PerUser[q]; set && (named || !l.More) {
		return n, "limits.per_user." + string(q), true
	}
	return 0, "", false
}

// Limits reports whether a quantity is limited for any user.
func (l *UserLimits) Limits(q Quantity) bool {
	if l == nil {
		return false
	}
	_, every := l.PerUser[q]
	for _, own := range l.Users {
		_, one := own[q]
		every = every || one
	}
	return every
}

// Never tells people why the limits never allow a user a task with this need on the host. It returns "" if they do, or if
// that is not known. For an exclusive task the need must be all that the host has; see Whole.
func (l *UserLimits) Never(user string, need job.Resources) string {
	if l == nil {
		return ""
	}
	var wanted Held
	wanted.Add(need, 1)
	for _, q := range HeldQuantities {
		if most, setting, limited := l.Most(user, q); limited && wanted.Exceeds(q, most) {
			return Clip(wanted.never(user, q, most, setting))
		}
	}
	return ""
}

// NeverOf tells people why the limits never allow a user a task of this priority on the host. It returns "" if they do,
// or if that is not known.
func (l *UserLimits) NeverOf(user string, priority int) string {
	if most, setting, limited := l.Most(user, LimitPriority); limited && int64(priority) > most {
		return tooHigh(user, priority, int(most), setting)
	}
	if l == nil {
		return ""
	}
	if most, limited := l.Member[LimitPriority]; limited && int64(priority) > most {
		return tooHigh(user, priority, int(most), "limits.per_member.priority or limits.members")
	}
	return ""
}

// NeverFor tells people why the limits never allow a user a task with this time limit on the host; 0 means no time limit.
// It returns "" if they do, or if that is not known.
func (l *UserLimits) NeverFor(user string, limit job.Duration) string {
	seconds, setting, limited := l.Most(user, LimitTime)
	most := job.Duration(time.Duration(seconds) * time.Second)
	switch {
	case !limited || limit > 0 && limit <= most:
		return ""
	case limit == 0:
		return Clip(fmt.Sprintf("a task of user %s may run for %s at most (%s), and no time limit is given (-t)", user, most, setting))
	}
	return Clip(fmt.Sprintf("a task of user %s may run for %s at most (%s), %s wanted (-t)", user, most, setting, limit))
}

// NeverHolds is NeverFor for a task that holds its resources for at most this time, as LimitOf returns it: a time limit
// plus a grace. The grace is not known here, so NeverHolds allows for the longest grace that a job may have.
func (l *UserLimits) NeverHolds(user string, held time.Duration) string {
	if held == 0 {
		return l.NeverFor(user, 0)
	}
	return l.NeverFor(user, job.Duration(max(1, held-job.MaxGrace)))
}

// ToMember returns the limits to send to a daemon whose offers may have at most this priority.
func (l *UserLimits) ToMember(priority int) *UserLimits {
	if l == nil || priority >= job.MaxPriority {
		return l
	}
	out := *l
	out.Member = Limit{LimitPriority: int64(priority)}
	return &out
}

// Equal reports whether two hosts, or one host before and after a change, have the same limits.
func (l *UserLimits) Equal(m *UserLimits) bool {
	if l == nil || m == nil {
		return l == m
	}
	return l.More == m.More && maps.Equal(l.PerUser, m.PerUser) && maps.Equal(l.Member, m.Member) && maps.EqualFunc(l.Users, m.Users, maps.Equal[Limit, Limit])
}

// Bounded returns the limits with as many users as fit into a message: the first ones by name.
func (l *UserLimits) Bounded() *UserLimits {
	if l == nil || len(l.Users) <= MaxLimitedUsers && l.Size() <= MaxLimits {
		return l
	}
	out := &UserLimits{PerUser: l.PerUser, Users: map[string]Limit{}, Member: l.Member, More: true}
	size := out.Size()
	for _, name := range slices.Sorted(maps.Keys(l.Users)) {
		if size += sizeOf(name, l.Users[name]); size > MaxLimits || len(out.Users) == MaxLimitedUsers {
			break
		}
		out.Users[name] = l.Users[name]
	}
	return out
}

// Whole returns what a task with this need holds of a host with these CPUs and GPUs. An exclusive task holds all of them.
func Whole(need job.Resources, cpus, gpus int) job.Resources {
	if need.Exclusive {
		need.CPUs, need.GPUs, need.GPUShare = max(cpus, need.CPUs), gpus, 0
	}
	return need
}

// never tells people that h is more than a user may ever hold.
func (h *Held) never(user string, q Quantity, most int64, setting string) string {
	where := "there"
	if of, cluster := clusterWide(q); cluster {
		q, where = of, "in the cluster"
	}
	return fmt.Sprintf("user %s may hold at most %s %s (%s), %s wanted", user, amountText(q, most), where, setting, h.text(q))
}

// Over tells people how much of a quantity a user holds, and how much the user may hold.
func (h *Held) Over(user string, q Quantity, most int64) string {
	if of, cluster := clusterWide(q); cluster {
		return fmt.Sprintf("user %s holds %s of at most %s in the cluster", user, h.text(q), amountText(of, most))
	}
	return fmt.Sprintf("user %s holds %s of at most %s", user, h.text(q), amountText(q, most))
}

// clusterWide reports whether q is a quantity for all hosts together, and returns its name without "cluster_".
func clusterWide(q Quantity) (of Quantity, is bool) {
	name, is := strings.CutPrefix(string(q), "cluster_")
	return Quantity(name), is
}

// amountText tells people how much of a quantity a limit allows: "4 gpus", "64GiB memory".
func amountText(q Quantity, most int64) string {
	if q == LimitMemory {
		return job.Size(most).String() + " memory"
	}
	return strconv.FormatInt(most, 10) + " " + string(q)
}

// unlimited stands for "no limit" in a Held: tasks cannot hold so much of any quantity.
const unlimited = 1 << 50

// InCluster returns what a user may hold on all hosts together, and whether any quantity of it is limited.
func (l *UserLimits) InCluster(user string) (most Held, limited bool) {
	if l == nil {
		return Held{}, false
	}
	of := func(q Quantity, unit int64) int64 {
		n, _, is := l.Most(user, q)
		if !is || n > unlimited/unit {
			return unlimited
		}
		limited = true
		return n * unit
	}
	most = Held{
		Tasks: int(of(LimitClusterTasks, 1)), CPUs: int(of(LimitClusterCPUs, 1)), Milli: int(of(LimitClusterGPUs, gpu.Whole)),
		Memory: job.Size(of(LimitClusterMemory, 1)),
	}
	return most, limited
}

// NeverInCluster tells people why a user may never hold what is wanted on all hosts together, or returns "" if the user
// may.
func (l *UserLimits) NeverInCluster(user string, wanted Held) string {
	for _, q := range ClusterQuantities {
		if most, setting, limited := l.Most(user, q); limited && wanted.Exceeds(q, most) {
			return Clip(wanted.never(user, q, most, setting))
		}
	}
	return ""
}

// OverInCluster tells people which limit a user would exceed on all hosts together with what the user holds now plus
// need, or returns "" if none.
func (l *UserLimits) OverInCluster(user string, held, need Held) string {
	with := held.Plus(need)
	for _, q := range ClusterQuantities {
		if most, setting, limited := l.Most(user, q); limited && with.Exceeds(q, most) {
			return Clip(held.Over(user, q, most) + " (" + setting + ")")
		}
	}
	return ""
}
