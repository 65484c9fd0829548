//go:build e2e

package e2e

// Hosts with a full disk.

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/internal/testkit/needtest"
)

func mountSmall(t *testing.T, dir, size string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("no small file system can be mounted here: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
}

// smallDisks are the file systems that the tests below fill. Each runs out of space in its own way.
var smallDisks = []string{"tmpfs", "ext4", "xfs", "btrfs"}

// mountDisk mounts a file system of 400 MiB of a kind. It skips the test if this host cannot make one.
func mountDisk(t *testing.T, kind, dir string) {
	t.Helper()
	needtest.Root(t, "mounts a small file system")
	if kind == "tmpfs" {
		mountSmall(t, dir, "400m,nr_inodes=4000")
		return
	}
	image := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, 400<<20); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mkfs."+kind, "-q", image).CombinedOutput(); err != nil {
		t.Skipf("no %s can be made here: %v: %s", kind, err, out)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mount", "-o", "loop", image, dir).CombinedOutput(); err != nil {
		t.Skipf("no %s can be mounted here: %v: %s", kind, err, out)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
}

// fillDisk fills the file system and returns the file that fills it.
func fillDisk(t *testing.T, dir string) string {
	t.Helper()
	path := filepath.Join(dir, "fill")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	block := make([]byte, 1<<16)
	for {
		if _, err := f.Write(block); errors.Is(err, syscall.ENOSPC) {
			return path
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// fillAll uses up the space of the file system to the last byte, and then the files that it may have. It returns the
// directory with all of them.
func fillAll(t *testing.T, dir string) string {
	t.Helper()
	in := filepath.Join(dir, "filled")
	if err := os.Mkdir(in, 0o700); err != nil {
		t.Fatal(err)
	}
	fillDisk(t, in)
	f, err := os.Create(filepath.Join(in, "rest"))
	if err == nil {
		for err == nil {
			_, err = f.Write(make([]byte, 512))
		}
		f.Close()
	}
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		t.Fatal(err)
	}
	for i := 0; fs.Files > 0 && (err == nil || i == 0); i++ { // btrfs has no bound on files
		err = os.WriteFile(filepath.Join(in, fmt.Sprint(i)), nil, 0o600)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	return in
}

// TestFullDiskKeepsEnds uses up the disk of the data directory while tasks run. Their ends are saved and reported, a
// cancel ends a task, and a daemon that starts then answers, whether its runner lives or not.
func TestFullDiskKeepsEnds(t *testing.T) {
	for _, kind := range smallDisks {
		t.Run(kind, func(t *testing.T) {
			amy := newDaemon(t, "amy", "--gpus", "none", "--cpus", "8")
			mountDisk(t, kind, amy.dir+"/data")
			amy.start()
			g, later := newGate(t), newGate(t)
			ends := amy.ok(append([]string{"submit", "--"}, g.script("echo bye >&2; exit 7")...)...)
			endsLater := amy.ok(append([]string{"submit", "--"}, later.script("exit 5")...)...)
			stays := amy.ok("submit", "--", "sleep", "1000")
			for _, id := range []string{ends, endsLater, stays} {
				amy.untilState(id, "RUNNING")
			}
			filled := fillAll(t, amy.dir+"/data")
			amy.fails(1, []string{"disk"}, "submit", "--", "true")
			amy.ok("cancel", stays)
			amy.untilState(stays, "CANCELLED")
			g.open()
			amy.untilState(ends, "FAILED")
			amy.kill()
			amy.start()
			later.open()
			amy.untilState(endsLater, "FAILED")
			amy.kill()
			amy.killRunner()
			amy.start()
			for id, code := range map[string]int{ends: 7, endsLater: 5} {
				if j := amy.show(id); j.Tasks[0].ExitCode == nil || *j.Tasks[0].ExitCode != code {
					t.Errorf("job %s is %+v, want code %d", id, j, code)
				}
			}
			if err := os.RemoveAll(filled); err != nil {
				t.Fatal(err)
			}
			amy.until(amy.untilAccepted("true"), "SUCCEEDED", func(j api.Job) bool { return j.State == "SUCCEEDED" })
		})
	}
}

// TestFullDiskIsReportedToOthers uses up the disk of a host that has had no offer. Other daemons do not count it as a
// host with free capacity, and show why in one sentence. They count it again after space was freed.
func TestFullDiskIsReportedToOthers(t *testing.T) {
	t.Parallel()
	amy := newDaemon(t, "amy", "--gpus", "none", "--no-worker").start()
	ben := newDaemon(t, "ben", "--gpus", "none", "--cpus", "4")
	mountDisk(t, "tmpfs", ben.dir+"/data")
	ben.start(amy.invite().flags()...)
	amy.untilNodes(2)
	filled := fillDisk(t, ben.dir+"/data")
	for verb, want := range map[string]string{
		"offers": "ben: takes no tasks: the disk of the data directory is nearly full: ",
		"nodes":  "  the disk of the data directory is nearly full: ",
	} {
		untilRight(t, patience, func() string {
			if out := amy.ok(verb); !strings.Contains(out, want) {
				return out
			}
			return ""
		})
	}
	if err := os.Remove(filled); err != nil {
		t.Fatal(err)
	}
	amy.ok("run", "--", "true")
}

// untilAccepted submits a command until the daemon accepts it.
func (d *daemon) untilAccepted(command ...string) (id string) {
	d.t.Helper()
	untilRight(d.t, patience, func() string {
		r := d.muster(append([]string{"submit", "--"}, command...)...)
		id = strings.TrimSpace(r.stdout)
		if r.code != 0 {
			return r.stderr
		}
		return ""
	})
	return id
}

// TestTasksThatFillTheDiskAreEnded has three tasks of one user write as much as they can. They are ended with the
// reason, their files are removed, and the task of another user runs on.
func TestTasksThatFillTheDiskAreEnded(t *testing.T) {
	for _, kind := range smallDisks {
		t.Run(kind, func(t *testing.T) {
			amy := newDaemon(t, "amy", "--gpus", "none", "--cpus", "8")
			mountDisk(t, kind, amy.dir+"/data")
			for _, dir := range []string{amy.dir, amy.dir + "/data"} {
				if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // others use its socket
					t.Fatal(err)
				}
			}
			amy.start()
			g := newGate(t)
			other := amy.ok(append([]string{"submit", "--"}, g.script("exit 0")...)...)
			amy.untilState(other, "RUNNING")
			amy.user = ordinary
			begin := filepath.Join(amy.dir, "begin")
			var ids []string
			for _, deleted := range []string{"", "", `; rm "$MUSTER_SCRATCH/x"`} { // a deleted file that is open takes space, too
				ids = append(ids, amy.ok("submit", "--", "sh", "-c", `trap "" TERM; until [ -e `+begin+` ]; do sleep 0.05; done; exec 9>> "$MUSTER_SCRATCH/x"`+deleted+`; while :; do cat /dev/zero >&9 2>/dev/null; done`))
			}
			for _, id := range ids {
				amy.untilState(id, "RUNNING")
			}
			if err := os.WriteFile(begin, nil, 0o644); err != nil { //nolint:gosec // the tasks look for it
				t.Fatal(err)
			}
			for _, id := range ids {
				j := amy.untilState(id, "FAILED")
				if why := j.Tasks[0].Reason; !strings.Contains(why, "user nobody holds") && !strings.Contains(why, "of user nobody hold") {
					t.Errorf("it ended for %q, want the space that the user holds", why)
				}
			}
			amy.user = nil
			if j := amy.show(other); j.State != "RUNNING" {
				t.Errorf("the task of another user is %s, want RUNNING", j.State)
			}
			g.open()
			amy.untilState(other, "SUCCEEDED")
			amy.until(amy.untilAccepted("true"), "SUCCEEDED", func(j api.Job) bool { return j.State == "SUCCEEDED" })
		})
	}
}

// TestTaskThatUsesUpTheFilesIsEnded has a task make as many files as possible, on a file system with a bound on their
// number.
func TestTaskThatUsesUpTheFilesIsEnded(t *testing.T) {
	amy := newDaemon(t, "amy", "--gpus", "none", "--cpus", "8")
	mountDisk(t, "tmpfs", amy.dir+"/data")
	amy.start()
	id := amy.ok("submit", "--", "sh", "-c", `cd "$MUSTER_SCRATCH"; i=0; while :; do i=$((i+1)); (: > f$i) 2>/dev/null; done`)
	if j := amy.untilState(id, "FAILED"); !strings.Contains(j.Tasks[0].Reason, "no room for more files") {
		t.Errorf("it ended for %q, want the number of files", j.Tasks[0].Reason)
	}
	amy.until(amy.untilAccepted("true"), "SUCCEEDED", func(j api.Job) bool { return j.State == "SUCCEEDED" })
}

// TestScratchOfAUserIsBounded checks the bound on what all tasks of a user hold together.
func TestScratchOfAUserIsBounded(t *testing.T) {
	t.Parallel()
	amy := newDaemon(t, "amy", "--gpus", "none", "--cpus", "8", "--limits", "per_user.scratch=30MiB").start()
	write := func(mb int) string {
		return amy.ok("submit", "--", "sh", "-c", fmt.Sprintf(`head -c %dM /dev/zero > "$MUSTER_SCRATCH/x"; sleep 1000`, mb))
	}
	small := write(12)
	amy.untilState(small, "RUNNING")
	large := write(24)
	if why := amy.untilState(large, "FAILED").Tasks[0].Reason; !strings.Contains(why, "of 30MiB on this host, this one 24MiB of it") {
		t.Errorf("it ended for %q, want 24 of 30 MiB", why)
	}
	if j := amy.show(small); j.State != "RUNNING" {
		t.Errorf("the small task is %s, want RUNNING", j.State)
	}
}
