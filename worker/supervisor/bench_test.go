package supervisor

// The cost of a task, compared with a bare fork, exec and wait.

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/internal/testkit/needtest"
	"github.com/musterhq/muster/worker/driver"
	"github.com/musterhq/muster/worker/runner/protocol"
)

const inFlight = 32

// cpuOf returns the CPU time of this process, or of the children that it has reaped.
func cpuOf(b *testing.B, who int) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(who, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// cpuTree returns the CPU time of this process, of the runner, and of the runner's reaped children.
func cpuTree(b *testing.B, dir string) time.Duration {
	info, err := protocol.Dir(dir).ReadInfo(1)
	if err != nil {
		b.Fatal(err)
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", info.PID))
	if err != nil {
		b.Fatal(err)
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	var ticks int64
	for _, f := range fields[11:15] { // user and system time, its own and that of its children
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			b.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks)*10*time.Millisecond + cpuOf(b, unix.RUSAGE_SELF)
}

func BenchmarkBare(b *testing.B) {
	begun := cpuOf(b, unix.RUSAGE_SELF) + cpuOf(b, unix.RUSAGE_CHILDREN)
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		b.Fatal(err)
	}
	defer null.Close()
	path := needtest.Runs(b, "true")
	slots := make(chan struct{}, inFlight)
	for b.Loop() {
		slots <- struct{}{}
		pid, err := syscall.ForkExec(path, []string{"true"}, &syscall.ProcAttr{Files: []uintptr{null.Fd(), null.Fd(), null.Fd()}})
		if err != nil {
			b.Fatal(err)
		}
		go func() {
			var status syscall.WaitStatus
			_, _ = syscall.Wait4(pid, &status, 0, nil)
			<-slots
		}()
	}
	for range inFlight {
		slots <- struct{}{}
	}
	report(b, cpuOf(b, unix.RUSAGE_SELF)+cpuOf(b, unix.RUSAGE_CHILDREN)-begun)
}

func BenchmarkTasks(b *testing.B) {
	for _, name := range append([]string{"private"}, modes...) {
		b.Run(name, func(b *testing.B) {
			dir, mode := "", name
			if name == "private" { // tasks have a private /tmp
				dir, mode = dirElsewhere(b), "groups"
			} else {
				dir = testDir(b)
			}
			r := newRig(b, mode, dir, "1")
			r.start(r.task(0, "/bin/true"))
			for r.next().Kind != driver.Exited { // so that the runner runs
			}
			begun := cpuTree(b, dir)
			slots := make(chan struct{}, inFlight)
			done := make(chan struct{})
			go func() {
				defer close(done)
				for range b.N {
					for {
						e := <-r.events
						if e.Kind == driver.Exited {
							_ = r.d.Forget(e.Attempt)
							<-slots
							break
						}
					}
				}
			}()
			b.ResetTimer()
			for i := range b.N {
				slots <- struct{}{}
				r.start(r.task(i+1, "/bin/true"))
			}
			<-done
			b.StopTimer()
			report(b, cpuTree(b, dir)-begun)
		})
	}
}

func report(b *testing.B, cpu time.Duration) {
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tasks/s")
	b.ReportMetric(float64(cpu.Microseconds())/float64(b.N), "cpu-µs/task")
}
