package worker_test

// Attempts: events, ends, cancels, a failing disk, restarts.

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker"
	"github.com/musterhq/muster/worker/driver"
	"github.com/musterhq/muster/worker/step"
)

func TestEventsAreNumberedAndKeptUntilAcknowledged(t *testing.T) {
	h := newHost(t, config(1))
	s := h.meet(amy, 1)
	a := attempt(1, 1)
	h.run(amy, 1, a, s, gpus(1))
	h.round(exited(a, 0))
	check := func(from uint64) {
		t.Helper()
		want := []job.State{job.Starting, job.Running, job.Completing, job.Succeeded}
		all := got[contract.Event](h, amy)
		if len(all) != len(want)-int(from)+1 {
			t.Fatalf("told %+v, want from %d on", all, from)
		}
		for i, e := range all {
			n := from + uint64(i)
			if e.N != n || e.State != want[n-1] || (e.Exit != nil) != (n == 4) || len(e.Devices) != 1 {
				t.Fatalf("event %d = %+v, want its number, its state, one device and an exit only at the end", n, e)
			}
		}
	}
	check(1)
	again := func() {
		h.round(worker.Down{Peer: amy})
		h.round(worker.Up{Peer: amy})
	}
	again()
	check(1)
	h.says(amy, contract.Ack{Attempt: a, N: 2})
	again()
	check(3)
	h.boot()
	h.meet(amy, 1)
	all := got[contract.Event](h, amy)
	if last := all[len(all)-1]; last.N != 4 || last.State != job.Succeeded {
		t.Fatalf("after a restart: %+v, want a last event 4, SUCCEEDED", all)
	}
	h.says(amy, contract.Ack{Attempt: a, N: 4})
	if len(h.records) > 0 {
		t.Fatal("the record is kept after the last acknowledgement")
	}
}

func TestTaskThatCannotBeExecutedFails(t *testing.T) {
	h := newHost(t, config(0))
	s := h.meet(amy, 1)
	a := attempt(1, 1)
	h.says(amy, offer(1, a, cpu))
	h.says(amy, start(1, a, s, cpu))
	h.round(driver.Event{Attempt: a, Kind: driver.Failed, Exit: job.Exit{State: job.Failed, Code: 127, Reason: "no such file"}})
	all := got[contract.Event](h, amy)
	if len(all) != 2 || all[1].N != 2 || all[1].Exit == nil || all[1].Exit.Code != 127 || all[1].Exit.Started {
		t.Fatalf("events = %+v, want a second with exit code 127, not started", all)
	}
	if h.core.View().Free.CPUs != 8 {
		t.Fatal("the task still holds CPUs")
	}
}

func TestCancelInEachPhase(t *testing.T) {
	a := attempt(1, 1)
	cancel := contract.Cancel{Attempt: a, Group: group, Epoch: epoch(1), Grace: 3 * time.Second, Reason: "enough"}
	t.Run("running", func(t *testing.T) {
		h := newHost(t, config(0))
		s := h.meet(amy, 1)
		h.run(amy, 1, a, s, cpu)
		e := h.says(amy, cancel)
		if !slices.Equal(e.Stop, []step.Stop{{Attempt: a, Grace: 3 * time.Second, Reason: "enough"}}) {
			t.Fatalf("stop = %+v, want %v", e.Stop, []step.Stop{{Attempt: a, Grace: 3 * time.Second, Reason: "enough"}})
		}
		h.round(worker.StopFailed{Attempt: a})
		h.jump(time.Second)
		if e = h.round(); len(e.Stop) != 1 {
			t.Fatal("a Stop that failed is not repeated")
		}
		h.round(exited(a, 143))
		all := got[contract.Event](h, amy)
		if x := all[len(all)-1].Exit; x == nil || x.State != job.Cancelled || x.Reason != "enough" || x.Code != 143 {
			t.Fatalf("exit = %+v, want CANCELLED with the reason \"enough\" and code 143", x)
		}
		h.says(amy, cancel)
		h.wantStates(amy, job.Cancelled)
	})
	t.Run("reserved", func(t *testing.T) {
		h := newHost(t, config(0))
		s := h.meet(amy, 1)
		h.says(amy, offer(1, a, cpu))
		h.says(amy, cancel)
		if one[contract.Event](h, amy).Refused == "" || h.core.View().Free.CPUs != 8 {
			t.Fatal("the reservation is not released")
		}
		if e := h.says(amy, start(1, a, s, cpu)); len(e.Start) > 0 {
			t.Fatal("a cancelled reservation was started")
		}
	})
	t.Run("in the round of its start", func(t *testing.T) {
		h := newHost(t, config(0))
		s := h.meet(amy, 1)
		h.says(amy, offer(1, a, cpu))
		e := h.says(amy, start(1, a, s, cpu), cancel)
		if len(e.Start)+len(e.Stop) > 0 {
			t.Fatalf("effects = %+v, want neither a Start nor a Stop", e)
		}
		if ev := one[contract.Event](h, amy); ev.State != job.Cancelled || ev.Refused == "" {
			t.Fatalf("event = %+v, want CANCELLED and Refused", ev)
		}
	})
	t.Run("unknown", func(t *testing.T) {
		h := newHost(t, config(0))
		h.meet(amy, 1)
		h.says(amy, cancel)
		if len(got[contract.Event](h, amy))+len(h.records) > 0 {
			t.Fatal("a cancel of an unknown attempt was answered")
		}
	})
	t.Run("ended before it was told to", func(t *testing.T) {
		h := newHost(t, config(0))
		s := h.meet(amy, 1)
		h.run(amy, 1, a, s, cpu)
		ended := h.now.Wall
		h.jump(time.Second)
		h.says(amy, cancel)
		ev := exited(a, 0)
		ev.Exit.Ended = ended
		h.round(ev)
		h.wantStates(amy, job.Starting, job.Running, job.Completing, job.Succeeded)
	})
}

