package runner

import (
	"log/slog"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/worker/leaseclock"
	"github.com/musterhq/muster/worker/runner/protocol"
)

// The kernel wakes the runner at the very moment of the next time limit, whatever else the host does: the timer is read
// between two readings of its clock.
func TestTimerIsSetToTheNextLimit(t *testing.T) {
	tm, err := newTimer()
	if err != nil {
		t.Fatal(err)
	}
	defer tm.Close()
	host := hostClock{read: leaseclock.Reader()}
	c := newLeases(host, tm, slog.New(slog.DiscardHandler))
	now, _ := c.now()
	want := time.Duration(0)
	for _, limit := range []time.Duration{2 * time.Hour, time.Hour, 3 * time.Hour} {
		k := &task{watch: newWatch(&protocol.Start{Hold: true, Limit: limit}, now)}
		k.watch.started(now)
		c.look(k)
		c.arm(now)
		if at := now + limit; want == 0 || at < want {
			want = at
		}
		var spec unix.ItimerSpec
		before := c.boot()
		if err := unix.TimerfdGettime(tm.fd, &spec); err != nil {
			t.Fatal(err)
		}
		after, left := c.boot(), time.Duration(spec.Value.Nano())
		if at := want - left; at < before || at > after {
			t.Errorf("limit of %s: the timer fires in %s, want in %s", limit, left, want-before)
		}
	}
}
