package supervisor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/worker/output"
	"github.com/musterhq/muster/worker/runner/protocol"
)

// The hostfiles of dead runners are removed, and so are their logs, except the newest few.
func TestFilesOfDeadRunnersAreRemoved(t *testing.T) {
	t.Parallel()
	r := newRig(t, "nogroups", testDir(t), "1")
	dir := protocol.Dir(r.dir)
	const deaths = 6
	for n := 1; n <= deaths; n++ {
		k := r.shell(n, `echo "$MUSTER_HOSTFILE"`)
		k.Hostfile = "10.0.0.1 slots=2\n"
		r.run(k)
		hosts := strings.TrimSpace(r.output(k.Attempt, output.Stdout))
		if _, err := os.Stat(hosts); err != nil {
			t.Fatalf("the hostfile of a living runner was removed: %v", err)
		}
		info, err := dir.ReadInfo(n)
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.Kill(info.PID, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		await(t, "the hostfiles to go", func() bool {
			_, err := os.Stat(filepath.Dir(hosts))
			return errors.Is(err, os.ErrNotExist)
		})
		await(t, "the next runner", func() bool {
			next, err := dir.ReadInfo(n + 1)
			return err == nil && next.PID != 0
		})
	}
	await(t, fmt.Sprintf("the logs of %d runners", protocol.KeptLogs+1), func() bool {
		logs, err := filepath.Glob(filepath.Join(r.dir, "runner-*.log"))
		return err == nil && len(logs) == protocol.KeptLogs+1
	})
}
