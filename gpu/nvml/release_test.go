package nvml

// How children end, and that none runs while the cards are released.

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/musterhq/muster/gpu"
)

var _ gpu.Releaser = (*Driver)(nil)

func TestReleasedDriverHasNoChild(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &play{}
		p.scripts = []func(life){p.healthy}
		d, log := stage(t, p)
		if err := d.Resume(t.Context()); err != nil {
			t.Error(err)
		}
		mustList(t, d, 2)
		last := d.agent.child
		if err := d.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		select {
		case <-last.done:
		default:
			t.Error("the child still runs")
		}
		for range 360 { // an hour of polls
			if _, err := d.List(t.Context()); !errors.Is(err, gpu.ErrReleased) {
				t.Fatalf("List: %v, want gpu.ErrReleased", err)
			}
			if _, err := d.Status(t.Context()); !errors.Is(err, gpu.ErrReleased) {
				t.Fatalf("Status: %v, want gpu.ErrReleased", err)
			}
			time.Sleep(10 * time.Second)
		}
		if err := d.Release(t.Context()); err != nil || p.starts != 1 {
			t.Errorf("released again: %v, %d children, want no error and 1", err, p.starts)
		}
		if err := d.Resume(t.Context()); err != nil {
			t.Error(err)
		}
		if got := health(t, d); got != "healthy healthy" || p.starts != 2 || lines(log) != 0 {
			t.Errorf("%s, %d children, want both healthy, 2 children and no log: %s", got, p.starts, log)
		}
	})
}

// A child that hangs in the kernel cannot be ended. Nothing waits for it longer than a few seconds.
func TestReleaseDoesNotWaitForAChildThatCannotBeKilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &play{mayEnd: make(chan struct{})}
		p.scripts = []func(life){p.healthy}
		d, _ := stage(t, p)
		mustList(t, d, 2)
		began := time.Now()
		for range 3 {
			if err := d.Release(t.Context()); !errors.Is(err, errNotEnded) {
				t.Errorf("Release: %v, want errNotEnded", err)
			}
		}
		if took := time.Since(began); took != 3*closeWait {
			t.Errorf("three tries took %s, want %v", took, 3*closeWait)
		}
		began = time.Now()
		if d.Close(); time.Since(began) > closeWait {
			t.Errorf("Close took %s, want at most %v", time.Since(began), closeWait)
		}
		close(p.mayEnd)
	})
}

// A working child ends with its input. Only a child that does not end is sent TERM, and then KILL.
func TestChildIsKilledOnlyIfItDoesNotEnd(t *testing.T) {
	for name, c := range map[string]struct {
		script func(*play) func(life)
		want   []string
		after  time.Duration
	}{
		"works": {func(p *play) func(life) { return p.healthy }, nil, 0},
		"hangs": {func(p *play) func(life) {
			return func(l life) { l.say(p.t, message{Hello: &hello{}}); l.reply(p.t, <-l.requests, twoGPUs); <-l.killed }
		}, []string{"TERM", "KILL"}, 2 * endStep},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := &play{}
			p.scripts = []func(life){c.script(p)}
			d, _ := stage(t, p)
			mustList(t, d, 2)
			began := time.Now()
			d.Close()
			var got []string
			for _, s := range p.steps[:min(len(p.steps), len(c.want))] {
				got = append(got, s.signal)
			}
			if took := time.Since(began); !slices.Equal(got, c.want) || took != c.after {
				t.Errorf("%s: %v in %s, want %v in %s", name, p.steps, took, c.want, c.after)
			}
		})
	}
}
