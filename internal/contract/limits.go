package contract

// Limits of users: how much of a host a user may hold at a time, as the host tells schedulers.
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

// The quantities of which tasks hold something. Memory is in bytes. A share of a GPU counts as that part of a GPU.
const (
	LimitCPUs   Quantity = "cpus"
	LimitGPUs   Quantity = "gpus"
	LimitMemory Quantity = "memory"
	LimitTasks  Quantity = "tasks"
)

// LimitScratch is what the tasks of a user hold on the disk of the data directory, in bytes. No task requests it: the runner
// measures it, and ends tasks of a user who holds more.
const LimitScratch Quantity = "scratch"

// The quantities of what waits for a host. The scheduler of the daemon bounds them, not the worker.
const (
	LimitPendingJobs  Quantity = "pending_jobs"
	LimitPendingBytes Quantity = "pending_bytes" // of job files
)

// LimitPriority is the highest priority of tasks; see Priorities.
const LimitPriority Quantity = "priority"

// LimitTime is the longest time limit of tasks, in seconds. It bounds those without a time limit, too.
const LimitTime Quantity = "max_time"

// The quantities of all hosts together. See docs/adr, ADR 174.
const (
	LimitClusterCPUs   Quantity = "cluster_cpus"
	LimitClusterGPUs   Quantity = "cluster_gpus"
	LimitClusterMemory Quantity = "cluster_memory"
	LimitClusterTasks  Quantity = "cluster_tasks"
)

// ClusterQuantities lists the quantities of all hosts together, and HeldQuantities all those of which tasks hold something, each in
// the order in which they are checked.
var (
	ClusterQuantities = []Quantity{LimitClusterTasks, LimitClusterGPUs, LimitClusterCPUs, LimitClusterMemory}
	HeldQuantities    = append([]Quantity{LimitTasks, LimitGPUs, LimitCPUs, LimitMemory}, ClusterQuantities...)
)

// Limit bounds some quantities. A quantity that is not in the map is not bounded.
type Limit map[Quantity]int64

// UserLimits is what the users of a host may have there. It must not be changed once it is told.
type UserLimits struct {
	PerUser Limit
	Users   map[string]Limit // by user; each quantity here overrides that of PerUser
	// Member bounds all that the daemon which hears this may offer, whoever its users are. Only the priority.
	Member Limit
	// More says that further users have limits of their own, which are not told. What users may have that are not in Users is
	// then not known.
	More bool
}

// MaxLimits bounds Size, MaxLimitedUsers the users, and MaxQuantities the quantities of one of them. A host with more users leaves out
// some.
const (
	MaxLimits       = 24 << 10
	MaxLimitedUsers = 256
	MaxQuantities   = 16
)

// Size returns how many bytes the limits take in a message, or a little more.
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

// Most returns what a user may have of a quantity, and the name of the setting that says so. It returns false if that is not
// limited, or if the host does not tell it.
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

// Never returns why a user can never have a task with this need on the host, for people, or "" if that is not known. The need
// of an exclusive task is all that the host has; see Whole.
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

// NeverOf returns why a user can never have a task of this priority on the host, for people, or "" if that is not known.
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

// NeverFor returns why a user can never have a task of this time limit on the host, for people, or "" if that is not known. 0 is
// no time limit.
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

// NeverHolds returns why a user can never have a task on the host that holds something for so long at most, for people, or "" if
// that is not known; see LimitOf. It is a time limit and a grace: of the grace any is allowed that a job may have.
func (l *UserLimits) NeverHolds(user string, held time.Duration) string {
	if held == 0 {
		return l.NeverFor(user, 0)
	}
	return l.NeverFor(user, job.Duration(max(1, held-job.MaxGrace)))
}

// ToMember returns the limits as a daemon hears them that may offer at most this priority.
func (l *UserLimits) ToMember(priority int) *UserLimits {
	if l == nil || priority >= job.MaxPriority {
		return l
	}
	out := *l
	out.Member = Limit{LimitPriority: int64(priority)}
	return &out
}

// Equal reports whether two hosts, or one host before and after a change, tell the same.
func (l *UserLimits) Equal(m *UserLimits) bool {
	if l == nil || m == nil {
		return l == m
	}
	return l.More == m.More && maps.Equal(l.PerUser, m.PerUser) && maps.Equal(l.Member, m.Member) && maps.EqualFunc(l.Users, m.Users, maps.Equal[Limit, Limit])
}

// Bounded returns the limits with as many users as may be told: the first ones by name.
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

// Whole returns what a task with this need holds of a host at most. One that is exclusive holds all CPUs and GPUs.
func Whole(need job.Resources, cpus, gpus int) job.Resources {
	if need.Exclusive {
		need.CPUs, need.GPUs, need.GPUShare = max(cpus, need.CPUs), gpus, 0
	}
	return need
}

// never says that a user can never have what is held.
func (h *Held) never(user string, q Quantity, most int64, setting string) string {
	where := "there"
	if of, cluster := clusterWide(q); cluster {
		q, where = of, "in the cluster"
	}
	return fmt.Sprintf("user %s may hold at most %s %s (%s), %s wanted", user, amountText(q, most), where, setting, h.text(q))
}

// Over says for people how much of a quantity a user holds and may hold.
func (h *Held) Over(user string, q Quantity, most int64) string {
	if of, cluster := clusterWide(q); cluster {
		return fmt.Sprintf("user %s holds %s of at most %s in the cluster", user, h.text(q), amountText(of, most))
	}
	return fmt.Sprintf("user %s holds %s of at most %s", user, h.text(q), amountText(q, most))
}

// clusterWide returns the name of a quantity of all hosts together, and whether it is one.
func clusterWide(q Quantity) (of Quantity, is bool) {
	name, is := strings.CutPrefix(string(q), "cluster_")
	return Quantity(name), is
}

// amountText says for people how much of a quantity a limit allows: "4 gpus", "64GiB memory".
func amountText(q Quantity, most int64) string {
	if q == LimitMemory {
		return job.Size(most).String() + " memory"
	}
	return strconv.FormatInt(most, 10) + " " + string(q)
}

// unlimited is more than tasks can hold of anything that is not limited.
const unlimited = 1 << 50

// InCluster returns what a user may hold on all hosts together, and whether anything of that is limited.
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

// NeverInCluster returns why a user can never hold so much on all hosts together, for people, or "" if that is not so.
func (l *UserLimits) NeverInCluster(user string, wanted Held) string {
	for _, q := range ClusterQuantities {
		if most, setting, limited := l.Most(user, q); limited && wanted.Exceeds(q, most) {
			return Clip(wanted.never(user, q, most, setting))
		}
	}
	return ""
}

// OverInCluster returns which limit a user would exceed who holds this on all hosts together, with a further need, for people, or ""
// if none.
func (l *UserLimits) OverInCluster(user string, held, need Held) string {
	with := held.Plus(need)
	for _, q := range ClusterQuantities {
		if most, setting, limited := l.Most(user, q); limited && with.Exceeds(q, most) {
			return Clip(held.Over(user, q, most) + " (" + setting + ")")
		}
	}
	return ""
}
