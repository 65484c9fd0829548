package worker_test

// A core with the lease clock: a pause of the host counts as time that has passed.

import (
	"testing"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/worker/leaseclock"
)

// A Start and the answer to a renewal arrive after a pause of the host, during which CLOCK_BOOTTIME stood still.
func TestR5MessagesFromBeforeAPauseDoNotCount(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		paused time.Duration
		counts bool
	}{
		{"not at all", 0, true},
		{"for less than the lease", 20 * time.Second, true},
		{"for longer", 10 * time.Minute, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t, config(0))
			host := leaseclock.Reading{Boot: time.Duration(h.now.Boot), Wall: time.Duration(h.now.Wall.UnixNano())}
			clock := leaseclock.New(func() leaseclock.Reading { return host })
			clock.Now()
			s := h.meet(amy, 1)
			running, late := attempt(1, 1), attempt(2, 1)
			h.run(amy, 1, running, s, cpu)
			h.says(amy, offer(2, late, cpu))
			one[contract.Commit](h, amy)
			h.pass(contract.RenewEvery)
			all := got[contract.Renew](h, amy)
			if len(all) == 0 {
				t.Fatal("no renewal was requested")
			}
			host.Boot, host.Wall = host.Boot+contract.RenewEvery, host.Wall+contract.RenewEvery+tt.paused
			h.now.Boot = leaseclock.BootTime(clock.Now())

			e := h.says(amy, answerTo(all[len(all)-1], 1, true))
			if (len(e.Extend) == 1) != tt.counts {
				t.Errorf("an answer from before the pause extended %v, want it to count only if the pause was short", e.Extend)
			}
			e = h.says(amy, start(2, late, s, cpu))
			if (len(e.Start) == 1) != tt.counts {
				t.Errorf("a Start from before the pause started %d tasks, want it to count only if the pause was short", len(e.Start))
			}
		})
	}
}

// OnHost returns a reading of the host's own clock.
func TestOnHostGivesTheHostsOwnClock(t *testing.T) {
	t.Parallel()
	read := leaseclock.Reader()
	before := read()
	boot, skew := leaseclock.Now().OnHost()
	after := read()
	if leaseclock.Missed() == 0 && (boot < before.Boot || boot > after.Boot) {
		t.Errorf("%s, want from %s to %s", boot, before.Boot, after.Boot)
	}
	if d := (skew - after.Skew()).Abs(); d > time.Second {
		t.Errorf("skew is off by %s, want at most %v", d, time.Second)
	}
}
