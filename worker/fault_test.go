package worker_test

// Faults of GPUs: which of them put a GPU into quarantine, and the probe that ends the quarantine.

import (
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker"
)

func quarantine(h *host) string { return h.core.View().Quarantined["GPU-a"] }

// fault is an error of the first GPU itself.
func fault(text string) worker.DeviceFault {
	return worker.DeviceFault{Fault: gpu.Fault{UUID: "GPU-a", Text: text, Severity: gpu.SeverityDevice}}
}

const gone = "xid 79 (fallen off the bus)"

// statusOf returns a status of both GPUs, with s for the first.
func statusOf(s gpu.Status) worker.DeviceStatus {
	s.UUID = "GPU-a"
	return worker.DeviceStatus{Devices: []gpu.Status{s, {UUID: "GPU-b", Health: gpu.Healthy}}}
}

// The driver says which errors are faults of the GPU itself. Its status is polled after every error.
func TestDriverDecidesWhichErrorsAreFaults(t *testing.T) {
	for _, severity := range []gpu.Severity{gpu.SeverityProgram, gpu.SeverityUnknown, "of a newer driver"} {
		h, _ := newHostWithRealGPUs(t)
		if e := h.round(worker.DeviceFault{Fault: gpu.Fault{UUID: "GPU-a", Code: 79, Text: gone, Severity: severity}}); !e.Poll {
			t.Errorf("%q: the status is not polled", severity)
		}
		if why := quarantine(h); why != "" {
			t.Errorf("%q puts a GPU into quarantine: %s, want none", severity, why)
		}
	}
	for text, want := range map[string]string{gone: gone, "": "the driver reported a fault"} {
		h, _ := newHostWithRealGPUs(t)
		if e := h.round(fault(text)); !e.Poll {
			t.Errorf("%q: the status is not polled", text)
		}
		if why := quarantine(h); why != want {
			t.Errorf("%q does not put the GPU into quarantine: %q, want %v", text, why, want)
		}
	}
}

// The driver's severity counts, even if the number of the error is none of a fault.
func TestRequestedRecoveryCausesAQuarantine(t *testing.T) {
	h, _ := newHostWithRealGPUs(t)
	h.round(worker.DeviceFault{Fault: gpu.Fault{UUID: "GPU-a", Severity: gpu.SeverityProgram}})
	h.round(statusOf(gpu.Status{Health: gpu.Unhealthy, Detail: "its driver asks for a recovery: reset the GPU", Recovery: gpu.RecoveryReset}))
	if why := quarantine(h); !strings.Contains(why, "reset the GPU") {
		t.Fatalf(`quarantine = %q, want "reset the GPU" in it`, why)
	}
	h.round(statusOf(gpu.Status{Health: gpu.Healthy, Recovery: gpu.RecoveryNone}))
	if why := quarantine(h); why != "" {
		t.Fatalf("still in quarantine: %q, want none", why)
	}
}

func TestProbeEndsTheQuarantine(t *testing.T) {
	healthy := statusOf(gpu.Status{Health: gpu.Healthy})
	h, _ := newHostWithRealGPUs(t)
	h.round(fault(gone))
	for name, s := range map[string]gpu.Status{
		"too early": {Health: gpu.Healthy}, "unhealthy": {Health: gpu.Unhealthy, Detail: "lost"}, "no answer": {Health: gpu.Unknown},
	} {
		h.round(statusOf(s))
		if quarantine(h) == "" {
			t.Fatalf("out of quarantine: %s", name)
		}
	}
	h.pass(time.Minute)
	h.round(statusOf(gpu.Status{Health: gpu.Unknown}))
	if quarantine(h) == "" {
		t.Fatal("out of quarantine though the driver does not answer")
	}
	h.round(healthy)
	if why := quarantine(h); why != "" {
		t.Fatalf("healthy after the pause, and still in quarantine: %q, want none", why)
	}
	// The pause after the second fault is twice as long. Many reports of one fault count once.
	for range 10 {
		h.round(fault(gone))
	}
	h.pass(119 * time.Second)
	h.round(healthy)
	if quarantine(h) == "" {
		t.Fatal("the second pause is no longer than the first")
	}
	h.pass(2 * time.Second)
	h.round(healthy)
	if why := quarantine(h); why != "" {
		t.Fatalf("still in quarantine: %q, want none", why)
	}
	// After a day without faults the earlier ones are forgotten.
	h.pass(25 * time.Hour)
	h.round(fault("xid 74"))
	h.pass(61 * time.Second)
	h.round(healthy)
	if why := quarantine(h); why != "" {
		t.Fatalf("an old fault counts: %q, want none", why)
	}
}

