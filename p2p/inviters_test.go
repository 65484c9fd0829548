package p2p_test

// Clusters that lose hosts with the role inviter, also the founder, on a simulated network.

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/musterhq/muster/p2p"
	"github.com/musterhq/muster/p2p/p2ptest"
)

const (
	shortLife = 2 * time.Minute
	// twoYears is the number of lifetimes of credentials in two years, with the default of a week.
	twoYears = 104 * shortLife
)

// startHosts starts n hosts. The first is the founder; the others join at the given hosts, with the given roles.
func startHosts(t *testing.T, n int) (nw *p2ptest.Net, join func(i, at int, roles p2p.Roles)) {
	t.Helper()
	nw = p2ptest.New(t, n, p2ptest.Options{Strangers: n, Dirs: true, Config: func(_ int, c *p2p.Config) { c.CredentialLife = shortLife }})
	return nw, func(i, at int, roles p2p.Roles) {
		t.Helper()
		inv := invite(t, nw.Hosts[at], time.Hour, 1, roles)
		if err := nw.Hosts[i].Join(t.Context(), inv.Bootstrap, inv.Token); err != nil {
			t.Fatalf("host %d joins at host %d: %v", i, at, err)
		}
	}
}

// checkMembers checks that hosts are members with time left, and connected to each other.
func checkMembers(t *testing.T, when string, nw *p2ptest.Net, hosts ...int) {
	t.Helper()
	for _, i := range hosts {
		c := nw.Hosts[i].Credential()
		if left := time.Until(c.NotAfter); left < shortLife/4 || connected(nw.Hosts[i]) < len(hosts)-1 {
			t.Errorf("%s: host %d (%s) has %s left, want at least %s, and is connected to %d hosts, want %d", when, i, c.Roles, left, shortLife/4, connected(nw.Hosts[i]), len(hosts)-1)
		}
	}
}

// TestLossOfAnyInviterCostsNothing loses the founder for good, and two years later the first inviter, too. All peers
// that they let in stay members, and new hosts join. Then the founder comes back.
func TestLossOfAnyInviterCostsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nw, join := startHosts(t, 8)
		join(1, 0, p2p.AllRoles)     // A
		join(2, 0, p2p.AllRoles)     // B
		join(3, 0, p2p.DefaultRoles) // a guest of the founder
		for _, i := range []int{1, 2, 3} {
			nw.Connect(i, 0)
		}
		nw.Connect(1, 2)
		nw.Connect(3, 1)
		nw.Connect(3, 2)
		pass(time.Minute)
		nw.Stop(0)
		pass(twoYears)
		checkMembers(t, "two years without the founder", nw, 1, 2, 3)

		join(4, 1, p2p.DefaultRoles) // a guest of A
		join(5, 2, p2p.AllRoles)     // C, whom B let in
		for _, i := range []int{4, 5} {
			for _, j := range []int{1, 2, 3} {
				nw.Connect(i, j)
			}
		}
		nw.Connect(4, 5)
		until(t, time.Minute, "C has grants of A and B", func() bool { return p2p.Firm(nw.Hosts[5]) })
		pass(shortLife)
		checkMembers(t, "with new hosts", nw, 1, 2, 3, 4, 5)
		nw.Stop(1)
		pass(twoYears / 4)
		checkMembers(t, "half a year without A", nw, 2, 3, 4, 5)
		if !p2p.Endorsed(nw.Hosts[2]) || !p2p.Endorsed(nw.Hosts[5]) {
			t.Error("B and C do not endorse each other")
		}
		join(6, 5, p2p.DefaultRoles)
		nw.Connect(6, 2)
		pass(2 * shortLife)
		if time.Until(nw.Hosts[6].Credential().NotAfter) < shortLife/4 {
			t.Error("a guest of C is not renewed")
		}

		nw.Start(0)
		until(t, 2*time.Minute, "the founder is back", func() bool { return connected(nw.Hosts[0]) >= 2 })
		join(7, 0, p2p.DefaultRoles)
	})
}

