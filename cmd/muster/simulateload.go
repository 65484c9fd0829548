package main

// What a simulation is given: cluster, load, network and faults, from files and flags.

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/internal/sim"
	"github.com/musterhq/muster/internal/sim/fabric"
	"github.com/musterhq/muster/internal/sim/load"
	"github.com/musterhq/muster/internal/sim/scenario"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/policy"
)

// scenarioOf reads the flags. The notes are for people.
func scenarioOf(c *cli.Context) (s *scenario.Scenario, notes []string, err error) {
	s = &scenario.Scenario{
		Seed: c.Uint64("seed"), Policy: c.String("policy"), Candidates: c.Int("candidates"), Schedulers: c.Int("schedulers"),
		Loss: c.Float64("loss") / 100, Restart: c.Duration("restart"), Checkpoint: c.Duration("checkpoint"), Horizon: c.Duration("until"),
		News: scenario.News{Way: c.String("information"), Stale: c.Duration("stale")},
	}
	if err := checkFlags(c); err != nil {
		return nil, nil, err
	}
	s.Known = c.String("durations") == "known"
	if s.Topology, s.Shape, err = topologyOf(c); err != nil {
		return nil, nil, err
	}
	if s.Load.Machines, err = machinesOf(c, s.Topology); err != nil {
		return nil, nil, err
	}
	if s.Topology != nil {
		if s.Load.Machines, err = scenario.LayOut(s.Topology, s.Load.Machines, leafHosts(c)); err != nil {
			return nil, nil, err
		}
	}
	if err := s.News.Check(len(s.Load.Machines)); err != nil {
		return nil, nil, fmt.Errorf("--%w", err)
	}
	if n := len(s.Load.Machines); s.Schedulers > n {
		return nil, nil, fmt.Errorf("--schedulers %d: there are %d machines, each with one at most", s.Schedulers, n)
	}
	if s.Load.Jobs, notes, err = jobsOf(c, s); err != nil {
		return nil, nil, err
	}
	if err := scaled(c, &s.Load); err != nil {
		return nil, nil, err
	}
	s.Order = orderOf(c, s)
	if s.MaxWait, err = maxWaitOf(c); err != nil {
		return nil, nil, err
	}
	if s.Yardsticks, err = yardsticksOf(c.String("yardsticks"), len(s.Load.Machines), len(s.Load.Jobs)); err != nil {
		return nil, nil, err
	}
	s.Faults, err = faultsOf(c, s)
	return s, notes, err
}

// checkFlags refuses values that are wrong for every load.
func checkFlags(c *cli.Context) error {
	for _, f := range []string{"candidates", "schedulers"} {
		if n := c.Int(f); n < 0 || c.IsSet(f) && n == 0 {
			return fmt.Errorf("--%s %d: want at least 1", f, n)
		}
	}
	for _, f := range []string{"restart", "checkpoint", "until"} {
		if d := c.Duration(f); d < 0 {
			return fmt.Errorf("--%s %s: a time cannot be negative", f, job.Duration(d))
		}
	}
	if name := c.String("policy"); name != "" {
		if err := policy.Check(name); err != nil {
			return fmt.Errorf("--policy: %w", err)
		}
	}
	if _, ok := contract.ParseOrder(c.String("order")); !ok && c.String("order") != "" {
		return fmt.Errorf("--order %q: want %s", c.String("order"), strings.Join(contract.Orders(), ", "))
	}
	if d := c.String("durations"); d != "known" && d != "unknown" {
		return fmt.Errorf("--durations %q: want known or unknown", d)
	}
	if l := c.Float64("loss"); !(l >= 0 && l < 100) {
		return fmt.Errorf("--loss %v: want a percentage from 0 to below 100", l)
	}
	return nil
}

// orderOf returns the order that the flag names. Without the flag, a table whose jobs may all be preempted is ordered
// by remaining work, or by the use so far if the schedulers do not know how long jobs run. All other loads are ordered
// by age, as in the daemons.
func orderOf(c *cli.Context, s *scenario.Scenario) contract.OrderBy {
	if name := c.String("order"); name != "" {
		order, _ := contract.ParseOrder(name)
		return order
	}
	table := c.String("jobs") != "" || c.String("sacct") != ""
	if !table || slices.ContainsFunc(s.Load.Jobs, func(j load.Job) bool { return !j.Spec.Preemptible }) {
		return contract.ByAge
	}
	if s.Known {
		return contract.ByRemaining
	}
	return contract.ByAttained
}

// maxWaitOf returns how long jobs wait until they go before all others; 0: they never do.
func maxWaitOf(c *cli.Context) (time.Duration, error) {
	if !c.IsSet("max-wait") {
		return 0, nil
	}
	var d job.Duration
	if err := d.UnmarshalText([]byte(c.String("max-wait"))); err != nil {
		return 0, fmt.Errorf("--max-wait: %w", err)
	}
	if err := (sim.Queueing{MaxWait: d.D()}).CheckMaxWait(); err != nil {
		return 0, fmt.Errorf("--max-wait %s: %w", d, err)
	}
	return d.D(), nil
}

