package worker

// What a turn has come to so far: the effects that it will return, and what is left to do before it ends.

import (
	"log/slog"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
)

// turn is what all rooms of a Core share: where they put effects, the timers, and what has to be looked at.
type turn struct {
	timers  alarms
	out     Effects // nothing of it waits for the disk
	dropped int     // log lines beyond the bound

	arbitrate bool // offers or what is free have changed since the last arbitration
	announce  bool // what is free, or why nothing is, has changed since schedulers were told
	keep      bool // what is in quarantine has changed, and the disk does not know
}

// log has a line written to the log.
func (t *turn) log(level slog.Level, msg string, attrs ...slog.Attr) {
	if len(t.out.Log) >= maxLines {
		t.dropped++
		return
	}
	t.out.Log = append(t.out.Log, Line{level, msg, attrs})
}

func (t *turn) send(to job.Peer, msg lease.ToScheduler) {
	t.out.Send = append(t.out.Send, Outgoing{To: to, Msg: msg})
}

func (t *turn) stop(a job.Attempt, grace time.Duration, reason string) {
	t.out.Stop = append(t.out.Stop, Stop{Attempt: a, Grace: grace, Reason: reason})
}

func (t *turn) extend(a job.Attempt, until BootTime) {
	if t.out.Extend == nil {
		t.out.Extend = map[job.Attempt]BootTime{}
	}
	t.out.Extend[a] = until
}

// reopen says that the host may take tasks again, or takes none any more: offers are looked at and schedulers told.
func (t *turn) reopen() { t.arbitrate, t.announce = true, true }

// end returns the effects, and begins the next turn.
func (t *turn) end() Effects {
	if t.dropped > 0 {
		t.out.Log = append(t.out.Log, Line{slog.LevelWarn, "log lines left out", []slog.Attr{slog.Int("lines", t.dropped)}})
		t.dropped = 0
	}
	out := t.out
	t.out = Effects{}
	return out
}
