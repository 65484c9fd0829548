package meter

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/musterhq/muster/job"
)

// BenchmarkRound measures 100 tasks of three processes in groups of version 2, each with one of eight GPUs. The aim is
// 25 ms: 0.5 % of a core, once in five seconds.
func BenchmarkRound(b *testing.B) {
	h := newFakeHost(b)
	m := New(Config{Proc: filepath.Join(h.dir, "proc"), Sys: filepath.Join(h.dir, "sys")}, Needs{}, nil)
	var tasks []*taskState
	for i := range 100 {
		group, pid := fmt.Sprintf("cgroup/unified/muster/tasks/j.%d.1", i), 1000+3*i
		h.write(fmt.Sprintf("proc/%d/cgroup", pid), fmt.Sprintf("0::/muster/tasks/j.%d.1\n", i))
		h.write(group+"/cgroup.procs", fmt.Sprintf("%d\n%d\n%d\n", pid, pid+1, pid+2))
		h.write(group+"/cpu.stat", "usage_usec 2500000\nuser_usec 1\nsystem_usec 1\n")
		h.write(group+"/memory.current", "5000\n")
		h.write(group+"/memory.stat", "anon 1\nfile 1\nkernel 1\ninactive_file 1000\nactive_file 7\n")
		h.write(group+"/pids.current", "9\n")
		for k := range 3 {
			h.process(pid+k, 1, pid, [4]int{1, 1, 1, 1}, 1, 1, 100, 10)
		}
		uuid := fmt.Sprint(i % 8)
		t := Task{Attempt: job.Attempt{Job: job.NewID(1, 2), Task: i, N: 1}, PID: pid, Group: filepath.Join(h.dir, "cgroup/unified/muster/tasks"), Devices: []string{uuid}}
		tasks = append(tasks, newTaskState(t, m.host.newest.At))
	}
	b.ReportAllocs()
	for b.Loop() {
		for _, t := range tasks {
			if r := m.kernel.measure(t, &m.finder, m.kernel.processes); !r.knowCPU || !r.knowIO {
				b.Fatalf("reading: %+v, want CPU and I/O known", r)
			}
		}
	}
}

// BenchmarkEnd reports a task that was never measured. The aim is 20 µs.
func BenchmarkEnd(b *testing.B) {
	m := New(DefaultConfig(), Needs{}, nil)
	b.ReportAllocs()
	for b.Loop() {
		if m.End(job.Attempt{Job: job.NewID(1, 2), N: 1}, time.Second, 1<<30) == nil {
			b.Fatal("no report, want a report")
		}
	}
}
