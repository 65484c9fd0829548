package p2p

// The UDP sockets of QUIC, within the bounds of strangers.

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/transport"
	"github.com/libp2p/go-libp2p/p2p/transport/quicreuse"
	"github.com/quic-go/quic-go"
)

// errNoPlace refuses a connection because too many are not admitted yet.
var errNoPlace = errors.New("too many connections are not admitted yet")

// sockets returns the manager that opens the UDP sockets. Each incoming connection gets a place before its handshake.
// While at least half of the places are taken, a sender must first prove its address. That costs the sender a round trip
// and this daemon almost nothing.
func (g *gates) sockets(srk quic.StatelessResetKey, token quic.TokenGeneratorKey, rm network.ResourceManager, more []quicreuse.Option) (*quicreuse.ConnManager, error) {
	room := g.quicStrangers
	enter := func(ctx context.Context, info *quic.ClientInfo) (context.Context, error) {
		one := room.enter(udpAddr(info.RemoteAddr), nil)
		if one == nil {
			return ctx, errNoPlace
		}
		addr, err := quicreuse.ToQuicMultiaddr(info.RemoteAddr, quic.Version1)
		if err != nil {
			one.leave()
			return ctx, fmt.Errorf("p2p: quic: %w", err)
		}
		scope, err := rm.OpenConnection(network.DirInbound, false, addr)
		if err != nil {
			one.leave()
			return ctx, fmt.Errorf("p2p: quic: %w", err)
		}
		context.AfterFunc(ctx, func() { // the connection has ended
			one.leave()
			scope.Done()
		})
		return network.WithConnManagementScope(ctx, &strangerScope{ConnManagementScope: scope, who: one}), nil
	}
	opts := append([]quicreuse.Option{
		quicreuse.ConnContext(enter),
		quicreuse.VerifySourceAddress(func(a net.Addr) bool { return room.busy(udpAddr(a)) }),
	}, more...)
	cm, err := quicreuse.NewConnManager(srk, token, opts...)
	if err != nil {
		return nil, fmt.Errorf("p2p: quic: %w", err)
	}
	return cm, nil
}

func udpAddr(a net.Addr) netip.Addr {
	if u, ok := a.(*net.UDPAddr); ok {
		return u.AddrPort().Addr()
	}
	return netip.Addr{}
}

// followQUIC bounds the bytes of an accepted QUIC connection, and lets another stranger take its place when it is silent.
func (g *gates) followQUIC(c transport.CapableConn, one *stranger) {
	var q *quic.Conn
	if !c.As(&q) {
		return
	}
	g.quicStrangers.follow(one, func() uint64 { return q.ConnectionStats().BytesReceived }, func() {
		go c.CloseWithError(network.ConnResourceLimitExceeded) //nolint:errcheck // it waits; whoever needs the place does not
	})
}
