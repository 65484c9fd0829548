package worker_test

// What is set aside outlives the daemon.

import (
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/worker"
)

func TestFaultOutlivesTheDaemon(t *testing.T) {
	healthy := looked(gpu.Status{Health: gpu.Healthy})
	h, _ := real(t)
	h.round(xid(79))
	h.pass(20 * time.Second)
	h.boot()
	h.round(healthy)
	if why := aside(h); why != "xid 79 (fallen off the bus)" {
		t.Fatalf("after a restart: aside = %q", why)
	}
	if free := h.core.View().Free.GPUs; len(free) != 1 || free[0].UUID != "GPU-b" {
		t.Fatalf("free = %+v", free)
	}
	// It rests for no longer than without the restart, and a reboot is one.
	h.cfg.Boot = "boot-2"
	h.now.Boot = 0
	h.boot()
	h.pass(39 * time.Second)
	h.round(healthy)
	if aside(h) == "" {
		t.Fatal("given away before it has rested")
	}
	h.pass(2 * time.Second)
	h.round(healthy)
	if why := aside(h); why != "" {
		t.Fatalf("sound and rested, and still aside: %q", why)
	}
	// The next life does not find it set aside, and counts the fault.
	h.boot()
	if why := aside(h); why != "" {
		t.Fatalf("aside again: %q", why)
	}
	h.round(xid(79))
	h.pass(119 * time.Second)
	h.round(healthy)
	if aside(h) == "" {
		t.Fatal("the fault before the restart is forgotten")
	}
	h.round(worker.DeviceRestored{UUID: "GPU-a"})
	h.boot()
	if why := aside(h); why != "" {
		t.Fatalf("a person gave it back: %q", why)
	}
}

// Until its driver has been asked again, a GPU is as its driver said last.
func TestHealthOutlivesTheDaemon(t *testing.T) {
	h, _ := real(t)
	h.round(looked(gpu.Status{Health: gpu.Unhealthy, Detail: "row remap pending"}))
	h.boot()
	if why := aside(h); !strings.Contains(why, "row remap pending") {
		t.Fatalf("aside = %q", why)
	}
	h.round(looked(gpu.Status{Health: gpu.Healthy}))
	if why := aside(h); why != "" {
		t.Fatalf("aside = %q", why)
	}
}

// A GPU that its driver lists no more is set aside when it does again.
func TestFaultOfAGPUThatIsGoneForAWhile(t *testing.T) {
	h, _ := real(t)
	h.round(xid(79))
	all := h.cfg.Profile.GPUs
	h.cfg.Profile.GPUs = all[1:]
	h.boot()
	h.round(worker.DeviceFault{Fault: gpu.Fault{UUID: "GPU-b", Xid: 74}}) // is written
	h.cfg.Profile.GPUs = all
	h.boot()
	if v := h.core.View(); len(v.Quarantined) != 2 {
		t.Fatalf("aside = %v", v.Quarantined)
	}
}

func TestMemoryThatIsNotBackOutlivesTheDaemon(t *testing.T) {
	h, s := real(t)
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
		t.Fatalf("view = %+v", v)
	}
	h.round(status([]gpu.Process{screen}, []gpu.Process{screen}))
	if v := h.core.View(); len(v.Quarantined) != 0 || len(v.Free.GPUs) != 2 {
		t.Fatalf("not back: %+v", v)
	}
}

func TestBreakerOutlivesTheDaemon(t *testing.T) {
	r := newTries(t, 0)
	trip := func() {
		t.Helper()
		for _, user := range []string{"ada", "bea", "ada", "cyd", "ada"} {
			r.fails(user, cpu)
		}
		if r.closed() == "" {
			t.Fatal("not set aside")
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
		t.Fatalf("after a restart: %q, before: %q", why, said)
	}
	if _, ok := r.taken("dot", cpu); ok {
		t.Fatal("a broken host takes a task")
	}
	r.pass(31 * time.Second)
	if why := r.closed(); why != "" {
		t.Fatalf("the pause does not end: %s", why)
	}
	// The second pause is twice as long, though the daemon was restarted again.
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
		t.Fatalf("a person resumed it: %s", why)
	}
}

// A clock that was set back while the daemon was down keeps no host out.
func TestPauseAndTheClock(t *testing.T) {
	r := newTries(t, 0)
	for _, user := range []string{"ada", "bea", "ada", "cyd", "ada"} {
		r.fails(user, cpu)
	}
	r.now.Wall = r.now.Wall.Add(-24 * time.Hour)
	r.boot()
	r.pass(31 * time.Second)
	if why := r.closed(); why != "" {
		t.Fatalf("still out: %s", why)
	}
}

// Only what has changed is written: not for each task, nor for each report of
// a swarm.
func TestWhatIsSetAsideIsWrittenRarely(t *testing.T) {
	h, s := real(t)
	h.run(amy, 1, attempt(1, 1), s, gpus(1))
	if h.done.Keep != nil {
		t.Fatal("written for a start")
	}
	if e := h.round(exited(attempt(1, 1), 0)); e.Keep != nil {
		t.Fatal("written for an end")
	}
	n := 0
	for range 100 {
		if e := h.round(xid(79)); e.Keep != nil {
			n++
		}
		h.pass(50 * time.Millisecond)
	}
	if n != 1 {
		t.Fatalf("written %d times for one swarm", n)
	}
}
