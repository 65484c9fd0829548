package sim

// Small simulations, from their Config to their records.

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/sim/load"
	"github.com/musterhq/muster/internal/sim/record"
	"github.com/musterhq/muster/job"
)

// machinesOf returns so many machines with 8 GPUs each.
func machinesOf(n int) []load.Machine {
	all := make([]load.Machine, n)
	for i := range all {
		all[i] = load.Machine{Name: fmt.Sprintf("n%05d", i), CPUs: 64_000, Memory: 512 << 30, GPUs: 8, Model: "H100", DeviceMemory: 80 << 30}
	}
	return all
}

// jobOf is a job for so many GPUs.
func jobOf(i, gpus int, submit, runs time.Duration) load.Job {
	spec := job.DefaultSpec()
	spec.Resources = job.Resources{CPUs: 1000, GPUs: gpus}
	return load.Job{Name: fmt.Sprintf("job-%05d", i), User: fmt.Sprintf("user%d", i%5), Submit: submit, Runs: runs, Spec: spec}
}

// someJobs are jobs for 1 to 8 GPUs and 1 to 7 minutes. Some of them are gangs, arrays, preemptible or urgent.
func someJobs(n int, every time.Duration) []load.Job {
	all := make([]load.Job, n)
	for i := range all {
		all[i] = jobOf(i, []int{1, 1, 1, 2, 4, 8}[i%6], time.Duration(i)*every, time.Duration(1+i%7)*time.Minute)
		switch i % 10 {
		case 3:
			all[i].Spec.Nodes = 2
		case 5:
			all[i].Spec.Array = "0-4"
		case 7:
			all[i].Spec.Preemptible, all[i].Spec.Priority = true, 10
		case 9:
			all[i].Spec.Priority = 80
		}
	}
	return all
}

