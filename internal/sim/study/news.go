package main

// How schedulers hear of what is free, and how late.

import (
	"context"
	"fmt"
	"time"

	"github.com/musterhq/muster/internal/sim/report/units"
	"github.com/musterhq/muster/internal/sim/scenario"
)

// quick is a load of jobs of about a minute: what is free changes often.
const quick = "load: 0.9; durations: lognormal(median=1m,sigma=1,max=20m); gpus: 1:0.6,2:0.15,4:0.15,8:0.1"

// hasty returns settings with the load quick, in which every eighth machine accepts jobs.
func (l *lab) hasty() settings {
	n := l.size.leaves * l.size.hosts
	return settings{leaves: l.size.leaves, hosts: l.size.hosts, schedulers: max(2, n/8), jobs: l.size.jobs * n, load: quick}
}

func staleViews(ctx context.Context, l *lab) (*rows, error) {
	r := &rows{}
	r.add("late by", "wait, mean", "wait, p99", "completion, mean", "slowdown, mean", "GPUs used", "offers declined", "age of beliefs", "p99")
	for _, late := range []time.Duration{0, 100 * time.Millisecond, time.Second, 10 * time.Second, time.Minute} {
		o, err := l.run(ctx, l.hasty(), func(x *scenario.Scenario) error {
			x.News.Stale = late
			return nil
		})
		if err != nil {
			return nil, err
		}
		r.add(append(append([]string{units.Span(late.Seconds())}, o.waits()...), o.declines(), units.Span(o.age), units.Span(o.ageP99))...)
	}
	return l.withCentre(ctx, l.hasty(), r)
}

func waysToHear(ctx context.Context, l *lab) (*rows, error) {
	r := &rows{}
	r.add("way", "messages", "bytes", "bytes/s on a link", "age of beliefs", "p99", "99 % know after", "offers declined", "wait, mean", "wait, p99", "completion, mean")
	for _, way := range scenario.Ways {
		o, err := l.run(ctx, l.hasty(), func(x *scenario.Scenario) error {
			x.News.Way = way
			return nil
		})
		if err != nil {
			return nil, err
		}
		reach := ""
		if o.reach > 0 {
			reach = units.Span(o.reach)
		}
		r.add(way, units.Count(int64(o.messages)), units.Bytes(o.bytes), units.Bytes(o.linkRate), units.Span(o.age), units.Span(o.ageP99), reach,
			o.declines(), units.Span(o.wait), units.Span(o.waitP99), units.Span(o.completion))
	}
	return r, nil
}

func silentHosts(ctx context.Context, l *lab) (*rows, error) {
	r := &rows{}
	r.add("way, part of the hosts that pass nothing on", "age of beliefs", "p99", "offers declined", "wait, mean", "wait, p99", "completion, mean")
	for _, way := range []string{scenario.ByRandom, scenario.ByMST, scenario.ByOptimised} {
		for _, part := range []float64{0, 0.05, 0.2} {
			o, err := l.run(ctx, l.hasty(), func(x *scenario.Scenario) error {
				x.News.Way, x.News.Silent = way, part
				return nil
			})
			if err != nil {
				return nil, err
			}
			r.add(fmt.Sprintf("%s, %.0f %%", way, 100*part), units.Span(o.age), units.Span(o.ageP99), o.declines(), units.Span(o.wait), units.Span(o.waitP99), units.Span(o.completion))
		}
	}
	return r, nil
}
