package meter

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/usage"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/cgroup"
)

// fakeHost is a directory with the kernel's files of a host.
type fakeHost struct {
	t   testing.TB
	dir string
}

func newFakeHost(t testing.TB) *fakeHost {
	h := &fakeHost{t, t.TempDir()}
	h.write("proc/self/mountinfo", fmt.Sprintf(
		"30 1 0:1 / %[1]s/cgroup/unified rw - cgroup2 cgroup2 rw\n31 1 0:2 / %[1]s/cgroup/cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"+
			"32 1 0:3 / %[1]s/cgroup/memory rw - cgroup cgroup rw,memory\n33 1 0:4 / %[1]s/cgroup/pids rw - cgroup cgroup rw,pids\n"+
			"34 1 0:5 / %[1]s/cgroup/freezer rw - cgroup cgroup rw,freezer\n", h.dir))
	h.write("proc/self/cgroup", "0::/muster\n5:freezer:/muster\n4:pids:/muster\n3:memory:/muster\n2:cpu,cpuacct:/muster\n")
	return h
}

func (h *fakeHost) write(name, text string) {
	h.t.Helper()
	path := filepath.Join(h.dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
		h.t.Fatal(err)
	}
}

// process writes the files of a process. Its name tries to look like other fields. CPU times are in ticks.
func (h *fakeHost) process(pid, parent, session int, cpu [4]int, threads, pages int, read, written int) {
	h.t.Helper()
	h.write(fmt.Sprintf("proc/%d/stat", pid), fmt.Sprintf("%d (a) Z 1 (b) S %d 7 %d 0 -1 0 0 0 0 0 %d %d %d %d 20 0 %d 0 100 4096 %d 0 0 0\n",
		pid, parent, session, cpu[0], cpu[1], cpu[2], cpu[3], threads, pages))
	h.write(fmt.Sprintf("proc/%d/io", pid), fmt.Sprintf("rchar: 9\nwchar: 9\nread_bytes: %d\nwrite_bytes: %d\ncancelled_write_bytes: 0\n", read, written))
}

func (h *fakeHost) kernel() (*kernel, *cgroup.Finder) {
	proc := filepath.Join(h.dir, "proc")
	return &kernel{proc: proc, sys: filepath.Join(h.dir, "sys")}, &cgroup.Finder{Proc: proc}
}

func (h *fakeHost) measure(t *taskState) reading {
	k, finder := h.kernel()
	return k.measure(t, finder, k.processes)
}

var attempt = job.Attempt{Job: job.NewID(1, 2), Task: 3, N: 1}

// A task in a group of version 2 is measured by the group, however many processes it has had.
func TestTaskIsMeasuredByItsGroupOfVersion2(t *testing.T) {
	h := newFakeHost(t)
	group := "cgroup/unified/muster/tasks/j.3.1"
	h.write("proc/70/cgroup", "0::/muster/tasks/j.3.1/own\n") // the task has made a group of its own
	h.write(group+"/cgroup.procs", "70\n")
	h.write(group+"/own/cgroup.procs", "71\n")
	h.write(group+"/cpu.stat", "usage_usec 2500000\nuser_usec 1\n")
	h.write(group+"/memory.current", "5000\n")
	h.write(group+"/memory.stat", "anon 1\ninactive_file 1000\nactive_file 7\n")
	h.write(group+"/pids.current", "9\n")
	h.process(70, 1, 70, [4]int{1, 1, 1, 1}, 1, 1, 100, 10)
	h.process(71, 70, 70, [4]int{1, 1, 1, 1}, 1, 1, 200, 20)
	s := newTaskState(Task{Attempt: attempt, PID: 70, Group: filepath.Join(h.dir, "cgroup/unified/muster/tasks")}, time.Now())
	r := h.measure(s)
	if !r.alive || r.cpu != 2.5 || r.memory != 4000 || r.pids != 9 || r.read != 300 || r.written != 30 || !r.knowCPU || !r.knowMemory || !r.knowPIDs || !r.knowIO {
		t.Errorf("reading: %+v, want CPU 2.5, memory 4000, 9 processes and I/O of 300 and 30 bytes", r)
	}
}

