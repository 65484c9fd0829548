package worker_test

// Who uses the memory of a GPU, and when the GPUs of a drained host are released.

import (
	"slices"
	"testing"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker"
)

const gib = job.Size(1 << 30)

// newHostWithRealGPU returns a host with one GPU that is not simulated.
func newHostWithRealGPU(t *testing.T) (*host, contract.Session) {
	cfg := config(1)
	cfg.Profile.GPUs[0].Simulated = false
	h := newHost(t, cfg)
	s := h.meet(amy, 1)
	h.round(using(0, nil))
	return h, s
}

// using returns a status of the first GPU, on which these programs and something else use memory. ours are the programs
// of tasks, the others are foreign. No program accounts for the rest.
func using(more job.Size, programs map[int]job.Size, ours ...int) worker.DeviceStatus {
	s := gpu.Status{Health: gpu.Healthy, MemoryUsed: more}
	e := worker.DeviceStatus{Tasks: map[int]bool{}}
	for pid, memory := range programs {
		s.MemoryUsed += memory
		s.Processes = append(s.Processes, gpu.Process{PID: pid, Memory: memory})
		e.Tasks[pid] = false
	}
	for _, pid := range ours {
		e.Tasks[pid] = true
	}
	e.Devices = statusOf(s).Devices
	return e
}

// The report of a device that foreign programs use names the program that uses most, and ends with the programs.
func TestForeignProgramIsReported(t *testing.T) {
	h, _ := newHostWithRealGPU(t)
	h.round(using(0, map[int]job.Size{4711: 40 * gib, 4712: 21 * gib}))
	uuid := h.cfg.Profile.GPUs[0].UUID
	want := []contract.ForeignUse{{UUID: uuid, Memory: 61 * gib, PID: 4711, Others: 1}}
	if got := h.core.View().Free.Foreign; !slices.Equal(got, want) {
		t.Errorf("used by others: %+v, want %+v", got, want)
	}
	h.round(using(3*gib, nil)) // of no listed program
	want = []contract.ForeignUse{{UUID: uuid, Memory: 3 * gib}}
	if got := h.core.View().Free.Foreign; !slices.Equal(got, want) {
		t.Errorf("used by nobody who is listed: %+v, want %+v", got, want)
	}
	h.round(using(10<<20, map[int]job.Size{4711: 10 << 20})) // as much as a screen needs
	if got := h.core.View().Free.Foreign; len(got) > 0 {
		t.Errorf("used by a screen: %+v, want none", got)
	}
}

// taken returns the memory of the first GPU that is not free.
func taken(t *testing.T, h *host) job.Size {
	t.Helper()
	for i, g := range h.cfg.Profile.GPUs {
		if g.UUID != "GPU-a" {
			continue
		}
		for _, f := range h.core.View().Free.GPUs {
			if f.UUID == "GPU-a" {
				return h.cfg.Profile.GPUs[i].Memory - f.Memory
			}
		}
		return g.Memory
	}
	t.Fatal("the GPU is not listed")
	return 0
}

func wantTaken(t *testing.T, what string, h *host, want job.Size) {
	t.Helper()
	if got := taken(t, h); got != want {
		t.Errorf("%s: %s of the GPU are taken, want %s", what, got, want)
	}
}

// shareOf is a share of a GPU with this memory.
func shareOf(memory job.Size) job.Resources {
	need := gpus(0)
	need.GPUShare, need.GPUMemory = 0.1, memory
	return need
}

func TestMemoryWithoutAProgramIsTaken(t *testing.T) {
	h, _ := newHostWithRealGPU(t)
	h.round(using(gib/2, nil))
	wantTaken(t, "the driver's own", h, 0)
	h.round(using(73*gib, map[int]job.Size{9: gib}))
	wantTaken(t, "74 GiB in use, and one small program", h, 74*gib)
	h.round(using(gib/2, map[int]job.Size{9: gib}))
	wantTaken(t, "the small program", h, gib)
}

// A foreign program that starts while a task runs is noticed at once, and nothing waits for its end.
func TestForeignProgramBesideATaskDoesNotDelayItsEnd(t *testing.T) {
	h, s := newHostWithRealGPU(t)
	h.round(using(gib/2, nil))
	a := attempt(1, 1)
	task := h.run(amy, 1, a, s, shareOf(20*gib))
	if task.Devices[0] != "GPU-a" {
		t.Fatalf(`on %v, want [0] "GPU-a"`, task.Devices)
	}
	h.round(using(gib/2, map[int]job.Size{43: 10 * gib}, 43))
	wantTaken(t, "the task", h, 20*gib)
	h.round(using(gib/2, map[int]job.Size{43: 10 * gib, 9: 30 * gib}, 43))
	wantTaken(t, "the task and a program", h, 50*gib)
	h.round(exited(a, 0))
	h.round(using(gib/2, map[int]job.Size{44: gib, 9: 30 * gib}, 44)) // a fork of the task
	if v := h.core.View(); len(v.Holders["GPU-a"]) != 1 {
		t.Error("released though a process of the task still runs")
	}
	h.round(using(gib/2, map[int]job.Size{9: 30 * gib}))
	if v := h.core.View(); len(v.Holders["GPU-a"]) != 0 || len(v.Quarantined) != 0 {
		t.Errorf("not released, but the program is not the task's: %+v", v)
	}
	wantTaken(t, "the program", h, 30*gib)
	h.pass(time.Hour)
	h.round(using(gib/2, nil))
	wantTaken(t, "nobody", h, 0)
}

