package peerhttp

// The requesting side: an http.RoundTripper that opens streams to other daemons.

import (
	"context"
	"fmt"
	"net"
	"net/http"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
)

const (
	// maxIdlePerPeer bounds the unused streams to one peer; maxIdle, the unused streams to all peers.
	maxIdlePerPeer, maxIdle = 4, 256
	// maxHeader bounds the header of a response.
	maxHeader = 64 << 10
)

// Dialer is the part of a libp2p host that a transport needs.
type Dialer interface {
	NewStream(ctx context.Context, p peer.ID, ids ...protocol.ID) (network.Stream, error)
}

// NewTransport returns a RoundTripper for URLs like http://PEER/path, where PEER is a daemon's peer ID. Streams are
// reused. Call CloseIdleConnections when it is no longer needed.
func NewTransport(cfg Config, h Dialer) (*http.Transport, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &http.Transport{
		DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
			return dial(ctx, cfg, h, addr)
		},
		Proxy:                  nil, // ignores a proxy from the environment
		DisableCompression:     true,
		MaxIdleConns:           maxIdle,
		MaxIdleConnsPerHost:    maxIdlePerPeer,
		MaxConnsPerHost:        cfg.OpenStreams,
		IdleConnTimeout:        cfg.IdleTimeout,
		ResponseHeaderTimeout:  cfg.HeaderTimeout,
		MaxResponseHeaderBytes: maxHeader,
	}, nil
}

func dial(ctx context.Context, cfg Config, h Dialer, addr string) (net.Conn, error) {
	name, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("peerhttp: dial %q: %w", addr, err)
	}
	id, err := peer.Decode(name)
	if err != nil {
		return nil, fmt.Errorf("peerhttp: dial %q: %w", name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, cfg.DialTimeout)
	defer cancel()
	s, err := h.NewStream(ctx, id, ID)
	if err != nil {
		return nil, fmt.Errorf("peerhttp: dial %s: %w", id, &UnreachedError{err})
	}
	return newConn(s, true, func() {}), nil
}