func TestAttemptThatItsOwnerDoesNotKeepIsStopped(t *testing.T) {
	h := newHost(t, config(0))
	s := h.meet(amy, 1)
	h.run(amy, 1, attempt(1, 1), s, cpu)
	h.pass(contract.RenewEvery)
	e := h.says(amy, answerTo(one[contract.Renew](h, amy), 1, false))
	if len(e.Stop) != 1 || len(e.Extend) != 0 {
		t.Fatalf("effects = %+v, want 1 Stop and no Extend", e)
	}
}

func TestHoldHasNoDeadline(t *testing.T) {
	h := newHost(t, config(0))
	s := h.meet(amy, 1)
	h.says(amy, offer(1, attempt(1, 1), cpu))
	m := start(1, attempt(1, 1), s, cpu)
	x := spec(cpu)
	x.Partition = "hold"
	m.File = file(x)
	e := h.says(amy, m)
	if len(e.Start) != 1 || !e.Start[0].Hold || e.Start[0].Deadline != 0 {
		t.Fatalf("start = %+v, want one with Hold and without a deadline", e.Start)
	}
	h.pass(contract.RenewEvery)
	if e = h.says(amy, answerTo(one[contract.Renew](h, amy), 1, true)); len(e.Extend) > 0 {
		t.Fatalf("extended %v, want none", e.Extend)
	}
}

func TestNothingIsDoneBeforeItIsOnDisk(t *testing.T) {
	h := newHost(t, config(1))
	s := h.meet(amy, 1)
	h.run(amy, 1, attempt(1, 1), s, cpu)
	h.says(amy, offer(2, attempt(2, 1), cpu))
	one[contract.Commit](h, amy)
	waits := offer(3, attempt(3, 1), job.Resources{CPUs: 8})
	waits.Wait = time.Minute
	h.says(amy, waits)
	h.states(amy)

	h.failing = true
	urgent := offer(4, attempt(4, 1), gpus(1))
	urgent.Priority = 60
	e := h.says(amy, start(2, attempt(2, 1), s, cpu), urgent)
	if len(e.Start) > 0 || len(got[contract.Commit](h, amy))+len(h.states(amy)) > 0 {
		t.Fatal("acted before the write to disk")
	}
	h.pass(1100 * time.Millisecond)
	h.says(amy, offer(5, attempt(5, 1), cpu))
	declined := map[uint64]bool{}
	for _, d := range got[contract.Decline](h, amy) {
		declined[d.Offer] = true
		if d.Never || !strings.Contains(d.Reason.Detail, "no space left") {
			t.Fatalf("decline = %+v, want a decline for now with \"no space left\"", d)
		}
	}
	if len(declined) != 3 || !declined[3] || !declined[4] || !declined[5] {
		t.Fatalf("declined %v, want 3, 4 and 5", declined)
	}
	// The running task goes on: its lease is renewed, and it may end.
	h.pass(contract.RenewEvery)
	rs := got[contract.Renew](h, amy)
	if e = h.says(amy, answerTo(rs[len(rs)-1], 1, true)); len(e.Extend) != 1 {
		t.Fatalf("extended %v, want 1 of them", e.Extend)
	}
	h.round(exited(attempt(1, 1), 7))
	h.pass(1100 * time.Millisecond)
	if st := h.states(amy); !slices.Equal(st, []job.State{job.Cancelled, job.Completing, job.Failed}) {
		t.Fatalf("told %v, want the refusal and the end, though they are not on disk", st)
	}
	h.failing = false
	h.pass(1100 * time.Millisecond)
	if again := got[contract.Event](h, amy); len(again) > 0 {
		t.Fatalf("after the disk is back: %+v, want none", again)
	}
	if p, q := h.records[attempt(1, 1)].Phase, h.records[attempt(2, 1)].Phase; p != contract.PhaseDone || q != contract.PhaseRefused {
		t.Fatalf("on disk: %v and %v, want %v and %v", p, q, contract.PhaseDone, contract.PhaseRefused)
	}
	h.says(amy, offer(6, attempt(6, 1), job.Resources{CPUs: 8, GPUs: 1}))
	one[contract.Commit](h, amy)
}

