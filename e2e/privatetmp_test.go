//go:build e2e

package e2e

// The private /tmp and /dev/shm of each task.

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// outsideTmp returns a daemon whose data directory is not in /tmp.
func outsideTmp(t *testing.T) *daemon {
	t.Helper()
	asRoot(t)
	dir, err := os.MkdirTemp("/var/tmp", "muster-e2e-") //nolint:usetesting // that one is in /tmp
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	d := newDaemon(t, "amy", "--gpus", "none")
	for i, word := range d.args {
		d.args[i] = strings.ReplaceAll(word, d.dir, dir)
	}
	_ = os.RemoveAll(d.dir) // it is empty
	d.socket, d.dir = filepath.Join(dir, "s"), dir
	d.start()
	id := d.ok("submit", "--", "true")
	d.untilState(id, "SUCCEEDED")
	if held := d.show(id).Tasks[0].Isolation; !strings.Contains(held, "PID namespace") {
		t.Skipf("tasks have no mounts of their own on this host: %s", held)
	}
	return d
}

// TestLeftoverFileBlocksNobody has two users use the same names, one after the other, and looks for files that stay.
func TestLeftoverFileBlocksNobody(t *testing.T) {
	d := outsideTmp(t)
	name := fmt.Sprintf("muster-left-%d", os.Getpid())
	t.Cleanup(func() { _, _ = os.Remove("/tmp/"+name), os.Remove("/dev/shm/"+name) })
	script := fmt.Sprintf("umask 077; for d in /tmp /dev/shm; do [ ! -e $d/%s ] && echo mine >$d/%[1]s && cat $d/%[1]s; done", name)
	for _, uid := range []uint32{nobody, 1, nobody} {
		d.user = &syscall.Credential{Uid: uid, Gid: uid}
		if out := d.ok("run", "--", "sh", "-c", script); out != "mine\nmine" {
			t.Errorf("user %d: got %q, want mine twice", uid, out)
		}
	}
	d.user = nil
	for _, path := range []string{"/tmp/" + name, "/dev/shm/" + name} {
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s on the host: got %v, want that it does not exist", path, err)
		}
	}
	if out := d.ok("doctor"); !strings.Contains(out, "each task has a /tmp and a /dev/shm of its own") || !strings.Contains(out, "private /tmp") {
		t.Errorf("doctor: want a private /tmp, got\n%s", out)
	}

	// Daemon and runner are killed together.
	id := d.ok("submit", "--", "sh", "-c", script+"; exec sleep 7661")
	d.untilState(id, "RUNNING")
	if out := d.ok("exec", id, "--", "cat", "/tmp/"+name, "/dev/shm/"+name); out != "mine\nmine" {
		t.Errorf("exec: got %q, want mine twice", out)
	}
	left := func() bool {
		all, err := filepath.Glob(filepath.Join(d.dir, "data", "run", "runner-*.tmp", "*", name))
		return err != nil || len(all) > 0
	}
	if !left() {
		t.Error("the file is not at the expected path")
	}
	runners := d.runners()
	d.kill()
	for _, pid := range runners {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	d.start()
	eventually(t, "what the task left to go", func() bool { return !left() })

	// The setting switches it off, for runners that start later.
	d.ok("run", "--", "true") // then there is a runner, and it is the one that ends
	runners = d.runners()
	d.kill()
	for _, pid := range runners {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	d.start("--private-tmp=false")
	if out := d.ok("run", "--", "sh", "-c", script); out != "mine\nmine" {
		t.Errorf("with the setting off: got %q, want mine twice", out)
	}
	for _, path := range []string{"/tmp/" + name, "/dev/shm/" + name} {
		if _, err := os.Lstat(path); err != nil {
			t.Errorf("with the setting off: got %v, want the file on the host", err)
		}
	}
	if out := d.ok("doctor"); !strings.Contains(out, "by the setting private-tmp") || strings.Contains(out, "private /tmp") {
		t.Errorf("doctor: want the setting, got\n%s", out)
	}
}

// TestDirectoryOfAJobInTmpIsVisible submits from a directory in /tmp, as people often do.
func TestDirectoryOfAJobInTmpIsVisible(t *testing.T) {
	d := outsideTmp(t)
	dir, err := os.MkdirTemp("/tmp", "muster-e2e-") //nolint:usetesting // that one may be elsewhere
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	write(t, filepath.Join(dir, "data"), "from the host\n")
	write(t, filepath.Join(dir, "job.sh"), "#!/bin/sh\n#SBATCH --output=out\ncat data\necho result >result\nls /tmp\n")
	d.verbDir = dir
	id := d.ok("submit", "job.sh")
	d.untilState(id, "SUCCEEDED")
	for name, want := range map[string]string{"out": "from the host\n" + filepath.Base(dir) + "\n", "result": "result\n"} {
		if b, err := os.ReadFile(filepath.Join(dir, name)); string(b) != want {
			t.Errorf("%s: got %q, want %q, %v", name, b, want, err)
		}
	}
	if out := d.ok("run", "-D", dir, "--", "sh", "-c", "pwd && cat data"); out != dir+"\nfrom the host" {
		t.Errorf("in the directory: got %q, want its path and its file", out)
	}
	if out := d.ok("run", "--", "cat", filepath.Join(dir, "data")); out != "from the host" {
		t.Errorf("the path of the file: got %q, want %q", out, "from the host")
	}
	if out := d.ok("run", "-D", "/tmp", "--", "ls", "-d", filepath.Base(dir)); out != filepath.Base(dir) {
		t.Errorf("in /tmp: got %q, want the directory", out)
	}
	d.ok("run", "-D", dir, "--download", "result", "--", "true")
	if _, err := os.Stat(filepath.Join(dir, "data")); err != nil {
		t.Error(err)
	}
}
