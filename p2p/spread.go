package p2p

// Spreading revocations: each daemon passes on what is new to it, and catches up those that are behind.

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-msgio/pbio"
	msmux "github.com/multiformats/go-multistream"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/p2p/wirepb"
)

// Revoke takes a peer out of the cluster for good: it is refused by every
// daemon that hears of it, and what it signs from now on counts for nothing.
// Nobody can revoke itself or a peer that its own credential hangs on.
func (h *Host) Revoke(p job.Peer, reason string) error {
	id, err := peer.Decode(string(p))
	if err != nil {
		return fmt.Errorf("p2p: revoke %.80q: %w", p, err)
	}
	if id == h.me.id {
		return fmt.Errorf("p2p: revoke %s: a daemon cannot revoke itself", id)
	}
	m := h.member.Load()
	if m == nil {
		return fmt.Errorf("p2p: revoke %s: %w", id, ErrNotReady)
	}
	auth, err := m.authority(h.me)
	if err != nil {
		return fmt.Errorf("p2p: revoke %s: %w", id, err)
	}
	rev, err := auth.revoke(id, reason, time.Now())
	if err != nil {
		return fmt.Errorf("p2p: revoke %s: %w", id, err)
	}
	if err := h.revoked.add(rev); err != nil {
		return fmt.Errorf("p2p: revoke %s: %w", id, err)
	}
	if !h.revoked.has(id) {
		return fmt.Errorf("p2p: revoke %s: the list of %d is full", id, maxRevoked)
	}
	h.putOut([]revocation{rev})
	return nil
}

// putOut acts on revocations that are new here.
func (h *Host) putOut(fresh []revocation) {
	for _, r := range fresh {
		h.log.Warn("peer revoked", "peer", r.peer, "reason", r.reason, "at", r.at)
		if r.peer == h.me.id {
			h.log.Error("this daemon was revoked: the cluster will not talk to it any more", "reason", r.reason)
		}
		h.book.forget(r.peer)
		_ = h.host.Network().ClosePeer(r.peer)
	}
	if len(fresh) == 0 {
		return
	}
	if h.revoked.tainted(h.member.Load().own) {
		select {
		case h.renewNow <- struct{}{}:
		default:
		}
	}
	select {
	case h.news <- struct{}{}:
	default:
	}
}

// spread passes revocations on until ctx ends.
func (h *Host) spread(ctx context.Context) {
	_, passed := h.revoked.entries(0)
	for {
		select {
		case <-ctx.Done():
			return
		case id := <-h.behind:
			all, _ := h.revoked.entries(0)
			ctx, cancel := context.WithTimeout(ctx, tellTimeout)
			if err := h.push(ctx, id, all); err != nil {
				h.log.DebugContext(ctx, "revocations not sent", "peer", id, "error", err)
			}
			cancel()
		case <-h.news:
			var fresh []*wirepb.Revocation
			fresh, passed = h.revoked.entries(passed)
			h.tellAll(ctx, func(ctx context.Context, p peer.ID) error { return h.push(ctx, p, fresh) })
		}
	}
}

// push sends revocations to a connected member.
func (h *Host) push(ctx context.Context, p peer.ID, entries []*wirepb.Revocation) error {
	if len(entries) == 0 {
		return nil
	}
	s, err := h.openTo(ctx, p)
	if err != nil {
		return fmt.Errorf("p2p: revocations to %s: %w", p, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = s.Reset() })
	defer stop()
	if err := h.pushOver(s, entries); err != nil {
		_ = s.Reset()
		return fmt.Errorf("p2p: revocations to %s: %w", p, err)
	}
	return nil
}

func (h *Host) pushOver(s network.Stream, entries []*wirepb.Revocation) error {
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
	// The other side closes when it has taken all.
	if _, err := lazy.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		return fmt.Errorf("not taken: %w", err)
	}
	s.Close()
	return nil
}

// serveRevoked takes revocations from a member.
func (h *Host) serveRevoked(s network.Stream) {
	r := pbio.NewDelimitedReader(bufio.NewReader(s), limitOf(RevokedID))
	for range maxRevoked/revokedBatch + 1 {
		var m wirepb.RevocationList
		err := r.ReadMsg(&m)
		if errors.Is(err, io.EOF) {
			s.Close()
			return
		}
		if err == nil && len(m.GetEntries()) > revokedBatch {
			err = fmt.Errorf("%d entries in one message", len(m.GetEntries()))
		}
		var fresh []revocation
		if err == nil {
			fresh, err = h.revoked.merge(m.GetEntries())
		}
		if err != nil {
			h.log.Warn("revocations refused", "peer", s.Conn().RemotePeer(), "error", err)
			break
		}
		h.putOut(fresh)
	}
	_ = s.Reset()
}
