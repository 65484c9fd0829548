package timers_test

import (
	"cmp"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/musterhq/muster/internal/timers"
)

// Take returns the timers that are due, the earliest first, and those of the same moment in the order in which they
// were set. Timers may be moved and stopped before.
func TestTimersAreTakenInOrder(t *testing.T) {
	type set struct{ at, turn int }
	rapid.Check(t, func(t *rapid.T) {
		h := timers.New[int, int](cmp.Compare[int])
		all := make([]timers.Timer[int, int], 20)
		for i := range all {
			all[i].Value = i
		}
		want := map[int]set{}
		for turn := range rapid.IntRange(0, 100).Draw(t, "steps") {
			i := rapid.IntRange(0, len(all)-1).Draw(t, "timer")
			if rapid.Bool().Draw(t, "stop") {
				h.Stop(&all[i])
				delete(want, i)
				continue
			}
			at := rapid.IntRange(0, 10).Draw(t, "at")
			h.Set(&all[i], at)
			if s, isSet := want[i]; !isSet || s.at != at {
				want[i] = set{at, turn}
			}
		}
		if h.Len() != len(want) {
			t.Fatalf("%d timers are set, want %d", h.Len(), len(want))
		}
		now := 0
		for len(want) > 0 {
			first := slices.MinFunc(slices.Collect(maps.Keys(want)), func(a, b int) int {
				return cmp.Or(cmp.Compare(want[a].at, want[b].at), cmp.Compare(want[a].turn, want[b].turn))
			})
			if at, ok := h.Next(); !ok || at != want[first].at {
				t.Fatalf("the next moment is %d, %v, want %d", at, ok, want[first].at)
			}
			now = rapid.IntRange(now, 10).Draw(t, "now")
			got, ok := h.Take(now)
			if due := want[first].at <= now; ok != due || ok && got != first {
				t.Fatalf("at %d: took timer %d, %v, want %d, %v", now, got, ok, first, due)
			}
			if ok {
				delete(want, first)
			}
		}
		if _, ok := h.Next(); ok || h.Len() != 0 {
			t.Fatal("a timer is left")
		}
	})
}

func BenchmarkHeap(b *testing.B) {
	h := timers.New[time.Time, func()](time.Time.Compare)
	now := time.Now()
	for i := range 1000 {
		h.Set(&timers.Timer[time.Time, func()]{}, now.Add(time.Duration(i*7919%1000)))
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		t := &timers.Timer[time.Time, func()]{}
		h.Set(t, now.Add(time.Duration(i*7919%1000)))
		h.Stop(t)
	}
}
