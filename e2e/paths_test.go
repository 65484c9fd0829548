//go:build e2e

package e2e

// A local user of a daemon of root, who names files that only root reaches.

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/musterhq/muster/api"
)

// TestPathsOfUsersGiveNoRootAccess repeats attacks that once made a local user root: it makes a daemon of root write a
// sysctl, and enter closed directories and the mounts of another process. The daemon has a network namespace of its
// own, whose sysctls affect nothing else.
func TestPathsOfUsersGiveNoRootAccess(t *testing.T) {
	asRoot(t)
	within := []string{"unshare", "--net", "--mount", "--propagation", "private", "sh", "-c", `ip link set lo up && mount -t sysfs none /sys && exec "$@"`, "sh"}
	if out, err := exec.Command("unshare", append(within[1:len(within):len(within)], "true")...).CombinedOutput(); err != nil {
		t.Skipf("needs a network namespace: %v: %s", err, out)
	}
	d := newDaemonAt(t, within, "127.0.0.1", "amy", "--gpus", "none", "--cpus", "4").start()
	d.user = ordinary

	dir, err := os.MkdirTemp("", "muster-e2e-") //nolint:usetesting // another user must be able to enter it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	mine, closed := filepath.Join(dir, "mine"), filepath.Join(dir, "closed")
	inner := filepath.Join(closed, "inner") // open to all except for the directory above
	secret := filepath.Join(inner, "secret")
	err = errors.Join(os.Chmod(dir, 0o755), os.Mkdir(mine, 0o755), os.Chown(mine, nobody, nobody), //nolint:gosec // open on purpose
		os.MkdirAll(inner, 0o755), os.WriteFile(secret, []byte("of root\n"), 0o666), os.Chmod(secret, 0o666)) //nolint:gosec // as above
	if err != nil {
		t.Fatal(err)
	}
	process := exec.Command("sleep", "1000") // of root, in the closed directory
	process.Dir = inner
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { process.Process.Kill(); process.Wait() })
	if err := os.Chmod(closed, 0o700); err != nil { //nolint:gosec // a directory
		t.Fatal(err)
	}
	proc := fmt.Sprintf("/proc/%d", process.Process.Pid)

	const sysctl = "/proc/sys/net/ipv4/ip_default_ttl"
	before := d.ok("run", "--", "cat", sysctl)
	link := filepath.Join(mine, "link")
	if err := os.Symlink(sysctl, link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{sysctl, link} {
		for _, flag := range []string{"-o", "-e"} {
			d.fails(126, []string{"output file " + path}, "run", flag, path, "--", "sh", "-c", "echo 99; echo 99 >&2")
		}
	}
	if after := d.ok("run", "--", "cat", sysctl); after != before {
		t.Errorf("%s: got %s, want %s", sysctl, after, before)
	}

	for _, path := range []string{proc + "/cwd", proc + "/root" + inner, inner} {
		d.fails(126, []string{"workdir " + path}, "run", "-D", path, "--", "cat", "secret")
		d.fails(126, []string{"output file " + path}, "run", "-o", path+"/secret", "--", "echo", "of the user")
		d.fails(126, []string{"output file " + path}, "run", "-o", path+"/made", "--", "echo", "of the user")
		if r := d.muster("run", "--", path+"/secret"); r.code != 126 {
			t.Errorf("run %s/secret: exit %d, want 126: %s", path, r.code, r.stderr)
		}
	}
	if text, err := os.ReadFile(secret); err != nil || string(text) != "of root\n" {
		t.Errorf("the file of root: got %q, %v, want it unchanged", text, err)
	}
	if _, err := os.Lstat(filepath.Join(inner, "made")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the user has made a file in the closed directory: got %v, want os.ErrNotExist", err)
	}

	// A task's directory that its user replaces afterwards.
	work := filepath.Join(mine, "work")
	if err := errors.Join(os.Mkdir(work, 0o755), os.Chown(work, nobody, nobody)); err != nil {
		t.Fatal(err)
	}
	over := filepath.Join(mine, "over")
	id := d.ok("submit", "-D", work, "--", "sh", "-c", "while [ ! -e "+over+" ]; do sleep 0.05; done")
	d.until(id, "RUNNING", func(j api.Job) bool { return j.State == "RUNNING" })
	if err := errors.Join(os.Rename(work, work+"-away"), os.Symlink(proc+"/cwd", work)); err != nil {
		t.Fatal(err)
	}
	got := filepath.Join(mine, "got")
	if r := d.muster("cp", id+":secret", got); r.code == 0 {
		t.Errorf("cp: got %s, want a failure", r.stdout)
	}
	if text, err := os.ReadFile(got); err == nil {
		t.Errorf("cp brought %q, want an error", text)
	}
	if r := d.muster("exec", id, "--", "cat", "secret"); r.code == 0 || strings.Contains(r.stdout, "of root") {
		t.Errorf("exec: exit %d, %s, want a failure", r.code, r.stdout)
	}
	if err := os.WriteFile(over, nil, 0o644); err != nil { //nolint:gosec // the task sees it
		t.Fatal(err)
	}
	d.untilState(id, "SUCCEEDED")

	// Files of the user, and those open to all, are accessible as before.
	d.ok("run", "-o", filepath.Join(mine, "log"), "-e", "/dev/null", "-D", mine, "--", "sh", "-c", "echo own; echo none >&2")
	if text, err := os.ReadFile(filepath.Join(mine, "log")); err != nil || string(text) != "own\n" {
		t.Errorf("the user's own file: got %q, %v, want own", text, err)
	}
	if out := d.ok("run", "-D", "/dev/shm", "--", "pwd"); out != "/dev/shm" {
		t.Errorf("pwd in /dev/shm: got %s, want %q", out, "/dev/shm")
	}
}
