package worker_test

// A GPU about which nothing is known: it is allocated to no task, and nothing is concluded.

import (
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/worker"
)

// unknowns are statuses that carry no numbers.
var unknowns = map[string]gpu.Status{
	"no answer": gpu.NotKnown("GPU-a", "the agent does not answer"),
	"lost":      {Utilization: -1, Health: gpu.Unhealthy, Detail: "lost", Unread: true},
}

func TestUnknownGPUIsNotAllocated(t *testing.T) {
	for name, s := range unknowns {
		h, _ := newHostWithRealGPUs(t)
		h.round(statusOf(gpu.Status{Health: gpu.Healthy}))
		h.round(statusOf(s))
		if free := h.core.View().Free.GPUs; len(free) != 1 || free[0].UUID != "GPU-b" {
			t.Errorf(`%s: free = %+v, want 1 of them and [0].UUID "GPU-b"`, name, free)
		}
		if why := quarantine(h); !strings.Contains(why, s.Detail) {
			t.Errorf("%s: reason %q, want %v in it", name, why, s.Detail)
		}
		h.round(statusOf(gpu.Status{Health: gpu.Healthy}))
		if free := h.core.View().Free.GPUs; len(free) != 2 {
			t.Errorf("%s: not free again: %+v, want 2 of them", name, free)
		}
	}
}

func TestUnknownHealthIsNotSaved(t *testing.T) {
	h, _ := newHostWithRealGPUs(t)
	h.round(statusOf(unknowns["no answer"]))
	h.boot()
	if why := quarantine(h); why != "" {
		t.Errorf("a restart keeps %q, which is not known any more, want none", why)
	}
}

// When a person resumes a lost GPU, memory that other programs use does not become free. A GPU of unknown health stays
// unknown.
func TestForeignMemoryStaysTakenWhileUnknown(t *testing.T) {
	for name, s := range unknowns {
		h, _ := newHostWithRealGPUs(t)
		h.round(statusOf(gpu.Status{Health: gpu.Healthy, MemoryUsed: 40 << 30, Processes: []gpu.Process{{PID: 7, Memory: 40 << 30}}}))
		before := h.core.View().Free.GPUs
		h.round(statusOf(s))
		h.round(worker.DeviceRestored{UUID: "GPU-a"})
		after := h.core.View().Free.GPUs
		if after[0].UUID == "GPU-a" && after[0].Memory != before[0].Memory {
			t.Errorf("%s: free %+v, want %+v as before", name, after, before)
		}
		if s.Health == gpu.Unknown && (len(after) != 1 || quarantine(h) == "") {
			t.Errorf("%s: allocated by the word of a person who cannot know: %+v", name, after)
		}
	}
}

func TestOldErrorsAreNotNewAfterAnUnknownStatus(t *testing.T) {
	for name, s := range unknowns {
		h, _ := newHostWithRealGPUs(t)
		old := statusOf(gpu.Status{Health: gpu.Healthy, ECC: 3})
		h.round(old)
		h.round(worker.DeviceRestored{UUID: "GPU-a"}) // a person has seen them
		h.round(statusOf(s))
		h.round(old)
		if why := quarantine(h); why != "" {
			t.Errorf("%s: old errors count as new: %q, want none", name, why)
		}
		h.round(statusOf(gpu.Status{Health: gpu.Healthy, ECC: 4}))
		if why := quarantine(h); !strings.Contains(why, "1 uncorrectable") {
			t.Errorf("%s: a new error does not count: %q", name, why)
		}
	}
}

func TestMemoryOfATaskStaysHeldWhileUnknown(t *testing.T) {
	for name, s := range unknowns {
		h, sched := newHostWithRealGPUs(t)
		h.round(statusOf(gpu.Status{Health: gpu.Healthy}))
		h.run(amy, 1, attempt(1, 1), sched, gpus(2))
		h.round(exited(attempt(1, 1), 0))
		h.round(statusOf(s))
		if v := h.core.View(); len(v.Holders["GPU-a"]) != 1 {
			t.Errorf("%s: released though it is unknown whether its memory is free", name)
		}
		h.pass(time.Minute)
		h.round(statusOf(gpu.Status{Health: gpu.Healthy}))
		if v := h.core.View(); len(v.Free.GPUs) != 2 || len(v.Quarantined) != 0 {
			t.Errorf("%s: not free once the driver answers: %+v, want 2 Free.GPUs and no Quarantined", name, v)
		}
	}
}
