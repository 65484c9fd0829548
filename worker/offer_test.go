package worker_test

// Offers: answers, rank, waiting and reservations.

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker"
)

func TestOfferThatCouldNeverFitIsDeclinedForGood(t *testing.T) {
	for name, c := range map[string]struct {
		need job.Resources
		word string
	}{
		"cpus":   {job.Resources{CPUs: 9}, "cpus: 9 wanted, this host has 8"},
		"memory": {job.Resources{Memory: 65 << 30}, "memory: 65GiB wanted"},
		"gpus":   {gpus(3), "gpus: "},
		"model":  {job.Resources{GPUs: 1, GPUModel: "a100"}, "gpus: "},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, config(2))
			h.meet(amy, 1)
			m := offer(1, attempt(1, 1), c.need)
			m.Wait = time.Minute
			h.says(amy, m)
			d := one[contract.Decline](h, amy)
			if !d.Never || d.Reason.Word != job.ReasonNoMatch || !strings.HasPrefix(d.Reason.Detail, c.word) {
				t.Fatalf("decline = %+v, want never because of %q", d, c.word)
			}
		})
	}
}

func TestCommitHoldsDevices(t *testing.T) {
	h := newHost(t, config(2))
	s := h.meet(amy, 1)
	h.says(amy, offer(1, attempt(1, 1), gpus(2)), offer(2, attempt(2, 1), gpus(1)))
	c := one[contract.Commit](h, amy)
	if c.Offer != 1 || len(c.Devices) != 2 || c.Session != s {
		t.Fatalf("commit = %+v, want Offer 1, 2 Devices and Session %v", c, s)
	}
	d := one[contract.Decline](h, amy)
	if d.Offer != 2 || d.Never || d.Reason.Word != job.ReasonResources || len(d.Free.GPUs) != 0 || d.Free.CPUs != 7 {
		t.Fatalf("decline = %+v, want offer 2 declined for now, 7 free CPUs and no GPUs", d)
	}
	h.says(amy, contract.Release{Offer: 1})
	h.says(amy, offer(3, attempt(2, 1), gpus(2)))
	one[contract.Commit](h, amy)
}

// A share of a GPU gets the device that its scheduler prefers if that one has capacity, or else one that this host
// chooses. Whole devices are this host's choice.
func TestShareGetsThePreferredDevice(t *testing.T) {
	share := func(x float64) job.Resources { return job.Resources{CPUs: 1, GPUShare: x} }
	for name, c := range map[string]struct {
		need   job.Resources
		device string
		want   string
	}{
		"free":            {share(0.5), "GPU-b", "GPU-b"},
		"none preferred":  {share(0.5), "", "GPU-a"},
		"too little left": {share(0.7), "GPU-a", "GPU-b"},
		"unknown":         {share(0.5), "GPU-z", "GPU-a"},
		"another model":   {job.Resources{CPUs: 1, GPUShare: 0.5, GPUModel: "h100|a100"}, "GPU-b", "GPU-b"},
		"whole":           {gpus(1), "GPU-a", "GPU-b"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, config(2))
			h.meet(amy, 1)
			h.says(amy, offer(1, attempt(1, 1), share(0.4)))
			if first := one[contract.Commit](h, amy); first.Devices[0] != "GPU-a" {
				t.Fatalf(`the first share is on %v, want [0] "GPU-a"`, first.Devices)
			}
			m := offer(2, attempt(2, 1), c.need)
			m.Device = c.device
			h.says(amy, m)
			if got := one[contract.Commit](h, amy); len(got.Devices) != 1 || got.Devices[0] != c.want {
				t.Errorf("it gets %v, want %s", got.Devices, c.want)
			}
		})
	}
}

// A host reports how many tasks hold something of it.
func TestHostReportsItsNumberOfTasks(t *testing.T) {
	h := newHost(t, config(2))
	h.meet(amy, 1)
	tasks := func() int {
		t.Helper()
		h.pass(time.Second)
		all := got[contract.Availability](h, amy)
		if len(all) == 0 {
			t.Fatal("the host does not report what is free")
		}
		return all[len(all)-1].Free.Tasks
	}
	h.says(amy, offer(1, attempt(1, 1), gpus(1)), offer(2, attempt(2, 1), job.Resources{CPUs: 1}))
	if n := tasks(); n != 2 {
		t.Errorf("%d tasks after two commits, want 2", n)
	}
	h.says(amy, contract.Release{Offer: 1})
	if n := tasks(); n != 1 {
		t.Errorf("%d tasks after a release, want 1", n)
	}
}

func TestOffersOfOneRoundAreRanked(t *testing.T) {
	h := newHost(t, config(1))
	h.meet(amy, 1)
	low, high := offer(1, attempt(1, 1), gpus(1)), offer(2, attempt(2, 1), gpus(1))
	high.Priority = 60
	h.says(amy, low, high)
	if c := one[contract.Commit](h, amy); c.Offer != 2 {
		t.Fatalf("committed offer %d, want the one of higher priority", c.Offer)
	}
}

