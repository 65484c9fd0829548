package worker

// The pause of the host: it accepts no tasks for a while after several jobs have failed on it in a row.

import (
	"log/slog"
	"time"

	"github.com/musterhq/muster/internal/contract"
)

// hostBreaker is the breaker of the host.
type hostBreaker struct {
	breaker
	turn  *turn
	why   string   // why the host is paused; empty: it is not
	until BootTime // when the pause ends
}

// fail counts a failure, and pauses the host if the breaker trips.
func (h *hostBreaker) fail(now Moment, f failure) {
	if why := h.note(f); why != "" {
		pause := h.trip()
		h.pause(now, contract.Clip(why+"; "+pausedUntil(now, pause)), pause)
	}
}

// pause begins a pause of the host.
func (h *hostBreaker) pause(now Moment, why string, pause time.Duration) {
	until := now.Boot.Add(pause)
	h.why, h.until, h.from = why, until, until
	h.turn.log(slog.LevelError, "host paused: it accepts no tasks", slog.String("reason", why), slog.Duration("pause", pause))
	h.turn.keep = true
	h.turn.reopen()
	h.turn.timers.set(until, func(Moment) {
		if h.until == until {
			h.resume()
			h.trial = h.trips > 0
		}
	})
}

// resume ends the host's pause.
func (h *hostBreaker) resume() {
	if h.why == "" {
		return
	}
	h.why, h.until = "", 0
	h.turn.log(slog.LevelInfo, "host accepts tasks again")
	h.turn.keep = true
	h.turn.reopen()
}