// topologyOf reads or builds the network; nil: none is asked for.
func topologyOf(c *cli.Context) (t *fabric.Topology, shape string, err error) {
	bandwidth, err := fabric.ParseBandwidth(c.String("bandwidth"))
	if err != nil {
		return nil, "", fmt.Errorf("--bandwidth: %w", err)
	}
	switch kind := c.String("topology"); kind {
	case "":
		return nil, "", nil
	case "leaf-spine":
		x := fabric.DefaultLeafSpine()
		x.Spines, x.Leaves, x.Hosts = c.Int("spines"), c.Int("leaves"), c.Int("hosts")
		x.Oversubscription, x.Bandwidth = c.Float64("oversubscription"), bandwidth
		t, err = x.Build()
		return t, fmt.Sprintf("leaf-spine of %d spines and %d leaves with %d hosts each", x.Spines, x.Leaves, x.Hosts), err
	case "fat-tree":
		x := fabric.FatTree{K: c.Int("ports"), Bandwidth: bandwidth, Latency: time.Microsecond}
		t, err = x.Build()
		return t, fmt.Sprintf("fat-tree of %d ports", x.K), err
	default:
		if !isFile(kind) {
			return nil, "", fmt.Errorf("--topology %q: want leaf-spine, fat-tree, or a file", kind)
		}
		text, err := readBounded(kind, fabric.MaxFile)
		if err != nil {
			return nil, "", err
		}
		t, err = fabric.Parse(kind, text)
		return t, filepath.Base(kind), err
	}
}

// readBounded reads a file of at most this number of bytes.
func readBounded(name string, most int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(text)) > most {
		err = fmt.Errorf("%s: larger than %d MiB", name, most>>20)
	}
	return text, err
}

// machinesOf reads the machines, or makes one for each host of the topology.
func machinesOf(c *cli.Context, t *fabric.Topology) ([]load.Machine, error) {
	text := c.String("machines")
	switch {
	case text == "" && t == nil:
		return nil, errors.New("there is no cluster: give --machines, or --topology")
	case text == "":
		one := c.String("machine")
		if count, _, times := strings.Cut(one, "x"); !times || !isNumber(count) {
			one = "," + one // without GPUs
		}
		m, err := load.ParseMachines(fmt.Sprintf("%dx%s", t.Hosts, one))
		if err != nil {
			return nil, fmt.Errorf("--machine: %w", err)
		}
		return m, nil
	case isFile(text):
		f, err := os.Open(text)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		return load.ReadMachines(text, f)
	}
	m, err := load.ParseMachines(text)
	if err != nil {
		return nil, fmt.Errorf("--machines: %w", err)
	}
	return m, nil
}

func isNumber(text string) bool {
	_, err := strconv.Atoi(text)
	return err == nil
}

// isFile reports whether the value of a flag is a file; otherwise it is a text.
func isFile(text string) bool {
	if _, err := os.Stat(text); err == nil {
		return true
	}
	return slices.Contains([]string{".csv", ".yaml", ".yml", ".txt"}, filepath.Ext(text))
}

// leafHosts returns the number of hosts on a leaf of a network that flags describe; 0 if a file describes the network.
func leafHosts(c *cli.Context) int {
	switch c.String("topology") {
	case "leaf-spine":
		return c.Int("hosts")
	case "fat-tree":
		return c.Int("ports") / 2
	}
	return 0
}

// jobsOf reads or makes the jobs.
func jobsOf(c *cli.Context, s *scenario.Scenario) (jobs []load.Job, notes []string, err error) {
	given := 0
	for _, f := range []string{"jobs", "synthetic", "sacct"} {
		if c.String(f) != "" {
			given++
		}
	}
	if given != 1 {
		return nil, nil, errors.New("want one of --jobs, --synthetic and --sacct: what runs on the cluster")
	}
	o := load.Options{
		Cluster: s.Load.Machines, Known: s.Known, Preemptible: c.Bool("preemptible"), Experiment: !c.IsSet("preemptible"), Restart: s.Restart,
	}
	if text := c.String("synthetic"); text != "" {
		name := "--synthetic"
		if _, err := os.Stat(text); err == nil {
			name = text
			body, err := readBounded(text, 1<<20)
			if err != nil {
				return nil, nil, err
			}
			text = string(body)
		}
		how, err := load.ParseSynthetic(name, text)
		if err != nil {
			return nil, nil, err
		}
		if jobs, err = how.Jobs(s.Load.Machines, s.Seed); err != nil {
			return nil, nil, err
		}
		notes, err = o.Fit(name, jobs)
		return jobs, notes, err
	}
	name := c.String("jobs") + c.String("sacct")
	f, err := os.Open(name)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	if c.String("sacct") == "" {
		o.Open = load.FilesBeside(name)
		return load.ReadJobs(name, f, o)
	}
	if jobs, notes, err = load.FromSacct(name, f, load.SacctOptions{}); err != nil {
		return nil, notes, err
	}
	more, err := o.Fit(name, jobs)
	return jobs, append(notes, more...), err
}

// scaled moves the submissions as --load says, and writes the jobs to the file of --save-jobs.
func scaled(c *cli.Context, l *load.Load) error {
	if text := c.String("load"); text != "" {
		part, err := load.ParseOffered(text)
		if err == nil {
			err = l.ScaleTo(part)
		}
		if err != nil {
			return fmt.Errorf("--load: %w", err)
		}
	}
	name := c.String("save-jobs")
	if name == "" {
		return nil
	}
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(load.WriteJobs(f, l.Jobs), f.Close())
}

// faultsOf reads the faults of the script, and draws the faults that have a rate.
func faultsOf(c *cli.Context, s *scenario.Scenario) ([]scenario.Fault, error) {
	var out []scenario.Fault
	if name := c.String("faults"); name != "" {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		if out, err = scenario.ReadScript(name, f, &s.Load); err != nil {
			return nil, err
		}
	}
	var rates []scenario.Rate
	for _, text := range c.StringSlice("fail") {
		r, err := scenario.ParseRate(text)
		if err != nil {
			return nil, fmt.Errorf("--fail: %w", err)
		}
		rates = append(rates, r)
	}
	drawn, err := scenario.Draw(rates, &s.Load, s.Topology, s.FaultsUntil(), s.Seed)
	if err != nil {
		return nil, fmt.Errorf("--fail: %w", err)
	}
	return append(out, drawn...), nil
}
