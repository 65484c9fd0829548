package api

// Admission: whether a route is open to a kind of listener, and whether there is room for the request. See docs/adr,
// ADR 122.

import (
	"context"
	"fmt"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/musterhq/muster/internal/upload"
	"github.com/musterhq/muster/job"
)

// The rooms of one kind of listener. Of each, one user alone gets half.
const (
	maxRequests      = 128       // short requests at a time; more wait. Submissions wait for the disk together
	maxLarge         = 8         // those whose answer may be large, up to some 10 MB; more wait
	maxStreams       = 512       // streams of output, events, files and terminals, with up to 1 MB each
	maxBodies        = 128 << 20 // bytes of bodies in memory: a user can send two of the largest lists of files at once; more wait
	timesOfMembers   = 4         // other daemons ask for many users: so many times the short requests
	streamsOfMembers = 1024      // as many as package peerhttp has
	// operatorPart is the part of a room that is kept for operators besides: they must be able to end what others do.
	operatorPart = 8
)

// rooms are those of one kind of listener.
type rooms struct{ requests, answers, streams, follows, bodies *room }

func newRooms(from requestOrigin) *rooms {
	times, streams := int64(1), int64(maxStreams)
	if from == fromPeer {
		times, streams = timesOfMembers, streamsOfMembers
	}
	of := func(what string, most int64) *room { return newRoom(what, most, most/operatorPart) }
	return &rooms{
		requests: of("concurrent requests", times*maxRequests), answers: of("concurrent requests with large answers", times*maxLarge),
		streams: of("open streams", streams), follows: of("open streams of progress", maxFollowers),
		bodies: of("bytes of request bodies", maxBodies),
	}
}

// admission bounds the concurrent requests of each kind of listener.
type admission struct {
	rooms   map[requestOrigin]*rooms
	closing chan struct{} // closed when all streams must end
	metrics *metrics
}

func newAdmission(m *metrics) *admission {
	all := map[requestOrigin]*rooms{fromSocket: newRooms(fromSocket), fromTCP: newRooms(fromTCP), fromPeer: newRooms(fromPeer)}
	return &admission{rooms: all, closing: make(chan struct{}), metrics: m}
}

// account says in whose name the request takes places. What a daemon says of its users gives it nothing: it is no
// operator here, and its own bound holds too.
func (a requester) account() account {
	return account{party: party{user: a.user, daemon: a.daemon}, operator: a.operator && a.from != fromPeer}
}

// asker is the name of the requester in queues. All users of another daemon have its turns.
func (a requester) asker() string {
	if a.from == fromPeer {
		return string(a.daemon)
	}
	return a.user
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
		leave, err := a.enter(r, asks, w)
		if err != nil {
			a.refuse(out, r, err)
			return
		}
		defer leave()
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

// large lets the owner of a job answer with a large document if there is room. Daemons that only forward the request need
// no place for that.
func (a *admission) large(ctx huma.Context, next func(huma.Context)) {
	r, out := humago.Unwrap(ctx)
	asks := requesterOf(r.Context())
	in, by := a.rooms[asks.from].answers, asks.account()
	if err := in.waitBriefly(r.Context(), by, 1); err != nil {
		a.refuse(out, r, err)
		return
	}
	defer in.give(by, 1)
	next(ctx)
}

// plain admits a request that no route of huma answers.
func (a *admission) plain(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		leave, err := a.enter(r, requesterOf(r.Context()), rules{large: true})
		if err != nil {
			a.refuse(w, r, err)
			return
		}
		defer leave()
		h.ServeHTTP(w, r)
	})
}

func (a *admission) refuse(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil {
		panic(http.ErrAbortHandler) // the client is gone, or the server stops
	}
	a.metrics.full()
	refuse(w, err)
}

// enter takes the places of a request. A stream is refused at once if there is none, because others may last for days.
func (a *admission) enter(r *http.Request, asks requester, w rules) (leave func(), err error) {
	all, by := a.rooms[asks.from], asks.account()
	in := all.requests
	switch {
	case w.follow:
		in = all.follows
	case w.stream:
		in = all.streams
	case w.large && !w.owner:
		in = all.answers
	}
	if !w.stream {
		err = in.waitBriefly(r.Context(), by, 1)
	} else if !in.take(by, 1) {
		err = in.refusal(by)
	}
	if err != nil {
		return nil, err
	}
	n := bodyMemory(r)
	if n == 0 {
		return func() { in.give(by, 1) }, nil
	}
	if err := all.bodies.waitBriefly(r.Context(), by, n); err != nil {
		in.give(by, 1)
		return nil, err
	}
	return func() { all.bodies.give(by, n); in.give(by, 1) }, nil
}

// decodedTimes is how much memory a document needs, with what is decoded from it and its answer, for each byte of it.
const decodedTimes = 4

// bodyMemory returns how much memory a request needs for its body, at most.
func bodyMemory(r *http.Request) int64 {
	n := bodyBound(r.URL.Path)
	if r.ContentLength >= 0 {
		n = min(n, r.ContentLength)
	}
	switch {
	case r.URL.Path == pathChunks:
		return min(n, upload.MaxChunk) // one after the other
	case isTree(r.URL.Path):
		return n // maxParsing bounds the others
	}
	return decodedTimes * n
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

// withRequester adds to a request who makes it.
func withRequester(r *http.Request, a requester) *http.Request {
	return r.WithContext(context.WithValue(job.WithAsker(r.Context(), a.asker()), requesterKey{}, a))
}
