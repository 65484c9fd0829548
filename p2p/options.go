package p2p

// Options of the libp2p host: the transports, and limits that suit thousands of daemons.

import (
	"fmt"
	"time"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/connmgr"
	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/pnet"
	"github.com/libp2p/go-libp2p/core/protocol"
	"github.com/libp2p/go-libp2p/core/transport"
	rcmgr "github.com/libp2p/go-libp2p/p2p/host/resource-manager"
	"github.com/libp2p/go-libp2p/p2p/muxer/yamux"
	libp2pconnmgr "github.com/libp2p/go-libp2p/p2p/net/connmgr"
	"github.com/libp2p/go-libp2p/p2p/net/swarm"
	"github.com/libp2p/go-libp2p/p2p/protocol/identify"
	"github.com/libp2p/go-libp2p/p2p/security/noise"
	libp2ptls "github.com/libp2p/go-libp2p/p2p/security/tls"
	quic "github.com/libp2p/go-libp2p/p2p/transport/quic"
	"github.com/libp2p/go-libp2p/p2p/transport/quicreuse"
	"github.com/libp2p/go-libp2p/p2p/transport/tcp"
	"github.com/libp2p/go-libp2p/p2p/transport/tcpreuse"
	"github.com/libp2p/go-libp2p/x/rate"
	ma "github.com/multiformats/go-multiaddr"
	"github.com/prometheus/client_golang/prometheus"
	quicgo "github.com/quic-go/quic-go"
)

// These limits belong together. By default libp2p allows 252 connections, trims to 160, and allows 8 from one
// address.
const (
	maxConns      = 12000 // of the whole host; a connection costs about 50 to 70 KB
	maxInbound    = 11000 // inbound connections among these; the rest is for dials of this daemon
	highWater     = 8000  // above this number the connection manager trims to lowWater; a DHT table needs only about 200
	lowWater      = 7000
	graceNew      = time.Minute // age below which a connection is not trimmed
	maxTransient  = 4000        // connections in a handshake; enough when all hosts come back at once
	maxPerSubnet  = 10000       // allows for many hosts behind one NAT
	maxStreams    = 100000
	maxStreamsOne = 60000 // streams of one protocol
	maxIdentify   = 8000
	// dialTimeoutLocal: libp2p's 5 s for a private address are too short when a thousand hosts dial at once.
	dialTimeoutLocal = 20 * time.Second
	// yamuxAlive is the keep-alive interval. TCP alone notices a dead host after 40 s.
	yamuxAlive = 5 * time.Second
)

func limits() rcmgr.Limiter {
	scale := rcmgr.DefaultLimits
	libp2p.SetDefaultServiceLimits(&scale)
	each := rcmgr.ResourceLimits{Streams: maxStreamsOne, StreamsInbound: maxStreamsOne / 2, StreamsOutbound: maxStreamsOne / 2, Memory: 2 << 30}
	ident := rcmgr.ResourceLimits{Streams: maxIdentify, StreamsInbound: maxIdentify / 2, StreamsOutbound: maxIdentify}
	p := rcmgr.PartialLimitConfig{
		System: rcmgr.ResourceLimits{
			Conns: maxConns, ConnsInbound: maxInbound, ConnsOutbound: maxConns, FD: maxConns + maxConns/4,
			Streams: maxStreams, StreamsInbound: maxStreamsOne, StreamsOutbound: maxStreamsOne, Memory: 4 << 30,
		},
		Transient: rcmgr.ResourceLimits{
			// Inbound ones are strangers, of which each transport has at most maxStrangers, so dials always have room.
			Conns: maxTransient, ConnsInbound: 2 * maxStrangers, ConnsOutbound: maxTransient, FD: maxTransient,
			Streams: 2 * maxTransient, StreamsInbound: 2 * maxTransient, StreamsOutbound: 2 * maxTransient, Memory: 1 << 30,
		},
		ProtocolDefault: each,
		ServiceDefault:  each,
		Protocol:        map[protocol.ID]rcmgr.ResourceLimits{identify.ID: ident, identify.IDPush: ident},
		Service:         map[string]rcmgr.ResourceLimits{identify.ServiceName: ident},
	}
	return rcmgr.NewFixedLimiter(p.Build(scale.AutoScale()))
}