// A task without limits has no group of its own for memory and pids: that group contains all tasks.
func TestSharedGroupsDoNotMeasureATask(t *testing.T) {
	h := newFakeHost(t)
	h.write("proc/70/cgroup", "0::/\n5:freezer:/muster/tasks/1\n4:pids:/muster\n3:memory:/muster\n2:cpu,cpuacct:/muster/tasks/8\n")
	h.write("cgroup/freezer/muster/tasks/1/cgroup.procs", "70\n")
	h.write("cgroup/cpuacct/muster/tasks/8/cpuacct.usage", "3000000000\n")
	h.write("cgroup/memory/muster/memory.usage_in_bytes", "999999\n")
	h.write("cgroup/memory/muster/memory.stat", "total_inactive_file 0\n")
	h.write("cgroup/pids/muster/pids.current", "999\n")
	h.process(70, 1, 70, [4]int{1, 1, 1, 1}, 4, 10, 0, 0)
	s := newTaskState(Task{Attempt: attempt, PID: 70, Group: filepath.Join(h.dir, "cgroup/freezer/muster/tasks")}, time.Now())
	r := h.measure(s)
	if r.cpu != 3 || r.memory != float64(10*os.Getpagesize()) || r.pids != 4 {
		t.Errorf("reading: %+v, want cpu 3, memory %v and pids 4", r, float64(10*os.Getpagesize()))
	}
	// The group was used before. Its earlier counts do not belong to this task.
	now := time.Now()
	s.take(now, r, nil)
	h.write("cgroup/cpuacct/muster/tasks/8/cpuacct.usage", "4500000000\n")
	s.take(now.Add(Every), h.measure(s), nil)
	if s.cpu.total != 1.5 || math.Abs(s.newest.Values[usage.CPU]-0.3) > 1e-9 {
		t.Errorf("CPU time %g, CPUs %g, want 1.5 and 0.3", s.cpu.total, s.newest.Values[usage.CPU])
	}
}

// Version 1 with groups of its own.
func TestTaskIsMeasuredByItsGroupsOfVersion1(t *testing.T) {
	h := newFakeHost(t)
	h.write("proc/70/cgroup", "5:freezer:/muster/tasks/1\n4:pids:/muster/tasks/2\n3:memory:/muster/tasks/3\n2:cpu,cpuacct:/muster/tasks/8\n")
	h.write("cgroup/freezer/muster/tasks/1/cgroup.procs", "70\n")
	h.write("cgroup/cpuacct/muster/tasks/8/cpuacct.usage", "3000000000\n")
	h.write("cgroup/memory/muster/tasks/3/memory.usage_in_bytes", "8000\n")
	h.write("cgroup/memory/muster/tasks/3/memory.stat", "inactive_file 1\ntotal_inactive_file 3000\n")
	h.write("cgroup/pids/muster/tasks/2/pids.current", "5\n")
	s := newTaskState(Task{Attempt: attempt, PID: 70, Group: filepath.Join(h.dir, "cgroup/freezer/muster/tasks")}, time.Now())
	if r := h.measure(s); r.cpu != 3 || r.memory != 5000 || r.pids != 5 || r.knowIO { // the I/O of the process cannot be read
		t.Errorf("reading: %+v, want CPU 3, memory 5000, 5 processes and unknown I/O", r)
	}
}

// Without a control group a task is its process, the descendants of it, and its session.
func TestTaskWithoutGroupsIsMeasuredByItsProcesses(t *testing.T) {
	h := newFakeHost(t)
	h.process(70, 1, 70, [4]int{100, 50, 25, 25}, 2, 10, 1000, 1) // 2 s
	h.process(71, 70, 71, [4]int{100, 0, 0, 0}, 1, 5, 0, 2)       // its child, in another session
	h.process(72, 1, 70, [4]int{0, 100, 0, 0}, 1, 5, 0, 4)        // adopted by another process, of its session
	h.process(80, 1, 80, [4]int{9000, 0, 0, 0}, 9, 900, 9, 9)     // not of the task
	s := newTaskState(Task{Attempt: attempt, PID: 70}, time.Now())
	r := h.measure(s)
	if r.cpu != 4 || r.memory != float64(20*os.Getpagesize()) || r.pids != 4 || r.read != 1000 || r.written != 7 {
		t.Errorf("reading: %+v, want CPU 4, 20 pages, 4 processes and I/O of 1000 and 7 bytes", r)
	}
	// A process that leaves the family and ends takes its counts with it. The total does not fall.
	now := time.Now()
	s.take(now, r, nil)
	if err := os.RemoveAll(filepath.Join(h.dir, "proc/72")); err != nil {
		t.Fatal(err)
	}
	h.process(70, 1, 70, [4]int{150, 50, 25, 25}, 2, 10, 1000, 1)
	s.take(now.Add(Every), h.measure(s), nil)
	h.process(70, 1, 70, [4]int{250, 50, 25, 25}, 2, 10, 1000, 1)
	s.take(now.Add(2*Every), h.measure(s), nil)
	if s.cpu.total != 5 {
		t.Errorf("CPU time %g, want 5", s.cpu.total)
	}
	// A task that has ended has no sample, not a sample of 0.
	gone := newTaskState(Task{Attempt: attempt, PID: 99}, time.Now())
	gone.take(now, h.measure(gone), nil)
	if r := gone.report(0, 0); r.Samples != 0 || usage.Known(r.CPU) {
		t.Errorf("report of a task that was never measured: %+v, want no samples", r)
	}
}

