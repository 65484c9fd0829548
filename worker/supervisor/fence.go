package supervisor

// Ending tasks whose lease is over if neither their runner nor its guard does. See docs/adr, ADR 161.

import (
	"log/slog"
	"time"

	"github.com/musterhq/muster/worker/leaseclock"
	"github.com/musterhq/muster/worker/runner/guard"
)

// fenceMost is how long the fence waits between two looks.
const fenceMost = 5 * time.Second

// fence looks at the tables of leases of all runners. Run's goroutine uses it.
type fence struct {
	links   map[int]*link // of the runners, by generation
	run     func(func())  // runs a function in the background
	log     *slog.Logger
	read    func() leaseclock.Reading
	watches map[*guard.Table]*guard.Watch
	timer   *time.Timer
}

func newFence(r *runners) *fence {
	return &fence{links: r.links, run: r.run, log: r.log, read: leaseclock.Reader(), watches: map[*guard.Table]*guard.Watch{}, timer: time.NewTimer(fenceMost)}
}

// look ends the tasks whose lease is over. Killing may wait for the kernel, so goroutines do it.
func (f *fence) look() {
	wait, now := fenceMost, f.read()
	living := map[*guard.Table]*guard.Watch{}
	for _, k := range f.links {
		if k.table == nil {
			continue
		}
		w := f.watches[k.table]
		if w == nil {
			w = guard.NewWatch(k.table, guard.DaemonAfter)
		}
		living[k.table] = w
		over, next := w.Look(now)
		wait = min(wait, next)
		for _, e := range over {
			f.log.Error("ending a task: its lease is over, and its runner does not end it", "attempt", e.Attempt.String())
			k.table.MarkKilled(e.Attempt)
			f.run(func() { e.Kill() })
		}
	}
	f.watches = living
	f.timer.Reset(wait)
}
