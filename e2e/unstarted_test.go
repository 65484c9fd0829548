//go:build e2e

package e2e

// A host that cannot start tasks: they run elsewhere, and the host takes none for a while.

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/api"
)

// limitRunners allows the runners of the daemon no more descriptors than they have open.
func (d *daemon) limitRunners() {
	d.t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		d.t.Fatal(err)
	}
	found := 0
	for _, dir := range all {
		args, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		pid, err2 := strconv.Atoi(filepath.Base(dir))
		if err != nil || err2 != nil || pid == d.cmd.Process.Pid || !strings.Contains(string(args), filepath.Join(d.dir, "data")) {
			continue
		}
		open, err := os.ReadDir(filepath.Join(dir, "fd"))
		if err != nil {
			d.t.Fatal(err)
		}
		limit := unix.Rlimit{Cur: uint64(len(open)), Max: 4096}
		if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &limit, nil); err != nil {
			d.t.Fatal(err)
		}
		found++
	}
	if found == 0 {
		d.t.Fatal("the daemon has no runner")
	}
}

func TestTasksOfAHostWithoutDescriptorsRunElsewhere(t *testing.T) {
	t.Parallel()
	amy, ben, _ := three(t)
	amy.limitRunners()
	var ids []string
	for range 3 { // one job alone pauses no host
		ids = append(ids, ben.ok("submit", "--array", "0-99", "--no-requeue", "--", "true"))
	}
	for _, id := range ids {
		ben.ok("wait", id)
	}
	ben.untilNode("amy", "paused", func(n api.Node) bool { return strings.Contains(n.Detail, "it could not start") })
	if text := amy.log(); !strings.Contains(text, "too many open files") {
		t.Errorf("log of the host: want too many open files, got\n%s", text)
	}
}