// A container is in the group that its engine has made, unless other processes share that group.
func TestContainerIsMeasuredByItsOwnGroup(t *testing.T) {
	h := newFakeHost(t)
	h.write("cgroup/unified/docker/c/cgroup.procs", "70\n")
	h.write("cgroup/unified/docker/c/cpu.stat", "usage_usec 1000000\n")
	h.write("cgroup/unified/muster/cpu.stat", "usage_usec 999000000\n")
	h.process(70, 1, 70, [4]int{0, 0, 0, 0}, 1, 1, 0, 0)
	for group, want := range map[string]float64{"/docker/c": 1, "/muster": 0, "/": 0} {
		h.write("proc/70/cgroup", "0::"+group+"\n")
		s := newTaskState(Task{Attempt: attempt, PID: 70, Container: true}, time.Now())
		if r := h.measure(s); r.cpu != want {
			t.Errorf("in %s: CPU time %g, want %g", group, r.cpu, want)
		}
	}
}

func TestUseOfAHost(t *testing.T) {
	h := newFakeHost(t)
	k, _ := h.kernel()
	s := newHostState()
	now := time.Now()
	if v := s.measure(k, now).Values; usage.Known(v[usage.CPU]) || usage.Known(v[usage.Memory]) || usage.Known(v[usage.Read]) || usage.Known(v[usage.Sent]) {
		t.Errorf("values without files: %v, want all unknown", v)
	}
	h.write("sys/block/sda/size", "1")
	h.write("sys/block/dm-0/size", "1")
	h.write("sys/class/net/eth0/device/x", "")
	files := func(busy, sectors, bytes int) {
		h.write("proc/stat", fmt.Sprintf("cpu  %d 0 100 900 50 0 0 7 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n", busy))
		h.write("proc/meminfo", "MemTotal:       1000 kB\nMemFree: 1 kB\nMemAvailable:    400 kB\n")
		h.write("proc/diskstats", fmt.Sprintf("8 0 sda 1 0 %d 0 1 0 %d 0 0 0 0\n8 1 sda1 1 0 999 0 1 0 999 0 0 0 0\n253 0 dm-0 1 0 999 0 1 0 999 0 0 0 0\n", sectors, 2*sectors))
		h.write("proc/net/dev", fmt.Sprintf("Inter-| Receive\n face |bytes\n    lo: 999999 0 0 0 0 0 0 0 999999 0\n  eth0: %d 0 0 0 0 0 0 0 %d 0\ndocker0: 5555 0 0 0 0 0 0 0 5555 0\n", bytes, 3*bytes))
	}
	files(1000, 100, 1000)
	s.measure(k, now.Add(Every))
	files(2000, 200, 2000) // 10 s of CPU time in 5 s
	v := s.measure(k, now.Add(2*Every)).Values
	want := map[usage.Kind]float64{usage.CPU: 2, usage.Memory: 600 << 10, usage.Read: 100 * 512 / 5., usage.Write: 200 * 512 / 5., usage.Received: 200, usage.Sent: 600}
	for kind, x := range want {
		if math.Abs(v[kind]-x) > 1e-6 {
			t.Errorf("%s: %g, want %g", kind, v[kind], x)
		}
	}
}

// rig is a meter of a fake host, under a fake clock.
type rig struct {
	*Meter
	host    *fakeHost
	running []Task
	err     error
	gpus    []gpu.Status
	age     time.Duration // of gpus
}

