package p2p_test

// Revoking members and undoing that, on a simulated network.

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/musterhq/muster/p2p"
	"github.com/musterhq/muster/p2p/p2ptest"
)

// family starts a founder (0), two inviters that it let in (1, 2), a guest of each inviter (3, 4) and a guest of the
// founder (5).
func family(t *testing.T, life time.Duration) *p2ptest.Net {
	t.Helper()
	nw := p2ptest.New(t, 6, p2ptest.Options{Strangers: 6, Dirs: true, Config: func(_ int, c *p2p.Config) {
		if life > 0 {
			c.CredentialLife = life
		}
	}})
	for i, by := range []int{0, 0, 0, 1, 2, 0} {
		if i == 0 {
			continue
		}
		roles := p2p.RoleWorker | p2p.RoleScheduler
		if i <= 2 {
			roles = p2p.AllRoles
		}
		inv := invite(t, nw.Hosts[by], time.Hour, 1, roles)
		if err := nw.Hosts[i].Join(t.Context(), inv.Bootstrap, inv.Token); err != nil {
			t.Fatal(err)
		}
	}
	nw.Mesh()
	return nw
}

func TestInviterIsRevokedAndRestoredWithItsGuests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nw := family(t, 0)
		if err := nw.Hosts[0].Revoke(nw.Peer(1), p2p.Revoking{Reason: "stolen", WithInvited: true}); err != nil {
			t.Fatal(err)
		}
		until(t, 5*time.Second, "the inviter and its guest are out everywhere", func() bool {
			for _, i := range []int{0, 2, 4, 5} {
				if connected(nw.Hosts[i]) != 3 || isConnected(nw.Hosts[i], nw.Peer(1)) || isConnected(nw.Hosts[i], nw.Peer(3)) {
					return false
				}
			}
			return true
		})
		for _, i := range []int{1, 3} {
			if err := nw.Hosts[i].ConnectAddr(t.Context(), nw.Addr(2)); !errors.Is(err, p2p.ErrRevoked) {
				t.Errorf("host %d dials: got %v, want p2p.ErrRevoked", i, err)
			}
		}
		if err := nw.Hosts[2].Check(p2p.IssueTo(t, nw.Hosts[1])); !errors.Is(err, p2p.ErrRevoked) {
			t.Errorf("a peer that the revoked inviter lets in now: got %v, want p2p.ErrRevoked", err)
		}
		if err := nw.Hosts[2].Revoke(nw.Peer(1), p2p.Revoking{Undo: true}); !errors.Is(err, p2p.ErrNotRevoked) {
			t.Errorf("another inviter undoes the revocation: got %v, want p2p.ErrNotRevoked", err)
		}
		if err := nw.Hosts[0].Revoke(nw.Peer(1), p2p.Revoking{Undo: true}); err != nil {
			t.Fatal(err)
		}
		until(t, 2*time.Minute, "both are back", func() bool {
			return isConnected(nw.Hosts[0], nw.Peer(1)) && connected(nw.Hosts[3]) > 0
		})
		nw.Stop(5)
		nw.Start(5) // the revocation and its undoing are on disk; the newer one holds
		if err := nw.Hosts[5].ConnectAddr(t.Context(), nw.Addr(3)); err != nil {
			t.Errorf("connect after a restart: got %v, want no error", err)
		}
	})
}

// TestRevokedPeersAreListed lists the revoked peers at each host, also after restarts, with their names if the host
// knew them. What an inviter says of peers that others let in is not listed.
func TestRevokedPeersAreListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nw := family(t, 0)
		for i, h := range nw.Hosts {
			if len(h.Revoked.List()) != 0 {
				t.Errorf("host %d: got revoked peers %+v, want 0", i, h.Revoked.List())
			}
		}
		if err := nw.Hosts[1].Revoke(nw.Peer(3), p2p.Revoking{Reason: "broken"}); err != nil {
			t.Fatal(err)
		}
		pass(2 * time.Second)
		if err := nw.Hosts[0].Revoke(nw.Peer(4), p2p.Revoking{Reason: "sold", WithInvited: true}); err != nil {
			t.Fatal(err)
		}
		p2p.RevokeWithoutRight(t, nw.Hosts[1], nw.Peer(5), true)
		p2p.RevokeWithoutRight(t, nw.Hosts[1], nw.Peer(0), false)
		pass(5 * time.Second)
		nw.Stop(2)
		nw.Start(2)
		for i, mine := range map[int][2]bool{0: {true, true}, 1: {false, true}, 2: {false, false}, 5: {false, false}} {
			list := nw.Hosts[i].Revoked.List()
			if len(list) != 2 {
				t.Fatalf("host %d: got revoked peers %+v, want 2", i, list)
			}
			key, by := list[0], list[1] // the newest first
			if key.Peer != nw.Peer(4) || key.Name == "" || key.By != "" || key.Reason != "sold" || !key.WithInvited || key.Mine != mine[0] || time.Since(key.At) > time.Minute {
				t.Errorf("host %d: got %+v, want host 4, revoked by the cluster key", i, key)
			}
			if by.Peer != nw.Peer(3) || by.Name == "" || by.By != nw.Peer(1) || by.ByName == "" || by.Reason != "broken" || by.Mine != mine[1] {
				t.Errorf("host %d: got %+v, want host 3, revoked by host 1", i, by)
			}
		}
		if err := nw.Hosts[0].Revoke(nw.Peer(3), p2p.Revoking{Undo: true}); err != nil {
			t.Fatal(err)
		}
		until(t, 2*time.Minute, "it is back and not listed", func() bool {
			return len(nw.Hosts[2].Revoked.List()) == 1 && isConnected(nw.Hosts[0], nw.Peer(3))
		})
	})
}