func runs(t *testing.T, cfg Config) (Result, record.Log) {
	t.Helper()
	var log record.Log
	cfg.Sink = &log
	w, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r, err := w.Run(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if r.Defects != 0 {
		t.Errorf("%d defects, want 0", r.Defects)
	}
	checkLog(t, cfg.Load, log)
	return r, log
}

// checkLog checks that the records are possible: no device has two holders, and each task starts before it ends, and
// ends once.
func checkLog(t *testing.T, l load.Load, log record.Log) {
	t.Helper()
	type element struct{ job, task int }
	type device struct{ machine, device int }
	runs := map[element][]record.Alloc{}
	used := map[device]int{}
	ended, reopened := map[element]bool{}, map[element]bool{}
	last := time.Duration(-1)
	for _, r := range log {
		e := element{r.Job, r.Task}
		if r.At < last {
			t.Fatalf("%+v comes after a record of the later %v", r, last)
		}
		last = r.At
		hold := func(all []record.Alloc, sign int) {
			for _, a := range all {
				for _, d := range a.Devices {
					if used[device{a.Machine, d}] += sign * a.Milli; used[device{a.Machine, d}] > 1000 {
						t.Fatalf("%+v: GPU %d of machine %d has two holders", r, d, a.Machine)
					}
				}
			}
		}
		switch r.Kind {
		case record.Start:
			if runs[e] != nil || ended[e] {
				for _, x := range log {
					if x.Job == r.Job && x.Task == r.Task {
						t.Logf("%+v", x)
					}
				}
				t.Fatalf("%+v: a task starts that runs or has ended", r)
			}
			if want := max(1, l.Jobs[r.Job].Spec.Nodes); len(r.Alloc) != want {
				t.Fatalf("%+v: %d hosts, want %d", r, len(r.Alloc), want)
			}
			runs[e] = r.Alloc
			hold(r.Alloc, 1)
		case record.Finish, record.Preempt, record.Lost:
			late := r.Kind == record.Lost && ended[e] || r.Kind == record.Finish && reopened[e]
			reopened[e] = reopened[e] || r.Kind == record.Lost && ended[e]
			if runs[e] == nil && !late {
				t.Fatalf("%+v: a task ends that does not run", r)
			}
			hold(runs[e], -1)
			delete(runs, e)
			ended[e] = r.Kind == record.Finish
		case record.Reject:
			hold(runs[e], -1)
			delete(runs, e)
			ended[e] = true
		}
	}
}

func small() Config {
	return Config{Seed: 1, Load: load.Load{Machines: machinesOf(10), Jobs: someJobs(200, 5*time.Second)}, Schedulers: 3, Restart: time.Minute}
}

func TestEachJobEnds(t *testing.T) {
	r, log := runs(t, small())
	finished := 0
	for _, x := range log {
		if x.Kind == record.Finish {
			finished++
		}
	}
	if r.Ended != 200 || r.Finished != finished || finished != 200+20*4 {
		t.Errorf("%d jobs ended, %d tasks finished and %d by the records, want 200 and 280", r.Ended, r.Finished, finished)
	}
	if r.Messages == 0 || r.Bytes < int64(r.Messages)*20 || r.Ages.Count != r.Offers || len(r.ByKind) < 10 {
		t.Errorf("got %+v, want messages, an age for each offer and at least 10 kinds", r)
	}
}

// TestSameSeedGivesTheSameSimulation checks that the same configuration gives the same events and the same records, and
// another seed does not.
func TestSameSeedGivesTheSameSimulation(t *testing.T) {
	digest := func(seed uint64) string {
		cfg := small()
		cfg.Seed = seed
		cfg.Faults = []Fault{
			{At: 2 * time.Minute, Kind: Crash, Machine: 4, For: 5 * time.Minute},
			{At: 3 * time.Minute, Kind: Kill, Machine: 0, For: 10 * time.Second},
			{At: 4 * time.Minute, Kind: DeviceOut, Machine: 5, Device: 2, For: 10 * time.Minute},
			{At: time.Minute, Kind: Slow, Machine: 6, Speed: 0.5},
		}
		r, log := runs(t, cfg)
		return fmt.Sprintf("%x", sha256.Sum256(fmt.Appendf(nil, "%+v %+v", r, log)))
	}
	first := digest(7)
	for range 2 {
		if again := digest(7); again != first {
			t.Fatal("the same seed went another way")
		}
	}
	if digest(8) == first {
		t.Error("another seed went the same way")
	}
}

// TestKnownDurationsDoNotDelayJobs checks that users who give the durations of their jobs lose none of them, and that
// the makespan is no longer.
func TestKnownDurationsDoNotDelayJobs(t *testing.T) {
	cfg := small()
	unknown, _ := runs(t, cfg)
	cfg.Known = true
	known, _ := runs(t, cfg)
	if known.Rejected > 0 || known.Ended != 200 {
		t.Errorf("with time limits %d tasks failed, %d jobs ended, want 0 and 200", known.Rejected, known.Ended)
	}
	t.Logf("makespan %v with unknown durations, %v with known ones", unknown.End, known.End)
}

// TestPreemptedWorkIsKept checks that a preempted task continues where it was, and that its start costs Config.Restart.
func TestPreemptedWorkIsKept(t *testing.T) {
	low, high := jobOf(0, 8, 0, 10*time.Minute), jobOf(1, 8, 4*time.Minute, time.Minute)
	low.Spec.Preemptible, low.Spec.Priority, high.Spec.Priority = true, 0, 100
	r, log := runs(t, Config{Load: load.Load{Machines: machinesOf(1), Jobs: []load.Job{low, high}}, Restart: time.Minute})
	if r.Preempted != 1 || r.Starts != 3 {
		t.Fatalf("%d preempted, %d starts: %v, want 1 and 3", r.Preempted, r.Starts, log)
	}
	worked := 12 * time.Minute // 10 of the first, 1 of the other, 1 for the start
	if end := log[len(log)-1].At; end < worked || end > worked+2*time.Second {
		t.Errorf("the last task ended after %v, want %v", end, worked)
	}
}

// TestPreemptedGangCountsOnce checks that a preempted gang counts once.
func TestPreemptedGangCountsOnce(t *testing.T) {
	low, high := jobOf(0, 8, 0, 10*time.Minute), jobOf(1, 8, 4*time.Minute, time.Minute)
	low.Spec.Preemptible, low.Spec.Priority, high.Spec.Priority, low.Spec.Nodes = true, 0, 100, 3
	r, log := runs(t, Config{Load: load.Load{Machines: machinesOf(3), Jobs: []load.Job{low, high}}, Restart: time.Minute})
	if r.Preempted != 1 || r.Lost != 0 || r.Starts != 3 || r.Finished != 2 {
		t.Fatalf("got %+v, want 1 preempted, none lost, 3 starts and 2 finished\n%v", r, log)
	}
}

// TestJobWaitsForItsDependency checks that a job waits for the one that it names, even if that one is accepted later.
func TestJobWaitsForItsDependency(t *testing.T) {
	jobs := []load.Job{jobOf(0, 1, 0, 5*time.Minute), jobOf(1, 1, 0, time.Minute), jobOf(2, 1, 0, time.Minute)}
	jobs[1].Spec.Dependency = []string{"afterok:job-00000"}
	jobs[2].Spec.Dependency = []string{"afterok:job-00001"}
	_, log := runs(t, Config{Load: load.Load{Machines: machinesOf(3), Jobs: jobs}, Schedulers: 3})
	var order []string
	for _, r := range log {
		order = append(order, fmt.Sprint(r.Kind, r.Job))
	}
	if got := strings.Join(order, " "); got != "start0 finish0 start1 finish1 start2 finish2" {
		t.Errorf(`got %v, want "start0 finish0 start1 finish1 start2 finish2"`, got)
	}
}

// TestFilesGoToEachHostOnce checks that a job with files starts when they have arrived, and that they go to each host once.
func TestFilesGoToEachHostOnce(t *testing.T) {
	x := jobOf(0, 1, 0, time.Minute)
	x.Bytes, x.Spec.Array = 10<<30, "0-31"
	r, log := runs(t, Config{Load: load.Load{Machines: machinesOf(3), Jobs: []load.Job{x}}})
	if r.Copies != 2 || r.Copied != 2*x.Bytes {
		t.Errorf("%d copies of %d bytes, want one to each of two hosts", r.Copies, r.Copied)
	}
	for _, s := range log {
		if s.Kind == record.Start && s.Alloc[0].Hops > 0 && s.At < 8*time.Second {
			t.Errorf("%+v: 10 GiB arrived in %v, want at least 8 s", s, s.At)
		}
	}
}

func TestSimulationEndsAtTheHorizon(t *testing.T) {
	cfg := small()
	cfg.Horizon = 5 * time.Minute
	if r, _ := runs(t, cfg); r.End != 5*time.Minute || r.Ended == 0 || r.Ended == 200 {
		t.Errorf("ended at %v with %d jobs, want 5m with some, but not all", r.End, r.Ended)
	}
}

func TestSimulationEndsWithItsContext(t *testing.T) {
	w, err := New(Config{Load: load.Load{Machines: machinesOf(10), Jobs: someJobs(2000, time.Second)}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := w.Run(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
}

// TestRouteDecidesTheSchedulersOfAUser checks that all jobs of a user go to one scheduler, or jobs go to all of them in turn.
func TestRouteDecidesTheSchedulersOfAUser(t *testing.T) {
	for route, want := range map[Route]int{ByTurns: 4, ByUser: 1} {
		jobs := make([]load.Job, 40)
		for i := range jobs {
			jobs[i] = jobOf(i, 1, 0, time.Minute)
			jobs[i].User = "ada"
		}
		w, err := New(Config{Load: load.Load{Machines: machinesOf(8), Jobs: jobs}, Schedulers: 4, Route: route})
		if err != nil {
			t.Fatal(err)
		}
		owners := map[*owner]bool{}
		for _, s := range w.works {
			owners[s.owner] = true
		}
		if len(owners) != want {
			t.Errorf("route %q: %d schedulers have jobs, want %d", route, len(owners), want)
		}
	}
}

// TestInvalidConfigurationIsRefused checks that each invalid configuration is refused with a word on what is wrong.
func TestInvalidConfigurationIsRefused(t *testing.T) {
	good := func() Config { return Config{Load: load.Load{Machines: machinesOf(2), Jobs: someJobs(2, 0)}} }
	for want, change := range map[string]func(*Config){
		"without machines":             func(c *Config) { c.Load.Machines = nil },
		"3 schedulers: want 1 to 2":    func(c *Config) { c.Schedulers = 3 },
		`policy`:                       func(c *Config) { c.Policy = "best" },
		`route "x"`:                    func(c *Config) { c.Route = "x" },
		"-1 candidates":                func(c *Config) { c.Candidates = -1 },
		"none may be negative":         func(c *Config) { c.Load.Jobs[1].Runs = -1 },
		"costs: from 2s to 1s":         func(c *Config) { c.Costs.Dial = Range{2 * time.Second, time.Second} },
		"machine 2: want 0 to 1":       func(c *Config) { c.Faults = []Fault{{Kind: Crash, Machine: 2}} },
		"device 8: the machine has 8":  func(c *Config) { c.Faults = []Fault{{Kind: DeviceOut, Device: 8}} },
		"speed 0":                      func(c *Config) { c.Faults = []Fault{{Kind: Slow}} },
		"no such kind of fault":        func(c *Config) { c.Faults = []Fault{{Kind: "fire"}} },
		"no parts that can fail":       func(c *Config) { c.Faults = []Fault{{Kind: Break, Part: "spine-1"}} },
		"no earlier job of the load":   func(c *Config) { c.Load.Jobs[0].Spec.Dependency = []string{"afterok:job-00001"} },
		"job job-00001: array":         func(c *Config) { c.Load.Jobs[1].Spec.Array = "x" },
		"fault crash at -1s":           func(c *Config) { c.Faults = []Fault{{At: -time.Second, Kind: Crash}} },
		"n00001: -1 GPUs":              func(c *Config) { c.Load.Machines[1].GPUs = -1 },
		"-2 standing sessions":         func(c *Config) { c.Standing = -2 },
		"checkpoint -1ns, horizon 0s:": func(c *Config) { c.Checkpoint = -1 },
	} {
		cfg := good()
		change(&cfg)
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("got %v, want a line with %q", err, want)
		}
	}
}

// TestPolicySeesAsManyCandidatesAsConfigured checks that the policy spread uses all machines if it may compare them,
// and fewer if it sees one candidate.
func TestPolicySeesAsManyCandidatesAsConfigured(t *testing.T) {
	for candidates, all := range map[int]bool{100: true, 1: false} {
		var jobs []load.Job
		for i := range 8 {
			jobs = append(jobs, jobOf(i, 1, time.Duration(i)*time.Second, time.Hour))
		}
		_, log := runs(t, Config{Load: load.Load{Machines: machinesOf(8), Jobs: jobs}, Policy: "spread", Candidates: candidates})
		used := map[int]bool{}
		for _, r := range log {
			for _, a := range r.Alloc {
				used[a.Machine] = true
			}
		}
		if (len(used) == 8) != all {
			t.Errorf("with %d candidates %d machines are used, want all exactly if they may be compared", candidates, len(used))
		}
	}
}
