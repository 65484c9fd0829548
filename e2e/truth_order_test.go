//go:build e2e

package e2e

// Where the order of events is the same in two runs, placements must be the same.

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/musterhq/muster/sim/load"
	"github.com/musterhq/muster/sim/record"
)

// happening is something that happens in a run, in the order of its time.
type happening struct {
	at    time.Duration
	what  string
	alloc []record.Alloc // of a start
}

// order returns what happens in a run: submissions, the death of the host, and records.
func order(l *load.Load, log record.Log, died time.Duration) []happening {
	all := []happening{{at: died, what: "the host dies"}}
	for _, x := range l.Jobs {
		all = append(all, happening{at: x.Submit, what: "submit " + x.Name})
	}
	for _, r := range log {
		all = append(all, happening{at: r.At, what: string(r.Kind) + " " + l.Jobs[r.Job].Name, alloc: r.Alloc})
	}
	slices.SortStableFunc(all, func(a, b happening) int { return cmp.Compare(a.at, b.at) })
	return all
}

// sameOrder compares two runs up to the first event that is not the same in both. It returns how many starts are before
// it, and those of them that went to different hosts or devices.
func sameOrder(a, b []happening) (starts int, differ []string) {
	for i := range min(len(a), len(b)) {
		if a[i].what != b[i].what {
			break
		}
		if a[i].alloc == nil {
			continue
		}
		starts++
		if x, y := places(a[i].alloc), places(b[i].alloc); x != y {
			differ = append(differ, fmt.Sprintf("%s at %v: on %s, simulated on %s", a[i].what, a[i].at.Round(time.Millisecond), x, y))
		}
	}
	return starts, differ
}

// places are hosts and devices in words, by rank.
func places(alloc []record.Alloc) string {
	text := ""
	for _, a := range alloc {
		text += fmt.Sprintf(" dev%d%v", a.Machine+1, a.Devices)
	}
	return text
}
