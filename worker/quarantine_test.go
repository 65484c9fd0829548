package worker_test

// The quarantine survives restarts of the daemon.

import (
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/worker"
)

func TestQuarantineAfterAFaultSurvivesARestart(t *testing.T) {
	healthy := statusOf(gpu.Status{Health: gpu.Healthy})
	h, _ := newHostWithRealGPUs(t)
	h.round(fault(gone))
	h.pass(20 * time.Second)
	h.boot()
	h.round(healthy)
	if why := quarantine(h); why != "xid 79 (fallen off the bus)" {
		t.Fatalf(`after a restart: quarantine = %q, want "xid 79 (fallen off the bus)"`, why)
	}
	if free := h.core.View().Free.GPUs; len(free) != 1 || free[0].UUID != "GPU-b" {
		t.Fatalf(`free = %+v, want 1 of them and [0].UUID "GPU-b"`, free)
	}
	// Neither a restart nor a reboot makes the quarantine longer.
	h.cfg.Boot = "boot-2"
	h.now.Boot = 0
	h.boot()
	h.pass(39 * time.Second)
	h.round(healthy)
	if quarantine(h) == "" {
		t.Fatal("allocated before the end of the quarantine")
	}
	h.pass(2 * time.Second)
	h.round(healthy)
	if why := quarantine(h); why != "" {
		t.Fatalf("healthy after the pause, and still in quarantine: %q, want none", why)
	}
	// After another restart the GPU is not in quarantine, but the fault still counts.
	h.boot()
	if why := quarantine(h); why != "" {
		t.Fatalf("in quarantine again: %q, want none", why)
	}
	h.round(fault(gone))
	h.pass(119 * time.Second)
	h.round(healthy)
	if quarantine(h) == "" {
		t.Fatal("the fault from before the restart is forgotten")
	}
	h.round(worker.DeviceRestored{UUID: "GPU-a"})
	h.boot()
	if why := quarantine(h); why != "" {
		t.Fatalf("in quarantine though a person ended it: %q, want none", why)
	}
}

// After a restart a GPU keeps its last known health until the driver reports another.
func TestHealthSurvivesARestart(t *testing.T) {
	h, _ := newHostWithRealGPUs(t)
	h.round(statusOf(gpu.Status{Health: gpu.Unhealthy, Detail: "row remap pending"}))
	h.boot()
	if why := quarantine(h); !strings.Contains(why, "row remap pending") {
		t.Fatalf(`quarantine = %q, want "row remap pending" in it`, why)
	}
	h.round(statusOf(gpu.Status{Health: gpu.Healthy}))
	if why := quarantine(h); why != "" {
		t.Fatalf("quarantine = %q, want none", why)
	}
}

// A GPU that the driver does not list for a while is still in quarantine when it is listed again.
func TestMissingGPUStaysInQuarantine(t *testing.T) {
	h, _ := newHostWithRealGPUs(t)
	h.round(fault(gone))
	all := h.cfg.Profile.GPUs
	h.cfg.Profile.GPUs = all[1:]
	h.boot()
	h.round(worker.DeviceFault{Fault: gpu.Fault{UUID: "GPU-b", Severity: gpu.SeverityDevice, Text: "xid 74"}}) // causes a write
	h.cfg.Profile.GPUs = all
	h.boot()
	if v := h.core.View(); len(v.Quarantined) != 2 {
		t.Fatalf("quarantine = %v, want 2 of them", v.Quarantined)
	}
}

func TestUnfreedMemorySurvivesARestart(t *testing.T) {
	h, s := newHostWithRealGPUs(t)
	screen := gpu.Process{PID: 7, Memory: 1 << 20}
	stays := []gpu.Process{screen, {PID: 43, Memory: 1 << 30}}
	h.round(status([]gpu.Process{screen}, []gpu.Process{screen}))
	h.run(amy, 1, attempt(1, 1), s, gpus(2))
	h.round(exited(attempt(1, 1), 0))
	h.round(status(stays, []gpu.Process{screen}))
	h.pass(time.Minute)
	h.boot()
	h.round(status(stays, []gpu.Process{screen}))
	if v := h.core.View(); len(v.Quarantined) != 1 || len(v.Free.GPUs) != 1 || v.Quarantined["GPU-a"] == "" {
		t.Fatalf("view = %+v, want GPU-a in quarantine and 1 free GPU", v)
	}
	h.round(status([]gpu.Process{screen}, []gpu.Process{screen}))
	if v := h.core.View(); len(v.Quarantined) != 0 || len(v.Free.GPUs) != 2 {
		t.Fatalf("not free after its memory was: %+v, want no Quarantined and 2 Free.GPUs", v)
	}
}

func TestBreakerSurvivesARestart(t *testing.T) {
	r := newTries(t, 0)
	trip := func() {
		t.Helper()
		for _, user := range []string{"ada", "bea", "ada", "cyd", "ada"} {
			r.fails(user, cpu)
		}
		if r.closed() == "" {
			t.Fatal("the host is not paused")
		}
	}
	again := func() {
		r.boot()
		r.s = r.meet(amy, 1)
	}
	trip()
	said := r.closed()
	again()
	if why := r.closed(); why != said {
		t.Fatalf("after a restart: %q, want %q as before", why, said)
	}
	if _, ok := r.taken("dot", cpu); ok {
		t.Fatal("a paused host accepts a task")
	}
	r.pass(31 * time.Second)
	if why := r.closed(); why != "" {
		t.Fatalf("the pause does not end: %s, want none", why)
	}
	// The second pause is twice as long, even after another restart.
	again()
	trip()
	again()
	r.pass(58 * time.Second)
	if r.closed() == "" {
		t.Fatal("the first pause is forgotten")
	}
	r.round(worker.Drain{})
	again()
	if why := r.closed(); why != "" {
		t.Fatalf("paused though a person resumed the host: %s, want none", why)
	}
}

// If the wall clock is set back while the daemon is down, the pause of the host still ends in time.
func TestPauseEndsThoughTheClockWasSetBack(t *testing.T) {
	r := newTries(t, 0)
	for _, user := range []string{"ada", "bea", "ada", "cyd", "ada"} {
		r.fails(user, cpu)
	}
	r.now.Wall = r.now.Wall.Add(-24 * time.Hour)
	r.boot()
	r.pass(31 * time.Second)
	if why := r.closed(); why != "" {
		t.Fatalf("still paused: %s, want none", why)
	}
}

// The quarantine is written when it has changed, and not for each task or each report of a fault.
func TestQuarantineIsWrittenOnlyWhenItChanges(t *testing.T) {
	h, s := newHostWithRealGPUs(t)
	h.run(amy, 1, attempt(1, 1), s, gpus(1))
	if h.done.Keep != nil {
		t.Fatal("written for a start")
	}
	if e := h.round(exited(attempt(1, 1), 0)); e.Keep != nil {
		t.Fatal("written for an end")
	}
	n := 0
	for range 100 {
		if e := h.round(fault(gone)); e.Keep != nil {
			n++
		}
		h.pass(50 * time.Millisecond)
	}
	if n != 1 {
		t.Fatalf("written %d times for one fault, want 1", n)
	}
}
