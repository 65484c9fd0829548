package main

// Simulations of one load in several ways, as rows of a table.

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/musterhq/muster/internal/sim/central"
	"github.com/musterhq/muster/internal/sim/fabric"
	"github.com/musterhq/muster/internal/sim/load"
	"github.com/musterhq/muster/internal/sim/record"
	"github.com/musterhq/muster/internal/sim/report"
	"github.com/musterhq/muster/internal/sim/scenario"
)

// lab runs simulations.
type lab struct {
	size   size
	traces string
}

// rows is a table: the first row is its head.
type rows struct{ cells [][]string }

func (r *rows) add(cells ...string) { r.cells = append(r.cells, cells) }

// markdown writes the table.
func (r *rows) markdown() string {
	var b strings.Builder
	for i, cells := range r.cells {
		b.WriteString("| " + strings.Join(cells, " | ") + " |\n")
		if i == 0 {
			b.WriteString("|---" + strings.Repeat("|--:", len(cells)-1) + "|\n")
		}
	}
	return b.String()
}

// outcome is the result of simulations that differ in their seeds: figures are means over them, and counts are sums.
type outcome struct {
	times
	news
	harm
}

// times are the times of jobs, in seconds, and what they used.
type times struct {
	wait, waitP99, completion, slowdown float64
	gpus                                float64 // part
	makespan                            float64
	jobs, finished                      int
}

// news is what the news of free capacity cost.
type news struct {
	messages, bytes    float64
	linkRate           float64 // bytes a second on a link
	age, ageP99, reach float64 // seconds
	offers, declined   int
}

// harm is what faults did.
type harm struct {
	hit, again      int
	lostGPU         float64 // GPU-seconds
	recover, slower float64 // seconds: mean, and largest of all
	twice, open     int     // records that break a rule, jobs that never ended: both must be 0
}

// refereed checks each record of a run.
type refereed struct {
	referee *report.Referee
	broken  int
	first   error
}

func (r *refereed) Take(x record.Record) {
	if err := r.referee.Check(x); err != nil {
		if r.broken++; r.first == nil {
			r.first = err
		}
	}
}

// restart is the cost of a start after a preemption.
const restart = time.Minute

// settings is a synthetic load, and the network on which it runs.
type settings struct {
	leaves, hosts, schedulers, jobs int
	load                            string
}

// scenario makes the machines, the network and the load of a seed.
func (s settings) scenario(seed uint64) (*scenario.Scenario, error) {
	x := fabric.DefaultLeafSpine()
	x.Spines, x.Leaves, x.Hosts, x.Oversubscription = 4, s.leaves, s.hosts, 2
	t, err := x.Build()
	if err != nil {
		return nil, err
	}
	machines, err := load.ParseMachines(fmt.Sprintf("%dx8xH100-80GB,128cpu,1TiB", t.Hosts))
	if err != nil {
		return nil, err
	}
	if machines, err = scenario.LayOut(t, machines, s.hosts); err != nil {
		return nil, err
	}
	how, err := load.ParseSynthetic("study", fmt.Sprintf("jobs: %d; %s", s.jobs, s.load))
	if err != nil {
		return nil, err
	}
	jobs, err := how.Jobs(machines, seed)
	if err != nil {
		return nil, err
	}
	return &scenario.Scenario{
		Seed: seed, Load: load.Load{Machines: machines, Jobs: jobs}, Schedulers: s.schedulers, Topology: t, Shape: "leaf-spine",
		Restart: restart, News: scenario.News{Way: scenario.BySessions},
	}, nil
}

// run runs one scenario for each seed on all CPUs. set changes each scenario before it runs.
func (l *lab) run(ctx context.Context, s settings, set func(*scenario.Scenario) error) (*outcome, error) {
	n := l.size.seeds
	docs, errs := make([]*doc, n), make([]error, n)
	cpus := make(chan struct{}, runtime.NumCPU())
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			cpus <- struct{}{}
			docs[i], errs[i] = one(ctx, s, uint64(i+1), set) //nolint:gosec // it is small
			<-cpus
		})
	}
	all.Wait()
	sum := &outcome{}
	for i, d := range docs {
		if errs[i] != nil {
			return nil, fmt.Errorf("seed %d: %w", i+1, errs[i])
		}
		sum.add(d, float64(n))
	}
	return sum, nil
}

// doc is the result of one simulation.
type doc struct {
	report.Document

	broken, open int
}

// one runs one scenario.
func one(ctx context.Context, s settings, seed uint64, set func(*scenario.Scenario) error) (*doc, error) {
	x, err := s.scenario(seed)
	if err != nil {
		return nil, err
	}
	if err := set(x); err != nil {
		return nil, err
	}
	referee, err := report.NewReferee(&x.Load, report.Rules{Restart: x.Restart, Slack: time.Hour, Undone: len(x.Faults) > 0})
	if err != nil {
		return nil, err
	}
	check := &refereed{referee: referee}
	x.Log = check
	out, err := x.Run(ctx)
	if err != nil {
		return nil, err
	}
	if check.first != nil {
		return nil, fmt.Errorf("%d records break a rule; the first one: %w", check.broken, check.first)
	}
	return &doc{out.Document, check.broken, referee.Open()}, nil
}

// add adds one of seeds simulations to the means.
func (o *outcome) add(d *doc, seeds float64) {
	f, i := d.Runs[0].Figures, d.Information
	mean := func(sum *float64, x float64) { *sum += x / seeds }
	mean(&o.wait, f.Wait.Mean)
	mean(&o.waitP99, f.Wait.P99)
	mean(&o.completion, f.Completion.Mean)
	mean(&o.slowdown, f.Slowdown.Mean)
	mean(&o.gpus, f.Use.GPUs)
	mean(&o.makespan, f.Makespan)
	o.jobs += f.Jobs.Submitted
	o.finished += f.Jobs.Finished
	mean(&o.messages, float64(i.Messages))
	mean(&o.bytes, float64(i.Bytes))
	mean(&o.linkRate, i.LinkBytes/f.Makespan)
	mean(&o.age, i.AgeMean)
	mean(&o.ageP99, i.AgeP99)
	mean(&o.reach, i.Reach99)
	o.offers += i.Offers
	o.declined += i.Declined
	o.hit += f.Again.Lost
	o.again += f.Again.Restarts
	mean(&o.lostGPU, f.Again.LostGPU)
	mean(&o.recover, f.Again.Recovery.Mean)
	o.slower = max(o.slower, f.Again.Recovery.Max)
	o.twice += d.broken
	o.open += d.open
}

// centre returns the outcome of a scheduler that sees everything, with the same loads.
func (l *lab) centre(ctx context.Context, s settings) (*outcome, error) {
	sum := &outcome{}
	for seed := range l.size.seeds {
		x, err := s.scenario(uint64(seed + 1)) //nolint:gosec // it is small
		if err != nil {
			return nil, err
		}
		tally, err := report.NewTally(&x.Load)
		if err != nil {
			return nil, err
		}
		err = central.Run(ctx, &x.Load, central.Options{Order: central.Centre, Place: central.BestFit, Restart: restart, Seed: x.Seed}, tally)
		if err != nil {
			return nil, err
		}
		f, n := tally.Figures(0, nil), float64(l.size.seeds)
		sum.wait += f.Wait.Mean / n
		sum.waitP99 += f.Wait.P99 / n
		sum.completion += f.Completion.Mean / n
		sum.slowdown += f.Slowdown.Mean / n
		sum.gpus += f.Use.GPUs / n
		sum.makespan += f.Makespan / n
	}
	return sum, nil
}