// TestInviterOfTheSecondGenerationGoesOnAlone loses the founder and the inviter that let another inviter in. That one
// goes on with a second inviter of the founder, which never met the lost ones.
func TestInviterOfTheSecondGenerationGoesOnAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nw, join := startHosts(t, 5)
		join(1, 0, p2p.AllRoles)
		join(2, 1, p2p.AllRoles) // let in by host 1
		join(3, 0, p2p.AllRoles)
		join(4, 2, p2p.DefaultRoles)
		nw.Connect(2, 1)
		nw.Connect(2, 3)
		nw.Connect(3, 0)
		nw.Connect(4, 2)
		nw.Connect(4, 3)
		until(t, time.Minute, "it has grants of both", func() bool { return p2p.Firm(nw.Hosts[2]) })
		nw.Stop(0)
		nw.Stop(1)
		pass(twoYears / 4)
		checkMembers(t, "half a year later", nw, 2, 3, 4)
		// The peers that let them in have not changed.
		if err := nw.Hosts[3].Revoke(nw.Peer(4), p2p.Revoking{Reason: "mine?"}); !errors.Is(err, p2p.ErrNotYours) {
			t.Errorf("an inviter revokes a guest of the inviter that it endorsed: got %v, want p2p.ErrNotYours", err)
		}
		if err := nw.Hosts[2].Revoke(nw.Peer(4), p2p.Revoking{Reason: "mine"}); err != nil {
			t.Error(err)
		}
		until(t, 10*time.Second, "the guest is out", func() bool { return connected(nw.Hosts[4]) == 0 })
	})
}

// TestLastInviterEndsWithItsEndorsement leaves one inviter. Its credential expires after its lifetime, and so does its
// guest's. Neither starts again without a new token.
func TestLastInviterEndsWithItsEndorsement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nw, join := startHosts(t, 4)
		join(1, 0, p2p.AllRoles)
		join(2, 0, p2p.AllRoles)
		join(3, 1, p2p.DefaultRoles)
		nw.Connect(1, 2)
		nw.Connect(3, 1)
		nw.Connect(3, 2)
		pass(time.Minute)
		nw.Stop(0)
		pass(20 * shortLife)
		checkMembers(t, "with two inviters", nw, 1, 2, 3)
		nw.Stop(2)
		end := nw.Hosts[1].Credential().NotAfter
		if left := time.Until(end); left < shortLife || left > 4*shortLife {
			t.Fatalf("the last inviter ends in %s, want %v to %v", left, shortLife, 4*shortLife)
		}
		pass(time.Until(end) - 15*time.Second)
		if connected(nw.Hosts[1]) != 1 || !nw.Hosts[1].Credential().NotAfter.Equal(end) {
			t.Errorf("before the end: got %d connected hosts and an end at %s, want 1 and %s", connected(nw.Hosts[1]), nw.Hosts[1].Credential().NotAfter, end)
		}
		pass(45 * time.Second)
		if connected(nw.Hosts[1])+connected(nw.Hosts[3]) != 0 || nw.Hosts[3].Credential().NotAfter.After(end) {
			t.Error("a credential outlived the last inviter")
		}
		nw.Stop(1)
		if err := nw.TryStart(t.Context(), 1); !errors.Is(err, p2p.ErrExpired) || !strings.Contains(err.Error(), "muster invite") {
			t.Errorf("the last inviter starts again: got %v, want ErrExpired with the way to rejoin", err)
		}
	})
}

// TestRevokedInviterEndorsesNobody revokes one of three inviters. Others endorse at once those that it endorsed, and
// nobody endorses it.
func TestRevokedInviterEndorsesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nw, join := startHosts(t, 5)
		for _, i := range []int{1, 2, 3} {
			join(i, 0, p2p.AllRoles)
		}
		join(4, 2, p2p.DefaultRoles)
		nw.Mesh()
		pass(time.Minute)
		if err := nw.Hosts[0].Revoke(nw.Peer(1), p2p.Revoking{Reason: "stolen"}); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		nw.Stop(0)
		pass(12 * shortLife)
		checkMembers(t, "without the revoked one", nw, 2, 3, 4)
		if err := nw.Hosts[2].Check(p2p.ShownCredential(nw.Hosts[1])); err == nil {
			t.Error("the revoked inviter is admitted")
		}
		if time.Until(nw.Hosts[1].Credential().NotAfter) > 0 {
			t.Error("the revoked inviter was renewed")
		}
	})
}
