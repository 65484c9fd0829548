//go:build e2e

package e2e

// Large arrays of which single tasks are changed.

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/job"
)

const (
	touchedArrays = 4
	touchedEach   = 256   // one of so many tasks is cancelled
	mostTouched   = 150e6 // bytes of memory; when each changed task had 255 cells beside it, it was 1,250 MB
)

// A user cancels single tasks of arrays of a million. The daemon's memory hardly grows, nor does it after a restart,
// and another user's job runs in that time.
func TestArraysWithCancelledTasksCostLittle(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs several users")
	}
	cat := newDaemon(t, "cat", "--gpus", "none", "--cpus", "2").start()
	cat.submitAs(nobody, "--", "true") // prepares the program for other users
	idle := memory(t, cat, "VmRSS")
	cat.user = ordinary
	var ids []string
	for range touchedArrays {
		ids = append(ids, cat.ok("submit", "--hold", "-a", fmt.Sprintf("0-%d", job.MaxTasks-1), "--", "true"))
	}
	touched, slowest := 0, time.Duration(0)
	for _, id := range ids {
		for from := 0; from < job.MaxTasks; from += touchedEach * job.MaxRanges {
			var list []string
			for i := from; i < min(job.MaxTasks, from+touchedEach*job.MaxRanges); i += touchedEach {
				list = append(list, fmt.Sprint(i))
			}
			cat.ok("cancel", id+"."+strings.Join(list, ","))
			touched += len(list)
		}
		began := time.Now()
		cat.submitAs(nobody, "--", "true")
		slowest = max(slowest, time.Since(began))
	}
	grown := memory(t, cat, "VmRSS") - idle
	if grown > mostTouched {
		t.Fatalf("%d cancelled tasks of %d arrays take %.0f MB of memory, want at most %.0f", touched, touchedArrays, grown/1e6, mostTouched/1e6)
	}
	cat.kill()
	began := time.Now()
	cat.start()
	took := time.Since(began)
	again := memory(t, cat, "VmRSS") - idle
	t.Logf("%d tasks of %d arrays took %.0f MB, after a restart of %s %.0f MB; another user's job took at most %s", touched, touchedArrays, grown/1e6,
		took.Round(time.Millisecond), again/1e6, slowest.Round(time.Millisecond))
	if again > mostTouched {
		t.Errorf("%d cancelled tasks take %.0f MB of memory after a restart, want at most %.0f", touched, again/1e6, mostTouched/1e6)
	}
	j := cat.doc(ids[0])
	if want := (job.MaxTasks + touchedEach - 1) / touchedEach; j.Counts["CANCELLED"] != want || j.Counts["HELD"] != job.MaxTasks-want {
		t.Errorf("the first array: got %v, want %d cancelled and the rest held", j.Counts, want)
	}
	cat.ok("cancel", "all")
}
