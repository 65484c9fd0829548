//go:build e2e

package e2e

// A job that starts in the same situation in two runs must be placed in the same way.

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/internal/sim/load"
	"github.com/musterhq/muster/internal/sim/record"
)

// quiet is for how long nothing else may have happened before the event that a start follows. After that time all
// daemons know what has happened.
const quiet = 50 * time.Millisecond

// happening is an event of a run, in the order of time.
type happening struct {
	at    time.Duration
	job   int
	kind  record.Kind // empty: it is submitted; dies: a host dies
	alloc []record.Alloc
}

const dies record.Kind = "dies"

// waits is the state of a waiting job.
const waits = "waits"

// start is how a job was placed, and in which situation.
type start struct {
	situation string
	places    string
	alone     bool // no other job waited
}

// starts returns the first start of each job, by its index, if the situation was clear: one event led to it, before
// that it was quiet, and no other job started at the same time. A situation is what has been submitted, where
// everything runs, and what waits.
func starts(l *load.Load, log record.Log, died time.Duration) map[int]start {
	all := []happening{{at: died, kind: dies}}
	for i := range l.Jobs {
		all = append(all, happening{at: l.Jobs[i].Submit, job: i})
	}
	for _, r := range log {
		all = append(all, happening{r.At, r.Job, r.Kind, r.Alloc})
	}
	slices.SortStableFunc(all, func(a, b happening) int { return cmp.Compare(a.at, b.at) })
	found := map[int]start{}
	begun := map[int]bool{}
	state := make([]string, len(l.Jobs)+1) // of each job, and of the host
	cause, before := -time.Hour, -2*time.Hour
	first, last := -1, -time.Hour // the newest start if it is in found, and its time or that of the newest other one
	for _, h := range all {
		if h.kind == record.Start {
			alone := h.at-last > quiet
			if !alone {
				delete(found, first)
			}
			first, last = -1, h.at
			if alone && !begun[h.job] && cause-before > quiet {
				first, found[h.job] = h.job, start{strings.Join(state, "\n"), places(h.alloc), !others(state, h.job)}
			}
			begun[h.job] = true
			state[h.job] = places(h.alloc)
			continue
		}
		before, cause = cause, h.at
		switch h.kind {
		case "", record.Preempt, record.Lost:
			state[h.job] = waits
		case dies:
			state[len(l.Jobs)] = string(dies)
		case record.Start, record.Finish, record.Reject:
			state[h.job] = string(h.kind)
		}
	}
	return found
}

// others reports whether another job waits.
func others(state []string, job int) bool {
	for i, s := range state {
		if s == waits && i != job {
			return true
		}
	}
	return false
}

// comparison counts the jobs that started in the same situation in two runs.
type comparison struct {
	alone, among             int          // while no other job waited, and while some did
	aloneDiffer, amongDiffer []string     // those of them that were placed in another way
	jobs, jobsDiffer         map[int]bool // the jobs of those that started alone
}

func (c *comparison) add(l *load.Load, real, simulated map[int]start) {
	for i := range l.Jobs {
		x, y := real[i], simulated[i]
		if x.situation == "" || x.situation != y.situation {
			continue
		}
		n, differ := &c.among, &c.amongDiffer
		if x.alone {
			n, differ = &c.alone, &c.aloneDiffer
		}
		*n++
		if x.alone {
			c.jobs[i] = true
			c.jobsDiffer[i] = c.jobsDiffer[i] || x.places != y.places
		}
		if x.places != y.places {
			*differ = append(*differ, fmt.Sprintf("%s on%s, simulated on%s", l.Jobs[i].Name, x.places, y.places))
		}
	}
}

// places are hosts and devices in words. Which member of a gang is where depends on which host answered first.
func places(alloc []record.Alloc) string {
	var all []string
	for _, a := range alloc {
		all = append(all, fmt.Sprintf(" dev%d%v", a.Machine+1, a.Devices))
	}
	slices.Sort(all)
	return strings.Join(all, "")
}
