//go:build e2e

package e2e

// A file system that hangs blocks only the tasks that use it.

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/api"
)

// hungDir returns a directory in which every access hangs: a FUSE file system without a server.
func hungDir(t *testing.T) string {
	t.Helper()
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skipf("needs /dev/fuse: %v", err)
	}
	dir := t.TempDir()
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", fd)
	if err := unix.Mount("hung", dir, "fuse", 0, options); err != nil {
		_ = unix.Close(fd)
		t.Skipf("needs the right to mount: %v", err)
	}
	t.Cleanup(func() {
		_ = unix.Close(fd) // everything that waits fails
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func TestHungDirectoryBlocksOnlyItsOwnTasks(t *testing.T) {
	t.Parallel()
	dir := hungDir(t)
	amy := newDaemon(t, "amy", "--gpus", "none", "--cpus", "16").start()
	var hung []string
	for _, args := range [][]string{{"-D", dir, "--", "true"}, {"-o", dir + "/out", "--", "true"}, {"--", dir + "/program"}} {
		for range 2 { // more tasks than can start at once
			hung = append(hung, amy.ok(append([]string{"submit"}, args...)...))
		}
	}
	amy.untilState(amy.ok("submit", "--", "true"), "SUCCEEDED")
	amy.until(hung[0], "STARTING with a reason", func(j api.Job) bool {
		return j.State == "STARTING" && strings.Contains(amy.ok("show", string(j.ID)), "waits for workdir "+dir+", which does not answer")
	})
	for _, id := range hung {
		amy.ok("cancel", id)
		amy.untilState(id, "CANCELLED")
	}
	amy.untilState(amy.ok("submit", "--", "true"), "SUCCEEDED")
}
