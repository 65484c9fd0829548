package runner

// The watch with requests in every order: it sends at most one TERM, and the KILL in time. An end that has begun is
// never withdrawn.

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/runner/protocol"
)

const sec = time.Second

// play steps a watch at each time that the watch requests, up to an end. It returns the signals by their time.
func play(w *watch, from, to time.Duration) map[time.Duration]unix.Signal {
	got := map[time.Duration]unix.Signal{}
	for now := from; ; {
		if sig := w.step(now); sig != 0 {
			got[now] = sig
			if sig == unix.SIGKILL {
				return got
			}
			continue
		}
		at := w.next()
		if at == 0 || at > to {
			return got
		}
		now = max(now, at)
	}
}

func TestWatchSendsSignalsInTime(t *testing.T) {
	t.Parallel()
	term, kill := unix.SIGTERM, unix.SIGKILL
	tests := []struct {
		name  string
		start protocol.Start
		do    func(w *watch) // at 100 s, the start
		want  map[time.Duration]unix.Signal
		state job.State
	}{
		{
			"warned before the limit",
			protocol.Start{Hold: true, Limit: 60 * sec, Grace: 5 * sec, Warn: int(unix.SIGUSR1), WarnBefore: 20 * sec},
			func(*watch) {},
			map[time.Duration]unix.Signal{140 * sec: unix.SIGUSR1, 160 * sec: term, 165 * sec: kill},
			job.Timeout,
		},
		{
			"no warning once it is being ended",
			protocol.Start{Hold: true, Limit: 60 * sec, Grace: 5 * sec, Warn: int(unix.SIGUSR1), WarnBefore: 20 * sec},
			func(w *watch) { w.end(100*sec, 50*sec, causeStop, "enough") },
			map[time.Duration]unix.Signal{100 * sec: term, 150 * sec: kill},
			job.Cancelled,
		},
		{"nothing is asked", protocol.Start{Hold: true}, func(*watch) {}, nil, job.Failed},
		{
			"lease runs out",
			protocol.Start{Deadline: 130 * sec, Lead: 10 * sec},
			func(*watch) {},
			map[time.Duration]unix.Signal{120 * sec: term, 130 * sec: kill},
			job.NodeFail,
		},
		{
			"a short lease is not all warning",
			protocol.Start{Deadline: 104 * sec, Lead: 10 * sec},
			func(*watch) {},
			map[time.Duration]unix.Signal{102 * sec: term, 104 * sec: kill},
			job.NodeFail,
		},
		{
			"lease is extended",
			protocol.Start{Deadline: 130 * sec, Lead: 10 * sec},
			func(w *watch) { w.extend(100*sec, 400*sec); w.extend(100*sec, 200*sec) },
			map[time.Duration]unix.Signal{390 * sec: term, 400 * sec: kill},
			job.NodeFail,
		},
		{
			"a lease that is ending stays so",
			protocol.Start{Deadline: 130 * sec, Lead: 10 * sec},
			func(w *watch) {
				if w.step(120*sec) != term {
					t.Error("no TERM before the deadline")
				}
				w.extend(121*sec, 400*sec)
			},
			map[time.Duration]unix.Signal{130 * sec: kill},
			job.NodeFail,
		},
		{
			"an extension that has passed too",
			protocol.Start{Deadline: 130 * sec, Lead: 10 * sec},
			func(w *watch) { w.extend(140*sec, 140*sec) },
			map[time.Duration]unix.Signal{120 * sec: term, 130 * sec: kill},
			job.NodeFail,
		},
		{
			"an extension that was read late",
			protocol.Start{Deadline: 130 * sec, Lead: 10 * sec},
			func(w *watch) { w.extend(140*sec, 400*sec) },
			map[time.Duration]unix.Signal{390 * sec: term, 400 * sec: kill},
			job.NodeFail,
		},
		{
			"a task on hold has no lease",
			protocol.Start{Hold: true},
			func(w *watch) { w.extend(100*sec, 110*sec) }, nil, job.Failed,
		},
		{
			"time limit",
			protocol.Start{Hold: true, Limit: 60 * sec, Grace: 5 * sec},
			func(*watch) {},
			map[time.Duration]unix.Signal{160 * sec: term, 165 * sec: kill},
			job.Timeout,
		},
		{
			"stop",
			protocol.Start{Hold: true},
			func(w *watch) { w.end(100*sec, 5*sec, causeStop, "enough") },
			map[time.Duration]unix.Signal{100 * sec: term, 105 * sec: kill},
			job.Cancelled,
		},
		{
			"the shorter grace counts",
			protocol.Start{Hold: true},
			func(w *watch) {
				w.end(100*sec, 50*sec, causeStop, "enough")
				w.end(100*sec, 5*sec, causeStop, "at once")
				w.end(100*sec, 70*sec, causeStop, "late")
			},
			map[time.Duration]unix.Signal{100 * sec: term, 105 * sec: kill},
			job.Cancelled,
		},
		{
			"no grace, no TERM",
			protocol.Start{Hold: true},
			func(w *watch) { w.end(100*sec, 0, causeStop, "now") },
			map[time.Duration]unix.Signal{100 * sec: kill},
			job.Cancelled,
		},
		{
			"no grace outlasts the lease",
			protocol.Start{Deadline: 130 * sec, Lead: 10 * sec},
			func(w *watch) { w.end(100*sec, 500*sec, causeStop, "slowly") },
			map[time.Duration]unix.Signal{100 * sec: term, 130 * sec: kill},
			job.Cancelled,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWatch(&tt.start, 100*sec)
			if w.next() != 0 || w.step(100*sec) != 0 {
				t.Fatal("a watch without a process requests a step or sends a signal")
			}
			w.started(100 * sec)
			tt.do(&w)
			got := play(&w, 100*sec, 10_000*sec)
			if len(got) != len(tt.want) {
				t.Errorf("signals %v, want %v", got, tt.want)
			}
			for at, sig := range tt.want {
				if got[at] != sig {
					t.Errorf("at %s: %v, want %v", at, got[at], sig)
				}
			}
			if w.cause.state() != tt.state {
				t.Errorf("end %s, want %s", w.cause.state(), tt.state)
			}
		})
	}
}

