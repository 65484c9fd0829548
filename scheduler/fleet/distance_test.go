package fleet

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/musterhq/muster/job"
)

// Distances keep the order of round trips, and differ if the round trips differ by more than a factor of the square
// root of two. An unknown round trip comes last.
func TestDistancesKeepTheOrderOfRoundTrips(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := rapid.Custom(func(t *rapid.T) time.Duration {
			return time.Duration(rapid.Int64Range(1, math.MaxInt64>>rapid.IntRange(0, 62).Draw(t, "bits")).Draw(t, "round trip"))
		})
		a, b := draw.Draw(t, "a"), draw.Draw(t, "b")
		x, y := DistanceOf(a), DistanceOf(b)
		if !x.Known() || x.Rank() <= 0 || x.Rank() >= DistanceOf(0).Rank() {
			t.Fatalf("%s: distance %d has rank %d, want a known one before that of an unknown distance", a, x, x.Rank())
		}
		if a <= b != (x <= y) && x != y || float64(b) > 1.4143*float64(a) && x.Rank() >= y.Rank() {
			t.Fatalf("%s is %d, but %s is %d", a, x, b, y)
		}
	})
	for trip, want := range map[time.Duration]string{
		-1: "unknown", 0: "unknown", 1: "2ns", 100 * time.Microsecond: "140µs", 3 * time.Millisecond: "4.2ms", time.Second: "1.1s",
	} {
		d := DistanceOf(trip)
		if d.String() != want || d.Known() != (trip > 0) {
			t.Errorf("%s: %s, known %v, want %s", trip, d, d.Known(), want)
		}
	}
}

// A search by distance visits the same hosts as any other, the nearest first: this daemon's own host, then hosts of
// known distance, then the others.
func TestSearchByDistanceVisitsTheNearestFirst(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table := NewTable()
		for i := range rapid.IntRange(0, 20).Draw(t, "hosts") {
			h := aHost(&table, job.Peer(fmt.Sprint("h", i)), rapid.IntRange(1, 4).Draw(t, "cpus"))
			SetDistance(&table, h, DistanceOf(time.Duration(rapid.IntRange(-1, 5).Draw(t, "far"))*time.Millisecond))
			switch rapid.IntRange(0, 5).Draw(t, "what happens") {
			case 0:
				table.Remove(h)
			case 1:
				table.Remove(h)
				aHost(&table, h.Peer, 4) // in its slot, and of unknown distance
			case 2:
				h.Down(start)
				table.Count(start)
			}
		}
		clauses, err := ClausesOf(job.Spec{})
		if err != nil {
			t.Fatal(err)
		}
		need := job.Resources{CPUs: 2}
		s := &Shape{Need: need, Foot: FootprintOf(need), Pool: table.JoinPool("", clauses)}
		from, least := 0, 0
		if n := table.Slots(); n > 0 {
			from = rapid.IntRange(0, n-1).Draw(t, "from")
		}
		var all, near []*Host
		for slot := range table.WithRoom(s, from, &least) {
			all = append(all, table.Row(slot).Host)
		}
		for slot := range NearestWithRoom(&table, s, from, &least) {
			near = append(near, table.Row(slot).Host)
		}
		slices.SortStableFunc(all, func(a, b *Host) int { return a.Distance.Rank() - b.Distance.Rank() })
		if !slices.Equal(all, near) {
			t.Fatalf("%d hosts with capacity, but %d of them by distance", len(all), len(near))
		}
	})
}

// BenchmarkSearchByDistance finds the 64 nearest of 10,000 hosts, of which 32 are in the same rack and full.
func BenchmarkSearchByDistance(b *testing.B) {
	table := NewTable()
	for i := range 10_000 {
		cpus := 4
		if i < 32 {
			cpus = 1
		}
		h := aHost(&table, job.Peer(fmt.Sprint("h", i)), cpus)
		SetDistance(&table, h, DistanceOf(time.Duration(1+i/32)*20*time.Microsecond))
	}
	clauses, err := ClausesOf(job.Spec{})
	if err != nil {
		b.Fatal(err)
	}
	need := job.Resources{CPUs: 2}
	s := &Shape{Need: need, Foot: FootprintOf(need), Pool: table.JoinPool("", clauses)}
	for b.Loop() {
		n, least := 0, 0
		for range NearestWithRoom(&table, s, 5000, &least) {
			if n++; n == 64 {
				break
			}
		}
		if n != 64 {
			b.Fatalf("%d hosts, want 64", n)
		}
	}
}
