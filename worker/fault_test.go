package worker_test

// Faults of GPUs: which take a GPU out, and the probe that brings it back.

import (
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
	"github.com/musterhq/muster/worker"
)

func aside(h *host) string { return h.core.View().Quarantined["GPU-a"] }

func xid(n uint64) worker.DeviceFault {
	return worker.DeviceFault{Fault: gpu.Fault{UUID: "GPU-a", Xid: n}}
}

// looked is a status of both GPUs, the first of them as given.
func looked(s gpu.Status) worker.DeviceStatus {
	s.UUID = "GPU-a"
	return worker.DeviceStatus{Devices: []gpu.Status{s, {UUID: "GPU-b", Health: gpu.Healthy}}}
}

func TestXidPolicy(t *testing.T) {
	for _, n := range []uint64{13, 31, 43, 45, 68, 109, 1, 32, 92} {
		h, _ := real(t)
		if e := h.round(xid(n)); !e.Poll {
			t.Errorf("xid %d: the driver is not asked", n)
		}
		if why := aside(h); why != "" {
			t.Errorf("xid %d sets a GPU aside: %s", n, why)
		}
	}
	for _, n := range []uint64{48, 63, 64, 74, 79, 94, 95, 119, 120} {
		h, _ := real(t)
		if e := h.round(xid(n)); !e.Poll {
			t.Errorf("xid %d: the driver is not asked", n)
		}
		if why := aside(h); !strings.HasPrefix(why, "xid ") {
			t.Errorf("xid %d does not set the GPU aside: %q", n, why)
		}
	}
}

// The driver's own word counts though the number says nothing.
func TestRecoveryThatTheDriverAsksFor(t *testing.T) {
	h, _ := real(t)
	h.round(xid(31))
	h.round(looked(gpu.Status{Health: gpu.Unhealthy, Detail: "its driver asks for a recovery: reset the GPU", Recovery: gpu.RecoveryReset}))
	if why := aside(h); !strings.Contains(why, "reset the GPU") {
		t.Fatalf("aside = %q", why)
	}
	h.round(looked(gpu.Status{Health: gpu.Healthy, Recovery: gpu.RecoveryNone}))
	if why := aside(h); why != "" {
		t.Fatalf("still aside: %q", why)
	}
}

func TestFaultIsClearedByAProbe(t *testing.T) {
	healthy := looked(gpu.Status{Health: gpu.Healthy})
	h, _ := real(t)
	h.round(xid(79))
	for name, s := range map[string]gpu.Status{
		"too early": {Health: gpu.Healthy}, "unhealthy": {Health: gpu.Unhealthy, Detail: "lost"}, "no answer": {Health: gpu.Unknown},
	} {
		h.round(looked(s))
		if aside(h) == "" {
			t.Fatalf("given away: %s", name)
		}
	}
	h.pass(time.Minute)
	h.round(looked(gpu.Status{Health: gpu.Unknown}))
	if aside(h) == "" {
		t.Fatal("given away though the driver does not answer")
	}
	h.round(healthy)
	if why := aside(h); why != "" {
		t.Fatalf("sound and rested, and still aside: %q", why)
	}
	// The second fault rests for twice as long, a swarm of reports counts once.
	for range 10 {
		h.round(xid(79))
	}
	h.pass(119 * time.Second)
	h.round(healthy)
	if aside(h) == "" {
		t.Fatal("the second pause is no longer than the first")
	}
	h.pass(2 * time.Second)
	h.round(healthy)
	if why := aside(h); why != "" {
		t.Fatalf("still aside: %q", why)
	}
	// After a day without any it is as new.
	h.pass(25 * time.Hour)
	h.round(xid(74))
	h.pass(61 * time.Second)
	h.round(healthy)
	if why := aside(h); why != "" {
		t.Fatalf("a fault of yesterday counts: %q", why)
	}
}

// The first fault is over sooner where the driver vouches for the GPU.
func TestDriverVouches(t *testing.T) {
	vouched := looked(gpu.Status{Health: gpu.Healthy, Recovery: gpu.RecoveryNone})
	h, _ := real(t)
	h.round(xid(94))
	h.pass(11 * time.Second)
	h.round(vouched)
	if why := aside(h); why != "" {
		t.Fatalf("aside = %q", why)
	}
	h.round(xid(94))
	h.pass(30 * time.Second)
	h.round(vouched)
	if aside(h) == "" {
		t.Fatal("vouched for a second time")
	}
}

// A GPU is not probed while a task is on it, and the task goes on.
func TestFaultWhileATaskRuns(t *testing.T) {
	h, s := real(t)
	a := attempt(1, 1)
	h.run(amy, 1, a, s, gpus(2))
	h.round(xid(94))
	for range 4 {
		h.pass(time.Minute)
		h.round(looked(gpu.Status{Health: gpu.Healthy, Recovery: gpu.RecoveryNone}))
		h.answer(amy, 1)
	}
	if aside(h) == "" {
		t.Fatal("cleared under a task")
	}
	if v := h.core.View(); v.Running != 1 {
		t.Fatalf("the task was ended: %+v", v)
	}
	h.round(exited(a, 0))
	h.round(looked(gpu.Status{Health: gpu.Healthy}))
	h.round(looked(gpu.Status{Health: gpu.Healthy}))
	if why := aside(h); why != "" {
		t.Fatalf("aside = %q", why)
	}
	h.wantStates(amy, job.Starting, job.Running, job.Completing, job.Succeeded)
}

// Memory errors that no Xid told of.
func TestMemoryErrorsRise(t *testing.T) {
	h := newHost(t, config(2))
	h.round(looked(gpu.Status{Health: gpu.Healthy, ECC: 7}))
	h.round(looked(gpu.Status{Health: gpu.Healthy, ECC: 7}))
	if why := aside(h); why != "" {
		t.Fatalf("old errors set the GPU aside: %q", why)
	}
	h.round(looked(gpu.Status{Health: gpu.Healthy, ECC: 9}))
	if why := aside(h); why != "2 uncorrectable memory errors" {
		t.Fatalf("aside = %q", why)
	}
	h.round(looked(gpu.Status{Health: gpu.Healthy})) // the driver was loaded anew
	h.pass(time.Minute)
	h.round(looked(gpu.Status{Health: gpu.Healthy}))
	if why := aside(h); why != "" {
		t.Fatalf("aside = %q", why)
	}
}

// A need that waits for a repair keeps nothing from others.
func TestNothingIsKeptForWhatWaitsForARepair(t *testing.T) {
	h, _ := real(t)
	h.round(xid(79))
	waits := offer(1, attempt(1, 1), gpus(2))
	waits.Wait = time.Minute
	h.says(amy, waits)
	h.says(amy, offer(2, attempt(2, 1), gpus(1)))
	if c := one[lease.Commit](h, amy); c.Attempt != attempt(2, 1) {
		t.Fatalf("commit = %+v", c)
	}
}

// A fault of a card that is split is a fault of all its instances.
func TestFaultOfASplitCard(t *testing.T) {
	cfg := config(3)
	cfg.Profile.GPUs[0].Parent, cfg.Profile.GPUs[1].Parent = "GPU-card", "GPU-card"
	h := newHost(t, cfg)
	h.round(worker.DeviceFault{Fault: gpu.Fault{UUID: "GPU-card", Xid: 95}})
	if v := h.core.View(); len(v.Quarantined) != 2 || len(v.Free.GPUs) != 1 {
		t.Fatalf("view = %+v", v)
	}
}
