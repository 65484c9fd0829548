package runner

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/runner/guard"
	"github.com/musterhq/muster/worker/runner/proc"
	"github.com/musterhq/muster/worker/runner/protocol"
)

func newGuarding(t *testing.T) *guarding {
	t.Helper()
	table, err := guard.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(table.Close)
	return &guarding{table: table, slots: map[*task]int{}, fences: true, keep: func() bool { return true }, log: slog.New(slog.DiscardHandler)}
}

func taskOf(n int, deadline time.Duration) *task {
	return &task{attempt: job.Attempt{Job: job.NewID(7, 9), Task: n, N: 1}, watch: watch{deadline: deadline}}
}

// A task that must end with its lease for certain is refused if that cannot be guaranteed. Any other task starts
// without a guard.
func TestFencedTaskIsRefusedWithoutAGuard(t *testing.T) {
	t.Parallel()
	for what, change := range map[string]func(*guarding){
		"no table":           func(g *guarding) { g.table = nil },
		"guard does not run": func(g *guarding) { g.keep = func() bool { return false } },
		"nobody end all":     func(g *guarding) { g.fences = false },
		"no room in the table of": func(g *guarding) {
			for n := 0; ; n++ {
				if _, err := g.table.Put(guard.Entry{Attempt: taskOf(n, 0).attempt, Deadline: guard.Never}); err != nil {
					return
				}
			}
		},
		"": func(*guarding) {},
	} {
		g := newGuarding(t)
		change(g)
		k := taskOf(1, time.Hour)
		err := g.reserve(k, &protocol.Start{Fenced: true}, 0)
		if (err == nil) != (what == "") || err != nil && !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v, want this error or none", what, err)
		}
		g.free(k)
		if err := g.reserve(k, &protocol.Start{}, 0); err != nil {
			t.Errorf("%s: a task that need not be fenced: %v", what, err)
		}
	}
}

// A spawner that was paused makes no process for a task whose lease has ended.
func TestNoProcessIsMadeAfterTheLease(t *testing.T) {
	t.Parallel()
	g, now := newGuarding(t), proc.BootTime()
	for n, k := range []*task{taskOf(0, now-1), taskOf(1, now+time.Hour), taskOf(2, 0)} {
		s := &protocol.Start{Fenced: true}
		if err := g.reserve(k, s, 0); err != nil {
			t.Fatal(err)
		}
		if err := g.making(k, s)(11, 22, "/g"); errors.Is(err, errLapsed) != (n == 0) {
			t.Errorf("task %d: %v, want errLapsed for the first only", n, err)
		}
		if all := g.table.All(); len(all) != n+1 || all[n].PID != 11 || all[n].Ticks != 22 || all[n].Group != "/g" {
			t.Errorf("%+v, want the process 11 with its group", all)
		}
	}
	k := taskOf(3, now+time.Hour)
	if err := g.reserve(k, &protocol.Start{}, 0); err != nil {
		t.Fatal(err)
	}
	if err := g.making(k, &protocol.Start{})(0, 0, "/g"); err != nil {
		t.Fatal(err)
	}
	if all := g.table.All(); all[3].PID != guard.Making {
		t.Errorf("%+v, want PID %v", all[3], guard.Making)
	}
	k.pid = 33
	if g.started(k, "/g/3"); g.table.All()[3].PID != 33 {
		t.Errorf("%+v, want PID 33", g.table.All()[3])
	}
}
