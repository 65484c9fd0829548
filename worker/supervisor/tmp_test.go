package supervisor

// The /tmp and the /dev/shm of tasks.

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/testkit/exetest"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/driver"
	"github.com/musterhq/muster/worker/output"
	"github.com/musterhq/muster/worker/runner/protocol"
)

// dirElsewhere returns a directory that all users may enter, and that is not in /tmp, unlike testDir.
func dirElsewhere(t testing.TB) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root gives tasks a /tmp of their own")
	}
	dir, err := os.MkdirTemp("/var/tmp", "muster-test-") //nolint:usetesting // that one is in /tmp
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		endRunners(t, dir)
		await(t, "the files of the test to go", func() bool { return os.RemoveAll(dir) == nil })
	})
	if err := os.Chmod(dir, 0o711); err != nil { //nolint:gosec // tasks of other users run there
		t.Fatal(err)
	}
	return dir
}

// privateRig returns a rig whose tasks have a private /tmp.
func privateRig(t *testing.T, mode string) *rig {
	t.Helper()
	r := newRig(t, mode, dirElsewhere(t), "1")
	if info, err := protocol.Dir(r.dir).ReadInfo(1); err != nil || !info.PIDNamespace {
		t.Skipf("no mounts of their own for tasks on this host: %+v, %v", info, err)
	} else if info.SharedTmp != "" || !strings.Contains(info.Isolation, ", private /tmp") {
		t.Fatalf(`tasks share the /tmp of the host: %+v, want SharedTmp none and Isolation ", private /tmp" in it`, info)
	}
	return r
}

// say runs a script as a user, and returns its output.
func (r *rig) say(k driver.Task) string {
	r.t.Helper()
	if e := r.run(k); e.State != job.Succeeded {
		r.t.Errorf("%+v: %s, want State %v", e, r.output(k.Attempt, output.Stderr), job.Succeeded)
	}
	return strings.TrimSpace(r.output(k.Attempt, output.Stdout))
}

// by returns a task of a user.
func by(user string, k driver.Task) driver.Task {
	k.User = user
	return k
}

// onHost returns a new directory or file of the host. It belongs to a user and is removed with the test.
func onHost(t *testing.T, place string, uid int) string {
	t.Helper()
	dir, err := os.MkdirTemp(place, "muster-test-") //nolint:usetesting // it must be there
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chown(dir, uid, uid); err != nil {
		t.Fatal(err)
	}
	return dir
}

// tmps lists the contents of the directories of a runner's tasks, except for empty ones.
func (r *rig) tmps(n int) string {
	all, err := filepath.Glob(protocol.Tmps(r.d.dir, n) + "/*/*")
	if err != nil {
		r.t.Fatal(err)
	}
	return strings.Join(all, " ")
}

// What a task leaves in /tmp and /dev/shm affects no other task, and is removed with the task.
func TestTasksHaveAPrivateTmp(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"groups", "nogroups"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			r := privateRig(t, mode)
			name := fmt.Sprintf("muster-x-%d-%s", os.Getpid(), mode)
			leave := fmt.Sprintf(`umask 077; for d in /tmp /dev/shm; do echo mine >$d/%s && cat $d/%[1]s; done; stat -c '%%a %%u' /tmp /dev/shm`, name)
			want := "mine\nmine\n1777 0\n1777 0"
			for i, user := range []string{"nobody", "daemon", "root", "nobody"} {
				if out := r.say(by(user, r.shell(i, leave))); out != want {
					t.Errorf("%s: %q, want %v", user, out, want)
				}
			}
			for _, place := range []string{"/tmp/", "/dev/shm/"} {
				if _, err := os.Lstat(place + name); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("%s on the host: %v, want os.ErrNotExist", place, err)
				}
			}
			await(t, "what the tasks left to go", func() bool { return r.tmps(1) == "" })

			// An empty one serves the next task of its user.
			before := r.say(by("nobody", r.shell(10, "stat -c %i /tmp")))
			if after := r.say(by("nobody", r.shell(11, "stat -c %i /tmp"))); after != before {
				t.Errorf("the /tmp of two tasks, one after the other: %s and %s, want the same", before, after)
			}
			if other := r.say(by("daemon", r.shell(12, "stat -c %i /tmp"))); other == before {
				t.Error("another user got the /tmp of a task")
			}
		})
	}
}

