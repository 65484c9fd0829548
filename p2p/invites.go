package p2p

// The invitations that this daemon gave out: what is left of each, on disk.

import (
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// What an invitation may be.
const (
	// MaxUses bounds the uses of one token: a rack row at once.
	MaxUses = 1000
	// MaxInviteTTL bounds how long a token is good.
	MaxInviteTTL = 30 * 24 * time.Hour
	// maxInvites bounds the tokens that are kept, used or not, until they expire.
	maxInvites = 1024
	// keepInvites is how long an expired token is remembered as expired, not as unknown.
	keepInvites = 24 * time.Hour
)

const (
	invitesFile   = "invites.json"
	invitesSchema = "muster.invites/v1"
)

// ErrTooManyInvites is a full list; wait for some to expire.
var ErrTooManyInvites = errors.New("too many invitations are open")

// Invitation is what another host needs to join.
type Invitation struct {
	Bootstrap []string  `json:"bootstrap"`
	Token     string    `json:"token"`
	Cluster   string    `json:"cluster"`
	ExpiresAt time.Time `json:"expires_at"`
}

// invite is one token as its issuer keeps it: without the secret.
type invite struct {
	Hash    string    `json:"hash"`
	Roles   Roles     `json:"roles"`
	Left    int       `json:"left"`
	Expires time.Time `json:"expires"`
	// Given are the peers that used it. One that lost our answer may ask again.
	Given []string `json:"given,omitempty"`
}

type invitesJSON struct {
	Schema  string   `json:"schema"`
	Cluster string   `json:"cluster"`
	Invites []invite `json:"invites"`
}

// invites is the list; it is on disk before a change takes effect.
type invites struct {
	disk disk

	mu      sync.Mutex
	cluster clusterID // guarded by mu
	list    []invite  // guarded by mu
}

// open loads the invitations of a cluster; those of a former one are void.
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

// saveLocked makes next the list, once it is on disk. The lock is held over
// the write on purpose: of two uses of a token's last use one must come after
// the other's record.
func (v *invites) saveLocked(next []invite) error {
	if err := v.disk.writeJSON(invitesFile, invitesJSON{Schema: invitesSchema, Cluster: v.cluster.String(), Invites: next}); err != nil {
		return err
	}
	v.list = next
	return nil
}

// add opens an invitation.
func (v *invites) add(s secret, roles Roles, uses int, expires, now time.Time) error {
	h := s.hash()
	v.mu.Lock()
	defer v.mu.Unlock()
	next := slices.DeleteFunc(slices.Clone(v.list), func(i invite) bool { return now.Sub(i.Expires) > keepInvites })
	if len(next) >= maxInvites {
		return fmt.Errorf("p2p: invite: %w", ErrTooManyInvites)
	}
	return v.saveLocked(append(next, invite{Hash: hex.EncodeToString(h[:]), Roles: roles, Left: uses, Expires: expires}))
}

// use takes one use for a peer and returns the roles that the token gives.
// The use is gone from the disk before it returns. A peer that already used
// the token gets the same answer again, at no further use.
func (v *invites) use(s secret, who string, now time.Time) (Roles, error) {
	h := s.hash()
	want := hex.EncodeToString(h[:])
	v.mu.Lock()
	defer v.mu.Unlock()
	i := slices.IndexFunc(v.list, func(i invite) bool { return i.Hash == want }) // a hash of a secret: its time tells nothing
	switch {
	case i < 0:
		return 0, ErrTokenUnknown
	case !now.Before(v.list[i].Expires):
		return 0, ErrTokenExpired
	case slices.Contains(v.list[i].Given, who):
		return v.list[i].Roles, nil
	case v.list[i].Left <= 0:
		return 0, ErrTokenUsed
	}
	next := slices.Clone(v.list)
	next[i].Left--
	next[i].Given = append(slices.Clone(next[i].Given), who)
	if err := v.saveLocked(next); err != nil {
		return 0, err
	}
	return next[i].Roles, nil
}
