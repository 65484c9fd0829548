package nvml

// The daemon's side with scripted children and a fake clock.

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/gpu/gputest"
)

func TestDriverFulfilsContract(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &play{}
		p.scripts = []func(life){p.healthy}
		d, log := stage(t, p)
		gputest.TestDriver(t, d)
		if p.starts != 1 || lines(log) != 0 {
			t.Errorf("%d children, want 1 without a log: %s", p.starts, log)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		p := &play{}
		p.scripts = []func(life){p.none}
		d, _ := stage(t, p)
		gputest.TestDriver(t, d)
	})
}

func TestNoDriverIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &play{}
		p.scripts = []func(life){p.none, p.none, p.healthy}
		d, log := stage(t, p)
		for range 100 {
			mustList(t, d, 0)
			if got := health(t, d); got != "" {
				t.Fatalf("status %q, want none", got)
			}
		}
		if p.starts != 1 || lines(log) != 1 || !strings.Contains(log.String(), "level=INFO") || !strings.Contains(log.String(), "libnvidia-ml.so.1") {
			t.Errorf("%d children, want 1 and one line at INFO about the library; log: %s", p.starts, log)
		}
		if d.agent != nil {
			t.Error("a child is kept without a GPU")
		}
		time.Sleep(noneFor)
		mustList(t, d, 0)
		if p.starts != 2 || lines(log) != 1 {
			t.Errorf("%d children, want 2 and still one line; log: %s", p.starts, log)
		}
		time.Sleep(noneFor)
		mustList(t, d, 2) // a driver was installed
	})
}

func TestHungChildIsKilledAndRestarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &play{}
		p.scripts = []func(life){p.hung, p.healthy}
		d, log := stage(t, p)
		mustList(t, d, 2)
		asked := time.Now()
		if got := health(t, d); got != "unknown unknown" {
			t.Errorf(`a hung driver: %s, want "unknown unknown"`, got)
		}
		if took := time.Since(asked); took != 5*time.Second {
			t.Errorf("gave up after %s, want %v", took, 5*time.Second)
		}
		if got := health(t, d); got != "unknown unknown" || p.starts != 1 {
			t.Errorf(`during the pause: %s, %d children, want "unknown unknown" and 1`, got, p.starts)
		}
		if _, err := d.List(t.Context()); !errors.Is(err, errSlow) {
			t.Errorf("List of a driver that broke: %v, want errSlow", err)
		}
		if lines(log) != 1 || !strings.Contains(log.String(), "level=WARN") {
			t.Errorf("want one line at WARN in the log: %s", log)
		}
		time.Sleep(minPause)
		if got := health(t, d); got != "healthy healthy" || p.starts != 2 {
			t.Errorf(`after the pause: %s, %d children, want "healthy healthy" and 2`, got, p.starts)
		}
		if lines(log) != 2 || !strings.Contains(log.String(), "answers again") {
			t.Errorf("want a second line, that the child answers again, in the log: %s", log)
		}
	})
}

func TestPauseGrowsWhileChildCrashes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &play{}
		p.scripts = []func(life){p.crash}
		d, log := stage(t, p)
		_, err := d.List(t.Context())
		if !errors.Is(err, errEnded) || !strings.Contains(err.Error(), "last words") {
			t.Errorf(`List: %v, want errEnded and "last words" in it`, err)
		}
		if _, err := d.Status(t.Context()); err == nil {
			t.Error("Status without any list returned no error")
		}
		for range 360 { // an hour of polls
			time.Sleep(10 * time.Second)
			if _, err := d.List(t.Context()); err == nil {
				t.Fatal("List returned no error")
			}
		}
		if p.starts < 55 || p.starts > 70 {
			t.Errorf("%d children in an hour, want at least 55 and at most 70", p.starts)
		}
		if lines(log) != 1 {
			t.Errorf("want one line in the log: %s", log)
		}
	})
}

func TestNoNewChildBeforeKilledOneHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &play{mayEnd: make(chan struct{})}
		p.scripts = []func(life){p.hung, p.healthy}
		d, _ := stage(t, p)
		mustList(t, d, 2)
		for range 10 {
			if got := health(t, d); got != "unknown unknown" || p.starts != 1 {
				t.Fatalf(`%s, %d children, want "unknown unknown" and 1`, got, p.starts)
			}
			time.Sleep(time.Minute)
		}
		close(p.mayEnd)
		synctest.Wait()
		if got := health(t, d); got != "healthy healthy" || p.starts != 2 {
			t.Errorf(`%s, %d children, want "healthy healthy" and 2`, got, p.starts)
		}
	})
}

func TestCancelledCallIsNotTheChildsFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &play{}
		p.scripts = []func(life){func(l life) {
			l.say(p.t, message{Hello: &hello{}})
			for r := range l.requests {
				time.Sleep(3 * time.Second)
				l.reply(p.t, r, twoGPUs)
			}
		}}
		d, log := stage(t, p)
		for range 5 {
			ctx, stop := context.WithTimeout(t.Context(), time.Second)
			if _, err := d.List(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("List: %v, want context.DeadlineExceeded", err)
			}
			stop()
			time.Sleep(10 * time.Second)
		}
		mustList(t, d, 2)
		if got := health(t, d); got != "healthy healthy" || p.starts != 1 || lines(log) != 0 {
			t.Errorf("%s, %d children, want both healthy, 1 child and no log: %s", got, p.starts, log)
		}
	})
}

// TestLateAnswerIsDropped checks that a reply to a cancelled call does not go to the next call.
func TestLateAnswerIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &play{}
		delay := time.Duration(0)
		p.scripts = []func(life){func(l life) {
			l.say(p.t, message{Hello: &hello{}})
			for r := range l.requests {
				time.Sleep(delay)
				l.reply(p.t, r, twoGPUs)
			}
		}}
		d, _ := stage(t, p)
		mustList(t, d, 2)
		synctest.Wait()
		delay = 2 * time.Second
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		if _, err := d.List(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("List: %v, want context.DeadlineExceeded", err)
		}
		if got := health(t, d); got != "healthy healthy" || p.starts != 1 {
			t.Errorf(`%s, %d children, want "healthy healthy" and 1`, got, p.starts)
		}
	})
}

// TestHungChildIsKilledThoughCallsAreCancelled checks that a hung child is killed even if every call is cancelled before
// the timeout.
func TestHungChildIsKilledThoughCallsAreCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &play{}
		p.scripts = []func(life){p.hung}
		d, _ := stage(t, p)
		mustList(t, d, 2)
		for range 10 {
			ctx, stop := context.WithTimeout(t.Context(), time.Second)
			_, _ = d.Status(ctx)
			stop()
		}
		if d.agent != nil {
			t.Error("the hung child still runs")
		}
	})
}

func TestSlowStartIsNotInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &play{}
		p.scripts = []func(life){func(l life) { time.Sleep(20 * time.Second); p.healthy(l) }}
		d, log := stage(t, p)
		ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
		defer stop()
		if _, err := d.List(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("List: %v, want context.DeadlineExceeded", err)
		}
		mustList(t, d, 2)
		time.Sleep(time.Hour) // much longer than the start timeout
		mustList(t, d, 2)
		if p.starts != 1 || lines(log) != 0 {
			t.Errorf("%d children, want 1 and no log: %s", p.starts, log)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		p := &play{}
		p.scripts = []func(life){func(l life) { <-l.killed }}
		d, _ := stage(t, p)
		asked := time.Now()
		if _, err := d.List(t.Context()); !errors.Is(err, errSlow) || time.Since(asked) != time.Minute {
			t.Errorf("List: %v after %s, want errSlow and %v", err, time.Since(asked), time.Minute)
		}
	})
}

func TestDriverThatDisappearsIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &play{}
		p.scripts = []func(life){func(l life) {
			l.say(p.t, message{Hello: &hello{}})
			l.reply(p.t, <-l.requests, twoGPUs)
		}, p.none}
		d, _ := stage(t, p)
		mustList(t, d, 2)
		time.Sleep(time.Minute)
		_, _ = d.List(t.Context()) // notices that the child has ended
		time.Sleep(time.Minute)
		if devices, err := d.List(t.Context()); !errors.Is(err, errNone) {
			t.Errorf("List: %v, %v, want errNone", devices, err)
		}
		if got := health(t, d); got != "unknown unknown" {
			t.Errorf(`status %s, want "unknown unknown"`, got)
		}
	})
}

func TestCloseEndsAHungCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &play{}
		p.scripts = []func(life){p.hung}
		d, _ := stage(t, p)
		mustList(t, d, 2)
		faults, err := d.Faults(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		failed := make(chan error)
		go func() {
			_, err := d.Status(t.Context())
			failed <- err
		}()
		synctest.Wait()
		began, ended := time.Now(), make(chan struct{})
		go func() {
			d.Close()
			close(ended)
		}()
		if err := <-failed; !errors.Is(err, gpu.ErrClosed) {
			t.Errorf("Status: %v, want gpu.ErrClosed", err)
		}
		if _, open := <-faults; open {
			t.Error("got a fault after Close")
		}
		if <-ended; time.Since(began) != 2*endStep {
			t.Errorf("Close took %s, want %v", time.Since(began), 2*endStep)
		}
	})
}

func TestInvalidConfigurationIsRefused(t *testing.T) {
	if _, err := New(DefaultConfig(), slog.New(slog.DiscardHandler)); err == nil {
		t.Error("accepted a configuration without a command")
	}
	cfg := DefaultConfig()
	cfg.Command = []string{"/nonexistent/muster"}
	d, err := New(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if _, err := d.List(t.Context()); err == nil || !strings.Contains(err.Error(), "/nonexistent/muster") {
		t.Errorf(`List: %v, want an error and "/nonexistent/muster" in it`, err)
	}
	cfg.Timeout = 0
	if cfg.Validate() == nil {
		t.Error("accepted a timeout of 0")
	}
}
