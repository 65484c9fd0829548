package runner

// Hosts that were paused: their clocks stood still, their leases ran on.

import (
	"time"

	"github.com/musterhq/muster/worker/runner/protocol"
)

// now reads CLOCK_BOOTTIME. It looks for a pause of this host first, so that no
// deadline is looked at before it has moved.
func (l *loop) now() time.Duration {
	r := l.host.read()
	switch jump := l.skew.Look(r); {
	case jump > 0:
		l.paused(r.Boot, jump)
	case jump < 0:
		l.log.Warn("wall clock of this host was set back; leases go by the time since boot and stay as they are", "by", (-jump).Round(time.Millisecond).String())
	}
	return r.Boot
}

// paused makes every lease older by the time that this host has missed, and ends
// what has run out: the owner, whose clock went on, may have written it off.
func (l *loop) paused(now, missed time.Duration) {
	leases, lapsed := 0, 0
	for _, t := range l.tasks {
		if t.watch.deadline == 0 {
			continue
		}
		t.watch.missed(now, missed)
		l.look(t)
		if leases++; !t.watch.lapsed(now) {
			continue
		}
		lapsed++
		if l.starting[t] {
			t.watch.end(now, 0, causeLease, t.watch.over("lease ran out before its start"))
		}
	}
	l.log.Warn("this host was paused, or its wall clock was set forward: all leases are so much older",
		"by", missed.Round(time.Millisecond).String(), "leases", leases, "ran_out", lapsed)
	l.dropWaiting(now)
	l.dropHanded()
}

// since is how much time this host has missed since a daemon reckoned a deadline
// under a skew; 0 is a daemon that does not say.
func (l *loop) since(skew time.Duration) time.Duration {
	if skew == 0 {
		return 0
	}
	return l.skew.Since(skew)
}

// extend moves a deadline as far as the daemon means it.
func (l *loop) extend(t *task, now time.Duration, e protocol.Extension) {
	t.watch.extend(now, e.Deadline-l.since(e.Skew))
	l.look(t)
}