// TestWatchKillsByTheLastDeadline makes random requests in random order. It checks what R4 needs: whatever the
// requests, a task that is not on hold is killed by the last deadline that arrived in time.
func TestWatchKillsByTheLastDeadline(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		now := 1000 * sec
		drawn := func(name string) time.Duration {
			return time.Duration(rapid.IntRange(0, 600_000).Draw(t, name)) * time.Millisecond
		}
		s := protocol.Start{Deadline: now + drawn("lease") + 1, Lead: 10 * sec, Limit: drawn("limit"), Grace: drawn("grace")}
		w := newWatch(&s, now)
		w.started(now)
		deadline, terms, killed := s.Deadline, 0, false // deadline by the owner's clock, less the time that this host missed
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0:
				to := now + drawn("extension")
				if w.extend(now, to); to > now {
					deadline = max(deadline, to)
				}
			case 1:
				w.end(now, drawn("stop"), causeStop, "stop")
			case 2:
				now += drawn("pass")
			case 3:
				d := drawn("missed")
				w.missed(now, d)
				deadline -= d
			}
			for sig := w.step(now); sig != 0 && !killed; sig = w.step(now) {
				if sig == unix.SIGTERM {
					terms++
				}
				killed = sig == unix.SIGKILL
			}
			if now >= deadline && !killed {
				t.Fatalf("at %s, after the deadline %s: not killed", now, deadline)
			}
			if at := w.next(); !killed && (at == 0 || at > max(1, deadline)) {
				t.Fatalf("the next step is at %s, after the deadline %s", at, deadline)
			}
		}
		if terms > 1 {
			t.Fatalf("%d TERMs, want at most one", terms)
		}
	})
}