// The event tells the owner when the process began, even if the worker has restarted since.
func TestEventsHaveTheStartTimeOfTheProcess(t *testing.T) {
	a := attempt(1, 1)
	began := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	h := newHost(t, config(2))
	s := h.meet(amy, 1)
	h.says(amy, offer(1, a, gpus(1)))
	h.says(amy, start(1, a, s, gpus(1)))
	found := driver.Event{Attempt: a, Kind: driver.Started, PID: 42, Began: began}
	check := func() {
		t.Helper()
		all := got[contract.Event](h, amy)
		if len(all) != 2 || all[0].State != job.Starting || !all[0].Began.IsZero() || all[1].State != job.Running || !all[1].Began.Equal(began) {
			t.Errorf("told %+v, want that it began at %s", all, began)
		}
	}
	h.round(found)
	check()
	h.cfg.Seed = 2
	h.boot(found)
	h.meet(amy, 1)
	check()
	h.run(amy, 2, attempt(2, 1), h.meet(amy, 1), gpus(1)) // the driver does not report the time
	if h.records[attempt(2, 1)].Started.IsZero() {
		t.Error("the record has no start time")
	}
}

func TestRestartedDaemonReportsWhatBecameOfItsTasks(t *testing.T) {
	a := attempt(1, 1)
	for name, c := range map[string]struct {
		boot   string
		found  []driver.Event
		states []job.State
		reason string
	}{
		"still runs":     {"boot-1", []driver.Event{{Attempt: a, Kind: driver.Started, PID: 42}}, []job.State{job.Starting, job.Running}, ""},
		"ended":          {"boot-1", []driver.Event{exited(a, 0)}, []job.State{job.Starting, job.Running, job.Completing, job.Succeeded}, ""},
		"runner died":    {"boot-1", nil, []job.State{job.Starting, job.Running, job.Completing, job.NodeFail}, "runner died"},
		"host restarted": {"boot-2", nil, []job.State{job.Starting, job.Running, job.Completing, job.NodeFail}, "host restarted"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, config(2))
			s := h.meet(amy, 1)
			h.run(amy, 1, a, s, gpus(1))
			h.says(amy, offer(2, attempt(2, 1), gpus(1)))
			h.cfg.Boot, h.cfg.Seed = c.boot, 2
			h.boot(c.found...)
			free := 1
			if len(c.states) == 4 {
				free = 2
			}
			if v := h.core.View(); len(v.Free.GPUs) != free {
				t.Fatalf("free %+v, want %d devices", v.Free, free)
			}
			if r := h.records[attempt(2, 1)]; r.Phase != "" {
				t.Fatalf("a reservation survived the restart: %+v, want Phase none", r)
			}
			if s2 := h.meet(amy, 1); s2 == s {
				t.Fatal("the session is that of before the restart")
			}
			all := got[contract.Event](h, amy)
			var st []job.State
			for i, e := range all {
				st = append(st, e.State)
				if e.N != uint64(i+1) {
					t.Fatalf("events = %+v, want them numbered from 1", all)
				}
			}
			if !slices.Equal(st, c.states) {
				t.Fatalf("told %v, want %v", st, c.states)
			}
			if x := all[len(all)-1].Exit; x != nil && (x.Reason != c.reason || !x.Started) {
				t.Fatalf("exit = %+v, want the reason of the case, and Started", x)
			}
			if e := h.says(amy, start(2, attempt(2, 1), s, gpus(1))); len(e.Start) > 0 {
				t.Fatal("a Start from before the restart started a task")
			}
		})
	}
}

