package runner

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/runner/protocol"
)

// A task that needs a client gets HUP when its client has been gone for too long, and KILL after the grace.
func TestTaskWithoutItsClientEnds(t *testing.T) {
	const sec = time.Second
	start := protocol.Start{Hold: true, Grace: 5 * sec, Input: &protocol.Input{Away: 60 * sec}}
	for _, c := range []struct {
		name string
		do   func(w *watch)
		want map[time.Duration]unix.Signal // by the time since the start; empty: none within an hour
	}{
		{"nobody comes", func(*watch) {}, map[time.Duration]unix.Signal{60 * sec: unix.SIGHUP, 65 * sec: unix.SIGKILL}},
		{"the client stays", func(w *watch) { w.attended() }, nil},
		{"the client goes", func(w *watch) { w.attended(); w.left(100 * sec) }, map[time.Duration]unix.Signal{160 * sec: unix.SIGHUP, 165 * sec: unix.SIGKILL}},
		{"it comes back", func(w *watch) { w.left(10 * sec); w.attended() }, nil},
		{"the task has all its input", func(w *watch) { w.attended(); w.fed(); w.left(10 * sec) }, nil},
		{"another end comes first", func(w *watch) { w.end(30*sec, 2*sec, causeStop, "cancelled") }, map[time.Duration]unix.Signal{0: unix.SIGTERM, 32 * sec: unix.SIGKILL}},
	} {
		w := newWatch(&start, 0)
		w.started(0)
		c.do(&w)
		got := map[time.Duration]unix.Signal{}
		for at := w.next(); at != 0 && at < time.Hour && w.stage < killed; at = w.next() {
			if at == 1 {
				at = 0 // now
			}
			if sig := w.step(at); sig != 0 {
				got[at] = sig
			}
		}
		if len(got) != len(c.want) {
			t.Errorf("%s: signals %v, want %v", c.name, got, c.want)
		}
		for at, sig := range c.want {
			if got[at] != sig {
				t.Errorf("%s: signals %v, want %v", c.name, got, c.want)
			}
		}
		if c.want[60*sec] == unix.SIGHUP && (w.cause.state() != job.Cancelled || w.detail != "its client was gone for 1m") {
			t.Errorf("%s: %s, %q, want CANCELLED because its client was gone for 1m", c.name, w.cause.state(), w.detail)
		}
	}
}
