package supervisor

// Limits that protect tasks from each other: memory, processes, CPU time, devices, scratch directories.

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/shirou/gopsutil/v4/process"
	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/driver"
	"github.com/musterhq/muster/worker/output"
	"github.com/musterhq/muster/worker/runner/protocol"
)

// needs skips the test if the runner's control groups lack a controller.
func (r *rig) needs(controller string) {
	r.t.Helper()
	e := r.run(r.task(1000, "true"))
	if !strings.Contains(e.Isolation, controller) {
		r.t.Skipf("%s does not bound %s", e.Isolation, controller)
	}
}

const mib = job.Size(1) << 20

// hog is a script that uses 300 MiB of memory.
const hog = "x=$(head -c 314572800 /dev/zero | tr '\\0' x); echo ${#x}"

// With a tiny limit the kernel starts no process: it reports that there is no memory, or that too many files are open.
// That says nothing about the host.
func TestStartWithTooLittleMemoryIsNotTheHostsFault(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, mode string) {
		r := newRig(t, mode, testDir(t), "1")
		r.needs("memory")
		for i, memory := range []job.Size{1, 4 << 10, 64 << 10, 256 << 10} {
			k := r.task(i, "true")
			k.Spec.Resources.Memory = memory
			r.start(k)
			first := r.next()
			e := first.Exit
			if first.Kind == driver.Started { // the kernel killed it a moment later
				e = r.expect(driver.Exited).Exit
			}
			if e.State == job.NodeFail || e.State == job.Failed && !strings.Contains(e.Reason, "too small to start a process") {
				t.Errorf("with %s: %+v, want a failure that blames the memory and not the host", memory, e)
			}
		}
		k := r.task(9, "true")
		k.Spec.Resources.Memory = job.MinMemory
		if e := r.run(k); e.State != job.Succeeded {
			t.Errorf("with %s: %+v, want State %v", job.MinMemory, e, job.Succeeded)
		}
	})
}

func TestTaskOverItsMemoryIsKilled(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, mode string) {
		r := newRig(t, mode, testDir(t), "1")
		r.needs("memory")
		neighbour := r.task(0, "sleep", "1000")
		r.start(neighbour)
		r.expect(driver.Started)
		for i := range 2 { // each task has its own count of OOM kills
			k := r.shell(1+i, hog)
			k.Spec.Resources.Memory = 32 * mib
			if e := r.run(k); e.State != job.OutOfMemory || e.Reason != "the kernel ended it for lack of memory: it reached its limit of 32MiB; give it more with --mem" {
				t.Errorf(`%+v, want State %v and Reason "the kernel ended it for lack of memory: it reached its limit of 32MiB; give it more with --mem"`, e, job.OutOfMemory)
			}
		}
		child := r.shell(4, "(exec sh -c '"+strings.ReplaceAll(hog, "'", `'\''`)+"') & wait $!; echo written; exit 0")
		child.Spec.Resources.Memory = 32 * mib
		if e := r.run(child); e.State != job.OutOfMemory || e.Code != 128+int(unix.SIGKILL) {
			t.Errorf("a child that was killed, and a main process that does not mind: %+v, want State %v and Code %v", e, job.OutOfMemory, 128+int(unix.SIGKILL))
		}
		modest := r.shell(3, "kill -KILL $$")
		modest.Spec.Resources.Memory = 32 * mib
		if e := r.run(modest); e.State != job.Failed {
			t.Errorf("%+v, want State %v", e, job.Failed)
		}
		if err := r.d.Stop(neighbour.Attempt, time.Second, "done"); err != nil {
			t.Fatal(err)
		}
		if e := r.expect(driver.Exited).Exit; e.State != job.Cancelled || e.Signal != int(unix.SIGTERM) {
			t.Errorf("the other task: %+v, want State %v and Signal %v", e, job.Cancelled, int(unix.SIGTERM))
		}
	})
}

// The number of processes of a task is limited. The task can be ended even while it forks as fast as it can.
func TestForkBombIsLimited(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, mode string) {
		dir := testDir(t)
		r := newRig(t, mode, dir, "1")
		if mode == "nogroups" && os.Geteuid() == 0 {
			t.Skip("without control groups the processes of root are not limited; see TestForkBombOfAUserIsLimited")
		}
		if mode != "nogroups" {
			r.needs("pids")
		}
		r.bomb("root")
	})
}