// Only the task can reach its files, even if others know where they are.
func TestTmpIsClosedToOthers(t *testing.T) {
	t.Parallel()
	r := privateRig(t, "groups")
	k := by("nobody", r.shell(0, "echo x >/tmp/mine; mkfifo /tmp/end; echo ready; cat /tmp/end"))
	r.start(k)
	r.expect(driver.Started)
	await(t, "its file", func() bool { return strings.Contains(r.tmps(1), "/mine") })
	path, _, _ := strings.Cut(r.tmps(1), " ")
	if out := r.say1(by("nobody", r.shell(1, fmt.Sprintf("ls %s 2>&1; ls /tmp; true", path)))); !strings.Contains(out, "denied") {
		t.Errorf(`another task of the user: %q, want "denied" in it`, out)
	}
	// A command in the task sees what the task sees, and finds programs there.
	script := `printf '#!/bin/sh\necho found' >/tmp/prog && chmod +x /tmp/prog && cat /tmp/mine && df --output=target /tmp /dev/shm | tail -2`
	if out := r.exec(k, "sh", "-c", script); out != "x\n/tmp\n/dev/shm\n" {
		t.Errorf(`exec: %q, want "x\n/tmp\n/dev/shm\n"`, out)
	}
	if out := r.exec(k, "/tmp/prog"); out != "found\n" {
		t.Errorf(`exec of a program that is in the /tmp of the task only: %q, want "found\n"`, out)
	}
	r.exec(k, "sh", "-c", "echo >/tmp/end")
	r.expect(driver.Exited)
	await(t, "what the task left to go", func() bool { return r.tmps(1) == "" })
}

// say1 is say while another task runs.
func (r *rig) say1(k driver.Task) string {
	r.t.Helper()
	r.start(k)
	for {
		if e := r.next(); e.Attempt == k.Attempt && e.Kind == driver.Exited {
			return r.output(k.Attempt, output.Stdout)
		}
	}
}

// exec runs a command in a task and returns its output.
func (r *rig) exec(k driver.Task, command ...string) string {
	r.t.Helper()
	s, err := r.d.Exec(r.t.Context(), k.Attempt, protocol.Command{Command: command}, os.Geteuid())
	if err != nil {
		r.t.Error(err)
		return ""
	}
	defer s.Close()
	out, err := io.ReadAll(s.Stdout)
	if err != nil {
		r.t.Error(err)
	}
	if code, err := s.Wait(); code != 0 || err != nil {
		r.t.Errorf("%q: exit code %d, %v, want 0 and no error", command, code, err)
	}
	return string(out)
}

