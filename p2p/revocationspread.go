package p2p

// Spreading revocations: each daemon passes on the revocations that are new to it, and updates members that lack some.

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
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

// Revoking says how a peer is revoked.
type Revoking struct {
	Reason      string // for people
	WithInvited bool   // also revoke the peers that it let in
	Undo        bool   // take back this daemon's revocation; the holder of the cluster key takes back anybody's
}

// revoke revokes a peer or lets it back in; see Host.Revoke.
func (r *spreader) revoke(p job.Peer, how Revoking) error {
	what := "revoke"
	if how.Undo {
		what = "restore"
	}
	id, err := peer.Decode(string(p))
	if err != nil {
		return fmt.Errorf("p2p: %s %.80q: %w", what, p, err)
	}
	if id == r.own.identity.id {
		return fmt.Errorf("p2p: %s %s: a daemon cannot revoke itself", what, id)
	}
	if err := r.say(word{peer: id, reason: how.Reason, withInvited: how.WithInvited, back: how.Undo}); err != nil {
		return fmt.Errorf("p2p: %s %s: %w", what, id, err)
	}
	return nil
}

// say signs what this daemon says about a peer, stores it and spreads it.
func (r *spreader) say(say word) error {
	m := r.own.load()
	if m == nil {
		return ErrNotReady
	}
	auth := authority{key: r.own.identity.key, cluster: m.key, chain: m.own}
	signer := r.own.identity.id
	if m.secret != nil {
		auth, signer = authority{key: m.secret, cluster: m.key}, ""
	} else if err := r.may(say); err != nil {
		return err
	}
	before, said := r.revoked.said(signer, say.peer)
	switch {
	case say.back && signer != "" && (!said || before.back):
		return ErrNotRevoked
	case said:
		say.number = before.number + 1
	case say.back || signer != "":
		say.number = 1 // 0 is only for revocations that older daemons understand too
	}
	if signer != "" && say.number > maxNumber {
		return fmt.Errorf("%w: this daemon has changed its mind %d times; the host with the cluster key can decide", ErrNotYours, maxNumber)
	}
	rev, err := auth.revoke(say, time.Now())
	if err != nil {
		return err
	}
	kept, err := r.revoked.add(rev)
	if err != nil {
		return err
	}
	if !kept {
		return fmt.Errorf("%w: as many as this daemon may revoke are revoked; the host with the cluster key can revoke more", ErrNotYours)
	}
	r.enforce([]revocation{rev})
	return nil
}

// may returns an error if this daemon knows that it did not let the peer in. Others check that by the credential that the
// peer shows.
func (r *spreader) may(say word) error {
	var by []peer.ID
	if g, ok := r.members.roster.get(say.peer); ok {
		by = g.cred.lineage(0)
	} else if c, ok := r.book.get(say.peer); ok {
		by = c.by
	} else {
		return nil // the peer may later show a credential that says that we let it in
	}
	if say.back || mayRevoke(r.own.identity.id, by) {
		return nil
	}
	if len(by) == 0 {
		return fmt.Errorf("%w: the host with the cluster key let it in", ErrNotYours)
	}
	return fmt.Errorf("%w: %s let it in; revoke it there, or on the host with the cluster key", ErrNotYours, by[0])
}

// enforce acts on revocations that are new here.
func (r *spreader) enforce(fresh []revocation) {
	if len(fresh) == 0 {
		return
	}
	for _, out := range fresh {
		if out.back {
			r.log.Warn("peer let back in", "peer", out.peer, "by", signedBy(out), "at", out.at)
			continue
		}
		r.log.Warn("peer revoked", "peer", out.peer, "by", signedBy(out), "reason", out.reason, "with_invited", out.withInvited, "at", out.at)
	}
	own := r.own.load().own
	if r.revoked.has(own.id) || r.revoked.verdict(own) == out {
		r.log.Error("this daemon was revoked: the cluster will not talk to it any more")
	}
	for _, c := range r.revoked.forgetIn(r.book) {
		r.members.roster.revoked(c)
	}
	for _, g := range r.members.roster.present() {
		if r.revoked.has(g.id) || r.revoked.verdict(g.cred) == out {
			r.book.forget(g.id)
			r.members.disconnect(g.id)
		}
	}
	if r.revoked.tainted(own) {
		r.renew()
	}
	select {
	case r.news <- struct{}{}:
	default:
	}
}

// signedBy names the signer, for the log.
func signedBy(r revocation) string {
	if r.signer == "" {
		return "the cluster key"
	}
	return r.signer.String()
}

// run passes revocations on until ctx ends.
func (r *spreader) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case id := <-r.behind:
			ctx, cancel := context.WithTimeout(ctx, tellTimeout)
			if err := r.push(ctx, id, r.revoked.all()); err != nil {
				r.log.DebugContext(ctx, "revocations not sent", "peer", id, "error", err)
			}
			cancel()
		case <-r.news:
			if fresh := r.revoked.takeNews(); len(fresh) > 0 {
				r.members.tellAll(ctx, func(ctx context.Context, p peer.ID) error { return r.push(ctx, p, fresh) })
			}
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
	if err := pushOver(s, entries); err != nil {
		_ = s.Reset()
		return fmt.Errorf("p2p: revocations to %s: %w", p, err)
	}
	return nil
}

func pushOver(s network.Stream, entries []*wirepb.Revocation) error {
	id, err := msmux.SelectOneOf([]protocol.ID{RevokedID, RevokedFirstID}, s)
	if err != nil {
		return err
	}
	if err := s.SetProtocol(id); err != nil {
		return err
	}
	if id == RevokedFirstID { // send a daemon of the previous version only entries that it understands
		entries = slices.DeleteFunc(slices.Clone(entries), func(e *wirepb.Revocation) bool { return e.GetForm() != formFirst })
	}
	for len(entries) > 0 {
		n := min(len(entries), revokedBatch)
		if err := writeMsg(s, &wirepb.RevocationList{Entries: entries[:n]}); err != nil {
			return err
		}
		entries = entries[n:]
	}
	if err := s.CloseWrite(); err != nil {
		return err
	}
	// The other side closes the stream when it has accepted all entries.
	if _, err := s.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		return fmt.Errorf("not accepted: %w", err)
	}
	s.Close()
	return nil
}

// serveRevoked receives revocations from a member.
func (r *spreader) serveRevoked(s network.Stream) {
	reader := pbio.NewDelimitedReader(bufio.NewReader(s), limitOf(RevokedID))
	for range (maxByKey+maxByMembers)/revokedBatch + 1 {
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
