package main

// The placement experiment: requests arrive and never leave.

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/musterhq/muster/internal/sim/load"
	"github.com/musterhq/muster/internal/sim/placing"
	"github.com/musterhq/muster/internal/sim/report"
)

func (v hostVerbs) syntheticHelp() error {
	for _, line := range load.SyntheticHelp() {
		if _, err := fmt.Fprintln(v.out, line); err != nil {
			return err
		}
	}
	return nil
}

// place runs the experiment.
func (v hostVerbs) place(c *cli.Context) error {
	for _, f := range []string{"jobs", "synthetic", "sacct", "topology", "information", "stale", "fail", "faults", "load"} {
		if c.IsSet(f) {
			return usagef("simulate: --%s: the placement experiment (--arrivals, --workload) has requests that never leave; it takes no --%s", f, f)
		}
	}
	cfg, err := placementOf(c)
	if err != nil {
		return usageError{fmt.Errorf("simulate: %w", err)}
	}
	files, finish, err := placementFiles(c, cfg)
	if err != nil {
		return usageError{fmt.Errorf("simulate: %w", err)}
	}
	progress := report.NewProgress(v.err, onTerminal(v.err), time.Now())
	cfg.Progress = func(done, of int) { progress.Show(time.Now(), 0, int64(done), done, of) }
	d := &report.Document{
		Command: commandLine(os.Args), Seed: uint64(cfg.Seed), Cluster: report.ClusterOf(cfg.Machines), //nolint:gosec // it was one
		Settings: []report.Setting{{Name: "arrivals", Value: fmt.Sprint(len(cfg.Arrivals))}},
	}
	for _, one := range compared(cfg, c.String("yardsticks")) {
		r, err := placing.Run(c.Context, one)
		progress.Clear()
		if one.Log != nil {
			err = errors.Join(err, finish())
		}
		switch {
		case c.Err() != nil:
			return exitError{exitCtrlC, errors.New("simulate: interrupted")}
		case err != nil:
			return fmt.Errorf("simulate: %w", err)
		}
		d.Runs = append(d.Runs, report.Run{Name: one.Policy, Placement: placementReport(r)})
	}
	return v.printSimulation(c, d, files)
}

// placementFiles creates the files of the experiment. finish ends the log.
func placementFiles(c *cli.Context, cfg *placing.Config) (files *simulationFiles, finish func() error, err error) {
	files = &simulationFiles{}
	if name := c.String("report"); name != "" {
		if files.page, err = os.Create(name); err != nil {
			return nil, nil, fmt.Errorf("--report: %w", err)
		}
	}
	name := c.String("out")
	if name == "" {
		return files, nil, nil
	}
	f, err := os.Create(name)
	if err != nil {
		return nil, nil, fmt.Errorf("--out: %w", err)
	}
	w := bufio.NewWriter(f)
	cfg.Log = placing.LogTo(w, cfg.Machines)
	return files, func() error { return errors.Join(w.Flush(), f.Close()) }, nil
}

// compared returns the requested run, and the runs of the policies with which it is compared.
func compared(cfg *placing.Config, yardsticks string) []placing.Config {
	var names []string
	switch yardsticks {
	case "all":
		names = placing.Policies()
	case "auto":
		names = []string{placing.FGD}
	}
	out := []placing.Config{*cfg}
	for _, name := range names {
		if name == cfg.Policy {
			continue
		}
		one := *cfg
		one.Policy, one.Log = name, nil
		if slices.Contains(placing.Published(), name) {
			one.Candidates = 0
		}
		out = append(out, one)
	}
	return out
}

// placementOf reads the flags of the experiment.
func placementOf(c *cli.Context) (*placing.Config, error) {
	machines, err := machinesOf(c, nil)
	if err != nil {
		return nil, err
	}
	cfg := &placing.Config{Machines: machines, Policy: c.String("policy"), Candidates: c.Int("candidates"), Seed: int64(c.Uint64("seed"))} //nolint:gosec // any number will do
	if cfg.Policy == "" {
		cfg.Policy = "frag"
	}
	if err := placing.CheckPolicy(cfg.Policy); err != nil {
		return nil, fmt.Errorf("--policy: %w", err)
	}
	if cfg.Candidates < 0 {
		return nil, fmt.Errorf("--candidates %d: want at least 1", cfg.Candidates)
	}
	read := func(flag string) ([]load.Request, error) {
		name := c.String(flag)
		if name == "" {
			return nil, nil
		}
		f, err := os.Open(name)
		if err != nil {
			return nil, fmt.Errorf("--%s: %w", flag, err)
		}
		defer f.Close()
		return load.ReadRequests(name, f)
	}
	if cfg.Workload, err = read("workload"); err != nil {
		return nil, err
	}
	if cfg.Arrivals, err = read("arrivals"); err != nil {
		return nil, err
	}
	if cfg.Workload == nil {
		return cfg, nil
	}
	if cfg.Arrivals == nil {
		cfg.Arrivals, cfg.Ranks, err = placing.Inflate(machines, cfg.Workload, cfg.Seed, placing.Inflation)
		return cfg, err
	}
	_, cfg.Ranks, err = placing.Inflate(machines, cfg.Workload, cfg.Seed, placing.Inflation)
	return cfg, err
}

// placementReport converts a result for the document.
func placementReport(r *placing.Result) *report.Placement {
	p := &report.Placement{Placed: r.Placed, Rejected: r.Rejected}
	if b, ok := r.At(100); ok {
		p.At100, p.Fragments = b.Alloc/100, b.Frag/100
	}
	last, _ := r.Last()
	p.At130 = last.Alloc / 100
	for x, b := range r.Bins {
		if b.Arrivals > 0 {
			p.Curve = append(p.Curve, report.Point{Asked: float64(x) / 100, Allocated: b.Alloc / 100})
		}
	}
	return p
}