func newRig(t *testing.T) *rig {
	r := &rig{host: newFakeHost(t)}
	dir := r.host.dir
	r.Meter = New(Config{Proc: filepath.Join(dir, "proc"), Sys: filepath.Join(dir, "sys")}, Needs{
		Running: func(context.Context) ([]Task, error) { return r.running, r.err },
		GPUs:    func() ([]gpu.Status, time.Time) { return r.gpus, time.Now().Add(-r.age) },
	}, slog.New(slog.DiscardHandler))
	return r
}

// pass measures again and again for this time.
func (r *rig) pass(t *testing.T, d time.Duration) {
	for range d / Every {
		time.Sleep(Every)
		r.round(t.Context())
	}
}

func (r *rig) idle(uuid string) time.Time {
	return r.Idle()[uuid]
}

// A GPU is idle if one task has held it for 15 minutes, and each value of that time is known and below 5 %.
func TestGPUIsIdleAfter15MinutesOfLittleUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		at := func(percent int) []gpu.Status {
			return []gpu.Status{{UUID: "g", Health: gpu.Healthy, Utilization: percent}}
		}
		r.gpus = at(0)
		r.pass(t, time.Hour)
		if !r.idle("g").IsZero() {
			t.Error("a GPU without a holder counts as idle")
		}
		r.running = []Task{{Attempt: attempt, PID: 99, Devices: []string{"g"}}}
		since := time.Now().Add(Every)
		r.pass(t, 15*time.Minute)
		if !r.idle("g").IsZero() {
			t.Error("idle before 15 minutes")
		}
		r.pass(t, 10*time.Second)
		if got := r.idle("g"); !got.Equal(since) {
			t.Errorf("idle since %v, want %v", got, since)
		}
		r.gpus = at(5)
		r.pass(t, Every)
		if !r.idle("g").IsZero() {
			t.Error("idle with 5 %")
		}
		r.gpus = at(4)
		r.pass(t, 16*time.Minute)
		if r.idle("g").IsZero() {
			t.Error("not idle with 4 %")
		}
		r.gpus = at(-1)
		r.pass(t, Every)
		r.gpus = at(4)
		r.pass(t, 10*time.Minute)
		if !r.idle("g").IsZero() {
			t.Error("idle although one of the last 15 minutes is unknown")
		}
		r.pass(t, 6*time.Minute)
		r.age = time.Minute
		r.pass(t, Every)
		if !r.idle("g").IsZero() {
			t.Error("idle by a status that is a minute old")
		}
		r.age = 0
		r.pass(t, 16*time.Minute)
		next := attempt
		next.N++
		r.running[0].Attempt = next
		r.pass(t, Every)
		if !r.idle("g").IsZero() {
			t.Error("idle although another task has just got the GPU")
		}
	})
}

// The use of GPUs by tasks is known only if it is known for each of them and the tasks do not share them.
func TestUseOfGPUsIsKnownUnlessShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.host.process(70, 1, 70, [4]int{}, 1, 1, 0, 0)
		r.gpus = []gpu.Status{
			{UUID: "a", Health: gpu.Healthy, Utilization: 90, MemoryUsed: 10, PowerMilli: 300_000},
			{UUID: "b", Health: gpu.Healthy, Utilization: 30, MemoryUsed: 20, PowerMilli: 100_000},
			{UUID: "mig", Health: gpu.Healthy, Utilization: -1, MemoryUsed: 5},
			gpu.NotKnown("dark", "it hangs"),
		}
		for _, c := range []struct {
			devices            []string
			shared             bool
			util, memory, watt float64
		}{
			{[]string{"a", "b"}, false, 60, 30, 400},
			{[]string{"a", "mig"}, false, math.NaN(), 15, math.NaN()},
			{[]string{"dark"}, false, math.NaN(), math.NaN(), math.NaN()},
			{[]string{"a"}, true, math.NaN(), math.NaN(), math.NaN()},
			{nil, false, math.NaN(), math.NaN(), math.NaN()},
		} {
			r.running = []Task{{Attempt: attempt, PID: 70, Devices: c.devices, Shared: c.shared}}
			r.round(t.Context())
			v := r.Latest().Tasks[0].Sample.Values
			for kind, want := range map[usage.Kind]float64{usage.GPU: c.util, usage.GPUMemory: c.memory, usage.Power: c.watt} {
				if got := v[kind]; got != want && (usage.Known(got) || usage.Known(want)) {
					t.Errorf("%v, shared %t: %s is %g, want %g", c.devices, c.shared, kind, got, want)
				}
			}
			r.running = nil
			r.round(t.Context())
		}
	})
}