func TestForkBombOfAUserIsLimited(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("TestForkBombIsLimited runs as this user")
	}
	dir := testDir(t)
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	newRig(t, "nogroups", dir, "1").bomb("nobody")
}

// bomb starts a fork bomb, waits until it has reached its limit, and ends it.
func (r *rig) bomb(user string) {
	r.t.Helper()
	const most = 60
	r.d.cfg.Limits.PIDs = most
	many := r.shell(1, "(for i in $(seq 200); do sleep 1000 & done) 2>/dev/null; : >$MUSTER_SCRATCH/counted; exec sleep 1000") // a task that forks a fixed number of times, before the fork bomb
	many.User = user
	r.start(many)
	r.expect(driver.Started)
	counted := filepath.Join(protocol.Dir(r.dir).Scratch(many.Attempt), "counted")
	await(r.t, "all forks", func() bool { _, err := os.Stat(counted); return err == nil })
	n := len(marked(many.Attempt))
	if err := r.d.Stop(many.Attempt, 0, "enough"); err != nil {
		r.t.Fatal(err)
	}
	if r.expect(driver.Exited); n > most {
		r.t.Fatalf("%d processes, want at most %d", n, most)
	}
	k := r.shell(0, `f() { f & f & sleep 1000; }; trap "" TERM; f 2>"$MUSTER_SCRATCH"/bound & exec sleep 1000`)
	k.User = user
	r.start(k)
	r.expect(driver.Started)
	full := filepath.Join(protocol.Dir(r.dir).Scratch(k.Attempt), "bound")
	await(r.t, "the fork bomb to reach its limit", func() bool {
		b, err := os.ReadFile(full)
		return err == nil && len(b) > 0 // the shell's message that it cannot fork
	})
	if n := len(marked(k.Attempt)); n == 0 || n > most {
		r.t.Errorf("%d processes, want at most %d", n, most)
	}
	begun := time.Now()
	if err := r.d.Stop(k.Attempt, 0, "enough"); err != nil {
		r.t.Fatal(err)
	}
	if e := r.expect(driver.Exited).Exit; e.State != job.Cancelled {
		r.t.Errorf("%+v, want State %v", e, job.Cancelled)
	}
	if left := marked(k.Attempt); len(left) > 0 {
		r.t.Errorf("%d processes are left, want none", len(left))
	}
	r.t.Logf("ended after %s", time.Since(begun))
}

// marked lists the living processes of an attempt by their environment.
func marked(a job.Attempt) []int {
	var all []int
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		b, err := os.ReadFile("/proc/" + e.Name() + "/environ")
		if err == nil && strings.Contains(string(b), "MUSTER_JOB_ID="+string(a.Job)) && strings.Contains(string(b), fmt.Sprintf("MUSTER_TASK=%d\x00", a.Task)) && alive(pid) {
			all = append(all, pid)
		}
	}
	return all
}

// A task with seven busy processes and a task with one have the same CPU request and run on the same CPU. Each gets
// half of it.
func TestTasksShareTheCPUByTheirRequests(t *testing.T) {
	eachMode := func(f func(mode string)) { // not in parallel, because they would share the CPU
		for _, mode := range modes[:2] {
			f(mode)
		}
	}
	eachMode(func(mode string) {
		t.Run(mode, func(t *testing.T) {
			r := newRig(t, mode, testDir(t), "1")
			r.needs("cpu")
			spin := "while :; do :; done"
			for i, script := range []string{spin, strings.Repeat("("+spin+") & ", 7) + "wait"} {
				r.start(r.shell(i, "taskset -pc 0 $$ >/dev/null; "+script))
				r.expect(driver.Started)
			}
			a, b := r.attempt(0), r.attempt(1)
			await(t, "all to be busy", func() bool { return len(marked(b)) == 8 && cpuTime(t, marked(a)) > 50*time.Millisecond })
			pidsA, pidsB := marked(a), marked(b)
			oneBefore, manyBefore := cpuTimes(t, pidsA, pidsB) // not measured, because one task started earlier
			var one, many time.Duration
			await(t, "a second of CPU time", func() bool { // however long other programs delay them
				one, many = cpuTimes(t, pidsA, pidsB)
				one, many = one-oneBefore, many-manyBefore
				return one+many >= time.Second
			})
			for _, x := range []job.Attempt{a, b} {
				if err := r.d.Stop(x, 0, "enough"); err != nil {
					t.Fatal(err)
				}
				r.expect(driver.Exited)
			}
			t.Logf("one process got %s, seven got %s", one, many)
			if share := float64(one) / float64(one+many); share < 0.4 || share > 0.6 {
				t.Errorf("the task with one process got %.2f of the CPU, want half", share)
			}
		})
	})
}