func TestResourcesAreHeldBackForAQueuedOffer(t *testing.T) {
	h := newHost(t, config(4))
	s := h.meet(amy, 1)
	h.run(amy, 1, attempt(1, 1), s, gpus(2))
	big := offer(2, attempt(2, 1), gpus(4))
	big.Wait = time.Minute
	h.says(amy, big)
	h.untilKept(big)
	h.says(amy, offer(3, attempt(3, 1), gpus(1)))
	if d := one[contract.Decline](h, amy); d.Offer != 3 {
		t.Fatalf("decline = %+v, want Offer 3", d)
	}
	h.says(amy, offer(4, attempt(4, 1), cpu)) // needs nothing that is held back
	if c := one[contract.Commit](h, amy); c.Offer != 4 {
		t.Fatalf("commit = %+v, want Offer 4", c)
	}
	over := offer(5, attempt(5, 1), gpus(1))
	over.Priority = 51 // goes first
	h.says(amy, over)
	if c := one[contract.Commit](h, amy); c.Offer != 5 {
		t.Fatalf("commit = %+v, want Offer 5", c)
	}
	h.says(amy, contract.Release{Offer: 5})
	h.round(exited(attempt(1, 1), 0)) // the queued offer gets the devices in the same step
	if c := one[contract.Commit](h, amy); c.Offer != 2 || len(c.Devices) != 4 {
		t.Fatalf("commit = %+v, want Offer 2 and 4 Devices", c)
	}
}

func TestQueuedOfferIsDeclinedAfterItsWait(t *testing.T) {
	h := newHost(t, config(1))
	s := h.meet(amy, 1)
	h.run(amy, 1, attempt(1, 1), s, gpus(1))
	m := offer(2, attempt(2, 1), gpus(1))
	m.Wait = time.Hour // more than is allowed
	h.says(amy, m)
	h.pass(contract.MaxOfferWait - time.Second)
	if d := got[contract.Decline](h, amy); len(d) > 0 {
		t.Fatalf("declined early: %+v, want none", d)
	}
	h.pass(2 * time.Second)
	if d := one[contract.Decline](h, amy); d.Offer != 2 || d.Reason.Word != job.ReasonResources {
		t.Fatalf("decline = %+v, want Offer 2 and Reason.Word %v", d, job.ReasonResources)
	}
}

func TestOffersOfOneSchedulerAreBounded(t *testing.T) {
	h := newHost(t, config(1))
	s := h.meet(amy, 1)
	h.run(amy, 1, attempt(1, 1), s, gpus(1))
	for i := range uint64(contract.MaxOffers + 3) {
		m := offer(10+i, attempt(10+i, 1), gpus(1))
		m.Wait = time.Minute
		h.says(amy, m)
	}
	if d := got[contract.Decline](h, amy); len(d) != 3 {
		t.Fatalf("declined %d, want 3", len(d))
	}
	if v := h.core.View(); v.Queued != contract.MaxOffers {
		t.Fatalf("%d wait, want %v", v.Queued, contract.MaxOffers)
	}
	h.round(worker.Down{Peer: amy})
	if v := h.core.View(); v.Queued != 0 {
		t.Fatalf("%d offers of a scheduler that is gone are queued, want 0", v.Queued)
	}
}

func TestLateStartIsCarriedOutIfItStillFits(t *testing.T) {
	for _, taken := range []bool{false, true} {
		t.Run(fmt.Sprint("taken=", taken), func(t *testing.T) {
			h := newHost(t, config(1))
			s := h.meet(amy, 1)
			h.says(amy, offer(1, attempt(1, 1), gpus(1)))
			one[contract.Commit](h, amy)
			h.pass(contract.ReserveFor + time.Second)
			if v := h.core.View(); len(v.Free.GPUs) != 1 {
				t.Fatal("the reservation has not lapsed")
			}
			if taken {
				h.says(amy, offer(2, attempt(2, 1), gpus(1)))
				one[contract.Commit](h, amy)
			}
			e := h.says(amy, start(1, attempt(1, 1), s, gpus(1)))
			if started := len(e.Start) == 1; started == taken {
				t.Fatalf("started %v, taken by another %v, want one of the two", started, taken)
			}
			if ev := one[contract.Event](h, amy); (ev.Refused != "") != taken {
				t.Fatalf("event = %+v, want Refused only if another has taken the device", ev)
			}
		})
	}
}

