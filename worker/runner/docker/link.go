package docker

// The link to one engine, and what is known about the engine while the link lasts.

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"
	"golang.org/x/sync/singleflight"
)

// unwatched is how long facts stay valid if the engine does not show its events, for example because it is behind a
// proxy.
const unwatched = time.Minute

// link is a client of one engine and what is known about that engine.
type link struct {
	*client.Client

	asking singleflight.Group // for the facts

	mu      sync.Mutex
	facts   *facts // guarded by mu; nil: not known, or not any more
	cleaned bool   // guarded by mu; containers of dead runners were removed
}

// ownEvents asks for the engine's events about itself. They are rare: it has read its settings again, or an operator does
// something. What matters is that the connection breaks when the engine goes away.
func ownEvents() client.EventsListOptions {
	return client.EventsListOptions{Filters: client.Filters{}.Add("type", "daemon")}
}

// learn returns the engine's facts. It asks the engine only once until the engine goes away or reads its settings again.
// Callers that wait at the same time share one request. Each of them can be cancelled while the engine hangs.
func (l *link) learn(ctx context.Context) (facts, error) {
	if f := l.known(); f != nil {
		return *f, nil
	}
	asked := l.asking.DoChan("", func() (any, error) { return l.ask(context.WithoutCancel(ctx)) })
	select {
	case a := <-asked:
		if a.Err != nil {
			return facts{}, a.Err
		}
		return a.Val.(facts), nil
	case <-ctx.Done():
		return facts{}, ctx.Err()
	}
}

// known returns a copy of the facts; nil if they are not known.
func (l *link) known() *facts {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.facts == nil {
		return nil
	}
	f := *l.facts
	return &f
}

// errSilent means that the engine took a request and did not answer it.
var errSilent = fmt.Errorf("no answer within %s", askWithin)

// ask asks the engine for its facts. It begins to watch the engine before that, and forgets the facts when the engine
// goes away.
func (l *link) ask(ctx context.Context) (facts, error) {
	if f := l.known(); f != nil { // another has just asked
		return *f, nil
	}
	within, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	watch, stop := context.WithCancel(ctx)
	late := time.AfterFunc(askWithin, stop)
	events := l.Events(watch, ownEvents()) // returns when the engine has answered
	late.Stop()
	info, err := l.Info(within, client.InfoOptions{})
	if errors.Is(err, context.DeadlineExceeded) {
		err = errSilent
	}
	if err != nil {
		stop()
		return facts{}, err
	}
	f := factsOf(info.Info)
	l.mu.Lock()
	l.facts = new(f)
	l.mu.Unlock()
	go func() {
		defer stop()
		select {
		case <-events.Messages:
		case err := <-events.Err:
			if refusesEvents(err) {
				pause(watch, unwatched)
			}
		}
		l.mu.Lock()
		l.facts = nil
		l.mu.Unlock()
	}()
	return f, nil
}

// refusesEvents reports whether an engine, or a proxy before it, answers but does not show its events.
func refusesEvents(err error) bool {
	for _, is := range []func(error) bool{errdefs.IsPermissionDenied, errdefs.IsUnauthorized, errdefs.IsNotFound, errdefs.IsNotImplemented, errdefs.IsInvalidArgument} {
		if is(err) {
			return true
		}
	}
	return false
}

// lacks reports whether a start with these facts failed for something that the engine lacks and that a container can
// do without. If so, it records that in the facts, and for the next containers.
func (l *link) lacks(with *facts, err error) bool {
	switch text := err.Error(); {
	case !with.noInit && strings.Contains(text, "docker-init"):
		with.noInit = true
	case !with.noLimits && strings.Contains(text, "rlimit"):
		with.noLimits = true
	default:
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.facts != nil {
		l.facts.noInit, l.facts.noLimits = l.facts.noInit || with.noInit, l.facts.noLimits || with.noLimits
	}
	return true
}
