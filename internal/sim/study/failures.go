package main

// What failures cost.

import (
	"context"
	"fmt"
	"strings"

	"github.com/musterhq/muster/internal/sim/report/units"
	"github.com/musterhq/muster/internal/sim/scenario"
)

// steady is a load of jobs of some ten minutes.
const steady = "load: 0.8; durations: lognormal(median=10m,sigma=1,max=1h); gpus: 1:0.6,2:0.15,4:0.15,8:0.1; files: 10MiB"

// failing is what fails at one moment, with the kinds and names of a script of faults.
type failing struct {
	name string
	what func(l *lab, s *scenario.Scenario) []string
}

var failings = []failing{
	{"nothing", func(*lab, *scenario.Scenario) []string { return nil }},
	{"a rack loses its power", func(l *lab, s *scenario.Scenario) (out []string) {
		for _, m := range s.Load.Machines[l.size.hosts : 2*l.size.hosts] {
			out = append(out, "host,"+m.Name)
		}
		return out
	}},
	{"the leaf of a rack fails", func(*lab, *scenario.Scenario) []string { return []string{"switch,leaf1"} }},
	{"a spine fails", func(*lab, *scenario.Scenario) []string { return []string{"switch,spine0"} }},
	{"half of the leaves are cut off", func(l *lab, _ *scenario.Scenario) []string {
		var leaves []string
		for i := range l.size.leaves / 2 {
			leaves = append(leaves, fmt.Sprintf("leaf%d", i))
		}
		return []string{`cut,"` + strings.Join(leaves, ",") + `"`}
	}},
}

func failures(ctx context.Context, l *lab) (*rows, error) {
	n := l.size.leaves * l.size.hosts
	s := settings{leaves: l.size.leaves, hosts: l.size.hosts, schedulers: max(2, n/8), jobs: l.size.jobs * n / 2, load: steady}
	r := &rows{}
	r.add("what fails", "jobs that have finished", "runs ended", "ran again", "GPU-hours lost", "back in, mean", "longest", "wait, mean", "wait, p99", "makespan", "ran twice at once", "lost")
	for _, f := range failings {
		o, err := l.run(ctx, s, func(x *scenario.Scenario) error {
			// in the middle of the load
			at := x.Load.Jobs[len(x.Load.Jobs)/2].Submit.Seconds()
			script := []string{"at_s,kind,what,for_s"}
			for _, w := range f.what(l, x) {
				script = append(script, fmt.Sprintf("%.0f,%s,600", at, w))
			}
			var err error
			x.Faults, err = scenario.ReadScript(f.name, strings.NewReader(strings.Join(script, "\n")), &x.Load)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
		r.add(f.name, fmt.Sprintf("%s of %s", units.Count(o.finished), units.Count(o.jobs)), units.Count(o.hit), units.Count(o.again), units.Digits(o.lostGPU/3600),
			units.Span(o.recover), units.Span(o.slower), units.Span(o.wait), units.Span(o.waitP99), units.Span(o.makespan), units.Count(o.twice), units.Count(o.open))
	}
	return r, nil
}
