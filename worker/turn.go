package worker

// The state of a turn: the effects so far, and what is left to do before the turn ends.

import (
	"log/slog"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
)

// turn is what all parts of a Core share: the timers, the effects, and what is left to do.
type turn struct {
	timers  timerHeap
	now     BootTime // of this turn
	out     Effects  // effects that need not wait for the disk
	dropped int      // number of log lines above maxLines

	arbitrate bool // offers or what is free have changed since the last arbitration
	announce  bool // what is free, or why nothing is, has changed since the last Availability
	keep      bool // the quarantine has changed and must be saved
}

// log adds a line to the log.
func (t *turn) log(level slog.Level, msg string, attrs ...slog.Attr) {
	if len(t.out.Log) >= maxLines {
		t.dropped++
		return
	}
	t.out.Log = append(t.out.Log, Line{level, msg, attrs})
}

func (t *turn) send(to job.Peer, msg contract.ToScheduler) {
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

// reopen is called when the host begins or ceases to accept tasks. An arbitration and an Availability follow.
func (t *turn) reopen() { t.arbitrate, t.announce = true, true }

// end returns the effects and clears them for the next turn.
func (t *turn) end() Effects {
	if t.dropped > 0 {
		t.out.Log = append(t.out.Log, Line{slog.LevelWarn, "log lines left out", []slog.Attr{slog.Int("lines", t.dropped)}})
		t.dropped = 0
	}
	out := t.out
	t.out = Effects{}
	return out
}
