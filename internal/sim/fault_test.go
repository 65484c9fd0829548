package sim

// Faults and their effects on jobs.

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/sim/load"
	"github.com/musterhq/muster/internal/sim/record"
)

// one is a simulation of one job on two machines, and the faults of its first host.
func one(runs time.Duration, faults ...Fault) Config {
	return Config{Load: load.Load{Machines: machinesOf(2), Jobs: []load.Job{jobOf(0, 8, 0, runs)}}, Faults: faults}
}

// first returns the machine where the job of such a simulation starts.
func first(t *testing.T) int {
	t.Helper()
	_, log := runs(t, one(time.Minute))
	return log[0].Alloc[0].Machine
}

func TestTaskOfACrashedHostRunsAgain(t *testing.T) {
	m := first(t)
	for what, x := range map[string]struct {
		checkpoint, kept time.Duration
	}{"from the beginning": {0, 0}, "from a checkpoint": {time.Minute, 4 * time.Minute}} {
		cfg := one(10*time.Minute, Fault{At: 4*time.Minute + 30*time.Second, Kind: Crash, Machine: m, For: 20 * time.Minute})
		cfg.Checkpoint = x.checkpoint
		r, log := runs(t, cfg)
		if r.Lost != 1 || r.Starts != 2 || r.Finished != 1 || log[1].Kind != record.Lost {
			t.Fatalf("%s: %+v, want 1 lost, 2 starts and 1 finished\n%v", what, r, log)
		}
		lost := 4*time.Minute + 30*time.Second - x.kept
		if (r.LostWork - 8*lost).Abs() > 8*time.Second {
			t.Errorf("%s: %v of work were lost on 8 GPUs, want %v", what, r.LostWork, 8*lost)
		}
		if took := log[3].At - log[2].At; (took - (10*time.Minute - x.kept)).Abs() > time.Second {
			t.Errorf("%s: the second run took %v, want the rest of the work", what, took)
		}
	}
}

// TestTasksSurviveTheDeathOfADaemon checks that tasks go on, and nothing runs twice.
func TestTasksSurviveTheDeathOfADaemon(t *testing.T) {
	for m := range 2 {
		r, log := runs(t, one(10*time.Minute, Fault{At: 4 * time.Minute, Kind: Kill, Machine: m, For: 10 * time.Second}))
		if r.Starts != 1 || r.Lost != 0 || len(log) != 2 {
			t.Errorf("daemon %d was killed: %+v\n%v, want Starts 1, Lost 0 and 2 of them", m, r, log)
		}
	}
}

// TestSlowHostStretchesItsWork runs ten minutes of work, of which six are done at half the speed.
func TestSlowHostStretchesItsWork(t *testing.T) {
	r, log := runs(t, one(10*time.Minute, Fault{At: 2 * time.Minute, Kind: Slow, Machine: first(t), Speed: 0.5, For: 6 * time.Minute}))
	if took := log[1].At - log[0].At; r.Starts != 1 || (took-13*time.Minute).Abs() > time.Second {
		t.Errorf("the job took %v, want 13 minutes in one run", took)
	}
}

// TestTaskOfALostGPURunsAgain checks that the task on the GPU fails and runs again, on other GPUs.
func TestTaskOfALostGPURunsAgain(t *testing.T) {
	m := first(t)
	cfg := one(10*time.Minute, Fault{At: 4 * time.Minute, Kind: DeviceOut, Machine: m, Device: 3})
	r, log := runs(t, cfg)
	if r.Lost != 1 || r.Starts != 2 || r.Finished != 1 || r.Rejected != 0 || log[2].Alloc[0].Machine == m {
		t.Errorf("got %+v, want 1 lost, 2 starts and 1 finished on the other machine\n%v", r, log)
	}
}

// TestHostsLeaveAndJoin checks that a host that leaves starts nothing more, and that one that joins takes part from then on.
func TestHostsLeaveAndJoin(t *testing.T) {
	var jobs []load.Job
	for i := range 20 {
		jobs = append(jobs, jobOf(i, 8, time.Duration(i)*time.Minute, 50*time.Second))
	}
	_, log := runs(t, Config{
		Load: load.Load{Machines: machinesOf(2), Jobs: jobs},
		Faults: []Fault{
			{At: 10*time.Minute + 55*time.Second, Kind: Leave, Machine: 0}, {At: 10*time.Minute + 50*time.Second, Kind: Join, Machine: 1},
		},
	})
	for _, r := range log {
		if want := min(r.Job/11, 1); r.Kind == record.Start && r.Alloc[0].Machine != want {
			t.Errorf("job %d started at machine %d, want %d", r.Job, r.Alloc[0].Machine, want)
		}
	}
}

