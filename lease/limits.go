package lease

// Limits of users: how much of a host a user may hold at a time, as the host tells schedulers.
// See docs/adr, ADR 170.

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

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

// HeldQuantities lists the quantities of which tasks hold something, in the order in which they are checked.
var HeldQuantities = []Quantity{LimitTasks, LimitGPUs, LimitCPUs, LimitMemory}

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
			return Clip(fmt.Sprintf("user %s may hold at most %s there (%s), %s wanted", user, AmountText(q, most), setting, wanted.text(q)))
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

// Held is what tasks of a user hold.
type Held struct {
	Tasks, CPUs int
	Milli       int // thousandths of GPUs
	Memory      job.Size
}

// Add adds what a task with this need holds, or with sign -1 subtracts it.
func (h *Held) Add(need job.Resources, sign int) {
	h.Tasks += sign
	h.CPUs += sign * need.CPUs
	h.Milli += sign * gpu.Count(need) * gpu.Milli(need)
	h.Memory += job.Size(sign) * need.Memory
}

// amount returns how much of a quantity is held, and how many of these make one of the limit's.
func (h *Held) amount(q Quantity) (n, unit int64) {
	switch q {
	case LimitTasks:
		return int64(h.Tasks), 1
	case LimitCPUs:
		return int64(h.CPUs), 1
	case LimitGPUs:
		return int64(h.Milli), gpu.Whole
	case LimitMemory:
		return int64(h.Memory), 1
	case LimitPriority, LimitScratch, LimitPendingJobs, LimitPendingBytes: // no amounts that tasks ask for
	}
	return 0, 1
}

// Exceeds reports whether more of a quantity is held than a limit says.
func (h *Held) Exceeds(q Quantity, most int64) bool {
	n, unit := h.amount(q)
	return n > most*unit
}

// text says how much of a quantity is held, without its name.
func (h *Held) text(q Quantity) string {
	n, unit := h.amount(q)
	if q == LimitMemory {
		return job.Size(n).String()
	}
	return strconv.FormatFloat(float64(n)/float64(unit), 'f', -1, 64)
}

// Over says for people how much of a quantity a user holds and may hold.
func (h *Held) Over(user string, q Quantity, most int64) string {
	return fmt.Sprintf("user %s holds %s of at most %s", user, h.text(q), AmountText(q, most))
}

// AmountText says for people how much of a quantity a limit allows: "4 gpus", "64GiB memory".
func AmountText(q Quantity, most int64) string {
	if q == LimitMemory {
		return job.Size(most).String() + " memory"
	}
	return strconv.FormatInt(most, 10) + " " + string(q)
}
