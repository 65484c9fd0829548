package session

// The greeting on a new stream: the opener sends Open, the other side answers Accept.

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/p2p/net/swarm"

	"github.com/musterhq/muster/p2p/wirepb"
)

var errNotNeeded = errors.New("session: not needed any more")

// offer opens a stream to the peer and waits for its Accept.
func (l *loop) offer(ctx context.Context, k *link, id peer.ID) (*open, error) {
	// After a failure the swarm refuses to dial a peer again for 5 s or more. The manager has its own back-off.
	if s, ok := l.host.Network().(interface{ Backoff() *swarm.DialBackoff }); ok {
		s.Backoff().Clear(id)
	}
	s, err := l.host.NewStream(ctx, id, ID)
	if err != nil {
		return nil, fmt.Errorf("session: dial %s: %w", id, err)
	}
	type answer struct {
		mine count
		ok   bool
	}
	answers := make(chan answer, 1)
	l.post(func() {
		mine, ok := l.mayOffer(k)
		answers <- answer{mine, ok}
	})
	a := <-answers
	if !a.ok {
		_ = s.Reset()
		return nil, errNotNeeded
	}
	o, err := say(ctx, s, a.mine)
	if err != nil {
		_ = s.Reset()
		return nil, fmt.Errorf("session: open with %s: %w", id, err)
	}
	return o, nil
}

func say(ctx context.Context, s network.Stream, mine count) (*open, error) {
	defer context.AfterFunc(ctx, func() { _ = s.Reset() })()
	b, err := appendFrame(nil, openFrame(mine))
	if err != nil {
		return nil, err
	}
	if err := s.SetDeadline(time.Now().Add(greetTimeout)); err != nil {
		return nil, err
	}
	if _, err := s.Write(b); err != nil {
		return nil, err
	}
	o := &open{stream: s, source: newSource(s)}
	o.frames = newFrameReader(o.source)
	f, err := o.frames.next()
	if err != nil {
		return nil, err
	}
	accept, ok := f.GetBody().(*wirepb.Frame_Accept)
	if !ok {
		return nil, errNotGreeted
	}
	o.theirs = count{incarnation: accept.Accept.GetIncarnation(), n: accept.Accept.GetCount()}
	o.knows = featuresOf(accept.Accept)
	return o, s.SetDeadline(time.Time{})
}

// greet waits for the Open on a stream that the peer has opened.
func (l *loop) greet(ctx context.Context, k *link, s network.Stream) {
	o, err := readOpen(ctx, s)
	if err != nil {
		_ = s.Reset()
	}
	l.post(func() { l.greeted(k, o, err) })
}

func readOpen(ctx context.Context, s network.Stream) (*open, error) {
	defer context.AfterFunc(ctx, func() { _ = s.Reset() })()
	if err := s.SetDeadline(time.Now().Add(greetTimeout)); err != nil {
		return nil, err
	}
	o := &open{stream: s, source: newSource(s)}
	o.frames = newFrameReader(o.source)
	f, err := o.frames.next()
	if err != nil {
		return nil, err
	}
	first, ok := f.GetBody().(*wirepb.Frame_Open)
	if !ok {
		return nil, errNotGreeted
	}
	o.theirs = count{incarnation: first.Open.GetIncarnation(), n: first.Open.GetCount()}
	o.knows = featuresOf(first.Open)
	return o, s.SetDeadline(time.Time{})
}
