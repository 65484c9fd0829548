package top

import (
	"context"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/musterhq/muster/api"
)

// countedGlass counts what is written.
type countedGlass struct {
	*glass

	writes int
}

func (c *countedGlass) Write(b []byte) (int, error) {
	c.writes++
	return c.glass.Write(b)
}

// The terminal is written to ten times a second at most, shows what there is, and is given back at the end. Memory is given
// back after the listing and each minute.
func TestScreen(t *testing.T) {
	time.Local = time.UTC
	signals := make(chan os.Signal, 1) // what watches for signals is not part of the bubble
	signal.Notify(signals, syscall.SIGWINCH)
	defer signal.Stop(signals)
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		f := sim()
		c := &countedGlass{glass: newGlass(t, 100, 30)}
		c.anything = true
		var rests atomic.Int32
		done := make(chan error, 1)
		go func() {
			done <- Run(ctx, Config{Daemon: f, Refresh: 200 * time.Millisecond, Size: func() (int, int) { return 100, 30 }, Rest: func() { rests.Add(1) }}, nil, c)
		}()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if !c.second || !strings.Contains(c.shows(), "3 nodes · 12 GPUs") || !strings.Contains(c.shows(), "sweep") {
			t.Errorf("the screen is\n%s", c.shows())
		}
		before := c.writes
		for i := range 500 {
			j := running(i%50, "train", "amy", i%3, 0)
			f.events <- api.Event{Kind: api.EventJob, ID: j.ID, Job: &j}
			time.Sleep(20 * time.Millisecond)
		}
		if n := c.writes - before; n < 20 || n > 10*frames+1 {
			t.Errorf("%d writes in 10 s", n)
		}
		if n := rests.Load(); n != 1 {
			t.Errorf("memory was given back %d times", n)
		}
		time.Sleep(5 * time.Minute)
		if n := rests.Load(); n < 5 || n > 7 {
			t.Errorf("memory was given back %d times in five minutes", n)
		}
		end()
		if err := <-done; err != nil || c.second || !c.wraps {
			t.Errorf("after the end: %v, alternate screen %t, lines wrap %t", err, c.second, c.wraps)
		}
		time.Sleep(time.Minute) // until the last timers have gone off
	})
}

// A terminal that is gone ends the view.
func TestScreenGone(t *testing.T) {
	s := newScreen(t.Context(), Config{Refresh: time.Second, Size: func() (int, int) { return 80, 24 }}, feed{sim()}, brokenTerminal{})
	s.canvas.on = true
	if _, cmd := s.Update(resized{}); cmd == nil || cmd() != tea.Quit() {
		t.Error("goes on without a terminal")
	}
}

type brokenTerminal struct{}

func (brokenTerminal) Write([]byte) (int, error) { return 0, syscall.EIO }