func TestReleasedOfferCannotBeStarted(t *testing.T) {
	for _, lapse := range []bool{false, true} {
		h := newHost(t, config(1))
		s := h.meet(amy, 1)
		h.says(amy, offer(1, attempt(1, 1), gpus(1)))
		if lapse {
			h.pass(contract.ReserveFor + time.Second)
		}
		h.says(amy, contract.Release{Offer: 1})
		if e := h.says(amy, start(1, attempt(1, 1), s, gpus(1))); len(e.Start) > 0 {
			t.Fatalf("started after its release; lapsed before: %v", lapse)
		}
	}
}

func TestStartGetsNoMoreThanWasReserved(t *testing.T) {
	h := newHost(t, config(2))
	s := h.meet(amy, 1)
	h.says(amy, offer(1, attempt(1, 1), gpus(1)))
	e := h.says(amy, start(1, attempt(1, 1), s, job.Resources{CPUs: 8, GPUs: 2}))
	if len(e.Start) != 1 || len(e.Start[0].Devices) != 1 || e.Start[0].Spec.Resources != gpus(1) {
		t.Fatalf("start = %+v, want 1 of them, 1 [0].Devices and [0].Spec.Resources %v", e.Start, gpus(1))
	}
}

func TestDrainingHostDeclinesAndItsTasksGoOn(t *testing.T) {
	h := newHost(t, config(1))
	s := h.meet(amy, 1)
	h.run(amy, 1, attempt(1, 1), s, gpus(1))
	waits := offer(2, attempt(2, 1), gpus(1))
	waits.Wait = time.Minute
	h.says(amy, waits)
	h.jump(time.Second)
	h.round(worker.Drain{On: true, Reason: "new fans"})
	if d := one[contract.Decline](h, amy); d.Reason != (job.Reason{Word: job.ReasonNodesDraining, Detail: "new fans"}) || d.Never {
		t.Fatalf("decline = %+v, want draining because of new fans, for now", d)
	}
	all := got[contract.Availability](h, amy)
	if a := all[len(all)-1]; !a.Draining || a.Detail != "new fans" {
		t.Fatalf("availability = %+v, want draining because of new fans", a)
	}
	if v := h.core.View(); v.Running != 1 {
		t.Fatal("the running task no longer runs")
	}
	h.round(worker.Drain{})
	h.says(amy, offer(3, attempt(3, 1), cpu))
	one[contract.Commit](h, amy)
}

func TestHostThatIsNoWorkerDeclinesForGood(t *testing.T) {
	cfg := config(0)
	cfg.Profile.Worker = false
	h := newHost(t, cfg)
	h.meet(amy, 1)
	h.says(amy, offer(1, attempt(1, 1), cpu))
	if d := one[contract.Decline](h, amy); !d.Never {
		t.Fatalf("decline = %+v, want it for good", d)
	}
}

func TestPolicyRefusesAStart(t *testing.T) {
	h := newHost(t, config(0))
	h.refuses = "ada is not known here"
	s := h.meet(amy, 1)
	h.says(amy, offer(1, attempt(1, 1), cpu))
	e := h.says(amy, start(1, attempt(1, 1), s, cpu))
	if len(e.Start) > 0 || h.core.View().Free.CPUs != 8 {
		t.Fatalf("started %+v, free %+v, want none and CPUs 8", e.Start, h.core.View().Free)
	}
	if ev := one[contract.Event](h, amy); ev.Refused != "not admitted: ada is not known here" {
		t.Fatalf(`event = %+v, want Refused "not admitted: ada is not known here"`, ev)
	}
}

func TestQueuedOfferOfAnOldOwnerIsStale(t *testing.T) {
	h := newHost(t, config(1))
	s := h.meet(amy, 1)
	h.run(amy, 1, attempt(1, 1), s, gpus(1))
	m := offer(2, attempt(2, 1), gpus(1))
	m.Wait = time.Minute
	h.says(amy, m)
	h.meet(bob, 2)
	h.round(exited(attempt(1, 1), 0))
	one[contract.Stale](h, amy)
	if len(got[contract.Commit](h, amy)) > 0 {
		t.Fatal("committed to an old owner")
	}
}

func TestAvailabilityIsReportedOnChangeAndNotTooOften(t *testing.T) {
	h := newHost(t, config(0))
	h.meet(amy, 1)
	h.pass(time.Second)
	got[contract.Availability](h, amy)
	for i := range uint64(5) {
		h.says(amy, offer(i+1, attempt(i+1, 1), cpu))
	}
	if a := one[contract.Availability](h, amy); a.Free.CPUs != 7 {
		t.Fatalf("first Availability = %+v, want Free.CPUs 7", a)
	}
	h.pass(200 * time.Millisecond)
	if a := one[contract.Availability](h, amy); a.Free.CPUs != 3 {
		t.Fatalf("second Availability = %+v, want Free.CPUs 3", a)
	}
	h.pass(5 * time.Second)
	if a := got[contract.Availability](h, amy); len(a) > 0 {
		t.Fatalf("sent without a change: %+v, want none", a)
	}
}