// newResources returns a resource manager whose limits are high enough for a cluster: the counts, the count per subnet,
// and the rate of new connections. The gate has its own bounds for strangers.
func newResources() (network.ResourceManager, error) {
	subnet4 := []rcmgr.ConnLimitPerSubnet{{PrefixLength: 32, ConnCount: maxPerSubnet}}
	subnet6 := []rcmgr.ConnLimitPerSubnet{{PrefixLength: 56, ConnCount: maxPerSubnet}}
	rm, err := rcmgr.NewResourceManager(limits(), rcmgr.WithLimitPerSubnet(subnet4, subnet6), rcmgr.WithConnRateLimiters(&rate.Limiter{}))
	if err != nil {
		return nil, fmt.Errorf("p2p: resource manager: %w", err)
	}
	return rm, nil
}

// options returns the options of the libp2p host. libp2p adds the gates to gs while it builds the transports.
func options(cfg Config, key crypto.PrivKey, gs *gates, a *admission) ([]libp2p.Option, error) {
	rm, err := newResources()
	if err != nil {
		return nil, err
	}
	cm, err := libp2pconnmgr.NewConnManager(lowWater, highWater, libp2pconnmgr.WithGracePeriod(graceNew))
	if err != nil {
		return nil, fmt.Errorf("p2p: connection manager: %w", err)
	}
	mux := *yamux.DefaultTransport
	mux.KeepAliveInterval, mux.ConnectionWriteTimeout = yamuxAlive, yamuxAlive
	return append([]libp2p.Option{
		libp2p.Identity(key),
		libp2p.NoListenAddrs, // Enter listens, once the cluster and so its members are known
		libp2p.Transport(gs.tcp),
		libp2p.Transport(gs.quic),
		libp2p.QUICReuse(func(srk quicgo.StatelessResetKey, token quicgo.TokenGeneratorKey, rm network.ResourceManager) (*quicreuse.ConnManager, error) {
			return gs.sockets(srk, token, rm, cfg.Sockets)
		}),
		// Noise comes first: its records have up to 64 KiB, those of TLS 16 KiB. The AES of TLS is faster than ChaCha20 on most
		// CPUs; which of the two wins was not measured.
		libp2p.Security(noise.ID, noise.New),
		libp2p.Security(libp2ptls.ID, libp2ptls.New),
		libp2p.Muxer(yamux.ID, &mux),
		libp2p.ResourceManager(rm),
		libp2p.ConnectionManager(cm),
		libp2p.ConnectionGater(newGater(a.revoked, a.visits)),
		libp2p.SwarmOpts(swarm.WithDialTimeoutLocal(dialTimeoutLocal), swarm.WithDialRanker(dialOrder)),
		// Off: while one peer is down, repeated dials to it would make libp2p believe that all UDP, or all IPv6, is
		// blocked.
		libp2p.UDPBlackHoleSuccessCounter(nil),
		libp2p.IPv6BlackHoleSuccessCounter(nil),
		libp2p.AddrsFactory(func(addrs []ma.Multiaddr) []ma.Multiaddr { return advertised(addrs, bridgeAddrs()) }),
		libp2p.UserAgent("muster/" + cfg.Version),
		libp2p.DisableRelay(),
		measured(cfg.Metrics),
	}, cfg.Options...), nil
}

// measured returns the option that says where the metrics of libp2p go. The default is the registry of the whole process.
func measured(by prometheus.Registerer) libp2p.Option {
	if by == nil {
		return libp2p.DisableMetrics()
	}
	return libp2p.PrometheusRegisterer(by)
}

// tcp and quic are constructors for libp2p, which passes their arguments by type. They return the transport wrapped in a
// gate.
func (g *gates) tcp(up transport.Upgrader, rm network.ResourceManager, share *tcpreuse.ConnMgr) (*gate, error) {
	t, err := tcp.NewTCPTransport(&strangerUpgrader{Upgrader: up, room: g.tcpStrangers, log: g.log}, rm, share)
	if err != nil {
		return nil, fmt.Errorf("p2p: tcp: %w", err)
	}
	return g.add(t, func() error { return nil }), nil
}

func (g *gates) quic(key crypto.PrivKey, cm *quicreuse.ConnManager, psk pnet.PSK, gater connmgr.ConnectionGater, rm network.ResourceManager) (*gate, error) {
	t, err := quic.NewTransport(key, cm, psk, gater, rm)
	if err != nil {
		return nil, fmt.Errorf("p2p: quic: %w", err)
	}
	return g.add(t, cm.Close), nil
}

func (g *gates) add(t transport.Transport, closing func() error) *gate {
	one := &gate{Transport: t, all: g, close: closing}
	g.list = append(g.list, one)
	return one
}
