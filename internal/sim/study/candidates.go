package main

// How many hosts a placement compares.

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/sim/load"
	"github.com/musterhq/muster/internal/sim/placing"
	"github.com/musterhq/muster/internal/sim/report/units"
	"github.com/musterhq/muster/internal/sim/scenario"
)

// candidates are the numbers that are compared; 0: all.
var candidates = []int{16, 64, 256, 0}

// placed are the policies of the placement experiment.
var placed = []string{"frag", "pack", "simple"}

// mixed is the load of the synthetic placement experiment.
const mixed = "rate: 1000/h; gpus: 0:0.4,0.3:0.08,0.5:0.12,1:0.2,2:0.06,4:0.05,8:0.09; models: any:0.7,H100:0.2,A100:0.1; cpus: lognormal(median=9,sigma=0.6,max=16); memory: 8GiB"

func candidatesPlacement(ctx context.Context, l *lab) (*rows, error) {
	n := l.size.groups
	machines, err := load.ParseMachines(fmt.Sprintf("%dx8xH100-80GB,128cpu,1TiB+%dx4xA100-80GB,64cpu,512GiB+%dx2xT4,32cpu,128GiB", 8*n, 4*n, 4*n))
	if err != nil {
		return nil, err
	}
	how, err := load.ParseSynthetic("study", fmt.Sprintf("jobs: %d; %s", l.size.requests, mixed))
	if err != nil {
		return nil, err
	}
	jobs, err := how.Jobs(machines, 1)
	if err != nil {
		return nil, err
	}
	var all []load.Request
	for i := range jobs {
		need := jobs[i].Spec.Resources
		all = append(all, load.Request{Name: jobs[i].Name, GPUs: gpu.Count(need), Milli: gpu.Milli(need), Models: need.GPUModel, Need: need})
	}
	return l.place(ctx, []placing.Table{{Name: fmt.Sprintf("%d machines of three kinds", len(machines)), Machines: machines, Requests: all}})
}

// openb are public tables of requests.
var openb = []string{"default", "cpu200", "gpushare40", "multigpu50", "gpuspec20"}

func candidatesTraces(ctx context.Context, l *lab) (*rows, error) {
	dir := filepath.Join(l.traces, "openb")
	name := filepath.Join(dir, "openb_node_list_gpu_node.csv")
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	machines, err := load.ReadMachines(name, f)
	if err != nil {
		return nil, err
	}
	var all []placing.Table
	for _, one := range openb {
		name := filepath.Join(dir, "openb_pod_list_"+one+".csv")
		requests, err := readRequests(name)
		if err != nil {
			return nil, err
		}
		all = append(all, placing.Table{Name: "openb " + one, Machines: machines, Requests: requests})
	}
	return l.place(ctx, all)
}

func readRequests(name string) ([]load.Request, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return load.ReadRequests(name, f)
}

// place runs the placement experiment: a row for each table and policy, a column for each number of candidates.
func (l *lab) place(ctx context.Context, tables []placing.Table) (*rows, error) {
	seeds := make([]int64, l.size.seeds)
	for i := range seeds {
		seeds[i] = int64(42 + i)
	}
	study := placing.Study{Tables: tables, Policies: placed, Candidates: candidates, Seeds: seeds, Workers: 1}
	figures, err := study.Run(ctx)
	if err != nil {
		return nil, err
	}
	study.Policies, study.Candidates = []string{"FGD"}, []int{0}
	published, err := study.Run(ctx)
	if err != nil {
		return nil, err
	}
	r := &rows{}
	r.add(head("table, policy", candidates)...)
	for _, t := range tables {
		for _, p := range append(slices.Clone(placed), "FGD") {
			cells := []string{t.Name + ", " + p}
			for _, d := range candidates {
				cells = append(cells, of(append(slices.Clone(figures), published...), t.Name, p, d))
			}
			r.add(cells...)
		}
	}
	return r, nil
}

func head(first string, candidates []int) []string {
	out := []string{first}
	for _, d := range candidates {
		out = append(out, named(d))
	}
	return out
}

func named(candidates int) string {
	if candidates == 0 {
		return "all"
	}
	return fmt.Sprint(candidates)
}

// of returns the figure of a table, policy and number of candidates; empty if there is none.
func of(figures []placing.Figure, table, policy string, d int) string {
	for _, f := range figures {
		if f.Table == table && f.Policy == policy && f.Candidates == d {
			return fmt.Sprintf("%.2f", f.At100)
		}
	}
	return ""
}

// busy is a load of short jobs that asks for a little more than the cluster has.
const busy = "load: 1.05; durations: lognormal(median=3m,sigma=1,max=30m); gpus: 0.5:0.15,1:0.4,2:0.1,4:0.1,8:0.25"

func candidatesQueueing(ctx context.Context, l *lab) (*rows, error) {
	s := settings{leaves: l.size.wide, hosts: l.size.hosts, schedulers: 1, load: busy}
	s.jobs = l.size.jobs * s.leaves * s.hosts * 2 / 5
	r := &rows{}
	r.add("candidates", "wait, mean", "wait, p99", "completion, mean", "slowdown, mean", "GPUs used", "offers declined")
	for _, d := range candidates {
		o, err := l.run(ctx, s, func(x *scenario.Scenario) error {
			x.Candidates = d
			if d == 0 {
				x.Candidates = len(x.Load.Machines)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		r.add(append(append([]string{named(d)}, o.waits()...), o.declines())...)
	}
	return l.withCentre(ctx, s, r)
}

// waits returns cells with the times of jobs.
func (o *outcome) waits() []string {
	return []string{units.Span(o.wait), units.Span(o.waitP99), units.Span(o.completion), units.Digits(o.slowdown), units.Percent(o.gpus)}
}

// declines returns a cell with how many offers were declined, and how many there were.
func (o *outcome) declines() string {
	return fmt.Sprintf("%s of %s", units.Count(o.declined), units.Count(o.offers))
}

// withCentre adds a row for a scheduler that sees everything, and pads it.
func (l *lab) withCentre(ctx context.Context, s settings, r *rows) (*rows, error) {
	o, err := l.centre(ctx, s)
	if err != nil {
		return nil, err
	}
	cells := append([]string{"a centre that sees everything"}, o.waits()...)
	for len(cells) < len(r.cells[0]) {
		cells = append(cells, "")
	}
	r.add(cells...)
	return r, nil
}
