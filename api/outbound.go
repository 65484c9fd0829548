package api

// Outbound requests: the number of streams to each other daemon is bounded, and users share them fairly. See docs/adr,
// ADR 122.

import (
	"context"
	"sync"

	"github.com/musterhq/muster/job"
)

// Bounds of streams to one other daemon. They are lower than the bound of package peerhttp. A single user gets 32 long
// streams and 12 short ones; more requests wait.
const (
	maxOutboundLong  = 40 // for output, events, files and terminals
	maxOutboundShort = 15
	outboundGreed    = 4
)

// outbound bounds the requests to each other daemon.
type outbound struct {
	mu sync.Mutex
	to map[job.Peer]*outboundRooms // guarded by mu: only rooms that are in use
}

// outboundRooms are the rooms of one other daemon.
type outboundRooms struct {
	long, short *slots
	users       int // requests that have a slot or wait for one
}

// wait takes a slot for a request to another daemon, in the name of the requester of ctx. It returns ErrTooMany if ctx ends
// before. Requests of this daemon itself need no slot.
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
		of := func(what string, most int64) *slots {
			r := newSlots(what, most, 0)
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

// leave drops the rooms of a daemon when the last request has left them.
func (o *outbound) leave(peer job.Peer, e *outboundRooms) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if e.users--; e.users == 0 {
		delete(o.to, peer)
	}
}
