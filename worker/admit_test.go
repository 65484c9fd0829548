package worker_test

// Admission: events between a Start and the answer of the host's policy.

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker"
	"github.com/musterhq/muster/worker/step"
)

// asking returns a host that has asked its policy about an attempt and waits for the answer.
func asking(t *testing.T) (*host, contract.Start) {
	t.Helper()
	h := newHost(t, config(1))
	s := h.meet(amy, 1)
	m := start(1, attempt(1, 1), s, gpus(1))
	h.says(amy, offer(1, m.Attempt, gpus(1)))
	one[contract.Commit](h, amy)
	h.mute = true
	if e := h.says(amy, m); len(e.Start) > 0 || len(h.states(amy)) > 0 {
		t.Fatalf("started without the policy's answer: %+v", e)
	}
	if len(h.asked) != 1 || h.asked[0].Attempt != m.Attempt || h.asked[0].User != "ada" || !slices.Equal(h.asked[0].Spec.Command, m.File.Spec().Command) {
		t.Fatalf("asked %+v, want one question about the attempt of ada", h.asked)
	}
	if h.records[m.Attempt].Phase != contract.PhaseReserved {
		t.Fatalf("record = %+v, want Phase %v", h.records[m.Attempt], contract.PhaseReserved)
	}
	return h, m
}

func (h *host) admits(a job.Attempt) worker.Effects { return h.round(worker.Admitted{Attempt: a}) }

func (h *host) wantRefused(a job.Attempt, word string) {
	h.t.Helper()
	if ev := one[contract.Event](h, amy); !strings.Contains(ev.Refused, word) {
		h.t.Fatalf("event = %+v, want %q", ev, word)
	}
	if r := h.synced[a]; r.Phase != contract.PhaseRefused {
		h.t.Fatalf("record = %+v, want Phase %v", r, contract.PhaseRefused)
	}
	if v := h.core.View(); v.Free.CPUs != 8 || len(v.Free.GPUs) != 1 {
		h.t.Fatalf("free %+v, want CPUs 8 and 1 GPUs", v.Free)
	}
	if e := h.admits(a); len(e.Start) > 0 || h.records[a].Phase != contract.PhaseRefused {
		h.t.Fatal("started after its refusal")
	}
}

func TestR9RepeatedStartBeforeAdmissionStartsOnce(t *testing.T) {
	h, m := asking(t)
	h.says(amy, m)
	if len(h.asked) != 1 {
		t.Fatalf("asked again: %+v, want 1 of them", h.asked)
	}
	if e := h.admits(m.Attempt); len(e.Start) != 1 || h.synced[m.Attempt].Phase != contract.PhaseStarted {
		t.Fatalf("effects = %+v, want 1 Start, recorded on disk", e)
	}
	h.wantStates(amy, job.Starting)
	if e := h.admits(m.Attempt); len(e.Start) > 0 {
		t.Fatal("started twice")
	}
}

// The reservation ends with the policy's answer, not by its own timer.
func TestReservationDoesNotLapseWhileThePolicyIsAsked(t *testing.T) {
	h, m := asking(t)
	h.pass(3 * contract.ReserveFor)
	if len(h.core.View().Free.GPUs) != 0 {
		t.Fatal("the devices of the reservation were released")
	}
	h.says(amy, offer(2, attempt(2, 1), gpus(1)))
	one[contract.Decline](h, amy)
	if e := h.admits(m.Attempt); len(e.Start) != 1 || len(e.Start[0].Devices) != 1 {
		t.Fatalf("effects = %+v, want 1 Start and 1 Start[0].Devices", e)
	}
}

func TestR5LapseBeforeAdmissionRefusesTheStart(t *testing.T) {
	h, m := asking(t)
	h.jump(worker.SessionLease)
	h.admits(m.Attempt)
	h.wantRefused(m.Attempt, "no lease")
}

func TestR5NewSessionBeforeAdmissionRefusesTheStart(t *testing.T) {
	h, m := asking(t)
	h.jump(worker.SessionLease)
	h.round(worker.Down{Peer: amy})
	h.meet(amy, 1)
	h.admits(m.Attempt)
	h.wantRefused(m.Attempt, "earlier session")
}

func TestR2NewOwnerBeforeAdmissionRefusesTheStart(t *testing.T) {
	h, m := asking(t)
	h.meet(bob, 2)
	h.admits(m.Attempt)
	if ev := one[contract.Event](h, bob); ev.Refused == "" {
		t.Fatalf("event = %+v, want Refused", ev)
	}
}

// An owner that was elected again repeats its Start under the new epoch.
func TestStartRepeatedUnderANewerEpochBeforeAdmission(t *testing.T) {
	h, m := asking(t)
	m.Epoch = epoch(2)
	h.says(amy, m)
	if e := h.admits(m.Attempt); len(e.Start) != 1 || h.records[m.Attempt].Epoch != epoch(2) {
		t.Fatalf("effects = %+v, record %+v, want 1 Start and Epoch %v", e, h.records[m.Attempt], epoch(2))
	}
}

