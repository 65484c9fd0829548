package supervisor

import (
	"encoding/json"
	"log/slog"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/driver"
	"github.com/musterhq/muster/worker/leaseclock"
	"github.com/musterhq/muster/worker/runner/protocol"
)

// Each deadline is sent to the runner with the skew for which it is right, so that the runner notices a pause in
// between.
func TestDeadlinesAreSentWithTheirSkew(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d, err := New(config("groups", dir, "1"), nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	conn, other := net.Pipe()
	defer conn.Close()
	defer other.Close()
	k := &link{conn: conn, queue: make(chan []byte, 10), settled: true, welcomed: true, own: true}
	s := &state{d: d, entries: map[job.Attempt]*entry{}, runners: newRunners("", d.log)}
	s.runners.links[1] = k

	leased, held := taskIn(dir, 1, "true"), taskIn(dir, 2, "true")
	leased.Hold, leased.Deadline = false, leaseclock.Now().Add(time.Minute)
	for _, task := range []driver.Task{leased, held} {
		if err := d.Start(task); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Extend(map[job.Attempt]leaseclock.BootTime{leased.Attempt: leased.Deadline.Add(time.Minute)}); err != nil {
		t.Fatal(err)
	}
	for _, f := range d.inbox.take() {
		f(s)
	}
	s.again(k, s.entries[leased.Attempt]) // as after a reconnection

	host := leaseclock.Reader()()
	left := func(boot time.Duration) time.Duration { return (boot - host.Boot).Round(10 * time.Second) }
	close(k.queue)
	var got []time.Duration
	for frame := range k.queue {
		var m protocol.Request
		if err := json.Unmarshal(frame[4:], &m); err != nil {
			t.Fatal(err)
		}
		skew := time.Duration(0)
		switch {
		case m.Start != nil && m.Start.Hold:
			if m.Start.Deadline != 0 || m.Start.Skew != 0 {
				t.Errorf("a task on hold has a deadline: %+v, want Deadline 0 and Skew 0", m.Start)
			}
			continue
		case m.Start != nil:
			got, skew = append(got, left(m.Start.Deadline)), m.Start.Skew
		default:
			got, skew = append(got, left(m.Extend[0].Deadline)), m.Extend[0].Skew
		}
		if off := (skew - host.Skew()).Abs(); off > time.Second {
			t.Errorf("skew of %s is off by %s, want at most %v", frame[4:], off, time.Second)
		}
	}
	want := []time.Duration{time.Minute, time.Minute, 2 * time.Minute, 2 * time.Minute} // Start and the extension after it; Extend; again
	if !slices.Equal(got, want) {
		t.Errorf("deadlines in %v, want %v", got, want)
	}
}