// cpuTimes returns the CPU times of a and b at one moment: it reads again if a ran for more than the clock's two ticks
// while b was read.
func cpuTimes(t *testing.T, a, b []int) (ofA, ofB time.Duration) {
	t.Helper()
	const tick = 10 * time.Millisecond
	await(t, "both CPU times at once", func() bool {
		ofA = cpuTime(t, a)
		ofB = cpuTime(t, b)
		return cpuTime(t, a)-ofA <= 2*tick
	})
	return ofA, ofB
}

// cpuTime returns the CPU time of living processes.
func cpuTime(t *testing.T, pids []int) (sum time.Duration) {
	t.Helper()
	for _, pid := range pids {
		p, err := process.NewProcess(int32(pid))
		if err != nil {
			t.Fatal(err)
		}
		times, err := p.Times()
		if err != nil {
			t.Fatal(err)
		}
		sum += time.Duration((times.User + times.System) * float64(time.Second))
	}
	return sum
}

func TestTaskSeesItsOwnDevicesOnly(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root makes device nodes")
	}
	if nodes, err := filepath.Glob("/dev/nvidia*"); err != nil || len(nodes) > 0 {
		t.Skipf("this host has real device files: %v", nodes)
	}
	for i, name := range []string{"nvidia0", "nvidia1", "nvidiactl"} {
		path := filepath.Join("/dev", name)
		if err := unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(195, []uint32{0, 1, 255}[i]))); err != nil {
			t.Skipf("no device file can be made: %v", err)
		}
		t.Cleanup(func() { _ = os.Remove(path) })
	}
	// Without a driver, an allowed open fails with ENXIO and a denied one with EPERM.
	const look = `for d in 0 1 ctl; do cat /dev/nvidia$d 2>&1 | grep -q 'not permitted' && echo $d closed || echo $d open; done`
	for _, mode := range modes[:2] {
		t.Run(mode, func(t *testing.T) {
			r := newRig(t, mode, testDir(t), "1")
			r.needs("devices")
			r.d.cfg.Limits.Grant = func(uuids []string, _ job.Resources) gpu.Grant {
				c := gpu.Closed{Major: 195, Minors: 256}
				for minor, uuid := range []string{"GPU-a", "GPU-b"} {
					if slices.Contains(uuids, uuid) {
						c.Open = append(c.Open, uint32(minor))
					}
				}
				if len(c.Open) > 0 {
					c.Open = append(c.Open, 255)
				}
				return gpu.Grant{Closed: []gpu.Closed{c}}
			}
			for i, tt := range []struct {
				gpus []string
				want string
			}{
				{nil, "0 closed\n1 closed\nctl closed\n"},
				{[]string{"GPU-b"}, "0 closed\n1 open\nctl open\n"},
				{[]string{"GPU-a", "GPU-b"}, "0 open\n1 open\nctl open\n"},
				{[]string{"GPU-sim-1"}, "0 closed\n1 closed\nctl closed\n"},
			} {
				k := r.shell(i, look)
				k.Devices = tt.gpus
				if r.run(k); r.output(k.Attempt, output.Stdout) != tt.want {
					t.Errorf("%v: %q, want %q", tt.gpus, r.output(k.Attempt, output.Stdout), tt.want)
				}
			}
		})
	}
}

// The variables of the GPU driver override those of the user, for each task as the driver says.
func TestVariablesOfTheGPUDriverOverrideThoseOfTheUser(t *testing.T) {
	t.Parallel()
	r := newRig(t, "groups", testDir(t), "1")
	r.d.cfg.Limits.Grant = func(uuids []string, need job.Resources) gpu.Grant {
		return gpu.Grant{Env: map[string]string{"DEVICES": strings.Join(uuids, ","), "SHARE": fmt.Sprint(need.GPUShare)}}
	}
	for i, tt := range []struct {
		gpus []string
		want string
	}{{nil, "[] 0.25 /u"}, {[]string{"GPU-a"}, "[GPU-a] 0.25 /u"}} {
		k := r.shell(i, `echo "[$DEVICES] $SHARE $MINE"`)
		k.Devices, k.Spec.Resources.GPUShare = tt.gpus, 0.25
		k.Env = append(k.Env, "DEVICES=all", "MINE=/u")
		if r.run(k); strings.TrimSpace(r.output(k.Attempt, output.Stdout)) != tt.want {
			t.Errorf("%v: %q, want %q", tt.gpus, r.output(k.Attempt, output.Stdout), tt.want)
		}
	}
}

