package fleet

// Which free resources hosts keep for tasks that wait there, and from which other tasks they keep them.
// See docs/adr, ADR 168.

import (
	"fmt"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
)

// kept is what a host keeps for one waiting task.
type kept struct {
	contract.Kept
	devices []string  // UUIDs of Kept.GPUs
	until   time.Time // zero: not known
}

// Asked is the part of a task that decides whether hosts keep free resources from it.
type Asked struct {
	Job      job.ID // empty: the task has no job yet
	Need     job.Resources
	Priority int
	Limit    time.Duration // the time limit of the task; 0: it has none
}

// from says whether what is kept is kept from the task.
func (k *kept) from(a *Asked, now time.Time) bool {
	switch {
	case k.Job != "" && k.Job == a.Job, a.Priority > k.Priority, k.Below && a.Priority == k.Priority:
		return false
	case k.Starts && a.Limit > 0 && !now.Add(a.Limit).After(k.until):
		return false
	}
	return true
}

// text tells people how much of the missing resource is kept, for which job, and for how long.
func (k *kept) text(lack string, now time.Time) string {
	what, whose := "what is free", "another job"
	switch {
	case lack == "cpus":
		what = counted(k.CPUs, "cpu")
	case lack == "memory":
		what = k.Memory.String() + " of memory"
	case len(k.devices) > 0 && k.Milli < gpu.Whole:
		what = "parts of " + counted(len(k.devices), "gpu")
	case len(k.devices) > 0:
		what = counted(len(k.devices), "gpu")
	}
	if k.Job != "" {
		whose = fmt.Sprintf("job %s of %s", k.Job, k.User)
	}
	text := fmt.Sprintf("keeps %s for %s", what, whose)
	left := max(0, k.until.Sub(now)).Round(time.Second)
	switch {
	case k.until.IsZero():
		text += ", and nothing shows when that starts"
	case k.Starts:
		text += fmt.Sprintf(", which starts there within %s", left)
	default:
		text += fmt.Sprintf(" for %s more", left)
	}
	return text
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