func TestEachCommandBeforeAdmission(t *testing.T) {
	a := attempt(1, 1)
	for name, c := range map[string]struct {
		says []contract.ToWorker
		word string
	}{
		"cancel":          {[]contract.ToWorker{contract.Cancel{Attempt: a, Group: group, Epoch: epoch(1)}}, "cancelled"},
		"another offer's": {[]contract.ToWorker{contract.Start{Offer: 9, Attempt: a, Group: group, Epoch: epoch(1), User: "ada", File: file(spec(gpus(1)))}}, "session"},
	} {
		t.Run(name, func(t *testing.T) {
			h, m := asking(t)
			h.says(amy, c.says...)
			h.wantRefused(m.Attempt, c.word)
		})
	}
	t.Run("query", func(t *testing.T) { // the events of the start are the answer
		h, m := asking(t)
		h.says(amy, contract.Query{Attempt: a, Group: group, Epoch: epoch(1), Store: store})
		if e := h.admits(m.Attempt); len(e.Start) != 1 {
			t.Fatalf("effects = %+v, want 1 Start", e)
		}
		h.wantStates(amy, job.Starting)
	})
	t.Run("release", func(t *testing.T) { // an offer cannot be released after its Start
		h, m := asking(t)
		h.says(amy, contract.Release{Offer: 1})
		if e := h.admits(m.Attempt); len(e.Start) != 1 {
			t.Fatalf("effects = %+v, want 1 Start", e)
		}
	})
	t.Run("drain", func(t *testing.T) {
		h, m := asking(t)
		h.round(worker.Drain{On: true})
		h.admits(m.Attempt)
		h.wantRefused(m.Attempt, "drained")
	})
	t.Run("session breaks", func(t *testing.T) {
		h, m := asking(t)
		h.round(worker.Down{Peer: amy})
		if e := h.admits(m.Attempt); len(e.Start) != 1 {
			t.Fatalf("effects = %+v, want 1 Start", e)
		}
		h.round(worker.Up{Peer: amy})
		h.wantStates(amy, job.Starting)
	})
}

// If a Start comes after the lapse, the new reservation is not answered with a Commit. If the disk fails meanwhile, the
// attempt gets a tombstone.
func TestPolicyIsAskedForALapsedReservation(t *testing.T) {
	for _, fails := range []bool{false, true} {
		h := newHost(t, config(1))
		s := h.meet(amy, 1)
		a := attempt(1, 1)
		h.says(amy, offer(1, a, gpus(1)))
		h.pass(contract.ReserveFor + time.Second)
		one[contract.Commit](h, amy)
		h.mute, h.failing = true, fails
		h.says(amy, start(1, a, s, gpus(1)))
		if c := got[contract.Commit](h, amy); len(c) > 0 {
			t.Fatalf("committed again: %+v, want none", c)
		}
		h.failing = false
		h.jump(2 * time.Second)
		if e := h.admits(a); (len(e.Start) == 1) == fails {
			t.Fatalf("disk fails: %v, started %+v, want a start only if it does not", fails, e.Start)
		}
		if ev := one[contract.Event](h, amy); (ev.Refused != "") != fails {
			t.Fatalf("event = %+v, want it refused only if the disk fails", ev)
		}
	}
}

// Log lines from loading the ledger, or from a step, are in the next effects.
func TestLogLinesAreInTheNextEffects(t *testing.T) {
	h := newHost(t, config(2))
	s := h.meet(amy, 1)
	h.run(amy, 1, attempt(1, 1), s, gpus(1))
	r := h.records[attempt(1, 1)]
	r.Attempt = attempt(2, 1) // a second holder of the device
	h.records[r.Attempt] = r
	h.boot()
	line := func(msg string) step.Line {
		t.Helper()
		for _, l := range h.done.Log {
			if l.Msg == msg {
				return l
			}
		}
		t.Fatalf("no line %q in %+v", msg, h.done.Log)
		return step.Line{}
	}
	line("devices of a running attempt cannot be held")
	h.round(worker.DeviceFault{Fault: gpu.Fault{UUID: "GPU-b", Severity: gpu.SeverityDevice, Text: "xid 79"}})
	if l := line("device put into quarantine"); l.Level != slog.LevelError || len(l.Attrs) != 2 || l.Attrs[0].String() != "device=GPU-b" {
		t.Fatalf(`line = %+v, want Level %v, 2 Attrs and Attrs[0].String() "device=GPU-b"`, l, slog.LevelError)
	}
	if h.round(); len(h.done.Log) > 0 {
		t.Fatalf("logged twice: %+v, want none", h.done.Log)
	}
}