// The pause after a first fault is shorter if the driver says that no recovery is needed.
func TestPauseIsShorterIfNoRecoveryIsNeeded(t *testing.T) {
	noRecovery := statusOf(gpu.Status{Health: gpu.Healthy, Recovery: gpu.RecoveryNone})
	h, _ := newHostWithRealGPUs(t)
	h.round(fault("xid 94"))
	h.pass(11 * time.Second)
	h.round(noRecovery)
	if why := quarantine(h); why != "" {
		t.Fatalf("quarantine = %q, want none", why)
	}
	h.round(fault("xid 94"))
	h.pass(30 * time.Second)
	h.round(noRecovery)
	if quarantine(h) == "" {
		t.Fatal("the pause after the second fault is shorter too")
	}
}

// A quarantine does not end while a task holds the GPU, and the task goes on.
func TestQuarantineLastsWhileATaskHoldsTheGPU(t *testing.T) {
	h, s := newHostWithRealGPUs(t)
	a := attempt(1, 1)
	h.run(amy, 1, a, s, gpus(2))
	h.round(fault("xid 94"))
	for range 4 {
		h.pass(time.Minute)
		h.round(statusOf(gpu.Status{Health: gpu.Healthy, Recovery: gpu.RecoveryNone}))
		h.answer(amy, 1)
	}
	if quarantine(h) == "" {
		t.Fatal("the quarantine ended while a task held the GPU")
	}
	if v := h.core.View(); v.Running != 1 {
		t.Fatalf("the task was ended: %+v, want Running 1", v)
	}
	h.round(exited(a, 0))
	h.round(statusOf(gpu.Status{Health: gpu.Healthy}))
	h.round(statusOf(gpu.Status{Health: gpu.Healthy}))
	if why := quarantine(h); why != "" {
		t.Fatalf("quarantine = %q, want none", why)
	}
	h.wantStates(amy, job.Starting, job.Running, job.Completing, job.Succeeded)
}

// New memory errors are a fault, even without an Xid error.
func TestNewMemoryErrorsAreAFault(t *testing.T) {
	h := newHost(t, config(2))
	h.round(statusOf(gpu.Status{Health: gpu.Healthy, ECC: 7}))
	h.round(statusOf(gpu.Status{Health: gpu.Healthy, ECC: 7}))
	if why := quarantine(h); why != "" {
		t.Fatalf("old errors put the GPU into quarantine: %q, want none", why)
	}
	h.round(statusOf(gpu.Status{Health: gpu.Healthy, ECC: 9}))
	if why := quarantine(h); why != "2 uncorrectable memory errors" {
		t.Fatalf(`quarantine = %q, want "2 uncorrectable memory errors"`, why)
	}
	h.round(statusOf(gpu.Status{Health: gpu.Healthy})) // the driver was loaded again
	h.pass(time.Minute)
	h.round(statusOf(gpu.Status{Health: gpu.Healthy}))
	if why := quarantine(h); why != "" {
		t.Fatalf("quarantine = %q, want none", why)
	}
}

// Nothing is held back for an offer that cannot fit before a GPU is repaired.
func TestNothingIsHeldBackForAnOfferThatNeedsARepair(t *testing.T) {
	h, _ := newHostWithRealGPUs(t)
	h.round(fault(gone))
	waits := offer(1, attempt(1, 1), gpus(2))
	waits.Wait = time.Minute
	h.says(amy, waits)
	h.says(amy, offer(2, attempt(2, 1), gpus(1)))
	if c := one[contract.Commit](h, amy); c.Attempt != attempt(2, 1) {
		t.Fatalf("commit = %+v, want Attempt %v", c, attempt(2, 1))
	}
}

// A fault of a split GPU counts for all its MIG instances.
func TestFaultOfASplitCardCountsForItsInstances(t *testing.T) {
	cfg := config(3)
	cfg.Profile.GPUs[0].Parent, cfg.Profile.GPUs[1].Parent = "GPU-card", "GPU-card"
	h := newHost(t, cfg)
	h.round(worker.DeviceFault{Fault: gpu.Fault{UUID: "GPU-card", Severity: gpu.SeverityDevice, Text: "xid 95 (uncontained memory error)"}})
	if v := h.core.View(); len(v.Quarantined) != 2 || len(v.Free.GPUs) != 1 {
		t.Fatalf("view = %+v, want 2 Quarantined and 1 Free.GPUs", v)
	}
}
