package leaseclock

// Jumps, drift and the cases between. Only TestClockOfThisHostAdvances reads a clock, and no test sets one.

import (
	"math"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

const (
	sec = time.Second
	// wallAtBoot is the skew that the tests begin with.
	wallAtBoot = 1_700_000_000 * sec
)

// host has the two clocks of a host. They advance only as the test says.
type host struct{ boot, skew time.Duration }

func newHost() *host { return &host{boot: 24 * time.Hour, skew: wallAtBoot} }

func (h *host) read() Reading { return Reading{Boot: h.boot, Wall: h.boot + h.skew} }

// pass advances the clocks in steps. The wall clock gains a share of each step. It returns the jumps that the watch
// reports.
func (h *host) pass(w *Watch, d, step time.Duration, gain float64) (jumps []time.Duration) {
	for end := h.boot + d; h.boot < end; {
		h.boot += step
		h.skew += time.Duration(float64(step) * gain)
		if j := w.Look(h.read()); j != 0 {
			jumps = append(jumps, j)
		}
	}
	return jumps
}

func TestWatchReportsJumps(t *testing.T) {
	t.Parallel()
	set := func(by time.Duration) func(*host, *Watch) []time.Duration {
		return func(h *host, w *Watch) []time.Duration {
			h.skew += by
			return h.pass(w, sec, sec, 0)
		}
	}
	then := func(all ...func(*host, *Watch) []time.Duration) func(*host, *Watch) []time.Duration {
		return func(h *host, w *Watch) (jumps []time.Duration) {
			for _, f := range all {
				jumps = append(jumps, f(h, w)...)
			}
			return jumps
		}
	}
	slew := func(d, step time.Duration, gain float64) func(*host, *Watch) []time.Duration {
		return func(h *host, w *Watch) []time.Duration { return h.pass(w, d, step, gain) }
	}
	tests := []struct {
		name string
		do   func(*host, *Watch) []time.Duration
		want []time.Duration // to 0.1 s
	}{
		{"nothing", slew(time.Hour, sec, 0), nil},
		{"forward by 4.9 s", set(4900 * time.Millisecond), nil},
		{"forward by 5.1 s", set(5100 * time.Millisecond), []time.Duration{5100 * time.Millisecond}},
		{"paused for two minutes", set(120 * sec), []time.Duration{120 * sec}},
		{"back by an hour", set(-time.Hour), []time.Duration{-time.Hour}},
		{"back by 4.9 s", set(-4900 * time.Millisecond), nil},
		{"back, then paused", then(set(-time.Hour), set(10*sec)), []time.Duration{-time.Hour, 10 * sec}},
		{"a little back, then a little forward", then(set(-4*sec), set(4*sec)), nil},
		{"back and forth", then(set(-time.Hour), set(time.Hour)), []time.Duration{-time.Hour, time.Hour}},
		{"two pauses", then(set(10*sec), set(20*sec)), []time.Duration{10 * sec, 20 * sec}},
		{"two short pauses add up", then(set(3*sec), slew(time.Minute, sec, 0), set(3*sec)), []time.Duration{6 * sec}},
		{"two short pauses a day apart", then(set(3*sec), slew(24*time.Hour, sec, 0), set(3*sec)), nil},
		{"slewed by 0.05 % for a day, looked at each second", slew(24*time.Hour, sec, 0.0005), nil},
		{"slewed by 0.05 % for a day, looked at each minute", slew(24*time.Hour, time.Minute, 0.0005), nil},
		{"slewed by 0.05 % for a day, looked at once", slew(24*time.Hour, 24*time.Hour, 0.0005), nil},
		{"slewed back by 0.05 % for a day", slew(24*time.Hour, sec, -0.0005), nil},
		{"slewed by 10 % for 60 s, looked at each second", slew(60*sec, sec, 0.1), []time.Duration{5100 * time.Millisecond}},
		{"slewed by 10 % for 60 s, looked at once", slew(60*sec, 60*sec, 0.1), []time.Duration{6 * sec}},
		{"slewed by 10 % for 40 s", slew(40*sec, sec, 0.1), nil},
		{"set by a century", set(math.MaxInt64 / 3), []time.Duration{math.MaxInt64 / 3}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h, w := newHost(), &Watch{}
			if j := w.Look(h.read()); j != 0 {
				t.Fatalf("the first look reported a jump of %s, want 0", j)
			}
			got := tt.do(h, w)
			if len(got) != len(tt.want) {
				t.Fatalf("jumps %v, want %v", got, tt.want)
			}
			for i := range got {
				if (got[i] - tt.want[i]).Abs() > 100*time.Millisecond {
					t.Errorf("jumps %v, want %v", got, tt.want)
				}
			}
		})
	}
}