// Memory that was in use before a task does not become the task's because the task has not begun to compute.
func TestMemoryInUseBeforeATaskIsNotTheTasks(t *testing.T) {
	h, s := newHostWithRealGPU(t)
	before := using(20*gib, nil)
	h.round(before)
	wantTaken(t, "before", h, 20*gib)
	h.run(amy, 1, attempt(1, 1), s, shareOf(30*gib))
	wantTaken(t, "reserved", h, 50*gib)
	h.round(before)
	wantTaken(t, "begun", h, 50*gib)
	// The driver lists no programs: the task uses what it has reserved.
	h.round(using(45*gib, nil))
	wantTaken(t, "unlisted", h, 50*gib)
	h.round(using(60*gib, nil))
	wantTaken(t, "more than that", h, 60*gib)
}

// Without control groups nobody knows to whom a program belongs. Then a program that starts while a task runs counts as
// the task's.
func TestProgramThatStartsDuringATaskIsTheTasksWithoutGroups(t *testing.T) {
	h, s := newHostWithRealGPU(t)
	byTime := func(programs map[int]job.Size) worker.DeviceStatus {
		e := using(0, programs)
		e.Tasks = nil
		return e
	}
	h.round(byTime(map[int]job.Size{9: 5 * gib}))
	wantTaken(t, "before", h, 5*gib)
	a := attempt(1, 1)
	h.run(amy, 1, a, s, shareOf(20*gib))
	h.round(byTime(map[int]job.Size{9: 6 * gib, 43: 10 * gib}))
	wantTaken(t, "the one of before has grown", h, 26*gib)
	h.round(exited(a, 0))
	h.round(byTime(map[int]job.Size{9: 6 * gib, 43: 10 * gib}))
	if v := h.core.View(); len(v.Holders["GPU-a"]) != 1 {
		t.Error("released though the other program may be the task's")
	}
	h.round(byTime(map[int]job.Size{9: 6 * gib}))
	wantTaken(t, "after", h, 6*gib)
}

// saysDrained returns what an effect says about the GPUs of a drained host: "", "let go" or "take up".
func saysDrained(e worker.Effects) string {
	switch {
	case e.Drained == nil:
		return ""
	case *e.Drained:
		return "let go"
	}
	return "take up"
}

func TestGPUsOfADrainedHostAreReleased(t *testing.T) {
	h, s := newHostWithRealGPU(t)
	idle := using(0, nil)
	a := attempt(1, 1)
	h.run(amy, 1, a, s, gpus(1))
	if got := saysDrained(h.round(worker.Drain{On: true})); got != "" {
		t.Errorf("%s while a task holds a GPU, want none", got)
	}
	if got := saysDrained(h.round(exited(a, 0))); got != "" {
		t.Errorf("%s before the memory of the task is known to be free, want none", got)
	}
	if got := saysDrained(h.round(idle)); got != "let go" {
		t.Errorf(`drained: %q, want "let go"`, got)
	}
	if got := saysDrained(h.round(worker.Drain{On: true, Reason: "another"})); got != "" {
		t.Errorf("said twice: %s, want none", got)
	}
	if got := saysDrained(h.round(worker.Drain{})); got != "take up" {
		t.Errorf(`back in service: %q, want "take up"`, got)
	}
	// After a restart a drained host says so again.
	h.cfg.Draining = worker.Drain{On: true}
	h.boot()
	if got := saysDrained(h.done); got != "let go" {
		t.Errorf(`after a restart: %q, want "let go"`, got)
	}
}

// A status that changes nothing for placement causes no arbitration, for a free GPU and for one that a task holds.
func TestUnchangedStatusCausesNoArbitration(t *testing.T) {
	h, s := newHostWithRealGPU(t)
	arbitrations := func(e worker.DeviceStatus, times int) (n int) {
		for i := range times {
			e.Devices[0].Utilization, e.Devices[0].Temperature, e.Devices[0].PowerMilli = i%100, 40+i%9, 90_000+i
			if worker.Arbitrates(h.core, h.now, e) {
				n++
			}
			h.round()
		}
		return n
	}
	for _, c := range []struct {
		what string
		of   worker.DeviceStatus
		want int // of 100 statuses
	}{
		{"nothing runs", using(0, nil), 0},
		{"the driver's own memory", using(gib/2, nil), 0},
		{"a program begins", using(gib/2, map[int]job.Size{9: gib}), 1},
		{"it uses more", using(gib/2, map[int]job.Size{9: 2 * gib}), 1},
		{"it ends", using(0, nil), 1},
		{"a program too small to count", using(0, map[int]job.Size{9: 10 << 20}), 0},
		{"it ends, too", using(0, nil), 0},
	} {
		if got := arbitrations(c.of, 100); got != c.want {
			t.Errorf("%s: %d arbitrations, want %d", c.what, got, c.want)
		}
	}
	h.run(amy, 1, attempt(1, 1), s, shareOf(20*gib))
	if got := arbitrations(using(0, map[int]job.Size{43: 10 * gib}, 43), 100); got != 0 {
		t.Errorf("a task runs: %d arbitrations, want 0", got)
	}
	if got := arbitrations(using(0, map[int]job.Size{9: gib}), 100); got != 1 {
		t.Errorf("a program beside the task: %d arbitrations, want 1", got)
	}
}
