package p2p

// Spreading revocations: each daemon passes on what is new to it, and updates members that lack some.

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-msgio/pbio"
	msmux "github.com/multiformats/go-multistream"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/p2p/wirepb"
)

// spreader acts on revocations and passes them on.
type spreader struct {
	own     *ownMembership
	revoked *revocations
	book    *book
	members connected
	behind  <-chan peer.ID // members whose list of revocations differs from ours
	news    chan struct{}  // holds a token while there are revocations to pass on
	renew   func()         // requests a credential from another issuer
	log     *slog.Logger
}

// revoke signs, stores and spreads a revocation; see Host.Revoke.
func (r *spreader) revoke(p job.Peer, reason string) error {
	id, err := peer.Decode(string(p))
	if err != nil {
		return fmt.Errorf("p2p: revoke %.80q: %w", p, err)
	}
	if id == r.own.identity.id {
		return fmt.Errorf("p2p: revoke %s: a daemon cannot revoke itself", id)
	}
	m := r.own.load()
	if m == nil {
		return fmt.Errorf("p2p: revoke %s: %w", id, ErrNotReady)
	}
	auth, err := m.authority(r.own.identity)
	if err != nil {
		return fmt.Errorf("p2p: revoke %s: %w", id, err)
	}
	rev, err := auth.revoke(id, reason, time.Now())
	if err != nil {
		return fmt.Errorf("p2p: revoke %s: %w", id, err)
	}
	if err := r.revoked.add(rev); err != nil {
		return fmt.Errorf("p2p: revoke %s: %w", id, err)
	}
	if !r.revoked.has(id) {
		return fmt.Errorf("p2p: revoke %s: the list of %d is full", id, maxRevoked)
	}
	r.enforce([]revocation{rev})
	return nil
}

// enforce acts on revocations that are new here.
func (r *spreader) enforce(fresh []revocation) {
	for _, out := range fresh {
		r.log.Warn("peer revoked", "peer", out.peer, "reason", out.reason, "at", out.at)
		if out.peer == r.own.identity.id {
			r.log.Error("this daemon was revoked: the cluster will not talk to it any more", "reason", out.reason)
		}
		r.book.forget(out.peer)
		r.members.disconnect(out.peer)
	}
	if len(fresh) == 0 {
		return
	}
	if r.revoked.tainted(r.own.load().own) {
		r.renew()
	}
	select {
	case r.news <- struct{}{}:
	default:
	}
}

// run passes revocations on until ctx ends.
func (r *spreader) run(ctx context.Context) {
	_, passed := r.revoked.entries(0)
	for {
		select {
		case <-ctx.Done():
			return
		case id := <-r.behind:
			all, _ := r.revoked.entries(0)
			ctx, cancel := context.WithTimeout(ctx, tellTimeout)
			if err := r.push(ctx, id, all); err != nil {
				r.log.DebugContext(ctx, "revocations not sent", "peer", id, "error", err)
			}
			cancel()
		case <-r.news:
			var fresh []*wirepb.Revocation
			fresh, passed = r.revoked.entries(passed)
			r.members.tellAll(ctx, func(ctx context.Context, p peer.ID) error { return r.push(ctx, p, fresh) })
		}
	}
}

// push sends revocations to a connected member.
func (r *spreader) push(ctx context.Context, p peer.ID, entries []*wirepb.Revocation) error {
	if len(entries) == 0 {
		return nil
	}
	s, err := r.members.open(ctx, p)
	if err != nil {
		return fmt.Errorf("p2p: revocations to %s: %w", p, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = s.Reset() })
	defer stop()
	if err := r.pushOver(s, entries); err != nil {
		_ = s.Reset()
		return fmt.Errorf("p2p: revocations to %s: %w", p, err)
	}
	return nil
}

func (r *spreader) pushOver(s network.Stream, entries []*wirepb.Revocation) error {
	if err := s.SetProtocol(RevokedID); err != nil {
		return err
	}
	lazy := msmux.NewMSSelect(s, RevokedID)
	for len(entries) > 0 {
		n := min(len(entries), revokedBatch)
		if err := writeMsg(lazy, &wirepb.RevocationList{Entries: entries[:n]}); err != nil {
			return err
		}
		entries = entries[n:]
	}
	if err := s.CloseWrite(); err != nil {
		return err
	}
	// The other side closes the stream when it has accepted all.
	if _, err := lazy.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		return fmt.Errorf("not accepted: %w", err)
	}
	s.Close()
	return nil
}

// serveRevoked receives revocations from a member.
func (r *spreader) serveRevoked(s network.Stream) {
	reader := pbio.NewDelimitedReader(bufio.NewReader(s), limitOf(RevokedID))
	for range maxRevoked/revokedBatch + 1 {
		var m wirepb.RevocationList
		err := reader.ReadMsg(&m)
		if errors.Is(err, io.EOF) {
			s.Close()
			return
		}
		if err == nil && len(m.GetEntries()) > revokedBatch {
			err = fmt.Errorf("%d entries in one message", len(m.GetEntries()))
		}
		var fresh []revocation
		if err == nil {
			fresh, err = r.revoked.merge(m.GetEntries())
		}
		if err != nil {
			r.log.Warn("revocations refused", "peer", s.Conn().RemotePeer(), "error", err)
			break
		}
		r.enforce(fresh)
	}
	_ = s.Reset()
}
