// Package logcount is a slog handler that counts lines which come again and again, instead of writing them. What members,
// users and strangers do writes lines too, so nobody can fill the disk with the log, or hide other lines in it.
//
// A line is of one cause with those of the same place in the code about the same peer, user or address. Of each cause the
// first lines are written, and then a few an hour. The lines of one place together have a bound as well, because causes can
// be made up. A minute after lines were left out, one line says how many. Lines below level info are all written: somebody
// has asked for them.
package logcount

import (
	"context"
	"log/slog"
	"runtime"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// The bounds. At 300 bytes a line, an hour of one place is 750 KB at most, and later hours 140 KB.
const (
	causeBurst = 100
	causeEvery = 30 * time.Second
	placeBurst = 2000
	placeEvery = 8 * time.Second
	// maxCauses bounds the causes of one place that are told apart. Beyond it only the bound of the place holds.
	maxCauses = 1024
	// maxPlaces bounds the places, of which there are as many as the program has. A line of no known place is always written.
	maxPlaces = 4096
	// tellAfter is how long after the first line that was left out the count is written.
	tellAfter = time.Minute
)

// Handler passes on lines to another handler, within the bounds. What is made of it by WithAttrs and WithGroup shares them.
type Handler struct {
	to     slog.Handler
	cause  string // that its own attributes name
	counts *counts
}

// New returns a handler that passes lines on.
func New(to slog.Handler) *Handler {
	return &Handler{to: to, counts: &counts{places: map[uintptr]*place{}, out: to}}
}

// Enabled says whether a line of this level is written.
func (h *Handler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.to.Enabled(ctx, level)
}

// Handle passes a line on, or counts it.
func (h *Handler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelInfo && !h.counts.allow(&r, h.causeOf(&r)) {
		return nil
	}
	return h.to.Handle(ctx, r)
}

// WithAttrs returns a handler for lines with these attributes.
func (h *Handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	cause := h.cause
	for _, a := range attrs {
		cause = names(a, cause)
	}
	return &Handler{to: h.to.WithAttrs(attrs), cause: cause, counts: h.counts}
}

// WithGroup returns a handler for lines with a group of attributes.
func (h *Handler) WithGroup(name string) slog.Handler {
	return &Handler{to: h.to.WithGroup(name), cause: h.cause, counts: h.counts}
}

// causeOf returns who a line is about.
func (h *Handler) causeOf(r *slog.Record) string {
	cause := h.cause
	r.Attrs(func(a slog.Attr) bool {
		cause = names(a, cause)
		return true
	})
	return cause
}

// names returns who an attribute names; cause if it names nobody.
func names(a slog.Attr, cause string) string {
	switch a.Key {
	case "peer", "user", "addr":
		return a.Value.String()
	}
	return cause
}

// counts has what was written and left out. Handlers of one log share it.
type counts struct {
	out slog.Handler

	mu     sync.Mutex
	places map[uintptr]*place // guarded by mu; by program counter
	timed  bool               // guarded by mu; tell will be called
}

// place is the lines of one place in the code.
type place struct {
	all    *rate.Limiter
	causes map[string]*rate.Limiter
	left   int // lines that were left out since tell
	level  slog.Level
	last   string // the cause of the newest of them
	msg    string
}

// allow reports whether a line is to be written.
func (c *counts) allow(r *slog.Record, cause string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.places[r.PC]
	if p == nil {
		if r.PC == 0 || len(c.places) >= maxPlaces {
			return true
		}
		p = &place{all: rate.NewLimiter(rate.Every(placeEvery), placeBurst), causes: map[string]*rate.Limiter{}}
		c.places[r.PC] = p
	}
	if l := p.of(cause, r.Time); (l == nil || l.AllowN(r.Time, 1)) && p.all.AllowN(r.Time, 1) {
		return true
	}
	p.left++
	p.level, p.last, p.msg = max(p.level, r.Level), cause, r.Message
	if !c.timed {
		c.timed = true
		time.AfterFunc(tellAfter, c.tell)
	}
	return false
}

// of returns the limiter of a cause; nil if there are too many causes, or the line has none.
func (p *place) of(cause string, now time.Time) *rate.Limiter {
	if cause == "" {
		return nil
	}
	l := p.causes[cause]
	if l == nil {
		if len(p.causes) >= maxCauses {
			for x, l := range p.causes { // those of which no line came lately
				if l.TokensAt(now) >= causeBurst {
					delete(p.causes, x)
				}
			}
		}
		if len(p.causes) >= maxCauses {
			return nil
		}
		l = rate.NewLimiter(rate.Every(causeEvery), causeBurst)
		p.causes[cause] = l
	}
	return l
}

// tell writes how many lines of each place were left out.
func (c *counts) tell() {
	now := time.Now()
	var lines []slog.Record
	c.mu.Lock()
	c.timed = false
	for pc, p := range c.places {
		if p.left == 0 {
			continue
		}
		r := slog.NewRecord(now, p.level, "log lines left out", pc)
		r.AddAttrs(slog.String("lines", p.msg), slog.Int("count", p.left))
		if p.last != "" {
			r.AddAttrs(slog.String("last_about", p.last))
		}
		r.AddAttrs(slog.String("at", whereIs(pc)))
		lines = append(lines, r)
		p.left, p.level, p.last = 0, slog.LevelInfo, ""
	}
	c.mu.Unlock()
	for _, r := range lines {
		_ = c.out.Handle(context.Background(), r) //nolint:forbidigo // no caller has a context; an error has no one to be told to
	}
}

// whereIs returns the function and the line of a program counter.
func whereIs(pc uintptr) string {
	f, _ := runtime.CallersFrames([]uintptr{pc}).Next()
	return f.Function + ":" + strconv.Itoa(f.Line)
}
