package main

// The verb simulate: a data center in one process, run by the scheduler and the worker of the daemons.

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/musterhq/muster/internal/sim"
	"github.com/musterhq/muster/internal/sim/central"
	"github.com/musterhq/muster/internal/sim/load"
	"github.com/musterhq/muster/internal/sim/report"
	"github.com/musterhq/muster/internal/sim/scenario"
)

const simulateText = `Runs a load on a cluster that is made up, with the very code that the daemons run, on a virtual clock.
Nothing is started and no network is used. The same seed prints the same figures.

Give a cluster (--machines, or --topology with --machine) and a load (--jobs, --synthetic or --sacct), or
--machines with --arrivals or --workload for the placement experiment of the public traces, or --compare with
files that --json has written. See docs/simulation.md.

Examples:
  muster simulate --machines 8x8xH100-80GB,128cpu,1TiB --synthetic 'jobs: 2000; load: 0.9'
  muster simulate --topology leaf-spine --spines 4 --leaves 16 --hosts 32 --jobs trace.csv --fail 1%/h --report r.html
  muster simulate --machines nodes.csv --sacct sacct.txt --durations known
  muster simulate --machines nodes.csv --gates requests_*.csv
  muster simulate --compare before.json after.json`

func (v hostVerbs) simulateCommand() *cli.Command {
	text := func(name, usage string) cli.Flag { return &cli.StringFlag{Name: name, Usage: usage} }
	number := func(name, usage string) cli.Flag {
		return &cli.IntFlag{Name: name, Usage: usage, DefaultText: "see docs"}
	}
	return &cli.Command{
		Name: "simulate", Usage: "what would a cluster have done with a load: utilisation, waiting, faults, network",
		Description: simulateText,
		Flags: []cli.Flag{
			text("machines", "`FILE` with a table of machines (CSV), or groups of machines such as 512x8xH100-80GB,128cpu,1TiB"),
			&cli.StringFlag{Name: "machine", Value: "8xH100-80GB,128cpu,1TiB", Usage: "with a topology and without --machines: what each host `HAS`"},
			text("jobs", "`FILE` with a table of jobs, or of job files with the times of their submission (CSV)"),
			text("synthetic", "make up jobs: `SETTINGS`, or a file with them; --synthetic help lists them"),
			text("sacct", "`FILE` with the output of Slurm's sacct: what ran there is the load"),
			text("save-jobs", "write the load as a table of jobs to `FILE`"),
			text("load", "move the submissions so that the jobs ask for this `PART` of the cluster: 0.8"),
			&cli.StringFlag{Name: "durations", Value: "unknown", Usage: "are those of the jobs `known` or unknown to the scheduler"},
			&cli.BoolFlag{Name: "preemptible", Usage: "all jobs may be preempted; those of a table that does not say may unless this is false", DisableDefaultText: true},
			text("arrivals", "placement experiment: `FILE` with requests that arrive and never leave (CSV)"),
			text("workload", "placement experiment: `FILE` with the requests that are usual; without --arrivals they arrive in the order of --seed"),

			text("policy", "placement `POLICY` of jobs that name none"),
			text("order", "of jobs of one priority: `BY` age, attained or remaining; see docs"),
			text("max-wait", "a job that has waited for `TIME` goes first, whatever its priority: 7d; without it none does"),
			number("candidates", "`N` hosts that a placement compares"),
			number("schedulers", "`N` daemons that accept jobs"),
			&cli.Uint64Flag{Name: "seed", Value: 1, Usage: "of all that is random: `N`"},
			&cli.DurationFlag{Name: "restart", Value: time.Minute, Usage: "what a job loses that starts again after a preemption: `TIME`"},
			&cli.DurationFlag{Name: "checkpoint", Usage: "how often a job saves its state, for faults: `TIME`; 0: never", DefaultText: "0"},
			&cli.DurationFlag{Name: "until", Usage: "end the simulation after this virtual `TIME`; 0: with the last job", DefaultText: "0"},

			text("topology", "the network: leaf-spine, fat-tree, or a `FILE` (YAML)"),
			&cli.IntFlag{Name: "spines", Value: 4, Usage: "leaf-spine: `N` spines"},
			&cli.IntFlag{Name: "leaves", Value: 16, Usage: "leaf-spine: `N` leaves"},
			&cli.IntFlag{Name: "hosts", Value: 32, Usage: "leaf-spine: `N` hosts of a leaf"},
			&cli.Float64Flag{Name: "oversubscription", Value: 2, Usage: "leaf-spine: bandwidth of a leaf's hosts over that of its links to the spines: `RATIO`"},
			&cli.IntFlag{Name: "ports", Value: 8, Usage: "fat-tree: `N` ports of each switch"},
			&cli.StringFlag{Name: "bandwidth", Value: "25Gbps", Usage: "of a host: `SPEED`"},
			&cli.Float64Flag{Name: "loss", Usage: "`PERCENT` of messages that each link loses", DefaultText: "0"},

			text("information", "how schedulers hear of what is free: `WAY`, one of "+strings.Join(scenario.Ways, ", ")),
			&cli.DurationFlag{Name: "stale", Usage: "they get to know of it so much later: `TIME`", DefaultText: "0"},

			&cli.StringSliceFlag{Name: "fail", Usage: "`RATE` of faults: 1%/h (of hosts), or daemon, gpu, slow, link or switch: link=2%/d for 10m"},
			text("faults", "`FILE` with faults and their times (CSV)"),
			&cli.StringFlag{Name: "yardsticks", Value: "auto", Usage: "`LIST` of central schedulers to compare with: auto, all, none, or some of " + orders()},

			text("out", "write what happens to each job to `FILE`, as JSON lines"),
			text("report", "write a page with pictures to `FILE`"),
			&cli.BoolFlag{Name: "json", Usage: "print all figures as JSON", DisableDefaultText: true},
			&cli.BoolFlag{Name: "compare", Usage: "compare the runs in files that --json has written", DisableDefaultText: true},
			&cli.BoolFlag{Name: "gates", Usage: "judge the run against the yardsticks; with tables of requests (CSV) as arguments: judge placement over all of them", DisableDefaultText: true},
			&cli.IntFlag{Name: "seeds", Value: 10, Usage: "--gates of tables: place each with `N` seeds, from --seed on"},
		},
		ArgsUsage: "[FILE ...]",
		Action:    v.simulate,
	}
}

