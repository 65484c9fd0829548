package worker

// The pause of the host: it takes no task for a while after jobs failed on it one after the other.

import (
	"log/slog"
	"time"

	"github.com/musterhq/muster/lease"
)

// hostBreaker is the breaker of the host itself.
type hostBreaker struct {
	breaker
	turn  *turn
	why   string   // the host takes nothing for a while; empty: it takes tasks
	until BootTime // of why
}

// fail notes a failure, and pauses the host if it is one too many.
func (h *hostBreaker) fail(now Moment, f failure) {
	if why := h.note(f); why != "" {
		pause := h.trip()
		h.pause(now, lease.Clip("set aside: "+why+"; tried again "+when(now, pause)), pause)
	}
}

// pause has the host take nothing for so long.
func (h *hostBreaker) pause(now Moment, why string, pause time.Duration) {
	until := now.Boot.Add(pause)
	h.why, h.until = why, until
	h.turn.log(slog.LevelError, "host set aside", slog.String("reason", why), slog.Duration("pause", pause))
	h.turn.keep = true
	h.turn.reopen()
	h.turn.timers.set(until, func(Moment) {
		if h.until == until {
			h.resume()
		}
	})
}

// resume ends the host's pause.
func (h *hostBreaker) resume() {
	if h.why == "" {
		return
	}
	h.why, h.until = "", 0
	h.turn.log(slog.LevelInfo, "host takes tasks again")
	h.turn.keep = true
	h.turn.reopen()
}