func TestScratchDirectoryIsBoundedAndRemoved(t *testing.T) {
	t.Parallel()
	r := newRig(t, "groups", testDir(t), "1")
	r.d.cfg.Limits.Scratch = 8 * mib
	dir := func(k driver.Task) string { return protocol.Dir(r.dir).Scratch(k.Attempt) }
	gone := func(k driver.Task) {
		t.Helper()
		await(t, "scratch to be removed", func() bool { _, err := os.Stat(dir(k)); return os.IsNotExist(err) })
	}

	tidy := r.shell(0, "mkdir -p a/b; echo x >a/b/c; ln -s / out; chmod 0 a/b; head -c 4194304 /dev/zero >some")
	if e := r.run(tidy); e.State != job.Succeeded {
		t.Errorf("%+v, want State %v", e, job.Succeeded)
	}
	gone(tidy)
	if _, err := os.Stat("/etc"); err != nil {
		t.Fatal("a link was followed:", err)
	}

	greedy := r.shell(1, "trap 'exit 0' TERM; head -c 67108864 /dev/zero >all; echo full; while :; do sleep 0.1; done")
	e := r.run(greedy)
	if e.State != job.Failed || e.Code == 0 || !strings.HasPrefix(e.Reason, "scratch quota of 8MiB exceeded: ") {
		t.Errorf("got %+v, want it failed by the scratch quota", e)
	}
	if took := e.Ended.Sub(e.Began); took > 5*time.Second {
		t.Errorf("ended after %s, want at most %v", took, 5*time.Second)
	}
	gone(greedy)
}

func TestTaskHasItsUlimits(t *testing.T) {
	t.Parallel()
	r := newRig(t, "groups", testDir(t), "1")
	k := r.shell(0, "ulimit -l; ulimit -n; ulimit -Hn")
	if r.run(k); r.output(k.Attempt, output.Stdout) != "8192\n2048\n4096\n" {
		t.Errorf(`%q, want "8192\n2048\n4096\n"`, r.output(k.Attempt, output.Stdout))
	}
}

func TestTaskStartsInItsWorkdir(t *testing.T) {
	t.Parallel()
	r := newRig(t, "groups", testDir(t), "1")
	file := filepath.Join(r.dir, "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for i, tt := range []struct{ dir, want string }{
		{"/no/such/dir", "workdir /no/such/dir: no such directory on this node"},
		{file, "workdir " + file + ": not a directory on this node"},
	} {
		k := r.task(i, "true")
		k.Spec.Workdir = tt.dir
		r.start(k)
		if e := r.expect(driver.Failed).Exit; e.State != job.Failed || e.Code != 126 || e.Reason != tt.want {
			t.Errorf("%+v, want %q", e, tt.want)
		}
	}
}

// The signal before the time limit goes only to the processes that handle it. The shell around them does not get it,
// because the signal would end it.
func TestWarningReachesProcessesThatHandleIt(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, mode string) {
		r := newRig(t, mode, testDir(t), "1")
		inner := `trap "echo saved; exit 5" USR1; while :; do sleep 0.01; done`
		k := r.shell(0, fmt.Sprintf("sh -c '%s'; exit $?", inner))
		k.TimeLimit, k.Warning = time.Minute, job.Warning{Signal: int(unix.SIGUSR1), Before: time.Minute - 500*time.Millisecond}
		e := r.run(k)
		if out := r.output(k.Attempt, output.Stdout); e.Code != 5 || e.State != job.Failed || out != "saved\n" {
			t.Errorf(`%+v, output %q, want Code 5, State %v and "saved\n"`, e, out, job.Failed)
		}
		if at := e.Ended.Sub(e.Began); at < 500*time.Millisecond || at > 5*time.Second {
			t.Errorf("warned after %s, want at least %v and at most %v", at, 500*time.Millisecond, 5*time.Second)
		}

		deaf := r.task(1, "sleep", "1000") // if no process handles the signal, all get it
		deaf.TimeLimit, deaf.Warning = time.Minute, k.Warning
		if e := r.run(deaf); e.Signal != int(unix.SIGUSR1) || e.State != job.Failed {
			t.Errorf("%+v, want Signal %v and State %v", e, int(unix.SIGUSR1), job.Failed)
		}
	})
}