func orders() string {
	var out []string
	for _, o := range central.Orders {
		out = append(out, string(o))
	}
	return strings.Join(out, ", ")
}

func (v hostVerbs) simulate(c *cli.Context) error {
	switch {
	case c.Bool("compare"):
		return v.compareSimulations(c)
	case c.Bool("gates") && c.NArg() > 0:
		return v.placeGates(c)
	case c.NArg() > 0:
		return usagef("simulate: %q: files are arguments of --compare and --gates only; see `%s --help`", c.Args().First(), c.Command.HelpName)
	case c.String("synthetic") == "help":
		return v.syntheticHelp()
	case c.String("arrivals") != "" || c.String("workload") != "":
		return v.place(c)
	}
	s, notes, err := scenarioOf(c)
	if err != nil {
		return usageError{fmt.Errorf("simulate: %w", err)}
	}
	for _, n := range notes {
		fmt.Fprintln(v.err, "muster: simulate: "+n)
	}
	outs, err := newSimulationFiles(c, &s.Load)
	if err != nil {
		return err
	}
	if outs.log != nil && s.Topology != nil {
		outs.log.On(scenario.NodeNames(s.Topology))
	}
	progress := report.NewProgress(v.err, onTerminal(v.err), time.Now())
	s.Log, s.Progress = outs.sink(), func(_ string, p sim.Progress) {
		progress.Show(time.Now(), p.Now, int64(p.Events), p.Ended, p.Jobs)
	}
	out, err := s.Run(c.Context)
	progress.Clear()
	if err = errors.Join(err, outs.closeLog()); err != nil {
		if c.Err() != nil {
			return exitError{exitCtrlC, errors.New("simulate: interrupted")}
		}
		return fmt.Errorf("simulate: %w", err)
	}
	d := &out.Document
	d.Command = commandLine(os.Args)
	if c.Bool("gates") {
		d.Gates = report.Judge(d, aims(s))
	}
	if onTerminal(v.err) {
		fmt.Fprintln(v.err, progress.Speed(time.Now()))
	}
	return v.printSimulation(c, d, outs)
}

