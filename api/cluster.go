package api

// The routes of the cluster's membership and of this daemon.

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/job"
)

type (
	peersOutput  struct{ Body Listing[Peer] }
	inviteInput  struct{ Body InviteRequest }
	inviteOutput struct{ Body Invitation }
	joinInput    struct{ Body JoinRequest }
	joinOutput   struct{ Body Joined }
	daemonInput  struct {
		Facts bool `query:"facts" doc:"Also examine the host, which takes some seconds."`
	}
	daemonOutput struct{ Body Daemon }
	healthOutput struct{ Body Health }
	peerOutput   struct{ Body Peer }
	revokeInput  struct {
		ID   string         `path:"id" maxLength:"64"`
		Body *revokeRequest `required:"false"`
	}
	restoreInput struct {
		ID string `path:"id" maxLength:"64"`
	}
)

const defaultTTL = time.Hour // lifetime of an invitation

func peerDocument(m Member) Peer {
	return Peer{
		Schema: SchemaPeer, ID: m.Peer, Name: m.label(), State: m.State, Self: m.Self, Roles: append([]string{}, m.Roles...),
		Addrs: append([]string{}, m.Addrs...), LastSeenAt: at(m.LastSeen),
	}
}

// memberRoutes serves the membership of the cluster.
type memberRoutes struct{ *daemons }

func (r *memberRoutes) list(ctx context.Context, _ *struct{}) (*peersOutput, error) {
	members, err := r.peers.Members(ctx)
	if err != nil {
		return nil, err
	}
	l := Listing[Peer]{Schema: SchemaPeers, Items: make([]Peer, 0, len(members)), Partial: []string{}}
	for _, m := range members {
		l.Items = append(l.Items, peerDocument(m))
	}
	slices.SortFunc(l.Items, func(a, b Peer) int {
		if c := strings.Compare(a.Name, b.Name); c != 0 {
			return c
		}
		return strings.Compare(string(a.ID), string(b.ID))
	})
	for _, m := range r.peers.Revoked(ctx) {
		l.Items = append(l.Items, Peer{
			Schema: SchemaPeer, ID: m.Peer, Name: m.Name, State: PeerRevoked, Roles: []string{}, Addrs: []string{}, Revoked: &m.PeerRevocation,
		})
	}
	return &peersOutput{l}, nil
}

// operator returns an error unless the requester is an operator.
func operator(ctx context.Context, what string) error {
	if a := requesterOf(ctx); !a.operator {
		return fmt.Errorf("%s: %w for user %s: only root, the daemon's own user and its operators may", what, ErrDenied, a.user)
	}
	return nil
}

func (r *memberRoutes) revoke(ctx context.Context, in *revokeInput) (*peerOutput, error) {
	if err := operator(ctx, "revoke "+quote(in.ID)); err != nil {
		return nil, err
	}
	m, err := r.find(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	n := requesterOf(ctx).note
	n.about(string(m.Peer))
	n.with("name", m.Name)
	if m.Self {
		return nil, fmt.Errorf("revoke %s: %w: a daemon cannot revoke itself; use another daemon", m.label(), ErrConflict)
	}
	var how revokeRequest
	if in.Body != nil {
		how = *in.Body
	}
	n.with("reason", how.Reason)
	if how.WithInvited {
		n.with("with_invited", "true")
	}
	if err := r.peers.Revoke(ctx, m.Peer, how.Reason, how.WithInvited); err != nil {
		return nil, err
	}
	return &peerOutput{peerDocument(m)}, nil
}

// restore undoes the revocation of a peer. The request must give the whole ID, because a revoked peer is not found by name.
func (r *memberRoutes) restore(ctx context.Context, in *restoreInput) (*struct{}, error) {
	if err := operator(ctx, "restore "+quote(in.ID)); err != nil {
		return nil, err
	}
	return nil, r.peers.Restore(ctx, job.Peer(in.ID))
}

func (r *memberRoutes) invite(ctx context.Context, in *inviteInput) (*inviteOutput, error) {
	if err := operator(ctx, "invite"); err != nil {
		return nil, err
	}
	ttl := time.Duration(in.Body.TTL * float64(time.Second))
	if ttl == 0 {
		ttl = defaultTTL
	}
	uses := max(in.Body.Uses, 1)
	n := requesterOf(ctx).note
	n.with("ttl", ttl.String())
	n.with("uses", strconv.Itoa(uses))
	n.with("roles", strings.Join(in.Body.Roles, ","))
	n.with("labels", audit.Labels(in.Body.Labels))
	i, err := r.peers.Invite(ctx, ttl, uses, in.Body.Roles, in.Body.Labels)
	if err != nil {
		return nil, err
	}
	n.about(i.ID)
	n.with("roles", strings.Join(i.Roles, ","))
	i.Schema, i.ExpiresAt = SchemaInvitation, i.ExpiresAt.UTC()
	i.Bootstrap, i.Roles = append([]string{}, i.Bootstrap...), append([]string{}, i.Roles...)
	return &inviteOutput{i}, nil
}

func (r *memberRoutes) join(ctx context.Context, in *joinInput) (*joinOutput, error) {
	if err := operator(ctx, "join"); err != nil {
		return nil, err
	}
	n := requesterOf(ctx).note
	n.with("bootstrap", strings.Join(in.Body.Bootstrap, " "))
	cluster, err := r.peers.Join(ctx, in.Body.Bootstrap, in.Body.Token)
	if err != nil {
		return nil, err
	}
	n.about(cluster)
	return &joinOutput{Joined{Schema: SchemaJoined, Cluster: cluster}}, nil
}

// daemonRoutes serves information about this daemon.
type daemonRoutes struct{ self Self }

func (r *daemonRoutes) get(ctx context.Context, in *daemonInput) (*daemonOutput, error) {
	d, err := r.self.Daemon(ctx)
	if err != nil {
		return nil, err
	}
	d.Schema, d.StartedAt = SchemaDaemon, d.StartedAt.UTC()
	d.Addrs, d.Config = append([]string{}, d.Addrs...), append([]Setting{}, d.Config...)
	if in.Facts {
		if d.Facts, err = r.self.Facts(ctx); err != nil {
			return nil, err
		}
	}
	return &daemonOutput{d}, nil
}

func (r *daemonRoutes) health(context.Context, *struct{}) (*healthOutput, error) {
	return &healthOutput{Health{SchemaHealth, true}}, nil
}

func (r *daemonRoutes) ready(ctx context.Context, _ *struct{}) (*healthOutput, error) {
	if err := r.self.Ready(ctx); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return &healthOutput{Health{SchemaHealth, true}}, nil
}
