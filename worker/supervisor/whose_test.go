package supervisor

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/musterhq/muster/worker/driver"
)

// A process of a task still belongs to it when it leaves its parents and its session. Without control groups nothing is
// known.
func TestProcessBelongsToItsTask(t *testing.T) {
	eachMode(t, func(t *testing.T, mode string) {
		r := newRig(t, mode, testDir(t), "1")
		k := r.shell(0, "(setsid sleep 601 &)\nexec sleep 600")
		r.start(k)
		groups := strings.HasPrefix(r.expect(driver.Started).Isolation, "cgroup")
		var fork int
		await(t, "the fork", func() (ok bool) {
			for _, pid := range marked(k.Attempt) {
				if words, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); string(words) == "sleep\x00601\x00" {
					fork = pid
				}
			}
			return fork != 0
		})
		self := os.Getpid()
		got := r.d.Whose(t.Context(), []int{fork, self, 1 << 30})
		task, known := got[fork]
		other, knownOther := got[self]
		if known != groups || task != groups || knownOther != groups || other || len(got) > 2 {
			t.Errorf("groups: %t; whose: %v, of a task %d, of others %d, want both known exactly with groups", groups, got, fork, self)
		}
		if err := r.d.Stop(k.Attempt, 0, "over"); err != nil {
			t.Fatal(err)
		}
		r.expect(driver.Exited)
		if got := r.d.Whose(t.Context(), nil); got != nil {
			t.Errorf("of no process: %v, want nothing", got)
		}
	})
}