// TestSinceAgreesWithTheReference compares the skew of a deadline with the reference.
func TestSinceAgreesWithTheReference(t *testing.T) {
	t.Parallel()
	w := &Watch{}
	w.Look(Reading{Wall: wallAtBoot})
	for _, tt := range []struct{ skew, want time.Duration }{
		{wallAtBoot, 0},
		{wallAtBoot - 5*sec, 0},
		{wallAtBoot - 6*sec, 6 * sec},
		{wallAtBoot + time.Hour, 0},
		{math.MinInt64, math.MaxInt64},
		{math.MaxInt64, 0},
	} {
		if got := w.Since(tt.skew); got != tt.want {
			t.Errorf("since %s: %s, want %s", tt.skew, got, tt.want)
		}
	}
}

// TestClockCountsPauses checks that a pause counts as time that passed. A deadline from before the pause is earlier on
// the host's own clock by the length of the pause.
func TestClockCountsPauses(t *testing.T) {
	t.Parallel()
	h := newHost()
	c := New(h.read)
	began := c.Now()
	if began != h.boot {
		t.Fatalf("a clock that has seen no pause is at %s, want %s", began, h.boot)
	}
	deadline := began + 300*sec
	if boot, skew := c.OnHost(deadline); boot != h.boot+300*sec || skew != wallAtBoot {
		t.Errorf("deadline at %s, skew %s, want %v and %v", boot, skew, h.boot+300*sec, wallAtBoot)
	}
	h.boot, h.skew = h.boot+10*sec, h.skew+120*sec // 10 s and a pause of two minutes
	boot, skew := c.OnHost(deadline)
	if boot != h.boot+170*sec || skew != wallAtBoot+120*sec {
		t.Errorf("after the pause: deadline in %s, want 170s; skew moved by %s", boot-h.boot, skew-wallAtBoot)
	}
	if now := c.Now(); now-began != 130*sec || c.Missed() != 120*sec {
		t.Errorf("%s passed, of which %s missed; want 130s and 120s", now-began, c.Missed())
	}
	h.skew -= time.Hour
	if now := c.Now(); now-began != 130*sec {
		t.Errorf("set back by an hour: %s passed, want 130s", now-began)
	}
	h.skew += 2 * time.Hour
	if now := c.Now(); now-began != 2*time.Hour+130*sec {
		t.Errorf("set forward by two hours: %s passed, want %v", now-began, 2*time.Hour+130*sec)
	}
	if boot, _ := c.OnHost(deadline); boot != h.boot+170*sec-2*time.Hour {
		t.Errorf("deadline in %s, want 170 s less the two hours", boot-h.boot)
	}
	if boot, _ := c.OnHost(1); boot != 1 {
		t.Errorf("a deadline before the boot is at %s, want 1ns", boot)
	}
}

// TestClockNeverGoesBack sets the wall clock to random times.
func TestClockNeverGoesBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		h := newHost()
		c := New(h.read)
		before, boot := c.Now(), h.boot
		for range rapid.IntRange(1, 50).Draw(t, "steps") {
			h.boot += time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "pass"))
			h.skew = time.Duration(rapid.Int64Range(-1<<61, math.MaxInt64-1<<50).Draw(t, "skew"))
			now := c.Now()
			if now < before || now-before < h.boot-boot {
				t.Fatalf("the clock went from %s to %s, want at least %s more", before, now, h.boot-boot)
			}
			before, boot = now, h.boot
		}
	})
}

// TestReaderSurvivesInterruptions interrupts a reading between the two clocks.
func TestReaderSurvivesInterruptions(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		stops []time.Duration // before each reading of a clock
	}{
		{"never", nil},
		{"at first", []time.Duration{0, 10 * sec}},
		{"again and again", []time.Duration{0, 10 * sec, 0, 0, 0, 20 * sec, 0, 7 * sec, 7 * sec}},
		{"later", []time.Duration{0, 0, 0, 0, 0, 0, 10 * sec, 0, 5 * sec, 0}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h, stops := newHost(), tt.stops
			read := reader(func(id int32) time.Duration {
				if len(stops) > 0 {
					h.boot += stops[0]
					stops = stops[1:]
				}
				h.boot += 100 // nanoseconds
				if id == unix.CLOCK_REALTIME {
					return h.boot + h.skew
				}
				return h.boot
			})
			for range 5 {
				if d := (read().Skew() - wallAtBoot).Abs(); d > apart {
					t.Errorf("skew is off by %s, want at most %v", d, apart)
				}
			}
			h.skew += 7 * sec
			if d := (read().Skew() - wallAtBoot - 7*sec).Abs(); d > apart {
				t.Errorf("after a jump skew is off by %s, want at most %v", d, apart)
			}
		})
	}
}

func TestClockOfThisHostAdvances(t *testing.T) {
	t.Parallel()
	c := New(Reader())
	before := c.Now()
	if now := c.Now(); now < before || now-before > time.Hour {
		t.Errorf("the clock went from %s to %s, want no more than an hour forward", before, now)
	}
}

func BenchmarkClock(b *testing.B) {
	c := New(Reader())
	for b.Loop() {
		c.Now()
	}
}
