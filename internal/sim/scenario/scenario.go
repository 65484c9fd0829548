// Package scenario is one simulation as its user asks for it: muster runs a load on a network with faults, and then
// each yardstick runs the same load. The result is one document.
//
// The package opens no file. Faults with a rate are drawn from the seed before the run, until twice the end of the load: so
// one command has the same faults under each policy, and a comparison compares policies and not luck. There is no file format
// for scenarios, because a command line with tables says the same.
package scenario

import (
	"context"
	"fmt"
	"time"

	"github.com/musterhq/muster/internal/fairshare"
	"github.com/musterhq/muster/internal/sim"
	"github.com/musterhq/muster/internal/sim/central"
	"github.com/musterhq/muster/internal/sim/fabric"
	"github.com/musterhq/muster/internal/sim/load"
	"github.com/musterhq/muster/internal/sim/record"
	"github.com/musterhq/muster/internal/sim/report"
	"github.com/musterhq/muster/scheduler/policy"
)

// Scenario is what is simulated. Load must have machines and jobs; every other zero value is allowed.
type Scenario struct {
	Seed uint64
	Load load.Load
	// Known says that users say how long their jobs run.
	Known bool

	sim.Queueing

	Policy     string // the placement policy; empty: the default of the daemons
	Candidates int    // hosts that a placement compares; 0: as many as in the daemons
	Schedulers int    // daemons that accept jobs; 0: one for each 64 machines, at most 16
	Shares     fairshare.Weights

	Shape       string           // of the network, for people
	Topology    *fabric.Topology // nil: each pair of machines has a link of its own, of constant latency
	Loss        float64          // part of the control messages that each link loses
	Convergence time.Duration    // of routes; 0: the default of the network

	News News // how schedulers hear of what is free

	Faults     []Fault
	Restart    time.Duration // what a start after a preemption costs
	Checkpoint time.Duration // how often a job saves its state, for faults; 0: never
	Horizon    time.Duration // when the simulation ends; 0: with the last job

	Yardsticks []central.Order
	Log        record.Sink                      // of muster's run; may be nil
	Progress   func(run string, p sim.Progress) // called now and then with the progress of a run; may be nil
}

// MostCompared is the largest cluster, in machines, in which a yardstick uses muster's own policies. In larger clusters
// it uses best fit.
const MostCompared = 2000

// Outcome is the result of a simulation.
type Outcome struct {
	Document report.Document
	Result   sim.Result
}

// Run runs muster and then the yardsticks. If ctx ends, the outcome is that of what has run so far.
func (s *Scenario) Run(ctx context.Context) (*Outcome, error) {
	tally, err := report.NewTally(&s.Load)
	if err != nil {
		return nil, err
	}
	tally.Checkpoint = s.Checkpoint
	cfg, network, carrier, err := s.config(tally)
	if err != nil {
		return nil, err
	}
	world, err := sim.New(cfg)
	if err != nil {
		return nil, err
	}
	out := &Outcome{}
	var runErr error
	if out.Result, runErr = world.Run(ctx); runErr != nil && ctx.Err() == nil {
		return out, runErr
	}
	d := &out.Document
	d.Seed, d.Settings, d.Cluster = s.Seed, s.settings(cfg), report.ClusterOf(s.Load.Machines)
	d.Runs = []report.Run{{Name: Muster, Policy: s.policy(), Figures: tally.Figures(out.Result.End, s.reported())}}
	d.Network = network.report(s.Shape, len(s.Load.Machines), out.Result)
	d.Information = s.information(carrier, out.Result)
	if runErr != nil {
		return out, runErr
	}
	return out, s.yardsticks(ctx, d)
}

// Muster is the name of muster's own run.
const Muster = "muster"

func (s *Scenario) policy() string {
	if s.Policy == "" {
		return policy.Default
	}
	return s.Policy
}

func (s *Scenario) schedulers() int {
	if s.Schedulers > 0 {
		return s.Schedulers
	}
	return min(max(1, len(s.Load.Machines)/64), 16)
}

