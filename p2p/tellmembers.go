package p2p

// The members that are connected now: opening a stream to one, sending a message to all.

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
)

const (
	// tellAtOnce bounds the concurrent streams of a message to all members.
	tellAtOnce = 16
	// tellTimeout bounds each of these streams.
	tellTimeout = 10 * time.Second
)

// connected reaches the members that have a connection. It never dials.
type connected struct {
	network network.Network
	roster  *roster
	log     *slog.Logger
}

// disconnect closes the connections to a peer.
func (c connected) disconnect(p peer.ID) {
	_ = c.network.ClosePeer(p) // an error means that they were closed already
}

// open opens a stream to a connected member; no protocol is negotiated yet.
func (c connected) open(ctx context.Context, p peer.ID) (network.Stream, error) {
	return c.network.NewStream(network.WithNoDial(ctx, "connected members only"), p)
}

// tellAll calls tell for each connected member, at most tellAtOnce at a time.
func (c connected) tellAll(ctx context.Context, tell func(context.Context, peer.ID) error) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, tellAtOnce)
	for _, g := range c.roster.present() {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			ctx, cancel := context.WithTimeout(ctx, tellTimeout)
			defer cancel()
			if err := tell(ctx, g.id); err != nil {
				c.log.DebugContext(ctx, "message to a member failed", "peer", g.id, "error", err)
			}
		})
	}
	wg.Wait()
}