// Files below /tmp that a job names can still be reached: its working directory, its program, and what its environment
// names.
func TestNamedFilesOfTheHostsTmpStayVisible(t *testing.T) {
	t.Parallel()
	r := privateRig(t, "groups")
	mine, theirs := onHost(t, "/tmp", nobody), onHost(t, "/tmp", 1)
	socket := filepath.Join(mine, "socket")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := os.MkdirAll(filepath.Join(mine, "run", "deep"), 0o755); err != nil { //nolint:gosec // a user enters it
		t.Fatal(err)
	}
	if err := os.Chmod(theirs, 0o755); err != nil { //nolint:gosec // as above
		t.Fatal(err)
	}
	for path, text := range map[string]string{
		mine + "/data": "data", theirs + "/data": "theirs",
		mine + "/run/deep/prog": "#!" + mine + "/run/sh\ncat ../../data; ls -d " + theirs + " 2>&1",
		theirs + "/prog":        "#!/bin/sh\necho theirs",
	} {
		if err := exetest.Write(path, []byte(text), 0o755); err != nil { //nolint:gosec // a user executes it
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/bin/sh", mine+"/run/sh"); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{mine + "/run", mine + "/run/deep", mine + "/data"} {
		if err := os.Chown(path, nobody, nobody); err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(r.dir, "link")
	if err := os.Symlink(mine+"/run/deep", link); err != nil {
		t.Fatal(err)
	}
	n := 0
	task := func(command ...string) driver.Task {
		n++
		return by("nobody", r.task(n, command...))
	}

	in := task("sh", "-c", "pwd; cat ../../data; echo x >written; ls -d "+theirs+"; ls "+filepath.Dir(mine)+" | wc -l")
	in.Spec.Workdir = mine + "/run/deep"
	r.run(in)
	if out := r.output(in.Attempt, output.Stdout); out != mine+"/run/deep\ndata1\n" {
		t.Errorf("in a working directory below /tmp: %q, %s, want %v", out, r.output(in.Attempt, output.Stderr), mine+"/run/deep\ndata1\n")
	}
	if b, err := os.ReadFile(mine + "/run/deep/written"); string(b) != "x\n" {
		t.Errorf(`what the task wrote in its working directory: %q, %v, want "x\n"`, b, err)
	}
	in = task("./prog")
	in.Spec.Workdir = link
	r.run(in)
	if out := r.output(in.Attempt, output.Stdout); !strings.HasPrefix(out, "data") || !strings.Contains(out, "No such file") {
		t.Errorf(`a program in a directory behind a link: %q, %s, want prefix "data" and "No such file" in it`, out, r.output(in.Attempt, output.Stderr))
	}
	if out := r.say(task(theirs + "/prog")); out != "theirs" {
		t.Errorf(`a program below /tmp: %q, want "theirs"`, out)
	}
	if out := r.say(task("cat", mine+"/data")); out != "data" {
		t.Errorf(`an argument below /tmp: %q, want "data"`, out)
	}
	named := task("sh", "-c", `[ -S "$SOCK" ] && [ -e "$SOCK" ] && ls /tmp | wc -l && ls "$THEIRS" 2>&1; true`)
	named.Env = append(named.Env, "SOCK="+socket, "THEIRS="+theirs)
	if out := r.say(named); !strings.HasPrefix(out, "1\n") || !strings.Contains(out, "No such file") {
		t.Errorf(`a socket that the environment names: %q, want prefix "1\n" and "No such file" in it`, out)
	}

	// A task with /tmp itself as its working directory is in that of the host.
	name := filepath.Base(onHost(t, "/tmp", nobody))
	all := task("sh", "-c", "[ -d "+name+" ] && pwd")
	all.Spec.Workdir = "/tmp"
	if out := r.say(all); out != "/tmp" {
		t.Errorf(`in /tmp: %q, want "/tmp"`, out)
	}
	shm := onHost(t, "/dev/shm", nobody)
	all = task("sh", "-c", "pwd; ls -d "+shm+" /tmp/"+name+" 2>&1; true")
	all.Spec.Workdir = "/dev/shm"
	if out := r.say(all); !strings.HasPrefix(out, "/dev/shm\n") || !strings.Contains(out, shm) || !strings.Contains(out, "No such file") {
		t.Errorf(`in /dev/shm: %q, want prefix "/dev/shm\n", %v in it and "No such file" in it`, out, shm)
	}

	// Output goes to the file that the job names, on the host.
	out := task("echo", "hello")
	out.Spec.Output = filepath.Join(mine, "out")
	r.run(out)
	if b, err := os.ReadFile(mine + "/out"); string(b) != "hello\n" {
		t.Errorf(`output below /tmp: %q, %v, want "hello\n"`, b, err)
	}
	if _, err := os.Stat(mine + "/data"); err != nil {
		t.Errorf("a file that was mounted in tasks was removed: %v", err)
	}
	await(t, "what the tasks left to go", func() bool { return r.tmps(1) == "" })
}

// Files that programs share with a service of the host, according to the GPU driver, can still be reached.
func TestFilesSharedWithTheGPUDriverStayVisible(t *testing.T) {
	t.Parallel()
	r := privateRig(t, "groups")
	pipes, shm := onHost(t, "/tmp", 1), onHost(t, "/dev/shm", nobody)
	r.d.cfg.Limits.Grant = func(uuids []string, _ job.Resources) gpu.Grant {
		if len(uuids) == 0 {
			return gpu.Grant{}
		}
		return gpu.Grant{Shared: []string{pipes, "/dev/shm"}}
	}
	for i, gpus := range [][]string{nil, {"GPU-a"}} {
		k := by("nobody", r.shell(i, "for d in "+pipes+" "+shm+"; do [ -d $d ] && echo yes || echo no; done"))
		k.Devices = gpus
		if out := r.say(k); out != strings.TrimSpace(strings.Repeat(map[bool]string{true: "yes\n", false: "no\n"}[gpus != nil], 2)) {
			t.Errorf("with GPUs %q the files of the service are visible: %q, want that only with GPUs", gpus, out)
		}
	}
}

// What a task holds in /tmp counts like its scratch directory.
func TestTmpCountsForTheScratchQuota(t *testing.T) {
	t.Parallel()
	r := privateRig(t, "groups")
	r.d.cfg.Limits.Scratch = 8 * mib
	e := r.run(by("nobody", r.shell(0, "head -c 67108864 /dev/zero >/tmp/all; exec sleep 1000")))
	if e.State != job.Failed || !strings.HasPrefix(e.Reason, "scratch quota of 8MiB exceeded: ") {
		t.Errorf(`%+v, want State %v and Reason prefix "scratch quota of 8MiB exceeded: "`, e, job.Failed)
	}
	await(t, "what the task left to go", func() bool { return r.tmps(1) == "" })
	k := by("nobody", r.shell(1, "df --output=size -B1 /dev/shm | tail -1"))
	k.Spec.Resources.Memory = 64 * mib
	if out := r.say(k); out != fmt.Sprint(64<<20) {
		t.Errorf("the /dev/shm of a task with 64 MiB: %s bytes, want %v", out, fmt.Sprint(64<<20))
	}
	var host unix.Statfs_t
	if err := unix.Statfs("/dev/shm", &host); err != nil {
		t.Fatal(err)
	}
	if out := r.say(by("nobody", r.shell(2, "df --output=size -B1 /dev/shm | tail -1"))); out != fmt.Sprint(int64(host.Blocks)*host.Bsize) { //nolint:gosec // no memory has 2^63 bytes
		t.Errorf("the /dev/shm of a task without a limit: %s bytes, that of the host %d, want %v", out, int64(host.Blocks)*host.Bsize, fmt.Sprint(int64(host.Blocks)*host.Bsize))
	}
}

// What the tasks of a killed runner have left is removed, by this daemon or the next one.
func TestTmpOfDeadRunnersIsRemoved(t *testing.T) {
	t.Parallel()
	r := privateRig(t, "groups")
	mine := onHost(t, "/tmp", nobody)
	if err := os.WriteFile(mine+"/kept", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	leave := func(n int) {
		k := by("nobody", r.shell(n, "mkdir -p /tmp/a/b && echo x >/tmp/a/b/c && echo y >/dev/shm/y && exec sleep 1000"))
		k.Env = append(k.Env, "MINE="+mine)
		r.start(k)
		r.expect(driver.Started)
		await(t, "its files", func() bool { return strings.Contains(r.tmps(n), "/a") })
	}
	leave(1)
	killRunner(t, r.dir, 1)
	r.expect(driver.Lost)
	gone := func(n int) {
		t.Helper()
		await(t, "the directories to go", func() bool {
			_, err := os.Lstat(protocol.Tmps(r.d.dir, n))
			return errors.Is(err, os.ErrNotExist)
		})
	}
	gone(1)
	await(t, "the next runner", func() bool {
		info, err := protocol.Dir(r.dir).ReadInfo(2)
		return err == nil && info.PID != 0
	})
	leave(2)
	r.stop()
	killRunner(t, r.dir, 2)
	// A daemon that was killed before it had removed everything leaves no lock file.
	if err := os.MkdirAll(protocol.Tmps(r.d.dir, 9)+"/1/x", 0o700); err != nil {
		t.Fatal(err)
	}
	r = newRig(t, "groups", r.dir, "1")
	gone(2)
	gone(9)
	if _, err := os.Stat(mine + "/kept"); err != nil {
		t.Errorf("a file that was mounted in tasks was removed: %v", err)
	}
}

// With the setting off, and if tasks cannot have private mounts, they share the directories of the host, and the runner
// says why.
func TestTasksShareTmpWithoutPrivateMounts(t *testing.T) {
	t.Parallel()
	for mode, why := range map[string]string{"sharedtmp": "by the setting private-tmp", "bare": "tasks have no mounts of their own", "groups": "the data directory lies in /tmp"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			dir := ""
			if mode == "groups" {
				if dir = onHost(t, "/tmp", os.Geteuid()); os.Geteuid() != 0 {
					t.Skip("only root gives tasks a /tmp of their own")
				}
				t.Cleanup(func() { endRunners(t, dir) })
				if err := os.Chmod(dir, 0o711); err != nil { //nolint:gosec // tasks of other users run there
					t.Fatal(err)
				}
			} else {
				dir = dirElsewhere(t)
			}
			r := newRig(t, mode, dir, "1")
			info, err := protocol.Dir(r.dir).ReadInfo(1)
			if err == nil && mode != "bare" && !info.PIDNamespace {
				t.Skip("no mounts of their own for tasks on this host: " + info.SharedTmp)
			}
			if err != nil || info.SharedTmp != why || strings.Contains(info.Isolation, "/tmp") {
				t.Errorf("got %+v, %v, want the shared /tmp because of %q", info, err, why)
			}
			for _, place := range []string{"/tmp", "/dev/shm"} {
				at := onHost(t, place, nobody)
				r.say(by("nobody", r.shell(len(place), "echo x >"+at+"/x")))
				if b, err := os.ReadFile(at + "/x"); string(b) != "x\n" {
					t.Errorf(`%q, %v, want "x\n"`, b, err)
				}
			}
			if _, err := os.Lstat(protocol.Tmps(r.d.dir, 1)); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("directories of tasks: %v, want os.ErrNotExist", err)
			}
		})
	}
}