// commandLine returns the command as it was typed, without the path of the program.
func commandLine(args []string) string {
	words := append([]string{"muster"}, args[min(1, len(args)):]...)
	for i, w := range words {
		if strings.ContainsAny(w, " '\"$;&|<>*?()") {
			words[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
	}
	return strings.Join(words, " ")
}

// The aims of a run that do not follow from a yardstick alone.
const (
	bestFactor  = 1.15 // mean completion over that of the shortest remaining work, if durations are known
	gangFactor  = 1.3  // the same of a load with jobs of several nodes, which wait for room on all of them
	urgentClass = "LS" // of the jobs that must start soon, if the load has any
	urgentWait  = 100  // seconds that these may wait on average
)

// aims returns the aims by which a run of the scenario is judged.
func aims(s *scenario.Scenario) report.Aims {
	a := report.Aims{
		Known: s.Known, Greedy: string(central.Greedy), Best: string(central.Remaining), EASY: string(central.EASY), BestFactor: bestFactor,
		Racks: slices.ContainsFunc(s.Load.Machines, func(m load.Machine) bool { return m.Labels[load.RackLabel] != "" }),
	}
	if slices.ContainsFunc(s.Load.Jobs, func(j load.Job) bool { return j.Spec.Nodes > 1 }) {
		a.BestFactor = gangFactor
	}
	if slices.ContainsFunc(s.Load.Jobs, func(j load.Job) bool { return j.Class == urgentClass }) {
		a.Class, a.ClassWait = urgentClass, urgentWait
	}
	return a
}

// yardsticksOf returns the yardsticks that the flag names.
func yardsticksOf(text string, machines, jobs int) ([]central.Order, error) {
	switch text {
	case "none":
		return nil, nil
	case "all":
		return central.Orders, nil
	case "auto":
		switch {
		case machines <= 200 && jobs <= 20_000:
			return central.Orders, nil
		case jobs <= 100_000:
			return []central.Order{central.Centre, central.Greedy}, nil
		}
		return []central.Order{central.Greedy}, nil
	}
	var out []central.Order
	for w := range strings.SplitSeq(text, ",") {
		o := central.Order(strings.TrimSpace(w))
		if !slices.Contains(central.Orders, o) {
			return nil, fmt.Errorf("--yardsticks %q: no order is called %q; want auto, all, none, or some of %s", text, o, orders())
		}
		out = append(out, o)
	}
	return out, nil
}

// compareSimulations prints documents side by side.
func (v hostVerbs) compareSimulations(c *cli.Context) error {
	if c.NArg() < 2 {
		return usagef("simulate --compare: want two files or more that --json has written")
	}
	var docs []report.Named
	for _, name := range c.Args().Slice() {
		f, err := os.Open(name)
		if err != nil {
			return usageError{fmt.Errorf("simulate --compare: %w", err)}
		}
		d, err := report.Read(f)
		_ = f.Close() // it was only read
		if err != nil {
			return usageError{fmt.Errorf("simulate --compare: %s: %w", name, err)}
		}
		docs = append(docs, report.Named{Name: name, Doc: d})
	}
	report.Compare(v.out, docs)
	return nil
}
