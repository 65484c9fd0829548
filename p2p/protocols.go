package p2p

// The table of all protocols that a daemon serves, and the guard that enforces its rows.

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/protocol"
)

// The IDs of muster's own protocols.
const (
	HelloID   protocol.ID = "/muster/hello/1"
	JoinID    protocol.ID = "/muster/join/1"
	RevokedID protocol.ID = "/muster/revoked/2"
	// RevokedFirstID is the protocol of daemons of the previous version: it carries only revocations of form 0.
	RevokedFirstID protocol.ID = "/muster/revoked/1"
	TwinID         protocol.ID = "/muster/twin/1"
	SessionID      protocol.ID = "/muster/session/1"
	HTTPID         protocol.ID = "/muster/http/1"
)

// Access says who may open a stream of a protocol.
type Access string

// The accesses.
const (
	Anyone  Access = "anyone"
	Members Access = "members"
)

// Protocol is a row of the table.
type Protocol struct {
	ID     protocol.ID // <cluster> stands for the cluster ID
	Access Access
	Roles  Roles // the caller must have at least one of them; 0: any member may call
	// MaxMessage bounds the bytes of one message and so the memory that a caller can make us allocate.
	MaxMessage int
	// PerSecond and Burst limit the streams that one peer may open.
	PerSecond float64
	Burst     int
	// Deadline bounds the time of a whole stream. 0: the stream lives as long as its connection, and its handler
	// bounds each wait.
	Deadline time.Duration
	// Library marks protocols that libp2p serves. Only the gate guards them, and the library sets their bounds.
	Library bool
	What    string
}

// helloTimeout is how long a connection may exist without being admitted.
const helloTimeout = 5 * time.Second

// protocols is the whole attack surface. Protocols with access Anyone are served before admission, one stream at a
// time, for at most helloTimeout per connection.
var protocols = []Protocol{
	{ID: HelloID, Access: Anyone, MaxMessage: 4 << 10, PerSecond: 1, Burst: 10, Deadline: helloTimeout, What: "show credentials"},
	{ID: JoinID, Access: Anyone, MaxMessage: 12 << 10, PerSecond: 0.2, Burst: 5, Deadline: helloTimeout, What: "a token or a credential for a newer credential"},
	{ID: RevokedID, Access: Members, MaxMessage: 256 << 10, PerSecond: 1, Burst: 20, Deadline: 30 * time.Second, What: "revocations, and those that were taken back"},
	{ID: RevokedFirstID, Access: Members, MaxMessage: 256 << 10, PerSecond: 1, Burst: 20, Deadline: 30 * time.Second, What: "revocations, as of the version before"},
	{ID: TwinID, Access: Members, MaxMessage: 8 << 10, PerSecond: 1, Burst: 20, Deadline: 2 * time.Second, What: "whether two daemons have one key: proofs that they run"},
	{ID: SessionID, Access: Members, Roles: RoleWorker | RoleScheduler, MaxMessage: 1<<21 - 1, PerSecond: 2, Burst: 20, What: "scheduler and worker: offers, commits, events, leases; package session says which message needs which role"},
	{ID: HTTPID, Access: Members, MaxMessage: 1 << 20, PerSecond: 50, Burst: 200, What: "the HTTP API between daemons; the table of routes in package api says which needs which role"},
	{ID: "/muster/<cluster>/kad/1.0.0", Access: Members, MaxMessage: 4 << 20, Library: true, What: "the DHT"},
	{ID: "/meshsub/1.1.0 and kin", Access: Members, MaxMessage: 64 << 10, Library: true, What: "gossip of schedulers with waiting work; package gossip ignores other authors"},
	{ID: "/ipfs/id/1.0.0", Access: Members, MaxMessage: 8 << 10, Library: true, What: "identify: addresses and protocols"},
	{ID: "/ipfs/id/push/1.0.0", Access: Members, MaxMessage: 8 << 10, Library: true, What: "identify, on change"},
	{ID: "/ipfs/ping/1.0.0", Access: Members, MaxMessage: 32, Library: true, What: "round-trip time"},
}

// ErrNoProtocol means that the table has no row for the protocol. Add one.
var ErrNoProtocol = errors.New("no row in the table of protocols")

// errRoles means that the roles of a member do not allow a protocol.
var errRoles = errors.New("its roles do not allow this protocol")

// row returns the row of one of our own protocols.
func row(id protocol.ID) (Protocol, error) {
	i := slices.IndexFunc(protocols, func(p Protocol) bool { return p.ID == id && !p.Library })
	if i < 0 {
		return Protocol{}, fmt.Errorf("p2p: protocol %s: %w", id, ErrNoProtocol)
	}
	return protocols[i], nil
}

// allows reports whether a member with these roles may open a stream.
func (p Protocol) allows(has Roles) bool { return p.Roles == 0 || p.Roles&has != 0 }

// limitOf returns the size of the largest message of one of our own protocols.
func limitOf(id protocol.ID) int {
	p, err := row(id)
	if err != nil {
		return 0
	}
	return p.MaxMessage
}

// Handle serves a protocol of the table to the callers that its row allows. The function serve owns the stream and closes
// it. If serve panics, the stream is reset.
func (h *Host) Handle(id protocol.ID, serve func(network.Stream)) error {
	p, err := row(id)
	if err != nil {
		return err
	}
	h.host.SetStreamHandler(id, func(s network.Stream) { h.guard.serve(p, s, serve) })
	return nil
}

// guard enforces the row of its protocol on each stream.
type guard struct {
	roster *roster
	visits visits
	log    *slog.Logger
}

// serve runs the handler of a stream, or resets the stream if its row forbids it.
func (g guard) serve(p Protocol, s network.Stream, handle func(network.Stream)) {
	id, now := s.Conn().RemotePeer(), time.Now()
	defer func() {
		if r := recover(); r != nil {
			g.log.Error("a protocol handler panicked", "protocol", p.ID, "peer", id, "panic", r, "stack", string(debug.Stack()))
			_ = s.Reset()
		}
	}()
	member, ok := g.roster.get(id)
	if !ok || !now.Before(member.cred.NotAfter) || !p.allows(member.cred.Roles) {
		g.log.Debug("stream refused", "protocol", p.ID, "peer", id, "member", ok)
		if ok {
			g.visits.tell(Opening, id, s.Conn().RemoteMultiaddr(), Visit{Object: string(p.ID), Roles: member.cred.Roles, Err: errRoles})
		}
		_ = s.Reset()
		return
	}
	if !g.roster.allow(id, p, now) {
		g.log.Debug("stream refused: too many", "protocol", p.ID, "peer", id)
		_ = s.Reset()
		return
	}
	if p.Deadline > 0 {
		if err := s.SetDeadline(now.Add(p.Deadline)); err != nil {
			_ = s.Reset()
			return
		}
		if err := s.Scope().ReserveMemory(p.MaxMessage, network.ReservationPriorityMedium); err != nil {
			g.log.Debug("stream refused: no memory", "protocol", p.ID, "peer", id, "error", err)
			_ = s.Reset()
			return
		}
		defer s.Scope().ReleaseMemory(p.MaxMessage)
	}
	handle(s)
}
