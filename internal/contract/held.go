package contract

// The resources that tasks of a user hold, and what one daemon tells another about that.

import (
	"math"
	"strconv"
	"strings"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/job"
)

// Held is the resources that tasks of a user hold.
type Held struct {
	Tasks  int      `json:"tasks,omitempty"`
	CPUs   int      `json:"cpus,omitempty"`
	Milli  int      `json:"milli,omitempty"` // thousandths of GPUs
	Memory job.Size `json:"memory,omitempty"`
}

// Add adds what n tasks with this need hold, or subtracts it if n is negative.
func (h *Held) Add(need job.Resources, n int) {
	h.Tasks += n
	h.CPUs += n * need.CPUs
	h.Milli += n * gpu.Count(need) * gpu.Milli(need)
	h.Memory += job.Size(n) * need.Memory
}

// amount returns how much of a quantity is held, and how many of its units make one unit of a limit.
func (h *Held) amount(q Quantity) (n, unit int64) {
	switch q {
	case LimitTasks, LimitClusterTasks:
		return int64(h.Tasks), 1
	case LimitCPUs, LimitClusterCPUs:
		return int64(h.CPUs), 1
	case LimitGPUs, LimitClusterGPUs:
		return int64(h.Milli), gpu.Whole
	case LimitMemory, LimitClusterMemory:
		return int64(h.Memory), 1
	case LimitPriority, LimitTime, LimitScratch, LimitPendingJobs, LimitPendingBytes: // no amounts that tasks ask for
	}
	return 0, 1
}

// Exceeds reports whether more of a quantity is held than a limit allows.
func (h *Held) Exceeds(q Quantity, most int64) bool {
	n, unit := h.amount(q)
	return n > most*unit
}

// text formats how much of a quantity is held, without the name of the quantity.
func (h *Held) text(q Quantity) string {
	n, unit := h.amount(q)
	if unit == 1 && strings.HasSuffix(string(q), string(LimitMemory)) {
		return job.Size(n).String()
	}
	return strconv.FormatFloat(float64(n)/float64(unit), 'f', -1, 64)
}

// Plus returns h plus x.
func (h Held) Plus(x Held) Held {
	return Held{Tasks: h.Tasks + x.Tasks, CPUs: h.CPUs + x.CPUs, Milli: h.Milli + x.Milli, Memory: h.Memory + x.Memory}
}

// Minus returns h minus x. It is negative for the quantities of which x has more.
func (h Held) Minus(x Held) Held {
	return Held{Tasks: h.Tasks - x.Tasks, CPUs: h.CPUs - x.CPUs, Milli: h.Milli - x.Milli, Memory: h.Memory - x.Memory}
}

// Within reports whether h is at most x in every quantity.
func (h Held) Within(x Held) bool {
	return h.Tasks <= x.Tasks && h.CPUs <= x.CPUs && h.Milli <= x.Milli && h.Memory <= x.Memory
}

// Times returns n times h.
func (h Held) Times(n int) Held {
	return Held{Tasks: n * h.Tasks, CPUs: n * h.CPUs, Milli: n * h.Milli, Memory: job.Size(n) * h.Memory}
}

// Fits returns how often x fits into h.
func (h Held) Fits(x Held) int {
	n := math.MaxInt
	for _, q := range [][2]int{{h.Tasks, x.Tasks}, {h.CPUs, x.CPUs}, {h.Milli, x.Milli}, {int(h.Memory), int(x.Memory)}} {
		if q[1] > 0 {
			n = min(n, max(0, q[0])/q[1])
		}
	}
	return n
}

// Least returns the lesser of h and x for each quantity.
func (h Held) Least(x Held) Held {
	return Held{Tasks: min(h.Tasks, x.Tasks), CPUs: min(h.CPUs, x.CPUs), Milli: min(h.Milli, x.Milli), Memory: min(h.Memory, x.Memory)}
}

// Greatest returns the greater of h and x for each quantity.
func (h Held) Greatest(x Held) Held {
	return Held{Tasks: max(h.Tasks, x.Tasks), CPUs: max(h.CPUs, x.CPUs), Milli: max(h.Milli, x.Milli), Memory: max(h.Memory, x.Memory)}
}

// Where returns the amounts of h for the quantities that the limit most bounds, and the amounts of x for the others; see
// UserLimits.InCluster.
func (h Held) Where(most, x Held) Held {
	if most.Tasks >= unlimited {
		h.Tasks = x.Tasks
	}
	if most.CPUs >= unlimited {
		h.CPUs = x.CPUs
	}
	if most.Milli >= unlimited {
		h.Milli = x.Milli
	}
	if most.Memory >= unlimited {
		h.Memory = x.Memory
	}
	return h
}

// Allotment is what one daemon tells another about a user whose tasks are limited in the cluster. See docs/adr, ADR 174.
type Allotment struct {
	User  string    `json:"user"`
	Group job.Group `json:"group"` // the group of the jobs that the allotment is about
	Life  uint64    `json:"life"`  // random number that the daemon draws when it starts
	Seq   uint64    `json:"seq"`   // counts the daemon's messages in this life
	Held  Held      `json:"held"`  // held by tasks that are assigned or offered to hosts
	Has   Held      `json:"has"`   // what the daemon has allotted itself, and may use without asking
	Wants Held      `json:"wants"` // what the daemon would use if its waiting tasks could start
	// Asks says that the daemon is asking all others now, and will then allot itself up to Wants.
	Asks bool `json:"asks,omitempty"`
	// Priority and Part are the rank of the daemon's wish: the highest priority of the waiting tasks, and the part of the
	// limit, in millionths, that its tasks hold. While the daemon asks, they keep the values with which it began to ask.
	Priority int `json:"priority"`
	Part     int `json:"part"`
}

// Valid returns the allotment with its amounts brought within bounds, and reports whether its other fields are valid.
func (a Allotment) Valid() (Allotment, bool) {
	for _, h := range []*Held{&a.Held, &a.Has, &a.Wants} {
		*h = h.Greatest(Held{}).Least(Held{unlimited, unlimited, unlimited, unlimited})
	}
	a.Has = a.Has.Greatest(a.Held)
	a.Wants = a.Wants.Greatest(a.Has)
	ok := a.User != "" && len(a.User) <= job.MaxName && a.Priority >= -1 && a.Priority <= job.MaxPriority && a.Part >= 0
	return a, ok
}

// Before reports whether the wish in a goes before the wish in b.
func (a *Allotment) Before(b *Allotment) bool {
	switch {
	case a.Priority != b.Priority:
		return a.Priority > b.Priority
	case a.Part != b.Part:
		return a.Part < b.Part
	}
	return a.Group < b.Group
}

// More returns what the daemon wants beyond what it has.
func (a *Allotment) More() Held { return a.Wants.Minus(a.Has).Greatest(Held{}) }