// TestJobsOfALostOwnerFail checks that the jobs of a lost owner fail, and later ones go to another scheduler.
func TestJobsOfALostOwnerFail(t *testing.T) {
	cfg := Config{Load: load.Load{Machines: machinesOf(4), Jobs: someJobs(40, 30*time.Second)}, Schedulers: 2}
	cfg.Faults = []Fault{{At: 5 * time.Minute, Kind: Crash, Machine: 0}}
	r, _ := runs(t, cfg)
	if r.Ended != 40 || r.Rejected == 0 || r.Finished < 30 {
		t.Errorf("got %+v, want 40 ended, some rejected and at least 30 finished", r)
	}
}

// TestEachTaskEndsUnderManyFaults checks that under many faults each task ends, and that the records show no device
// with two holders.
func TestEachTaskEndsUnderManyFaults(t *testing.T) {
	for seed := range uint64(6) {
		cfg := small()
		cfg.Seed = seed
		for i := range 60 {
			kind := []FaultKind{Crash, Kill, Slow, DeviceOut, Leave}[i%5]
			cfg.Faults = append(cfg.Faults, Fault{
				At: time.Duration(i) * 17 * time.Second, Kind: kind, Machine: (i*7 + int(seed)) % 10, Device: i % 8,
				For: time.Duration(30+i*13%200) * time.Second, Speed: 0.3,
			})
		}
		r, _ := runs(t, cfg)
		if r.Ended != 200 || r.Finished+r.Rejected != 280 || r.Lost == 0 || r.Faults < 40 {
			t.Errorf("seed %d: %+v, want 200 ended, 280 finished or rejected, some lost and at least 40 faults", seed, r)
		}
		t.Logf("seed %d: %d lost, %d starts, %d rejected (%s), %d released, work lost %v", seed, r.Lost, r.Starts, r.Rejected, r.Refusal, r.Released, r.LostWork)
	}
}

// halves is a network that can be partitioned into two halves, and that loses some messages.
type halves struct {
	plain
	n    int // the number of machines in the first half
	cut  bool
	lost int // out of each thousand messages, at regular distances
	sent int
}

func (h *halves) Lossy() bool { return h.lost > 0 }

func (h *halves) Reachable(from, to int) bool { return !h.cut || (from < h.n) == (to < h.n) }

func (h *halves) Cost(from, to int) time.Duration {
	if !h.Reachable(from, to) {
		return math.MaxInt64
	}
	return h.plain.Cost(from, to)
}

func (h *halves) Send(from, to int, bytes int, arrive func()) {
	h.sent++
	if h.Reachable(from, to) && (h.lost == 0 || h.sent%(1000/h.lost) != 0) {
		h.plain.Send(from, to, bytes, arrive)
	}
}

var errPart = errors.New("no such part")

func (h *halves) Break(part string) error { return h.set(part, true) }
func (h *halves) Mend(part string) error  { return h.set(part, false) }

func (h *halves) set(part string, cut bool) error {
	if part != "middle" {
		return errPart
	}
	h.cut = cut
	return nil
}

func halved(cfg Config, lost int) Config {
	cfg.Clock = &Clock{}
	cfg.Network = &halves{plain: plain{cfg.Clock, cfg.Seed, plainLeast, plainMost}, n: 5, lost: lost}
	return cfg
}

// TestTasksOfAPartitionRunAgain checks tasks whose owner is beyond a partition for longer than their lease. They run
// again afterwards, or are lost once. No job is lost.
func TestTasksOfAPartitionRunAgain(t *testing.T) {
	cfg := halved(small(), 0)
	for i := range cfg.Load.Jobs {
		cfg.Load.Jobs[i].Runs *= 3
	}
	cfg.Faults = []Fault{{At: 4 * time.Minute, Kind: Break, Part: "middle", For: 10 * time.Minute}}
	r, _ := runs(t, cfg)
	if r.Ended != 200 || r.Finished != 280 || r.Rejected != 0 || r.Broken == 0 || r.Fenced == 0 || r.Lost == 0 {
		t.Errorf("got %+v, want all 200 ended and 280 finished, with broken sessions, fenced and lost tasks", r)
	}
	t.Logf("%d sessions broke, %d tasks fenced, %d lost, work lost %v", r.Broken, r.Fenced, r.Lost, r.LostWork)
}

// TestLostMessagesAreSentAgain checks that each lost message is sent again, and arrives in order.
func TestLostMessagesAreSentAgain(t *testing.T) {
	r, _ := runs(t, halved(small(), 50))
	if r.Ended != 200 || r.Finished != 280 || r.Lost != 0 || r.Broken != 0 {
		t.Errorf("got %+v, want all 200 ended and 280 finished, without losses and broken sessions", r)
	}
}

// TestFaultOfAnUnknownPartIsRefused checks that a fault of a part that the network does not have ends the simulation
// with its name.
func TestFaultOfAnUnknownPartIsRefused(t *testing.T) {
	cfg := halved(small(), 0)
	cfg.Faults = []Fault{{Kind: Break, Part: "left"}}
	w, err := New(cfg)
	if err == nil {
		_, err = w.Run(context.Background())
	}
	if err == nil || !errors.Is(err, errPart) {
		t.Error(fmt.Sprint(err))
	}
}
