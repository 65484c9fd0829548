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

// countedGlass counts the writes.
type countedGlass struct {
	*glass

	writes int
}

func (c *countedGlass) Write(b []byte) (int, error) {
	c.writes++
	return c.glass.Write(b)
}

// The terminal is written to at most ten times a second, shows the present state, and is restored at the end. Memory is
// given back after the listing and every 15 s.
func TestScreenIsRestoredAtTheEnd(t *testing.T) {
	time.Local = time.UTC
	signals := make(chan os.Signal, 1) // the goroutine that watches for signals is not part of the bubble
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
			t.Errorf("want the cluster, got the screen\n%s", c.shows())
		}
		before := c.writes
		for i := range 500 {
			j := running(i%50, "train", "amy", i%3, 0)
			f.events <- api.Event{Kind: api.EventJob, ID: j.ID, Job: &j}
			time.Sleep(20 * time.Millisecond)
		}
		if n := c.writes - before; n < 20 || n > 10*frames+1 {
			t.Errorf("got %d writes in 10 s, want 20 to ten a second", n)
		}
		if n := rests.Load(); n != 1 {
			t.Errorf("got memory given back %d times, want 1", n)
		}
		time.Sleep(5 * time.Minute)
		if n := rests.Load(); n < 19 || n > 22 {
			t.Errorf("got memory given back %d times in five minutes, want 19 to 22", n)
		}
		end()
		if err := <-done; err != nil || c.second || !c.wraps {
			t.Errorf("after the end: got %v, alternate screen %t, lines wrap %t, want no error, false, true", err, c.second, c.wraps)
		}
		time.Sleep(time.Minute) // until the last timers have fired
	})
}

// However fast keys arrive, there are ten frames a second, and the last one shows the effect of the last key.
func TestManyKeysCauseFewFrames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &countedGlass{glass: newGlass(t, 100, 30)}
		size := [2]int{100, 30}
		s := newScreen(t.Context(), Config{Refresh: time.Second, Size: func() (int, int) { return size[0], size[1] }}, feed{sim()}, c)
		_, _ = s.canvas.Write([]byte("\x1b[?1049h"))
		s.Update(resized{})
		listAll(s.model, sim(), time.Now())
		time.Sleep(time.Second)
		c.writes = 0
		for i := range 100 {
			s.Update(tea.KeyPressMsg{Code: []rune{tea.KeyDown, tea.KeyUp}[i%2]}) // down and up
			if time.Sleep(10 * time.Millisecond); s.due && time.Since(s.last) >= time.Second/frames {
				s.Update(due{})
			}
			if i == 0 && c.writes != 1 {
				t.Error("the first key does not show at once")
			}
		}
		if c.writes > frames+1 {
			t.Errorf("got %d frames for 100 keys in a second, want at most %d", c.writes, frames+1)
		}
		s.Update(due{})
		if last := len(s.model.lists.tasks) - 1; last < 1 || s.model.wishes[ofTasks].row != 0 || c.shows() != wanted(s.model.drawn(), c.glass) {
			t.Errorf("got row %d of %d, want 0; the screen is\n%s", s.model.wishes[ofTasks].row, last, c.shows())
		}
		size = [2]int{120, 40}
		c.resize(120, 40)
		time.Sleep(time.Second)
		s.Update(tea.ResumeMsg{}) // it was stopped
		if want := wanted(s.model.drawn(), c.glass); s.model.width != 120 || c.shows() != want {
			t.Errorf("got the screen\n%s\nwant\n%s", c.shows(), want)
		}
	})
}

// A terminal that is gone ends the view.
func TestViewEndsWithoutATerminal(t *testing.T) {
	s := newScreen(t.Context(), Config{Refresh: time.Second, Size: func() (int, int) { return 80, 24 }}, feed{sim()}, brokenTerminal{})
	s.canvas.on = true
	if _, cmd := s.Update(resized{}); cmd == nil || cmd() != tea.Quit() {
		t.Error("goes on without a terminal")
	}
}

type brokenTerminal struct{}

func (brokenTerminal) Write([]byte) (int, error) { return 0, syscall.EIO }
