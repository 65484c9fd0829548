package daemon

// The interfaces of package api for the cluster: its members, and the owners of groups.

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/p2p"
	"github.com/musterhq/muster/worker/loop"
)

// peersBackend gives the API access to the cluster.
type peersBackend struct {
	host     *p2p.Host
	name     string
	now      *live
	home     *owner // nil without the scheduler role
	departed *departed
}

const (
	lostAfter = time.Minute // a member that was not connected for this time is shown as lost
)

// Members lists the cluster as this daemon knows it.
func (b peersBackend) Members(ctx context.Context) ([]api.Member, error) {
	profiles := map[job.Peer]contract.Profile{}
	if home := b.home; home != nil {
		nodes, err := home.Nodes(ctx)
		if err != nil {
			return nil, apiErrorOf(err)
		}
		for _, w := range nodes {
			profiles[w.Profile.Peer] = w.Profile
		}
	}
	members := []api.Member{{
		Peer: b.host.Peer(), Name: b.name, State: api.NodeReady, Self: true, Roles: b.host.Credential().Roles.Names(),
		Addrs: b.host.Addrs(), LastSeen: time.Now(), Signed: b.host.Credential().Labels, Profile: b.now.profile(),
	}}
	for _, m := range b.host.Members() {
		state, detail := b.state(m)
		members = append(members, api.Member{
			Peer: m.Peer, Name: m.Name, State: state, Roles: m.Roles.Names(), Addrs: m.Addrs, LastSeen: m.LastSeen, Detail: detail, Signed: b.host.Grants.Labels(m.Peer), Profile: profiles[m.Peer],
		})
	}
	return members, nil
}

// state returns the state of another member, and the reason for the state.
func (b peersBackend) state(m p2p.Member) (api.NodeState, string) {
	at, left := b.departed.when(m.Peer)
	switch {
	case left:
		return api.NodeLost, "its daemon was stopped at " + at.UTC().Format(time.RFC3339) + "; its tasks run on"
	case m.Connected:
		return api.NodeReady, ""
	case time.Since(m.LastSeen) < lostAfter:
		return api.NodeSuspect, ""
	}
	return api.NodeLost, ""
}

// states counts the members by state, including this daemon.
func (b peersBackend) states() map[string]int {
	n := map[string]int{string(api.NodeReady): 1, string(api.NodeSuspect): 0, string(api.NodeLost): 0}
	for _, m := range b.host.Members() {
		state, _ := b.state(m)
		n[string(state)]++
	}
	return n
}

// Invite makes a token with which hosts can join.
func (b peersBackend) Invite(_ context.Context, ttl time.Duration, uses int, roles []string, labels map[string]string) (api.Invitation, error) {
	parsed, err := p2p.ParseRoles(roles)
	if err != nil {
		return api.Invitation{}, fmt.Errorf("%w: %w", api.ErrBad, err)
	}
	inv, err := b.host.Invite(ttl, uses, parsed, labels)
	if err != nil {
		return api.Invitation{}, apiErrorOf(err)
	}
	return api.Invitation{
		ID: inv.ID, Bootstrap: inv.Bootstrap, Token: inv.Token, Cluster: inv.Cluster, ExpiresAt: inv.ExpiresAt.UTC(), Uses: uses, Roles: parsed.Names(), Labels: labels,
	}, nil
}

// NameOf returns the name of this daemon or of another.
func (b peersBackend) NameOf(p job.Peer) string {
	if p == b.host.Peer() {
		return b.name
	}
	m, _ := b.host.Member(p)
	return m.Name
}

// RolesOf returns the roles of another daemon.
func (b peersBackend) RolesOf(p job.Peer) []string {
	id, err := peer.Decode(string(p))
	if err != nil {
		return nil
	}
	return b.host.Grants.Of(id).Names()
}

// Join makes this daemon a member of another cluster. Run then returns ErrRejoin.
func (b peersBackend) Join(ctx context.Context, bootstrap []string, token string) (string, error) {
	if err := b.host.Join(ctx, bootstrap, token); err != nil {
		return "", apiErrorOf(err)
	}
	return b.host.Cluster(), nil
}

// Revoke revokes a member, and with withInvited also the members that it let in.
func (b peersBackend) Revoke(_ context.Context, p job.Peer, reason string, withInvited bool) error {
	return apiErrorOf(b.host.Revoke(p, p2p.Revoking{Reason: reason, WithInvited: withInvited}))
}

// Restore takes back the revocation of a member.
func (b peersBackend) Restore(_ context.Context, p job.Peer) error {
	return apiErrorOf(b.host.Revoke(p, p2p.Revoking{Undo: true}))
}

// Revoked lists the peers that were revoked.
func (b peersBackend) Revoked(context.Context) []api.RevokedMember {
	var list []api.RevokedMember
	for _, p := range b.host.Revoked.List() {
		list = append(list, api.RevokedMember{Peer: p.Peer, Name: p.Name, PeerRevocation: api.PeerRevocation{
			At: p.At.UTC(), By: p.By, ByName: p.ByName, Reason: p.Reason, WithInvited: p.WithInvited, Here: p.Mine,
		}})
	}
	return list
}

// directoryBackend gives the API access to the directory.
type directoryBackend struct {
	*directory
	work *loop.Loop // nil without the worker role
}

// Owner returns the daemon that owns a group's jobs; self is true if it is this one.
func (b directoryBackend) Owner(ctx context.Context, g job.Group) (job.Peer, bool, error) {
	p, self, err := b.directory.Owner(ctx, g)
	return p, self, apiErrorOf(err)
}

// Copies returns the number of daemons that keep the journal of a group. In this version it is only the owner.
func (b directoryBackend) Copies(job.Group) int { return 1 }

// Foundings returns the proofs that this daemon has founded the groups of its jobs. The group of the previous version comes
// first.
func (b directoryBackend) Foundings() (proofs []job.Founding) {
	for _, h := range b.own {
		proofs = append(proofs, h.Founding)
	}
	return proofs
}

// Believes reports whether a daemon owns a group: it is known to own it, or one of the proofs shows it.
func (b directoryBackend) Believes(p job.Peer, g job.Group, proofs []job.Founding) bool {
	return b.ownerOf(g) == p || slices.ContainsFunc(proofs, func(f job.Founding) bool { return b.learn(g, p, f) })
}

// ForgetClaim forgets the epoch of a group in the ledger.
func (b directoryBackend) ForgetClaim(ctx context.Context, g job.Group) (job.Peer, error) {
	if b.work == nil {
		return "", nil
	}
	owner, err := b.work.ForgetClaim(ctx, g)
	return owner, apiErrorOf(err)
}
