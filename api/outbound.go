package api

// Outbound requests: the streams to each other daemon, shared fairly among the users in whose names they are opened.
// See docs/adr, ADR 122.

import (
	"context"
	"sync"

	"github.com/musterhq/muster/job"
)

// Streams to one other daemon, below those that package peerhttp opens. A user alone gets 32 long ones, and 12 of the
// others; more wait.
const (
	maxOutboundLong  = 40 // for output, events, files and terminals
	maxOutboundShort = 15
	outboundGreed    = 4
)

// outbound bounds the requests to each other daemon.
type outbound struct {
	mu sync.Mutex
	to map[job.Peer]*outboundRooms // guarded by mu: those that are in use
}

// outboundRooms are the rooms of one other daemon.
type outboundRooms struct {
	long, short *room
	users       int // who has a place or waits for one
}

// wait takes a place for a request to another daemon in the name of the requester of ctx. It returns ErrTooMany if ctx
// ends before. What this daemon does by itself needs no place.
func (o *outbound) wait(ctx context.Context, peer job.Peer, long bool) (leave func(), err error) {
	by := requesterOf(ctx).account()
	if by.user == "" {
		return func() {}, nil
	}
	e := o.enter(peer)
	in := e.short
	if long {
		in = e.long
	}
	if err := in.wait(ctx, by, 1); err != nil {
		o.leave(peer, e)
		return nil, err
	}
	return func() {
		in.give(by, 1)
		o.leave(peer, e)
	}, nil
}

func (o *outbound) enter(peer job.Peer) *outboundRooms {
	o.mu.Lock()
	defer o.mu.Unlock()
	e := o.to[peer]
	if e == nil {
		of := func(what string, most int64) *room {
			r := newRoom(what, most, 0)
			r.greed = outboundGreed
			return r
		}
		e = &outboundRooms{long: of("streams to daemon "+peer.Short(), maxOutboundLong), short: of("requests to daemon "+peer.Short(), maxOutboundShort)}
		if o.to == nil {
			o.to = map[job.Peer]*outboundRooms{}
		}
		o.to[peer] = e
	}
	e.users++
	return e
}

// leave forgets the rooms of a daemon that nobody uses any more.
func (o *outbound) leave(peer job.Peer, e *outboundRooms) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if e.users--; e.users == 0 {
		delete(o.to, peer)
	}
}
