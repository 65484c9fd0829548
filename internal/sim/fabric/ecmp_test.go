package fabric

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// Flows are spread evenly over equal paths: each of 8 spines gets an eighth of 200,000 pairs, within 5 %.
func TestFlowsSpreadOverEqualPaths(t *testing.T) {
	top := large(t)
	f, c := build(t, DefaultConfig(), top)
	r := rand.New(rand.NewPCG(1, 1))
	for range 200_000 {
		f.Send(r.IntN(10_000), r.IntN(10_000), 10, func() {})
		if f.totals.Messages%1000 == 0 {
			c.Run(c.Now() + time.Millisecond)
		}
	}
	c.Run(time.Hour)
	into := map[string]int64{}
	for _, l := range f.Stats().Links {
		if top.Nodes[l.To].Tier == 2 {
			into[top.Nodes[l.To].Name] += l.Flows
		}
	}
	for name, n := range into {
		if n < 23_700 || n > 26_200 { // of the 199,000 that leave their rack
			t.Errorf("%s has %d flows, want at least 23_700 and at most 26_200", name, n)
		}
	}
	if len(into) != 8 {
		t.Errorf("%d spines have flows, want 8", len(into))
	}
	// With three tiers the choices must be independent: all 9 core switches are used from one leaf.
	top, err := FatTree{K: 6, Bandwidth: Gbps, Latency: 1000}.Build()
	if err != nil {
		t.Fatal(err)
	}
	f, c = build(t, DefaultConfig(), top)
	for i := range 9000 {
		f.Copy(0, 9+i%45, 1, func() {})
	}
	c.Run(time.Hour)
	cores := 0
	for _, l := range f.Stats().Links {
		if top.Nodes[l.To].Tier == 3 && l.Flows > 0 {
			cores++
			if l.Flows < 850 || l.Flows > 1150 {
				t.Errorf("%s has %d flows, want about 1000", top.Nodes[l.To].Name, l.Flows)
			}
		}
	}
	if cores != 9 {
		t.Errorf("%d core switches are used, want 9", cores)
	}
}

func TestLossHasTheConfiguredRate(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Loss = 0.01
	f, c := build(t, cfg, small(t))
	const n = 100_000
	for range n {
		f.Send(0, 1, 10, func() {}) // two links
	}
	c.Run(time.Hour)
	if lost := f.Totals().Lost; lost < 1800 || lost > 2200 || f.Totals().Delivered != n-lost {
		t.Errorf("%+v, want about 1990 lost", f.Totals())
	}
}

// story runs messages, copies and faults, and records all that happens.
func story(t *testing.T, seed uint64) string {
	cfg := DefaultConfig()
	cfg.Seed, cfg.Loss = seed, 0.02
	top := small(t)
	f, c := build(t, cfg, top)
	var out strings.Builder
	r := rand.New(rand.NewPCG(5, 5))
	for i := range 3000 {
		c.At(time.Duration(r.Int64N(int64(10*time.Second))), func() {
			switch a, b := r.IntN(4), r.IntN(4); r.IntN(4) {
			case 0:
				f.Copy(a, b, r.Int64N(10_000_000), func() { fmt.Fprintln(&out, i, "copied", c.Now()) })
			case 1:
				f.SetLink(r.IntN(len(top.Links)), r.IntN(3) > 0)
			default:
				f.Send(a, b, r.IntN(10_000), func() { fmt.Fprintln(&out, i, "arrived", c.Now()) })
			}
		})
	}
	c.Run(time.Minute)
	fmt.Fprintf(&out, "%+v\n", f.Stats())
	return out.String()
}

func TestSameSeedGivesTheSameRun(t *testing.T) {
	a, b := story(t, 1), story(t, 1)
	if a != b {
		t.Error("two runs with the same seed differ")
	}
	if a == story(t, 2) {
		t.Error("the seed has no effect")
	}
}
