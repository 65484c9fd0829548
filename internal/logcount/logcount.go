// Package logcount is a slog handler that counts lines which come again and again, instead of writing them. What members,
// users and strangers do writes lines too, so nobody can fill the disk with the log, or hide other lines in it.
//
// A line is of one kind with those of the same place in the code that have the same message, and of one cause with those of
// its kind about the same peer, user or address. Of each cause the first lines are written, and then a few an hour. The lines
// of one kind together have a bound as well, because causes can be made up. A minute after lines were left out, or when the
// program ends, one line says how many. Lines below level info are all written: somebody has asked for them.
package logcount

import (
	"context"
	"log/slog"
	"runtime"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/musterhq/muster/internal/ratelimit"
)

// The bounds. At 300 bytes a line, an hour of one kind is 750 KB at most, and later hours 140 KB.
const (
	causeBurst = 100
	causeEvery = 30 * time.Second
	kindBurst  = 2000
	kindEvery  = 8 * time.Second
	// maxCauses bounds the causes of one kind that are told apart. Beyond it only the bound of the kind holds.
	maxCauses = 1024
	// maxMessages bounds the messages of one place that are told apart. The cores of the worker and the scheduler write all
	// their lines in one place each, with about 30 messages. A message that is beyond it, as if somebody could make messages
	// up, is of one kind with the others beyond it.
	maxMessages = 128
	// maxPlaces bounds the places, of which there are as many as the program has. A line of no known place is always written.
	maxPlaces = 4096
	// tellAfter is how long after the first line that was left out the count is written.
	tellAfter = time.Minute
)

// ofCauses keeps a flood from having the causes of a kind searched with each of its lines.
var ofCauses = ratelimit.Rule{Rate: rate.Every(causeEvery), Burst: causeBurst, Most: maxCauses, Sweep: causeEvery}

// Handler passes on lines to another handler, within the bounds. What is made of it by WithAttrs and WithGroup shares them.
type Handler struct {
	to     slog.Handler
	cause  string // that its own attributes name
	counts *counts
}

// New returns a handler that passes lines on.
func New(to slog.Handler) *Handler {
	return &Handler{to: to, counts: &counts{places: map[uintptr]place{}, out: to}}
}

// Flush writes how many lines were left out and not told of yet. It is for the end of the program.
func (h *Handler) Flush() { h.counts.tell() }

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
	places map[uintptr]place // guarded by mu; by program counter
	timer  *time.Timer       // guarded by mu; it will call tell; nil: no line was left out since
}

// place is the lines of one place in the code, by message. Those of the empty message are the ones beyond maxMessages.
type place map[string]*kind

// kind is the lines of one place with one message.
type kind struct {
	all    *rate.Limiter
	causes *ratelimit.Keys[string]
	left   int // lines that were left out since tell
	level  slog.Level
	last   string // the cause of the newest of them
	msg    string
}

// allow reports whether a line is to be written.
func (c *counts) allow(r *slog.Record, cause string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.kindOf(r)
	if k == nil {
		return true
	}
	if l := k.of(cause, r.Time); (l == nil || l.AllowN(r.Time, 1)) && k.all.AllowN(r.Time, 1) {
		return true
	}
	k.left++
	k.level, k.last, k.msg = max(k.level, r.Level), cause, r.Message
	if c.timer == nil {
		c.timer = time.AfterFunc(tellAfter, c.tell)
	}
	return false
}

// kindOf returns the kind of a line; nil if its place is not known. The caller holds mu.
func (c *counts) kindOf(r *slog.Record) *kind {
	p := c.places[r.PC]
	if p == nil {
		if r.PC == 0 || len(c.places) >= maxPlaces {
			return nil
		}
		p = place{}
		c.places[r.PC] = p
	}
	k := p[r.Message]
	if k != nil {
		return k
	}
	msg := r.Message
	if len(p) >= maxMessages {
		msg = ""
		if k := p[msg]; k != nil {
			return k
		}
	}
	k = &kind{all: rate.NewLimiter(rate.Every(kindEvery), kindBurst), causes: ratelimit.New[string](ofCauses)}
	p[msg] = k
	return k
}

// of returns the limiter of a cause; nil if there are too many causes, or the line has none.
func (k *kind) of(cause string, now time.Time) *rate.Limiter {
	if cause == "" {
		return nil
	}
	return k.causes.Of(cause, now)
}

// tell writes how many lines of each kind were left out.
func (c *counts) tell() {
	now := time.Now()
	var lines []slog.Record
	c.mu.Lock()
	if c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
	for pc, p := range c.places {
		for _, k := range p {
			if k.left > 0 {
				lines = append(lines, k.count(now, pc))
			}
		}
	}
	c.mu.Unlock()
	for _, r := range lines {
		_ = c.out.Handle(context.Background(), r) //nolint:forbidigo // no caller has a context; an error has no one to be told to
	}
}

// count returns the line that says how many were left out, and begins to count again.
func (k *kind) count(now time.Time, pc uintptr) slog.Record {
	r := slog.NewRecord(now, k.level, "log lines left out", pc)
	r.AddAttrs(slog.String("lines", k.msg), slog.Int("count", k.left))
	if k.last != "" {
		r.AddAttrs(slog.String("last_about", k.last))
	}
	r.AddAttrs(slog.String("at", whereIs(pc)))
	k.left, k.level, k.last = 0, slog.LevelInfo, ""
	return r
}

// whereIs returns the function and the line of a program counter.
func whereIs(pc uintptr) string {
	f, _ := runtime.CallersFrames([]uintptr{pc}).Next()
	return f.Function + ":" + strconv.Itoa(f.Line)
}