// TestWatchCountsPausesOfTheHost pauses the host at 150 s, once or twice, while a lease runs.
func TestWatchCountsPausesOfTheHost(t *testing.T) {
	t.Parallel()
	term, kill := unix.SIGTERM, unix.SIGKILL
	const plain, slept = "lease ran out", "lease ran out: this host was paused for %s, or its wall clock was set forward"
	missed := func(ds ...time.Duration) func(*watch) {
		return func(w *watch) {
			for _, d := range ds {
				w.missed(150*sec, d)
			}
		}
	}
	lease := protocol.Start{Deadline: 400 * sec, Lead: 10 * sec}
	tests := []struct {
		name   string
		start  protocol.Start
		do     func(w *watch) // at 150 s
		want   map[time.Duration]unix.Signal
		detail string
	}{
		{"no TERM once the lease ran out", lease, missed(260 * sec), map[time.Duration]unix.Signal{150 * sec: kill}, "4m20s"},
		{"lease ends exactly with the pause", lease, missed(250 * sec), map[time.Duration]unix.Signal{150 * sec: kill}, "4m10s"},
		{"pause longer than the uptime", lease, missed(time.Hour), map[time.Duration]unix.Signal{150 * sec: kill}, "1h"},
		{"less time after TERM than usual", lease, missed(247 * sec), map[time.Duration]unix.Signal{150 * sec: term, 153 * sec: kill}, "4m7s"},
		{"lease outlasts the pause", lease, missed(100 * sec), map[time.Duration]unix.Signal{290 * sec: term, 300 * sec: kill}, ""},
		{"two pauses", lease, missed(150*sec, 110*sec), map[time.Duration]unix.Signal{150 * sec: kill}, "4m20s"},
		{"a task on hold has no lease", protocol.Start{Hold: true}, missed(time.Hour), nil, ""},
		{"renewed after the pause", lease, func(w *watch) {
			w.missed(150*sec, 200*sec)
			w.extend(150*sec, 450*sec)
		}, map[time.Duration]unix.Signal{440 * sec: term, 450 * sec: kill}, ""},
		{"an extension that ran out during the pause too", lease, func(w *watch) {
			w.missed(150*sec, 310*sec)
			w.extend(150*sec, 450*sec-310*sec)
		}, map[time.Duration]unix.Signal{150 * sec: kill}, "5m10s"},
		{"renewed before the pause, read after it", lease, func(w *watch) {
			w.missed(150*sec, 260*sec)
			w.extend(150*sec, 450*sec-260*sec)
		}, map[time.Duration]unix.Signal{180 * sec: term, 190 * sec: kill}, ""},
		{"TERM was sent already", protocol.Start{Deadline: 155 * sec, Lead: 10 * sec}, func(w *watch) {
			if w.step(150*sec) != term {
				t.Error("no TERM before the deadline")
			}
			w.missed(150*sec, 60*sec)
		}, map[time.Duration]unix.Signal{150 * sec: kill}, ""},
		{"it ran out before the pause", protocol.Start{Deadline: 140 * sec, Lead: 10 * sec}, missed(time.Hour), map[time.Duration]unix.Signal{150 * sec: kill}, ""},
		{
			"a pause does not shorten a time limit",
			protocol.Start{Hold: true, Limit: 100 * sec, Grace: 5 * sec},
			missed(time.Hour),
			map[time.Duration]unix.Signal{200 * sec: term, 205 * sec: kill},
			"time limit of 1m40s reached",
		},
		{"a pause does not shorten a grace period", protocol.Start{Hold: true}, func(w *watch) {
			w.end(140*sec, 60*sec, causeStop, "enough")
			w.missed(150*sec, time.Hour)
		}, map[time.Duration]unix.Signal{150 * sec: term, 200 * sec: kill}, "enough"},
		{"a grace period does not outlast the lease", lease, func(w *watch) {
			w.end(140*sec, time.Hour, causeStop, "enough")
			w.missed(150*sec, 200*sec)
		}, map[time.Duration]unix.Signal{150 * sec: term, 200 * sec: kill}, "enough"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for _, container := range []bool{false, true} {
				w := newWatch(&tt.start, 100*sec)
				if w.started(100 * sec); container && tt.start.Limit == 0 {
					w = newWatch(&tt.start, 100*sec)
					w.stage = watching // its image is still being pulled
				}
				tt.do(&w)
				if got := play(&w, 150*sec, 10_000*sec); !maps.Equal(got, tt.want) {
					t.Errorf("signals %v, want %v", got, tt.want)
				}
				want := tt.detail
				if _, err := time.ParseDuration(want); err == nil {
					want = fmt.Sprintf(slept, want)
				} else if want == "" && tt.want != nil {
					want = plain
				}
				if w.detail != want {
					t.Errorf("it ended because %q, want %q", w.detail, want)
				}
			}
		})
	}
}

func TestWatchKillsRemainingProcessesAgain(t *testing.T) {
	t.Parallel()
	w := newWatch(&protocol.Start{Hold: true}, 0)
	w.started(1)
	w.leftovers(sec)
	kills := 0
	for now := w.next(); now < 10*sec; now = w.next() {
		if w.step(now) != unix.SIGKILL {
			t.Fatalf("at %s: no KILL for the remaining processes", now)
		}
		if w.next() <= now {
			t.Fatalf("at %s: no wait before the next KILL", now)
		}
		kills++
	}
	if kills < 8 || kills > 20 {
		t.Errorf("%d KILLs in 9 s, want a few at once and then one a second", kills)
	}
}
