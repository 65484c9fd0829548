package p2p

// Hello: both sides of a connection show a credential. The dialled side admits the dialer, or says why not.

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	"github.com/libp2p/go-libp2p/core/transport"
	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"
	msmux "github.com/multiformats/go-multistream"
	"google.golang.org/protobuf/proto"

	"github.com/musterhq/muster/p2p/wirepb"
)

// MaxName bounds a daemon's name, in characters.
const MaxName = 64

// errHello is a malformed hello: the peer is broken or is not a daemon.
var errHello = errors.New("malformed hello")

// admission decides which peers are admitted, and says hello for this daemon.
type admission struct {
	own         *ownMembership
	roster      *roster
	revoked     *revocations
	book        *book
	refusalLogs *buckets // bounds the log lines about refused peers
	visits      visits
	behind      chan peer.ID // members whose list of revocations differs from ours
	log         *slog.Logger
}

const (
	// behindQueue bounds the members that wait for our revocations. If the queue is full, a member's next hello compares
	// again.
	behindQueue     = 256
	refusalLogEvery = time.Minute
	refusalLogBurst = 5
)

func newAdmission(own *ownMembership, r *roster, out *revocations, b *book, log *slog.Logger) *admission {
	return &admission{
		own: own, roster: r, revoked: out, book: b, refusalLogs: newBuckets(refusalLogEvery, refusalLogBurst),
		behind: make(chan peer.ID, behindQueue), log: log,
	}
}

// check returns an error if a peer with this credential must not be served.
func (a *admission) check(p peer.ID, w *wirepb.Credential, now time.Time) (*Credential, error) {
	m := a.own.load()
	if m == nil {
		return nil, ErrNotReady
	}
	// The cluster is checked before the signatures, so that a chain from another cluster costs only one hash.
	if len(w.GetClusterKey()) == ed25519.PublicKeySize && clusterOf(w.GetClusterKey()) != m.cluster {
		return nil, ErrWrongCluster
	}
	c, err := credentialFromWire(w)
	switch {
	case err != nil:
		return nil, err
	case c.id != p:
		return nil, fmt.Errorf("%w: it is of %s", ErrBadCredential, c.id)
	case !now.Before(c.NotAfter):
		return nil, ErrExpired
	case a.revoked.has(p):
		return nil, ErrRevoked
	}
	switch a.revoked.verdict(c) {
	case valid:
	case out:
		return nil, ErrRevoked
	case tainted:
		// An issuer is revoked. Members that were admitted before stay, and get a credential from another inviter.
		if !a.book.knows(p) {
			return nil, fmt.Errorf("a peer that signed its credential: %w", ErrRevoked)
		}
	}
	return c, nil
}

func (a *admission) hello() *wirepb.Hello {
	return &wirepb.Hello{Credential: a.own.load().own.toWire(), Name: a.own.name, Revoked: a.revoked.digest()}
}

// checkHello bounds the other fields of a hello.
func checkHello(name string, digest []byte) error {
	if len(name) > MaxName || !utf8.ValidString(name) || len(digest) != sha256.Size {
		return errHello
	}
	for _, r := range name {
		if !unicode.IsPrint(r) {
			return errHello
		}
	}
	return nil
}

// greet says hello on a new connection, before any other code sees the connection.
func (a *admission) greet(ctx context.Context, c transport.CapableConn, p peer.ID) error {
	s, err := c.OpenStream(ctx)
	if err != nil {
		return fmt.Errorf("open a stream: %w", err)
	}
	return a.sayHello(ctx, s, p)
}

// ask sends one message on a new stream and reads the one answer.
func ask(ctx context.Context, s network.MuxedStream, id protocol.ID, say, answer proto.Message) error {
	stop := context.AfterFunc(ctx, func() { _ = s.Reset() })
	defer stop()
	err := s.SetDeadline(time.Now().Add(helloTimeout))
	if err == nil {
		lazy := msmux.NewMSSelect(s, id) // sends the protocol and the message together
		if err = writeMsg(lazy, say); err == nil {
			err = readMsg(lazy, answer, limitOf(id))
		}
	}
	if err != nil {
		_ = s.Reset()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("%s: %w", id, err)
	}
	s.Close()
	return nil
}

func (a *admission) sayHello(ctx context.Context, s network.MuxedStream, p peer.ID) error {
	var r wirepb.HelloReply
	if err := ask(ctx, s, HelloID, a.hello(), &r); err != nil {
		return err
	}
	if err := code(r.GetCode()).toError(); err != nil {
		return err
	}
	cred, err := a.check(p, r.GetCredential(), time.Now())
	if err == nil {
		err = checkHello(r.GetName(), r.GetRevoked())
	}
	if err != nil {
		return fmt.Errorf("its credential: %w", err)
	}
	a.admit(cred, r.GetName(), r.GetRevoked())
	return nil
}

// answerHello admits a peer or tells it why not. It calls admit before it tells the peer that it is admitted. On an error
// the stream must be reset.
func (a *admission) answerHello(p peer.ID, from ma.Multiaddr, s io.ReadWriter, admit func()) (bool, error) {
	var m wirepb.Hello
	err := readMsg(s, &m, limitOf(HelloID))
	if err == nil {
		err = checkHello(m.GetName(), m.GetRevoked())
	}
	if err != nil {
		a.visits.tell(Entering, p, from, Visit{Err: errHello})
		return false, err
	}
	cred, err := a.check(p, m.GetCredential(), time.Now())
	if err != nil {
		a.visits.tell(Entering, p, from, Visit{Name: m.GetName(), Err: err})
		if a.refusalLogs.allow(ipOf(from), time.Now()) {
			a.log.Warn("peer refused", "peer", p, "addr", from, "name", m.GetName(), "error", err)
		}
		return false, writeMsg(s, &wirepb.HelloReply{Code: uint32(codeOf(err))})
	}
	admit()
	mine := a.hello()
	if err := writeMsg(s, &wirepb.HelloReply{Credential: mine.Credential, Name: mine.Name, Revoked: mine.Revoked}); err != nil {
		return false, err
	}
	a.admit(cred, m.GetName(), m.GetRevoked())
	return true, nil
}

// admit adds a peer to the roster; from then on it is served.
func (a *admission) admit(c *Credential, name string, digest []byte) {
	now := time.Now()
	a.book.admitted(c, name, now)
	a.roster.admit(c, name, digest, now)
	if g, ok := a.roster.get(c.id); ok && g.connected {
		a.compare(g) // a hello on an open connection
	}
}

// compare queues our revocations for a member whose list differs from ours.
func (a *admission) compare(g peerInfo) {
	if bytes.Equal(g.digest, a.revoked.digest()) {
		return
	}
	select {
	case a.behind <- g.id:
	default: // the queue is full; the next hello compares again
	}
}

// serveHello serves hello on a connection that is already open.
func (a *admission) serveHello(s network.Stream) {
	if _, err := a.answerHello(s.Conn().RemotePeer(), s.Conn().RemoteMultiaddr(), s, func() {}); err != nil {
		_ = s.Reset()
		return
	}
	s.Close()
}

// ipOf returns the IP address as the key of a rate limit.
func ipOf(a ma.Multiaddr) string {
	ip, err := manet.ToIP(a)
	if err != nil {
		return ""
	}
	return ip.String()
}
