package p2p_test

// Revoking members and letting them back in, on a simulated network.

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

// family starts a founder (0), two inviters (1, 2) that it let in, a guest of each (3, 4) and one of the founder (5).
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

func TestInviterGoesWithItsGuestsAndComesBack(t *testing.T) {
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
				t.Errorf("host %d dials: %v", i, err)
			}
		}
		if err := nw.Hosts[2].Check(p2p.IssueTo(t, nw.Hosts[1])); !errors.Is(err, p2p.ErrRevoked) {
			t.Errorf("one that the revoked inviter lets in now: %v", err)
		}
		if err := nw.Hosts[2].Revoke(nw.Peer(1), p2p.Revoking{Undo: true}); !errors.Is(err, p2p.ErrNotRevoked) {
			t.Errorf("another inviter takes it back: %v", err)
		}
		if err := nw.Hosts[0].Revoke(nw.Peer(1), p2p.Revoking{Undo: true}); err != nil {
			t.Fatal(err)
		}
		until(t, 2*time.Minute, "both are back", func() bool {
			return isConnected(nw.Hosts[0], nw.Peer(1)) && connected(nw.Hosts[3]) > 0
		})
		nw.Stop(5)
		nw.Start(5) // both words are on disk; the newer one holds
		if err := nw.Hosts[5].ConnectAddr(t.Context(), nw.Addr(3)); err != nil {
			t.Errorf("after a restart: %v", err)
		}
	})
}

// TestRevokedPeersAreListed lists who is out at each host, with its name if the host knew it, over restarts. What an inviter
// says of peers that others let in is not listed.
func TestRevokedPeersAreListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nw := family(t, 0)
		for i, h := range nw.Hosts {
			if len(h.Revoked.List()) != 0 {
				t.Errorf("host %d: %+v", i, h.Revoked.List())
			}
		}
		if err := nw.Hosts[1].Revoke(nw.Peer(3), p2p.Revoking{Reason: "broken"}); err != nil {
			t.Fatal(err)
		}
		pass(2 * time.Second)
		if err := nw.Hosts[0].Revoke(nw.Peer(4), p2p.Revoking{Reason: "sold", WithInvited: true}); err != nil {
			t.Fatal(err)
		}
		p2p.SayAnyway(t, nw.Hosts[1], nw.Peer(5), true)
		p2p.SayAnyway(t, nw.Hosts[1], nw.Peer(0), false)
		pass(5 * time.Second)
		nw.Stop(2)
		nw.Start(2)
		for i, mine := range map[int][2]bool{0: {true, true}, 1: {false, true}, 2: {false, false}, 5: {false, false}} {
			list := nw.Hosts[i].Revoked.List()
			if len(list) != 2 {
				t.Fatalf("host %d: %+v", i, list)
			}
			key, by := list[0], list[1] // the newest first
			if key.Peer != nw.Peer(4) || key.Name == "" || key.By != "" || key.Reason != "sold" || !key.WithInvited || key.Mine != mine[0] || time.Since(key.At) > time.Minute {
				t.Errorf("host %d: %+v", i, key)
			}
			if by.Peer != nw.Peer(3) || by.Name == "" || by.By != nw.Peer(1) || by.ByName == "" || by.Reason != "broken" || by.Mine != mine[1] {
				t.Errorf("host %d: %+v", i, by)
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

// A revocation is told at once also of a member that is not connected: it counts no more.
func TestRevocationOfAMemberThatIsAwayIsTold(t *testing.T) {
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
				t.Fatalf("nothing is told: %v", err)
			}
			if e.Kind == p2p.MemberDown && e.Peer == nw.Peer(1) {
				break
			}
		}
		if _, there := nw.Hosts[2].Member(nw.Peer(1)); there || time.Since(began) > 5*time.Second {
			t.Errorf("told after %s; a member still: %v", time.Since(began), there)
		}
		if nw.Hosts[2].Grants.MayHave(nw.Peer(1), p2p.RoleWorker) {
			t.Error("searches still find it")
		}
	})
}

// TestGuestsOfARevokedInviterStay revokes an inviter alone: its guest stays, and is renewed by another inviter.
func TestGuestsOfARevokedInviterStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nw := family(t, 0)
		before := p2p.Shown(nw.Hosts[3])
		if err := nw.Hosts[0].Revoke(nw.Peer(1), p2p.Revoking{Reason: "sold"}); err != nil {
			t.Fatal(err)
		}
		until(t, 10*time.Second, "the guest has another credential", func() bool {
			return connected(nw.Hosts[1]) == 0 && p2p.Shown(nw.Hosts[3]) != before
		})
		if connected(nw.Hosts[3]) != 4 || nw.Hosts[2].Check(p2p.Shown(nw.Hosts[3])) != nil {
			t.Errorf("the guest is connected to %d of 4", connected(nw.Hosts[3]))
		}
		if err := nw.Hosts[2].Check(p2p.IssueTo(t, nw.Hosts[1])); !errors.Is(err, p2p.ErrRevoked) {
			t.Errorf("one that the revoked inviter lets in now: %v", err)
		}
	})
}

func TestInviterRevokesItsGuestOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nw := family(t, 0)
		for _, i := range []int{0, 2, 4, 5} {
			if err := nw.Hosts[1].Revoke(nw.Peer(i), p2p.Revoking{Reason: "coup", WithInvited: true}); !errors.Is(err, p2p.ErrNotYours) {
				t.Errorf("an inviter revokes host %d: %v", i, err)
			}
			p2p.SayAnyway(t, nw.Hosts[1], nw.Peer(i), true)
		}
		until(t, 5*time.Second, "all have heard it", func() bool {
			for _, i := range []int{0, 2, 3, 4, 5} {
				if p2p.SaidBy(nw.Hosts[i], nw.Hosts[1]) != 4 {
					return false
				}
			}
			return true
		})
		for i, h := range nw.Hosts {
			if connected(h) != 5 {
				t.Errorf("host %d is connected to %d others", i, connected(h))
			}
		}
		if err := nw.Hosts[1].Revoke(nw.Peer(3), p2p.Revoking{Reason: "broken"}); err != nil {
			t.Fatal(err)
		}
		until(t, 5*time.Second, "the guest is out everywhere", func() bool { return connected(nw.Hosts[3]) == 0 })
		if err := nw.Hosts[3].ConnectAddr(t.Context(), nw.Addr(0)); !errors.Is(err, p2p.ErrRevoked) {
			t.Errorf("the guest dials the founder: %v", err)
		}
		if err := nw.Hosts[1].Revoke(nw.Peer(3), p2p.Revoking{Undo: true}); err != nil {
			t.Fatal(err)
		}
		until(t, 2*time.Minute, "the guest is back", func() bool { return isConnected(nw.Hosts[0], nw.Peer(3)) })
	})
}

// TestEveryLinkMustBeCurrent stops the founder, and then cuts the two inviters off from each other. The guests end with
// their lives, and an inviter that could reach neither the founder nor another inviter for its longer life signs for nobody.
func TestEveryLinkMustBeCurrent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const life = 2 * time.Minute
		nw := family(t, life)
		pass(5 * time.Second)
		nw.Stop(0)
		pass(5 * life)
		if connected(nw.Hosts[3]) != 4 {
			t.Errorf("without the founder, after 5 lives: %d of 4 connected", connected(nw.Hosts[3]))
		}
		for _, i := range []int{3, 4} {
			if end := nw.Hosts[i].Credential().NotAfter; time.Until(end) > life {
				t.Errorf("the credential of guest %d lasts for %s", i, time.Until(end))
			}
		}
		nw.Cut(func(from, to int) bool { return from+to == 3 && from*to == 2 })
		pass(9 * life) // 14 lives
		if n := connected(nw.Hosts[2]); n != 0 {
			t.Errorf("all credentials have ended, but %d are connected", n)
		}
		if _, err := nw.Hosts[1].Invite(time.Hour, 1, p2p.RoleWorker); !errors.Is(err, p2p.ErrNotInviter) {
			t.Errorf("an inviter whose credential has ended invites: %v", err)
		}
		late := p2p.IssueTo(t, nw.Hosts[1])
		if !late.NotAfter.Before(time.Now()) {
			t.Errorf("what an ended inviter signs lasts until %s", late.NotAfter)
		}
		if err := nw.Hosts[2].Check(p2p.ForgeYears(t, nw.Hosts[1])); !errors.Is(err, p2p.ErrExpired) {
			t.Errorf("a peer that an ended inviter lets in for years: %v", err)
		}
		nw.Start(0) // the founder renews itself; the others must join again
		if time.Until(nw.Hosts[0].Credential().NotAfter) < 0 {
			pass(time.Minute)
		}
		if time.Until(nw.Hosts[0].Credential().NotAfter) < life {
			t.Error("the founder has no current credential")
		}
	})
}

// TestRevocationReachesTheVersionBefore revokes while a member speaks only the older protocol. It learns of a plain
// revocation by the cluster key, and of nothing else.
func TestRevocationReachesTheVersionBefore(t *testing.T) {
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
		if p2p.SaidBy(nw.Hosts[5], nw.Hosts[1]) != 0 || p2p.SaidBy(nw.Hosts[0], nw.Hosts[1]) != 1 {
			t.Error("the words of a member: want that only newer daemons know them")
		}
	})
}

// A daemon that was killed between the writes of a revocation and of its peer book does not list the revoked peer when it
// starts again.
func TestPeerBookOlderThanARevocation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nw := p2ptest.New(t, 3, p2ptest.Options{Dirs: true})
		nw.Mesh()
		pass(5 * time.Second) // the peer books are written
		file := filepath.Join(nw.Dir(2), "peers.json")
		book, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(book), string(nw.Peer(1))) {
			t.Fatalf("peer book of host 2: %s, %v", book, err)
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