// A revocation is announced at once also for a member that is not connected, so that the member no longer counts.
func TestRevocationOfAnAbsentMemberIsAnnounced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nw := p2ptest.New(t, 3, p2ptest.Options{Dirs: true})
		nw.Mesh()
		nw.Stop(1)
		pass(time.Minute)
		sub := nw.Hosts[2].Subscribe()
		defer sub.Close()
		if err := nw.Hosts[0].Revoke(nw.Peer(1), p2p.Revoking{}); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		for {
			ctx, stop := context.WithTimeout(t.Context(), time.Minute)
			e, err := sub.Next(ctx)
			stop()
			if err != nil {
				t.Fatalf("no event: %v", err)
			}
			if e.Kind == p2p.MemberDown && e.Peer == nw.Peer(1) {
				break
			}
		}
		if _, there := nw.Hosts[2].Member(nw.Peer(1)); there || time.Since(began) > 5*time.Second {
			t.Errorf("announced after %s, and is still a member: got %v, want at most 5 s, and false", time.Since(began), there)
		}
		if nw.Hosts[2].Grants.MayHave(nw.Peer(1), p2p.RoleWorker) {
			t.Error("searches still find the revoked member")
		}
	})
}

// TestGuestsOfARevokedInviterStay revokes an inviter alone. Its guest stays, and another inviter renews it.
func TestGuestsOfARevokedInviterStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nw := family(t, 0)
		before := p2p.ShownCredential(nw.Hosts[3])
		if err := nw.Hosts[0].Revoke(nw.Peer(1), p2p.Revoking{Reason: "sold"}); err != nil {
			t.Fatal(err)
		}
		until(t, 10*time.Second, "the guest has another credential", func() bool {
			return connected(nw.Hosts[1]) == 0 && p2p.ShownCredential(nw.Hosts[3]) != before
		})
		if connected(nw.Hosts[3]) != 4 || nw.Hosts[2].Check(p2p.ShownCredential(nw.Hosts[3])) != nil {
			t.Errorf("got the guest connected to %d of 4, want all, with a valid credential", connected(nw.Hosts[3]))
		}
		if err := nw.Hosts[2].Check(p2p.IssueTo(t, nw.Hosts[1])); !errors.Is(err, p2p.ErrRevoked) {
			t.Errorf("a peer that the revoked inviter lets in now: got %v, want p2p.ErrRevoked", err)
		}
	})
}

func TestInviterRevokesItsGuestOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nw := family(t, 0)
		for _, i := range []int{0, 2, 4, 5} {
			if err := nw.Hosts[1].Revoke(nw.Peer(i), p2p.Revoking{Reason: "coup", WithInvited: true}); !errors.Is(err, p2p.ErrNotYours) {
				t.Errorf("an inviter revokes host %d: got %v, want p2p.ErrNotYours", i, err)
			}
			p2p.RevokeWithoutRight(t, nw.Hosts[1], nw.Peer(i), true)
		}
		until(t, 5*time.Second, "all have heard it", func() bool {
			for _, i := range []int{0, 2, 3, 4, 5} {
				if p2p.RevocationsBy(nw.Hosts[i], nw.Hosts[1]) != 4 {
					return false
				}
			}
			return true
		})
		for i, h := range nw.Hosts {
			if connected(h) != 5 {
				t.Errorf("host %d is connected to %d others, want 5", i, connected(h))
			}
		}
		if err := nw.Hosts[1].Revoke(nw.Peer(3), p2p.Revoking{Reason: "broken"}); err != nil {
			t.Fatal(err)
		}
		until(t, 5*time.Second, "the guest is out everywhere", func() bool { return connected(nw.Hosts[3]) == 0 })
		if err := nw.Hosts[3].ConnectAddr(t.Context(), nw.Addr(0)); !errors.Is(err, p2p.ErrRevoked) {
			t.Errorf("the guest dials the founder: got %v, want p2p.ErrRevoked", err)
		}
		if err := nw.Hosts[1].Revoke(nw.Peer(3), p2p.Revoking{Undo: true}); err != nil {
			t.Fatal(err)
		}
		until(t, 2*time.Minute, "the guest is back", func() bool { return isConnected(nw.Hosts[0], nw.Peer(3)) })
	})
}