func TestUnknownTaskIsStopped(t *testing.T) {
	h := newHost(t, config(0))
	h.boot(driver.Event{Attempt: attempt(1, 1), Kind: driver.Started, PID: 42}, exited(attempt(2, 1), 0))
	if len(h.done.Stop) != 1 || len(h.done.Forget) != 1 {
		t.Fatalf("effects = %+v, want 1 Stop and 1 Forget", h.done)
	}
}

// newHostWithRealGPUs returns a host with devices that are not simulated.
func newHostWithRealGPUs(t *testing.T) (*host, contract.Session) {
	cfg := config(2)
	for i := range cfg.Profile.GPUs {
		cfg.Profile.GPUs[i].Simulated = false
	}
	h := newHost(t, cfg)
	s := h.meet(amy, 1)
	h.round(status(nil, nil))
	return h, s
}

func status(a, b []gpu.Process) worker.DeviceStatus {
	return worker.DeviceStatus{Devices: []gpu.Status{
		{UUID: "GPU-a", Health: gpu.Healthy, Processes: a}, {UUID: "GPU-b", Health: gpu.Healthy, Processes: b},
	}}
}

func TestDevicesAreFreeOnceTheirMemoryIsFree(t *testing.T) {
	h, s := newHostWithRealGPUs(t)
	ours := []gpu.Process{{PID: 43, Memory: 1 << 30}}
	h.run(amy, 1, attempt(1, 1), s, gpus(2))
	h.round(status(ours, ours))
	h.states(amy)
	if e := h.round(exited(attempt(1, 1), 0)); !e.Poll {
		t.Fatal("no device status was requested")
	}
	h.round(status(nil, ours))
	h.wantStates(amy, job.Completing)
	if len(h.core.View().Free.GPUs) != 0 {
		t.Fatal("the device is free though its memory is in use")
	}
	h.round(status(nil, nil))
	h.wantStates(amy, job.Succeeded)
	if len(h.core.View().Free.GPUs) != 2 {
		t.Fatal("the devices are not free")
	}
}

func TestDeviceWhoseMemoryStaysInUseIsQuarantined(t *testing.T) {
	h, s := newHostWithRealGPUs(t)
	ours := []gpu.Process{{PID: 43, Memory: 1 << 30}}
	task := h.run(amy, 1, attempt(1, 1), s, gpus(1))
	a, b := ours, []gpu.Process(nil)
	if task.Devices[0] == "GPU-b" {
		a, b = b, a
	}
	h.round(exited(attempt(1, 1), 0))
	h.round(status(a, b))
	h.pass(time.Minute)
	if st := h.states(amy); st[len(st)-1] != job.Succeeded {
		t.Fatalf("told %v, want the end", st)
	}
	v := h.core.View()
	if len(v.Free.GPUs) != 1 || v.Quarantined[task.Devices[0]] == "" {
		t.Fatalf("view = %+v, want 1 free GPU and the other in quarantine", v)
	}
	h.round(status(a, b))
	if len(h.core.View().Free.GPUs) != 1 {
		t.Fatal("free while memory is in use")
	}
	h.round(status(nil, nil))
	if v = h.core.View(); len(v.Free.GPUs) != 2 || len(v.Quarantined) != 0 {
		t.Fatalf("not free after its memory was: %+v, want 2 Free.GPUs and no Quarantined", v)
	}
}

func TestForeignMemoryCountsAsTaken(t *testing.T) {
	h, _ := newHostWithRealGPUs(t)
	h.round(status([]gpu.Process{{PID: 9, Memory: 79e9}}, nil))
	m := offer(1, attempt(1, 1), gpus(2))
	h.says(amy, m)
	one[contract.Decline](h, amy)
	h.says(amy, offer(2, attempt(2, 1), gpus(1)))
	if c := one[contract.Commit](h, amy); !slices.Equal(c.Devices, []string{"GPU-b"}) {
		t.Fatalf("commit = %+v, want Devices %v", c, []string{"GPU-b"})
	}
}

