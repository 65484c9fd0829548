package sim

// The alarm of a core, which wakes it at the moment that it wants.

import (
	"time"

	"github.com/musterhq/muster/job"
)

// maxStuck bounds the turns that a core may want at one moment.
const maxStuck = 10_000

// alarm wakes one core. If a later moment was replaced by an earlier one, it still rings, but then rang reports false.
type alarm struct {
	w        *World
	peer     job.Peer
	turn     func()        // gives the core a turn
	ring     func()        // called at the moment
	at       time.Duration // the moment; 0: none
	stuckAt  time.Duration // when the core last wanted a turn at once
	stuckFor int           // turns since then, at the same moment
}

// set makes the alarm ring at a moment, or gives the core its turn if the moment has come.
func (a *alarm) set(when time.Duration) {
	now := a.w.now
	if when <= now {
		if a.stuckAt == now {
			if a.stuckFor++; a.stuckFor > maxStuck {
				a.w.fail("the core of %s wants turns without end", a.peer)
				return
			}
		} else {
			a.stuckAt, a.stuckFor = now, 0
		}
		a.turn()
		return
	}
	if a.at > now && a.at <= when {
		return // the core will look again when that alarm rings
	}
	a.at = when
	a.w.at(when, a.ring)
}

// rang reports whether now is the moment that was set last, and unsets it.
func (a *alarm) rang() bool {
	if a.at != a.w.now {
		return false
	}
	a.at = 0
	return true
}
