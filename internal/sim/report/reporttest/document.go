package reporttest

// A document with everything in it.

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/musterhq/muster/internal/sim/load"
	"github.com/musterhq/muster/internal/sim/record"
	"github.com/musterhq/muster/internal/sim/report"
)

// Document returns the document of a small simulation: four runs of one load, faults, a network of 4 spines and 16
// leaves, and gates. The same seed gives the same document.
func Document(seed uint64) *report.Document {
	l := Load(rand.New(rand.NewPCG(seed, 9)), 16, 600)
	d := &report.Document{
		Command: "muster simulate --machines m.csv --jobs j.csv --policy frag --fail 1%/h --seed 7", Seed: seed, Cluster: report.ClusterOf(l.Machines),
		Settings: []report.Setting{
			{Name: "policy", Value: "frag"},
			{Name: "candidates", Value: "64"},
			{Name: "durations", Value: "unknown"},
			{Name: "topology", Value: "leaf-spine 4 x 16 x 32"},
			{Name: "fail", Value: "1%/h"},
		},
		Network:     network(rand.New(rand.NewPCG(seed, 10))),
		Information: &report.Information{Way: "gossip-random", Messages: 120_000, Bytes: 7 << 20, LinkBytes: 40_000, AgeMean: 0.8, AgeP99: 2.5, Reach99: 1.9},
	}
	for i, name := range []string{"muster", "greedy", "FIFO", "EASY"} {
		run := report.Run{Name: name}
		if i < 2 {
			run.Policy = "frag"
		}
		lost := 0.0
		var happened []report.Fault
		if i == 0 {
			lost, happened = 0.03, faults(l)
		}
		run.Figures = Figures(l, Run(rand.New(rand.NewPCG(seed, uint64(i))), l, 0.04*float64(3-i), lost), happened)
		d.Runs = append(d.Runs, run)
	}
	d.Gates = report.Judge(d, report.Aims{Greedy: "greedy", EASY: "EASY", Class: "LS", ClassWait: 100, Burst: true, Racks: true})
	return d
}

// Figures returns the figures of a run. It panics if an array of the load cannot be read.
func Figures(l *load.Load, records record.Log, happened []report.Fault) *report.Figures {
	t, err := report.NewTally(l)
	if err != nil {
		panic(err)
	}
	for _, r := range records {
		t.Take(r)
	}
	return t.Figures(0, happened)
}

func faults(l *load.Load) []report.Fault {
	var out []report.Fault
	for i := range 3 {
		at := time.Duration(20+70*i) * time.Minute
		out = append(out, report.Fault{At: at, Until: at + 10*time.Minute, Kind: "host", What: l.Machines[5*i+1].Name, Machines: []int{5*i + 1}})
	}
	return append(out, report.Fault{At: 3 * time.Hour, Until: 190 * time.Minute, Kind: "rack", What: "rack-0", Machines: []int{0, 1, 2, 3, 4, 5, 6, 7}})
}

func network(r *rand.Rand) *report.Network {
	const spines, leaves, hosts = 4, 16, 32
	n := &report.Network{
		Topology: "leaf-spine", Messages: 41_234, Bytes: 9_876_543, Dropped: 3, Copied: 5 << 30, Copies: 1234, CopyTime: 1500,
		Paths: []report.PathUse{{Path: "leaf-1 spine-1 leaf-2", Flows: 1203, Bytes: 3 << 20}, {Path: "leaf-1", Flows: 903, Bytes: 1 << 20}},
	}
	for i := range spines {
		n.Switches = append(n.Switches, report.Switch{Name: fmt.Sprintf("spine-%d", i), Tier: 2})
	}
	link := func(a, b report.End, used float64) {
		n.Links = append(n.Links, report.Link{A: a, B: b, Bytes: int64(used * 1e10), Used: used, Flows: int64(used * 1e5)})
	}
	for i := range leaves {
		n.Switches = append(n.Switches, report.Switch{Name: fmt.Sprintf("leaf-%d", i), Tier: 1})
		heat := r.Float64()
		for s := range spines {
			link(report.AtSwitch(s), report.AtSwitch(spines+i), 0.02+0.2*heat*r.Float64())
		}
		for range hosts {
			n.Racks = append(n.Racks, spines+i)
			link(report.AtSwitch(spines+i), report.AtMachine(len(n.Racks)-1), 0.3*heat*r.Float64()*r.Float64())
		}
	}
	return n
}