func TestFaultAndHealthDecideOnQuarantine(t *testing.T) {
	h, _ := newHostWithRealGPUs(t)
	free := func() int { return len(h.core.View().Free.GPUs) }
	h.round(worker.DeviceFault{Fault: gpu.Fault{UUID: "GPU-a", Severity: gpu.SeverityProgram}})
	if free() != 2 {
		t.Fatal("an error of a program puts a device into quarantine")
	}
	h.round(fault(gone))
	bad := status(nil, nil)
	bad.Devices[0].Health, bad.Devices[0].Detail = gpu.Unhealthy, "ecc"
	h.round(bad)
	h.round(status(nil, nil))
	if v := h.core.View(); free() != 1 || v.Quarantined["GPU-a"] != "xid 79 (fallen off the bus)" {
		t.Fatalf("view = %+v, want 1 free GPU and GPU-a in quarantine", v)
	}
	h.round(worker.DeviceRestored{UUID: "GPU-a"})
	if free() != 2 {
		t.Fatal("the device is still in quarantine")
	}
}

func TestChangedProfileIsReported(t *testing.T) {
	h := newHost(t, config(2))
	s := h.meet(amy, 1)
	h.run(amy, 1, attempt(1, 1), s, gpus(2))
	got[contract.Hello](h, amy)
	p := config(1).Profile
	p.CPUs = 4
	h.round(worker.ProfileChanged{Profile: p})
	if m := one[contract.Hello](h, amy); m.Profile.CPUs != 4 || m.Free.CPUs != 3 || len(m.Free.GPUs) != 0 {
		t.Fatalf("hello = %+v, want Profile.CPUs 4, Free.CPUs 3 and no Free.GPUs", m)
	}
	h.round(exited(attempt(1, 1), 0))
	if f := h.core.View().Free; f.CPUs != 4 || len(f.GPUs) != 1 {
		t.Fatalf("free = %+v, want CPUs 4 and 1 GPUs", f)
	}
}

// The owner is told what a container waits for, until it runs.
func TestOwnerIsToldWhatAnAttemptWaitsFor(t *testing.T) {
	h := newHost(t, config(2))
	s := h.meet(amy, 1)
	h.says(amy, offer(1, attempt(1, 1), gpus(0)))
	h.says(amy, start(1, attempt(1, 1), s, gpus(0)))
	got[contract.Event](h, amy)
	pull := driver.Event{Attempt: attempt(1, 1), Kind: driver.Starting, Detail: "pulling a:1: 2 of 5 layers"}
	h.round(pull)
	if ev := one[contract.Event](h, amy); ev.State != job.Starting || ev.N != 1 || ev.Detail != pull.Detail {
		t.Fatalf("event = %+v, want State %v, N 1 and Detail %v", ev, job.Starting, pull.Detail)
	}
	h.round(worker.Down{Peer: amy})
	h.round(worker.Up{Peer: amy})
	if ev := one[contract.Event](h, amy); ev.N != 1 || ev.Detail != pull.Detail {
		t.Fatalf("in the next session: %+v, want N 1 and Detail %v", ev, pull.Detail)
	}
	h.round(driver.Event{Attempt: attempt(1, 1), Kind: driver.Started, PID: 7})
	if ev := one[contract.Event](h, amy); ev.State != job.Running || ev.N != 2 {
		t.Fatalf("event = %+v, want State %v and N 2", ev, job.Running)
	}
	h.round(pull)
	if all := got[contract.Event](h, amy); len(all) != 0 {
		t.Errorf("told what a running task waits for: %+v, want none", all)
	}
}

// A Start is refused if the container engine has gone since the Commit.
func TestStartWithoutEngineIsRefused(t *testing.T) {
	h := newHost(t, config(2))
	s := h.meet(amy, 1)
	h.says(amy, offer(1, attempt(1, 1), gpus(0)))
	m := start(1, attempt(1, 1), s, gpus(0))
	m.File = edited(m.File, func(s *job.Spec) { s.Image = "a:1" })
	h.says(amy, m)
	if ev := one[contract.Event](h, amy); ev.Refused != "this host has no container engine now" {
		t.Errorf(`event = %+v, want Refused "this host has no container engine now"`, ev)
	}
}
