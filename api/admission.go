package api

// Admission: whether a route is open to a kind of listener, and whether a slot is free for the request. See docs/adr,
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

// The numbers of slots for one kind of listener. A single user gets half of them at most.
const (
	maxRequests      = 128       // short requests at a time; more wait. Concurrent submissions share a sync of the disk
	maxLarge         = 8         // requests whose answer may be large, up to some 10 MB; more wait
	maxStreams       = 512       // streams of output, events, files and terminals, with up to 1 MB each
	maxBodies        = 128 << 20 // bytes of bodies in memory: a user can send two of the largest lists of files at once; more wait
	timesOfMembers   = 4         // other daemons ask for many users: they get 4 times the short and the large requests
	streamsOfMembers = 1024      // streams of other daemons: as many as package peerhttp allows
	// operatorPart is the divisor of the slots that are kept for operators: 1/8 more, so that operators can always get in and
	// stop what others do.
	operatorPart = 8
)

// slotsOf holds the slots of one kind of listener.
type slotsOf struct{ requests, answers, streams, follows, bodies *slots }

func newSlotsOf(from requestOrigin) *slotsOf {
	times, streams := int64(1), int64(maxStreams)
	if from == fromPeer {
		times, streams = timesOfMembers, streamsOfMembers
	}
	of := func(what string, most int64) *slots { return newSlots(what, most, most/operatorPart) }
	return &slotsOf{
		requests: of("concurrent requests", times*maxRequests), answers: of("concurrent requests with large answers", times*maxLarge),
		streams: of("open streams", streams), follows: of("open streams of progress", maxFollowers),
		bodies: of("bytes of request bodies", maxBodies),
	}
}

// admission bounds the concurrent requests of each kind of listener.
type admission struct {
	rooms   map[requestOrigin]*slotsOf
	closing chan struct{} // closed when all streams must end
	metrics *metrics
}

func newAdmission(m *metrics) *admission {
	all := map[requestOrigin]*slotsOf{fromSocket: newSlotsOf(fromSocket), fromTCP: newSlotsOf(fromTCP), fromPeer: newSlotsOf(fromPeer)}
	return &admission{rooms: all, closing: make(chan struct{}), metrics: m}
}

// account returns the account that the request's slots count for. A request of another daemon counts for its user and for
// that daemon. It never gets the slots of operators, because the daemon could name any user.
func (a requester) account() account {
	return account{party: party{user: a.user, daemon: a.daemon}, operator: a.operator && a.from != fromPeer}
}

// asker is the name of the requester in fair queues. All users of another daemon together count as that daemon.
func (a requester) asker() string {
	if a.from == fromPeer {
		return string(a.daemon)
	}
	return a.user
}

// admit lets a request through if the route is open to its listener and a slot is free.
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

// large takes a slot for a large answer at the owner of the job. Daemons that only forward the request need no such slot.
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

// plain admits the requests of a handler that is not a route of huma.
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

// enter takes the slots of a request. A stream is refused at once if none is free, because other streams may last for days.
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

// decodedTimes is how many bytes of memory each byte of a document takes, with the decoded values and the answer.
const decodedTimes = 4

// bodyMemory returns the most memory that a request needs for its body.
func bodyMemory(r *http.Request) int64 {
	n := bodyBound(r.URL.Path)
	if r.ContentLength >= 0 {
		n = min(n, r.ContentLength)
	}
	switch {
	case r.URL.Path == pathChunks:
		return min(n, upload.MaxChunk) // chunks are read one after the other
	case isTree(r.URL.Path):
		return n // maxParsing bounds the memory of what is decoded
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

// withRequester adds the requester to the context of a request.
func withRequester(r *http.Request, a requester) *http.Request {
	return r.WithContext(context.WithValue(job.WithAsker(r.Context(), a.asker()), requesterKey{}, a))
}
