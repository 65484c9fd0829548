package p2p

// The invitations of this daemon and their remaining uses, on disk.

import (
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Bounds of invitations.
const (
	// MaxUses bounds the uses of one token: enough to add a row of racks at once.
	MaxUses = 1000
	// MaxInviteTTL bounds the lifetime of a token.
	MaxInviteTTL = 30 * 24 * time.Hour
	// maxInvites bounds the stored tokens, used or not, until they expire.
	maxInvites = 1024
	// keepInvites is how long an expired token is reported as expired instead of unknown.
	keepInvites = 24 * time.Hour
)

const (
	invitesFile   = "invites.json"
	invitesSchema = "muster.invites/v1"
)

// ErrTooManyInvites means that the list is full. Wait for some to expire.
var ErrTooManyInvites = errors.New("too many invitations are open")

// Invitation holds what another host needs to join.
type Invitation struct {
	ID        string    `json:"id"` // the name of the invitation; it is not secret
	Bootstrap []string  `json:"bootstrap"`
	Token     string    `json:"token"`
	Cluster   string    `json:"cluster"`
	ExpiresAt time.Time `json:"expires_at"`
}

// invite is one token as its issuer stores it: without the secret.
type invite struct {
	Hash  string `json:"hash"`
	Roles Roles  `json:"roles"`
	// Labels are the labels that are signed for the hosts that use the token.
	Labels  map[string]string `json:"labels,omitempty"`
	Left    int               `json:"left"`
	Expires time.Time         `json:"expires"`
	// Given lists the peers that used the token. A peer that lost our answer may ask again.
	Given []string `json:"given,omitempty"`
}

type invitesJSON struct {
	Schema  string   `json:"schema"`
	Cluster string   `json:"cluster"`
	Invites []invite `json:"invites"`
}

// invites is the list. A change is on disk before it takes effect.
type invites struct {
	disk disk

	mu      sync.Mutex
	cluster clusterID // guarded by mu
	list    []invite  // guarded by mu
}

// open loads the invitations of a cluster. It ignores invitations of a former cluster.
func (v *invites) open(cluster clusterID) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.cluster, v.list = cluster, nil
	var j invitesJSON
	ok, err := v.disk.readJSON(invitesFile, &j)
	if err != nil {
		return err
	}
	if ok && j.Cluster == cluster.String() {
		v.list = j.Invites
	}
	return nil
}

// saveLocked writes the list and then makes it current. The lock is held during the write on purpose, so that two
// requests for a token's last use come one after the other.
func (v *invites) saveLocked(next []invite) error {
	if err := v.disk.writeJSON(invitesFile, invitesJSON{Schema: invitesSchema, Cluster: v.cluster.String(), Invites: next}); err != nil {
		return err
	}
	v.list = next
	return nil
}

// add opens an invitation.
func (v *invites) add(s secret, opened invite, now time.Time) error {
	h := s.hash()
	opened.Hash = hex.EncodeToString(h[:])
	v.mu.Lock()
	defer v.mu.Unlock()
	next := slices.DeleteFunc(slices.Clone(v.list), func(i invite) bool { return now.Sub(i.Expires) > keepInvites })
	if len(next) >= maxInvites {
		return fmt.Errorf("p2p: invite: %w", ErrTooManyInvites)
	}
	return v.saveLocked(append(next, opened))
}

// use takes one use of a token for a peer, and returns the roles and labels that the token gives. The use is on disk
// before it returns. A peer that has already used the token gets the same answer again, without a further use.
func (v *invites) use(s secret, who string, now time.Time) (Roles, map[string]string, error) {
	h := s.hash()
	want := hex.EncodeToString(h[:])
	v.mu.Lock()
	defer v.mu.Unlock()
	// this compares hashes of secrets, so its timing reveals nothing
	i := slices.IndexFunc(v.list, func(i invite) bool { return i.Hash == want })
	switch {
	case i < 0:
		return 0, nil, ErrTokenUnknown
	case !now.Before(v.list[i].Expires):
		return 0, nil, ErrTokenExpired
	case slices.Contains(v.list[i].Given, who):
		return v.list[i].Roles, v.list[i].Labels, nil
	case v.list[i].Left <= 0:
		return 0, nil, ErrTokenUsed
	}
	next := slices.Clone(v.list)
	next[i].Left--
	next[i].Given = append(slices.Clone(next[i].Given), who)
	if err := v.saveLocked(next); err != nil {
		return 0, nil, err
	}
	return next[i].Roles, next[i].Labels, nil
}
