package waittime

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// Percentiles of the sum of two daemons are at most a tenth above the true ones, and never below them or above the
// longest wait.
func TestQuantilesAreAtMostATenthTooHigh(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	now := time.Unix(1_700_000_000, 0)
	var a, b Hour
	var all []time.Duration
	for i := range 10_000 {
		took := time.Duration(rng.ExpFloat64() * float64(90*time.Second))
		all = append(all, took)
		h := &a
		if i%3 == 0 {
			h = &b
		}
		h.Add(now, took)
	}
	slices.Sort(all)
	sum := a.Counts(now)
	sum.Add(b.Counts(now))
	for _, part := range []float64{0, 0.01, 0.5, 0.95, 0.999, 1} {
		want := max(all[max(0, int(part*float64(len(all)))-1)], shortest)
		got, ok := sum.Quantile(part)
		if !ok || got < want || float64(got) > 1.101*float64(want) {
			t.Errorf("quantile %v: got %s, %v, want %s or at most a tenth more", part, got, ok, want)
		}
	}
	if sum.Total() != 10_000 || sum.Longest != all[len(all)-1] {
		t.Errorf("got %d waits, the longest %s, want 10000, %s", sum.Total(), sum.Longest, all[len(all)-1])
	}
}

// An hour later the waits are forgotten, and 55 minutes later they are not. After a clock was set back nothing counts
// twice.
func TestWaitsAreForgottenAfterAnHour(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	var h Hour
	h.Add(now, time.Minute)
	h.Add(now.Add(30*time.Minute), time.Second)
	for after, want := range map[time.Duration]int64{0: 1, 30 * time.Minute: 2, 59 * time.Minute: 2, 66 * time.Minute: 1, 97 * time.Minute: 0, 1000 * time.Hour: 0, -time.Hour: 0} {
		c := h.Counts(now.Add(after))
		if n := c.Total(); n != want {
			t.Errorf("after %s: got %d waits, want %d", after, n, want)
		}
	}
	none := h.Counts(now.Add(1000 * time.Hour))
	if _, ok := none.Quantile(0.5); ok || none.Longest != 0 {
		t.Errorf("of no waits: got %+v, want none", none)
	}
}

// What is sent arrives, and impossible counts are not valid.
func TestImpossibleCountsAreInvalid(t *testing.T) {
	var h Hour
	now := time.Unix(1_700_000_000, 0)
	h.Add(now, 0)
	h.Add(now, 400*24*time.Hour)
	c := h.Counts(now)
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	var back Counts
	if err := json.Unmarshal(text, &back); err != nil || back.Total() != 2 || back.Longest != c.Longest || !back.Valid() {
		t.Errorf("%s: got %+v, %v, want the same counts", text, back, err)
	}
	if d, _ := back.Quantile(1); d != 400*24*time.Hour {
		t.Errorf("the longest wait: got %s, want 400 days", d)
	}
	for _, bad := range []Counts{
		{Of: map[int]int64{-1: 1}},
		{Of: map[int]int64{buckets: 1}},
		{Of: map[int]int64{1: 0}},
		{Of: map[int]int64{1: -4}},
		{Of: map[int]int64{1: maxCount + 1}},
		{Longest: -1},
		{Longest: time.Hour},
	} {
		if bad.Valid() {
			t.Errorf("%+v is valid, want an error", bad)
		}
	}
	if !(&Counts{}).Valid() {
		t.Error("empty counts are not valid")
	}
}