// config returns the configuration of the world.
func (s *Scenario) config(tally *report.Tally) (sim.Config, *network, *carrier, error) {
	clock := &sim.Clock{}
	var sink record.Sink = tally
	if s.Log != nil {
		sink = report.Tee{tally, s.Log}
	}
	cfg := sim.Config{
		Seed: s.Seed, Clock: clock, Load: s.Load, Schedulers: s.schedulers(), Route: sim.ByTurns, Policy: s.Policy,
		Candidates: s.Candidates, Queueing: s.Queueing, Known: s.Known, Restart: s.Restart, Checkpoint: s.Checkpoint, Shares: s.Shares,
		Horizon: s.Horizon, Sink: sink,
	}
	if s.Progress != nil {
		cfg.Progress = func(p sim.Progress) { s.Progress(Muster, p) }
	}
	var net *network
	if s.Topology != nil {
		var err error
		if net, err = s.network(clock); err != nil {
			return cfg, nil, nil, err
		}
		cfg.Network = net
	} else {
		cfg.Network = sim.NewPlain(clock, s.Seed)
	}
	news, err := s.carrier(cfg.Network, clock)
	if err != nil {
		return cfg, nil, nil, err
	}
	if news != nil {
		cfg.News = news
	}
	cfg.Stale, cfg.Measured = s.News.Stale, s.News.asked()
	for i := range s.Faults {
		one, err := s.Faults[i].of(net)
		if err != nil {
			return cfg, nil, nil, err
		}
		cfg.Faults = append(cfg.Faults, one)
	}
	return cfg, net, news, nil
}

// settings returns the chosen settings, for people.
func (s *Scenario) settings(cfg sim.Config) []report.Setting {
	durations := "unknown"
	if s.Known {
		durations = "known"
	}
	out := []report.Setting{
		{Name: "policy", Value: s.policy()},
		{Name: "schedulers", Value: fmt.Sprint(cfg.Schedulers)},
		{Name: "durations", Value: durations},
		{Name: "order", Value: s.Order.String()},
	}
	add := func(name, value string, there bool) {
		if there {
			out = append(out, report.Setting{Name: name, Value: value})
		}
	}
	add("max-wait", s.MaxWait.String(), s.MaxWait > 0)
	add("candidates", fmt.Sprint(s.Candidates), s.Candidates > 0)
	add("network", s.Shape, s.Topology != nil)
	add("information", s.News.Way, s.News.Way != "")
	add("stale", s.News.Stale.String(), s.News.Stale > 0)
	add("loss", fmt.Sprintf("%g%%", 100*s.Loss), s.Loss > 0)
	add("faults", fmt.Sprint(len(s.Faults)), len(s.Faults) > 0)
	add("faults of the yardsticks", "the same", len(s.Faults) > 0 && len(s.Yardsticks) > 0)
	add("on-partition", "fence", len(s.Faults) > 0)
	add("restart", s.Restart.String(), s.Restart > 0)
	add("checkpoint", s.Checkpoint.String(), s.Checkpoint > 0)
	add("until", s.Horizon.String(), s.Horizon > 0)
	return out
}

// yardsticks runs each of them on the same load, with the same faults.
func (s *Scenario) yardsticks(ctx context.Context, d *report.Document) error {
	faults := s.centralFaults()
	for _, order := range s.Yardsticks {
		tally, err := report.NewTally(&s.Load)
		if err != nil {
			return err
		}
		tally.Checkpoint = s.Checkpoint
		place := central.BestFit
		if order == central.Centre && len(s.Load.Machines) <= MostCompared {
			place = central.Place(s.policy())
		}
		if s.Progress != nil {
			s.Progress(string(order), sim.Progress{Jobs: len(s.Load.Jobs)})
		}
		err = central.Run(ctx, &s.Load, central.Options{
			Order: order, Place: place, Restart: s.Restart, Checkpoint: s.Checkpoint, Seed: s.Seed, Horizon: s.Horizon, Faults: faults,
		}, tally)
		if err != nil {
			return fmt.Errorf("yardstick %s: %w", order, err)
		}
		d.Runs = append(d.Runs, report.Run{Name: string(order), Policy: string(place), Figures: tally.Figures(s.Horizon, s.reported())})
	}
	return nil
}
