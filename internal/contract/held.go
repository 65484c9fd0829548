package contract

// What tasks of a user hold, and what one daemon tells another about that.

import (
	"math"
	"strconv"
	"strings"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/job"
)

// Held is what tasks of a user hold.
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

// amount returns how much of a quantity is held, and how many of these make one of the limit's.
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

// Exceeds reports whether more of a quantity is held than a limit says.
func (h *Held) Exceeds(q Quantity, most int64) bool {
	n, unit := h.amount(q)
	return n > most*unit
}

// text says how much of a quantity is held, without its name.
func (h *Held) text(q Quantity) string {
	n, unit := h.amount(q)
	if unit == 1 && strings.HasSuffix(string(q), string(LimitMemory)) {
		return job.Size(n).String()
	}
	return strconv.FormatFloat(float64(n)/float64(unit), 'f', -1, 64)
}

// Plus returns both together.
func (h Held) Plus(x Held) Held {
	return Held{Tasks: h.Tasks + x.Tasks, CPUs: h.CPUs + x.CPUs, Milli: h.Milli + x.Milli, Memory: h.Memory + x.Memory}
}

// Minus returns what is left of it without x. It is negative where x is more.
func (h Held) Minus(x Held) Held {
	return Held{Tasks: h.Tasks - x.Tasks, CPUs: h.CPUs - x.CPUs, Milli: h.Milli - x.Milli, Memory: h.Memory - x.Memory}
}

// Within reports whether none of it is more than x.
func (h Held) Within(x Held) bool {
	return h.Tasks <= x.Tasks && h.CPUs <= x.CPUs && h.Milli <= x.Milli && h.Memory <= x.Memory
}

// Times returns n times as much.
func (h Held) Times(n int) Held {
	return Held{Tasks: n * h.Tasks, CPUs: n * h.CPUs, Milli: n * h.Milli, Memory: job.Size(n) * h.Memory}
}

// Fits returns how often x fits into it.
func (h Held) Fits(x Held) int {
	n := math.MaxInt
	for _, q := range [][2]int{{h.Tasks, x.Tasks}, {h.CPUs, x.CPUs}, {h.Milli, x.Milli}, {int(h.Memory), int(x.Memory)}} {
		if q[1] > 0 {
			n = min(n, max(0, q[0])/q[1])
		}
	}
	return n
}

// Least returns of each quantity the lesser one.
func (h Held) Least(x Held) Held {
	return Held{Tasks: min(h.Tasks, x.Tasks), CPUs: min(h.CPUs, x.CPUs), Milli: min(h.Milli, x.Milli), Memory: min(h.Memory, x.Memory)}
}

// Greatest returns of each quantity the greater one.
func (h Held) Greatest(x Held) Held {
	return Held{Tasks: max(h.Tasks, x.Tasks), CPUs: max(h.CPUs, x.CPUs), Milli: max(h.Milli, x.Milli), Memory: max(h.Memory, x.Memory)}
}

// Where returns h for the quantities that a limit bounds, and x for the others; see UserLimits.InCluster.
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
	Group job.Group `json:"group"` // of the jobs that it is about
	Life  uint64    `json:"life"`  // of the daemon, drawn at its start
	Seq   uint64    `json:"seq"`   // of what it has told in this life
	Held  Held      `json:"held"`  // by tasks that are assigned or offered to hosts
	Has   Held      `json:"has"`   // what it has allotted itself: it may use that without asking
	Wants Held      `json:"wants"` // with what waits
	// Asks says that it is asking all others now, and will then allot itself up to what it wants.
	Asks bool `json:"asks,omitempty"`
	// Priority and Part are the rank of its wish: the highest priority of what waits, and the part of the limit, in millionths, that
	// its tasks hold. While it asks they are those with which it began.
	Priority int `json:"priority"`
	Part     int `json:"part"`
}

// Valid returns an allotment whose amounts are within bounds, and whether the rest of it can be true.
func (a Allotment) Valid() (Allotment, bool) {
	for _, h := range []*Held{&a.Held, &a.Has, &a.Wants} {
		*h = h.Greatest(Held{}).Least(Held{unlimited, unlimited, unlimited, unlimited})
	}
	a.Has = a.Has.Greatest(a.Held)
	a.Wants = a.Wants.Greatest(a.Has)
	ok := a.User != "" && len(a.User) <= job.MaxName && a.Priority >= -1 && a.Priority <= job.MaxPriority && a.Part >= 0
	return a, ok
}

// Before reports whether the wish of this daemon goes before that of another.
func (a *Allotment) Before(b *Allotment) bool {
	switch {
	case a.Priority != b.Priority:
		return a.Priority > b.Priority
	case a.Part != b.Part:
		return a.Part < b.Part
	}
	return a.Group < b.Group
}

// More returns what it wants beyond what it has.
func (a *Allotment) More() Held { return a.Wants.Minus(a.Has).Greatest(Held{}) }