// TestEveryLinkMustBeCurrent stops the founder, and then cuts the two inviters off from each other. The credentials of
// the guests expire. An inviter that reached neither the founder nor another inviter during its longer lifetime can
// sign for nobody.
func TestEveryLinkMustBeCurrent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const life = 2 * time.Minute
		nw := family(t, life)
		pass(5 * time.Second)
		nw.Stop(0)
		pass(5 * life)
		if connected(nw.Hosts[3]) != 4 {
			t.Errorf("without the founder, after 5 lifetimes: got %d of 4 connected, want 4", connected(nw.Hosts[3]))
		}
		for _, i := range []int{3, 4} {
			if end := nw.Hosts[i].Credential().NotAfter; time.Until(end) > life {
				t.Errorf("the credential of guest %d lasts for %s, want at most %v", i, time.Until(end), life)
			}
		}
		nw.Cut(func(from, to int) bool { return from+to == 3 && from*to == 2 })
		pass(9 * life) // 14 lifetimes
		if n := connected(nw.Hosts[2]); n != 0 {
			t.Errorf("after all credentials expired: got %d connected, want 0", n)
		}
		if _, err := nw.Hosts[1].Invite(time.Hour, 1, p2p.RoleWorker); !errors.Is(err, p2p.ErrNotInviter) {
			t.Errorf("an inviter with an expired credential invites: got %v, want p2p.ErrNotInviter", err)
		}
		late := p2p.IssueTo(t, nw.Hosts[1])
		if !late.NotAfter.Before(time.Now()) {
			t.Errorf("what an inviter with an expired credential signs lasts until %s, want that it has expired", late.NotAfter)
		}
		if err := nw.Hosts[2].Check(p2p.ForgeLongCredential(t, nw.Hosts[1])); !errors.Is(err, p2p.ErrExpired) {
			t.Errorf("a peer that an inviter with an expired credential lets in for years: got %v, want p2p.ErrExpired", err)
		}
		nw.Start(0) // the founder renews itself; the others must join again
		if time.Until(nw.Hosts[0].Credential().NotAfter) < 0 {
			pass(time.Minute)
		}
		if time.Until(nw.Hosts[0].Credential().NotAfter) < life {
			t.Error("the founder has no valid credential")
		}
	})
}

// TestVersionBeforeLearnsRevocationsByTheClusterKey revokes while one member speaks only the older protocol. That
// member learns of a plain revocation by the cluster key, and of nothing else.
func TestVersionBeforeLearnsRevocationsByTheClusterKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nw := family(t, 0)
		nw.Hosts[5].Libp2p().RemoveStreamHandler(p2p.RevokedID)
		pass(time.Second)
		if err := nw.Hosts[1].Revoke(nw.Peer(3), p2p.Revoking{Reason: "broken"}); err != nil {
			t.Fatal(err)
		}
		if err := nw.Hosts[0].Revoke(nw.Peer(4), p2p.Revoking{Reason: "gone"}); err != nil {
			t.Fatal(err)
		}
		until(t, 10*time.Second, "the older daemon knows what the cluster key said", func() bool { return !known(nw.Hosts[5], nw.Peer(4)) })
		if p2p.RevocationsBy(nw.Hosts[5], nw.Hosts[1]) != 0 || p2p.RevocationsBy(nw.Hosts[0], nw.Hosts[1]) != 1 {
			t.Error("want that only newer daemons know the revocation by a member")
		}
	})
}

// A daemon that was killed after it wrote a revocation and before it wrote its peer book does not list the revoked peer
// when it starts again.
func TestRevokedPeerInAnOlderPeerBookIsNotListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nw := p2ptest.New(t, 3, p2ptest.Options{Dirs: true})
		nw.Mesh()
		pass(5 * time.Second) // the peer books are written
		file := filepath.Join(nw.Dir(2), "peers.json")
		book, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(book), string(nw.Peer(1))) {
			t.Fatalf("peer book of host 2: got %s, %v, want one with host 1", book, err)
		}
		if err := nw.Hosts[0].Revoke(nw.Peer(1), p2p.Revoking{Reason: "key stolen"}); err != nil {
			t.Fatal(err)
		}
		until(t, 5*time.Second, "host 2 knows the revocation", func() bool { return !known(nw.Hosts[2], nw.Peer(1)) })
		nw.Stop(2)
		if err := os.WriteFile(file, book, 0o600); err != nil {
			t.Fatal(err)
		}
		nw.Start(2)
		if known(nw.Hosts[2], nw.Peer(1)) {
			t.Error("the revoked peer is listed again")
		}
	})
}