// A task that ends leaves a report, and nothing else. The number of measured tasks is bounded.
func TestEndedTaskLeavesOneReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.host.process(70, 1, 70, [4]int{100, 0, 0, 0}, 1, 1, 0, 0)
		for i := range 1000 {
			a := attempt
			a.Task = i
			r.running = append(r.running, Task{Attempt: a, PID: 70})
		}
		r.pass(t, 20*time.Second)
		rings := 0
		for _, s := range r.tasks {
			if s.ring != nil {
				rings++
			}
		}
		if rings != maxRings {
			t.Errorf("%d tasks have an hour of samples, want %d", rings, maxRings)
		}
		first := r.running[0].Attempt
		b := r.End(first, 30*time.Second, 1<<30)
		report, err := usage.Decode(b)
		if err != nil || report.Samples != 4 || report.CPU != 30 || report.Series[usage.Memory].Max != 1<<30 {
			t.Errorf("report: %+v, %v, want 4 samples, CPU 30 and a memory of at most 1 GiB", report, err)
		}
		if report, err := usage.Decode(r.End(r.running[1].Attempt, 0, 8<<20)); err != nil || report.Series[usage.Memory].Max != float64(os.Getpagesize()) {
			t.Errorf("the memory of a runner is taken for that of a task: %+v, %v, want no error and Max %v", report.Series[usage.Memory], err, float64(os.Getpagesize()))
		}
		if again := r.End(first, 0, 0); again != nil {
			t.Error("a task has a second report")
		}
		if r.End(job.Attempt{Job: attempt.Job, N: 9}, 0, 1<<30) != nil {
			t.Error("an unknown task has a report")
		}
		for greatest, memory := range map[job.Size]float64{1 << 30: 1 << 30, 8 << 20: math.NaN()} {
			report, err = usage.Decode(r.End(job.Attempt{Job: attempt.Job, N: 9}, 1500*time.Millisecond, greatest))
			m := report.Series[usage.Memory]
			if err != nil || report.Samples != 1 || report.CPU != 1.5 || m.Max != memory && !(math.IsNaN(m.Max) && math.IsNaN(memory)) || usage.Known(m.Mean) || usage.Known(report.Read) {
				t.Errorf("a task that ended before it was measured: %+v, %v, want 1 sample with CPU 1.5 only", report, err)
			}
		}
		r.err = errors.New("busy") // nobody knows what runs, so all are kept
		r.round(t.Context())
		if n := len(r.tasks); n != 998 {
			t.Errorf("%d tasks, want 998", n)
		}
		r.running, r.err = nil, nil
		r.round(t.Context())
		if len(r.tasks) != 0 || len(r.Latest().Tasks) != 0 {
			t.Errorf("%d tasks are left, want none", len(r.tasks))
		}
	})
}

// Measuring takes at most 1/200 of a core, except on hosts on which that would mean less than one round in a minute.
func TestMeasuringPausesToStayCheap(t *testing.T) {
	for took, want := range map[time.Duration]time.Duration{
		0: Every, 10 * time.Millisecond: Every - 10*time.Millisecond, 50 * time.Millisecond: 10 * time.Second, time.Second: time.Minute,
	} {
		if got := pause(took); got != want {
			t.Errorf("after a round of %s a pause of %s, want %s", took, got, want)
		}
	}
}

// The present use of a host is unknown before the first round, and when the last round was long ago.
func TestUseIsUnknownWithoutARecentRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.host.write("proc/meminfo", "MemTotal: 100 kB\nMemAvailable: 40 kB\n")
		if s := r.Now(); !s.At.IsZero() {
			t.Errorf("before the first round: %+v, want no time", s)
		}
		r.round(t.Context())
		time.Sleep(maxPause + time.Second)
		if s := r.Now(); s.At.IsZero() || s.Values[usage.Memory] != 60*1024 || usage.Known(s.Values[usage.CPU]) {
			t.Errorf("after a long pause: %+v, want the memory and an unknown CPU", s)
		}
		time.Sleep(staleAfter)
		if s := r.Now(); !s.At.IsZero() || usage.Known(s.Values[usage.Memory]) {
			t.Errorf("long after the last round: %+v, want no time and no values", s)
		}
	})
}
