package worker_test

// The list of GPUs changes while the daemon runs.

import (
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/worker"
)

// lists changes the GPUs of a host, without a restart.
func (h *host) lists(all []gpu.Device) {
	p := h.core.Profile()
	p.GPUs = all
	h.round(worker.ProfileChanged{Profile: p})
}

// A GPU in quarantine that is lost and found is still in quarantine.
func TestLostAndFoundGPUStaysInQuarantine(t *testing.T) {
	h, _ := newHostWithRealGPUs(t)
	all := h.cfg.Profile.GPUs
	h.round(fault(gone))
	h.lists(all[1:])
	if v := h.core.View(); len(v.Free.GPUs) != 1 || v.Free.GPUs[0].UUID != "GPU-b" {
		t.Fatalf(`without GPU-a: free = %+v, want 1 of them and [0].UUID "GPU-b"`, v.Free.GPUs)
	}
	h.pass(30 * time.Second)
	h.lists(all)
	h.round(statusOf(gpu.Status{Health: gpu.Healthy}))
	if why := quarantine(h); !strings.Contains(why, "xid 79") {
		t.Fatalf(`found again: quarantine = %q, want "xid 79" in it`, why)
	}
	h.pass(31 * time.Second)
	h.round(statusOf(gpu.Status{Health: gpu.Healthy}))
	if why := quarantine(h); why != "" {
		t.Fatalf("healthy after the pause, and still in quarantine: %q, want none", why)
	}
}

// A GPU that the driver does not list when the daemon starts is in quarantine once it is listed.
func TestGPUThatIsListedLaterIsStillInQuarantine(t *testing.T) {
	h, _ := newHostWithRealGPUs(t)
	all := h.cfg.Profile.GPUs
	h.round(fault(gone))
	h.cfg.Profile.GPUs = nil
	h.boot()
	h.lists(all)
	if why := quarantine(h); !strings.Contains(why, "xid 79") {
		t.Fatalf(`quarantine = %q, want "xid 79" in it`, why)
	}
	if free := h.core.View().Free.GPUs; len(free) != 1 || free[0].UUID != "GPU-b" {
		t.Fatalf(`free = %+v, want 1 of them and [0].UUID "GPU-b"`, free)
	}
}

// A GPU that a task holds is not given to another task when it is lost and found.
func TestHeldGPUThatIsLostAndFoundStaysHeld(t *testing.T) {
	h, s := newHostWithRealGPUs(t)
	all := h.cfg.Profile.GPUs
	h.run(amy, 1, attempt(1, 1), s, gpus(2))
	h.lists(nil)
	h.lists(all)
	if v := h.core.View(); len(v.Free.GPUs) != 0 || len(v.Holders["GPU-a"]) != 1 {
		t.Fatalf("view = %+v, want no free GPU and 1 holder of GPU-a", v)
	}
}

// Unfreed memory that was recorded in another boot is forgotten.
func TestUnfreedMemoryOfAnotherBootIsForgotten(t *testing.T) {
	h, s := newHostWithRealGPUs(t)
	all := h.cfg.Profile.GPUs
	stays := []gpu.Process{{PID: 43, Memory: 1 << 30}}
	h.round(status(nil, nil))
	h.run(amy, 1, attempt(1, 1), s, gpus(2))
	h.round(exited(attempt(1, 1), 0))
	h.round(status(stays, nil))
	h.pass(time.Minute)
	h.cfg.Profile.GPUs = nil
	h.cfg.Boot = "boot-2"
	h.boot()
	h.lists(all)
	if why := quarantine(h); why != "" {
		t.Fatalf("quarantine = %q, want none", why)
	}
}
