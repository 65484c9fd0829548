package api

// Admission: whether a route is open to a kind of listener, and how many requests run at once.

import (
	"context"
	"fmt"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
)

// admission bounds the concurrent requests of each kind of listener.
type admission struct {
	limiters map[origin]*limiter
	closing  chan struct{} // closed when all streams must end
	metrics  *metrics
}

func newAdmission(m *metrics) *admission {
	limiters := map[origin]*limiter{fromSocket: newLimiter(), fromTCP: newLimiter(), fromPeer: newLimiter()}
	return &admission{limiters: limiters, closing: make(chan struct{}), metrics: m}
}

// limiter bounds the concurrent requests of one kind of listener.
type limiter struct{ requests, streams, follows chan struct{} }

func newLimiter() *limiter {
	return &limiter{make(chan struct{}, maxRequests), make(chan struct{}, maxStreams), make(chan struct{}, maxFollowers)}
}

// admit lets a request through if the route is open to its listener and there is room.
func (a *admission) admit(w rules) func(huma.Context, func(huma.Context)) {
	return func(ctx huma.Context, next func(huma.Context)) {
		r, out := humago.Unwrap(ctx)
		asks := requesterOf(r.Context())
		if (asks.from == fromPeer && w.peers == nobody) || (asks.from != fromPeer && w.only) {
			asks.note.denied(asks.from == fromPeer)
			refuse(out, problemOfStatus(http.StatusNotFound, r.Method+" "+r.URL.Path+": there is no such route"))
			return
		}
		if err := asks.daemonMay(w.peers); err != nil {
			refuse(out, fmt.Errorf("%s %s: %w", r.Method, r.URL.Path, err))
			return
		}
		room := a.limiters[asks.from].requests
		if w.stream {
			room = a.limiters[asks.from].streams
		}
		if w.follow {
			room = a.limiters[asks.from].follows
		}
		select {
		case room <- struct{}{}:
		default:
			out.Header().Set("Retry-After", "1")
			refuse(out, problemOfStatus(http.StatusServiceUnavailable, "too many concurrent requests; try again in a second"))
			return
		}
		defer func() { <-room }()
		if w.stream {
			a.metrics.stream(1)
			defer a.metrics.stream(-1)
			end, cancel := a.untilClosing(ctx.Context())
			defer cancel()
			ctx = huma.WithContext(ctx, end)
		}
		next(ctx)
	}
}

// endStreams ends all open streams when the server stops.
func (a *admission) endStreams() { close(a.closing) }

// untilClosing returns a copy of ctx that also ends when the server stops.
func (a *admission) untilClosing(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-a.closing:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}
