package p2p_test

// Joining a cluster, leaving it, and finding members again, on a simulated network and a fake clock.

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/musterhq/muster/internal/testkit/logtest"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/p2p"
	"github.com/musterhq/muster/p2p/p2ptest"
)

func logger() (*logtest.Buffer, *slog.Logger) {
	l := &logtest.Buffer{}
	return l, slog.New(slog.NewTextHandler(l, nil))
}

func invite(t *testing.T, h *p2p.Host, ttl time.Duration, uses int, roles p2p.Roles) p2p.Invitation {
	t.Helper()
	inv, err := h.Invite(ttl, uses, roles)
	if err != nil {
		t.Fatal(err)
	}
	return inv
}

// until waits in fake time for a condition and returns how long that took.
func until(t *testing.T, most time.Duration, what string, ok func() bool) time.Duration {
	t.Helper()
	begin := time.Now()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if time.Since(begin) > most {
			t.Fatalf("waited for %s, want within it: %s", most, what)
		}
		<-tick.C
	}
	return time.Since(begin)
}

func pass(d time.Duration) {
	timer := time.NewTimer(d)
	<-timer.C
}

func connected(h *p2p.Host) int {
	n := 0
	for _, m := range h.Members() {
		if m.Connected {
			n++
		}
	}
	return n
}

func isConnected(h *p2p.Host, p job.Peer) bool {
	m, ok := h.Member(p)
	return ok && m.Connected
}

func TestOnlyAValidTokenAdmits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen, log := logger()
		nw := p2ptest.New(t, 6, p2ptest.Options{Strangers: 4, Log: log})
		issuer, other := nw.Hosts[0], nw.Hosts[1]
		alien, guest, late, second := nw.Hosts[2], nw.Hosts[3], nw.Hosts[4], nw.Hosts[5]
		boot := []string{nw.Addr(0)}
		good := invite(t, issuer, time.Hour, 1, p2p.AllRoles)
		short := invite(t, issuer, time.Minute, 5, p2p.AllRoles)

		refuse := func(name string, h *p2p.Host, boot []string, token string, want error) {
			t.Helper()
			cluster := h.Cluster()
			if err := h.Join(t.Context(), boot, token); !errors.Is(err, want) {
				t.Errorf("%s: got %v, want %v", name, err, want)
			}
			if h.Cluster() != cluster {
				t.Errorf("%s: the cluster changed, want h.Cluster() = %v", name, cluster)
			}
		}
		refuse("not a token", guest, boot, "muster1-hello", p2p.ErrBadToken)
		refuse("one character wrong", guest, boot, flip(good.Token), p2p.ErrBadToken)
		refuse("no address", guest, []string{"/ip4/1.2.3.4/tcp/1"}, good.Token, errAny)
		if len(seen.Lines("join refused")) != 0 {
			t.Error("the issuer was asked about a text that is not a token")
		}

		madeUp := p2p.MadeUpToken(t, good.Token)
		refuse("wrong secret", guest, boot, madeUp, p2p.ErrTokenUnknown)
		if len(seen.Lines("level=WARN", "join refused", "not issued by this daemon")) != 1 {
			t.Error("want one warning about the made-up token")
		}
		refuse("of another cluster", guest, boot, invite(t, alien, time.Hour, 1, p2p.AllRoles).Token, p2p.ErrWrongCluster)
		if len(seen.Lines("level=WARN", "join refused", "another cluster")) != 1 {
			t.Error("want one warning about the token of another cluster")
		}
		refuse("at another member than its issuer", guest, []string{nw.Addr(1)}, good.Token, p2p.ErrTokenUnknown)

		if err := guest.Join(t.Context(), boot, good.Token); err != nil {
			t.Fatal(err)
		}
		if guest.Cluster() != issuer.Cluster() {
			t.Errorf("joined %q, want %q", guest.Cluster(), issuer.Cluster())
		}
		refuse("used up", second, boot, good.Token, p2p.ErrTokenUsed)
		pass(2 * time.Minute)
		refuse("expired", late, boot, short.Token, p2p.ErrTokenExpired)

		if err := guest.ConnectAddr(t.Context(), nw.Addr(1)); err != nil {
			t.Errorf("connect to a member that did not invite it: %v", err)
		}
		if !isConnected(other, nw.Peer(3)) {
			t.Error("the other member does not know the guest")
		}
		if err := late.ConnectAddr(t.Context(), nw.Addr(0)); !errors.Is(err, p2p.ErrWrongCluster) {
			t.Errorf("a refused host connects: got %v, want p2p.ErrWrongCluster", err)
		}
		if err := guest.Join(t.Context(), boot, good.Token); err != nil {
			t.Errorf("joining its own cluster again: %v", err)
		}
		refuse("a member with others joins elsewhere", guest, []string{nw.Addr(2)}, invite(t, alien, time.Hour, 1, p2p.AllRoles).Token, p2p.ErrMember)
	})
}

var errAny = p2p.ErrBadAddr

// nobody is a peer ID without a host.
const nobody = "12D3KooWD3eckifWpRn9wQpMG9R9hX3sD158z7EqHWmweQAJU5SA"

// flip changes one character.
func flip(token string) string {
	b := []byte(token)
	if b[20]++; b[20] == 'i' || b[20] == 'l' || b[20] == 'o' || b[20] == 'u' || b[20] > 'z' {
		b[20] = 'a'
	}
	return string(b)
}

func TestGuessesOfTokensAreSlowedDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen, log := logger()
		nw := p2ptest.New(t, 2, p2ptest.Options{Strangers: 1, Log: log})
		good := invite(t, nw.Hosts[0], time.Hour, 1, p2p.AllRoles)
		refused := 0
		for range 30 {
			if err := nw.Hosts[1].Join(t.Context(), good.Bootstrap, p2p.MadeUpToken(t, good.Token)); errors.Is(err, p2p.ErrTooFast) {
				refused++
			}
		}
		if refused < 20 || len(seen.Lines("join refused")) > 10 {
			t.Errorf("30 guesses: got %d slowed down and %d lines, want at least 20 and at most 10", refused, len(seen.Lines("join refused")))
		}
		if err := nw.Hosts[1].Join(t.Context(), good.Bootstrap, good.Token); err != nil {
			t.Errorf("the right token after that: got %v, want no error", err)
		}
	})
}

func TestLostAnswerToAJoinCostsNoUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen, log := logger()
		nw := p2ptest.New(t, 3, p2ptest.Options{Strangers: 2, Dirs: true, Log: log})
		inv := invite(t, nw.Hosts[0], time.Hour, 1, p2p.AllRoles)
		// The request arrives, but the answer is lost.
		nw.Cut(func(from, to int) bool { return from == 0 && to == 1 && len(seen.Lines("credential given")) > 0 })
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		err := nw.Hosts[1].Join(ctx, inv.Bootstrap, inv.Token)
		cancel()
		nw.Cut(nil)
		if err == nil || len(seen.Lines("credential given")) != 1 {
			t.Fatalf("the answer was not lost: got error %v, and %d credentials, want an error and 1", err, len(seen.Lines("credential given")))
		}
		pass(time.Minute)
		if err := nw.Hosts[1].Join(t.Context(), inv.Bootstrap, inv.Token); err != nil {
			t.Errorf("the same host again: got %v, want no error", err)
		}
		if err := nw.Hosts[2].Join(t.Context(), inv.Bootstrap, inv.Token); !errors.Is(err, p2p.ErrTokenUsed) {
			t.Errorf("another host: got %v, want %v", err, p2p.ErrTokenUsed)
		}
	})
}

// TestTokenOutlivesARestart restarts the issuer. Its token keeps its remaining uses.
func TestTokenOutlivesARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nw := p2ptest.New(t, 4, p2ptest.Options{Strangers: 4, Dirs: true})
		inv := invite(t, nw.Hosts[0], time.Hour, 2, p2p.RoleWorker)
		if err := nw.Hosts[1].Join(t.Context(), inv.Bootstrap, inv.Token); err != nil {
			t.Fatal(err)
		}
		cluster := nw.Hosts[0].Cluster()
		nw.Stop(0)
		nw.Start(0)
		if nw.Hosts[0].Cluster() != cluster {
			t.Fatal("the founder has lost its cluster")
		}
		if err := nw.Hosts[2].Join(t.Context(), inv.Bootstrap, inv.Token); err != nil {
			t.Fatal(err)
		}
		if err := nw.Hosts[3].Join(t.Context(), inv.Bootstrap, inv.Token); !errors.Is(err, p2p.ErrTokenUsed) {
			t.Errorf("a third use of two: got %v, want p2p.ErrTokenUsed", err)
		}
		if got := nw.Hosts[2].Credential().Roles; got != p2p.RoleWorker {
			t.Errorf("roles %s, want worker", got)
		}
		if _, err := nw.Hosts[2].Invite(time.Hour, 1, p2p.RoleWorker); !errors.Is(err, p2p.ErrNotInviter) {
			t.Errorf("a worker invites: got %v, want p2p.ErrNotInviter", err)
		}
	})
}

func TestStartWithTokenWaitsForTheIssuer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen, log := logger()
		var inv p2p.Invitation
		nw := p2ptest.New(t, 3, p2ptest.Options{Strangers: 2, Dirs: true, Log: log, Config: func(i int, c *p2p.Config) {
			if i == 1 && inv.Token != "" {
				c.Token, c.Bootstrap = inv.Token, inv.Bootstrap
			}
			if i == 2 && inv.Token != "" {
				c.Token, c.Bootstrap = p2p.MadeUpToken(t, inv.Token), inv.Bootstrap
			}
		}})
		// These daemons belong to no cluster yet, because their directories are new.
		nw.Stop(1)
		nw.Stop(2)
		nw.Forget(1)
		nw.Forget(2)
		inv = invite(t, nw.Hosts[0], time.Hour, 1, p2p.AllRoles)
		if err := nw.TryStart(t.Context(), 2); !errors.Is(err, p2p.ErrTokenUnknown) {
			t.Errorf("start with a made-up token: got %v, want p2p.ErrTokenUnknown", err)
		}

		// The issuer is unreachable for a while: the start waits, and logs it once.
		nw.Blackhole(0, true)
		back := time.AfterFunc(2*time.Minute, func() { nw.Blackhole(0, false) })
		defer back.Stop()
		begin := time.Now()
		nw.Start(1)
		if took := time.Since(begin); took < 2*time.Minute || took > 3*time.Minute {
			t.Errorf("joined after %s, want 2 min to 3 min", took)
		}
		if n := len(seen.Lines("cannot reach the cluster yet")); n < 1 || n > 3 {
			t.Errorf("%d lines about the wait, want 1 to 3", n)
		}
		if nw.Hosts[1].Cluster() != nw.Hosts[0].Cluster() {
			t.Error("joined another cluster")
		}
		until(t, 10*time.Second, "it connects by itself", func() bool { return connected(nw.Hosts[0]) == 1 })

		nw.Stop(1)
		nw.Start(1) // with the same token, which has no uses left
		if nw.Hosts[1].Cluster() != nw.Hosts[0].Cluster() || len(seen.Lines("the token is not needed")) != 1 {
			t.Error("a restart with the used token did not go by the credential")
		}
	})
}

func TestBootstrapOfAnotherClusterIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nw := p2ptest.New(t, 3, p2ptest.Options{Strangers: 2})
		inv := invite(t, nw.Hosts[0], time.Hour, 1, p2p.AllRoles)
		own := nw.Hosts[1].Cluster()
		// Host 2 is in another cluster. Its address is given as the bootstrap address for the token.
		if err := nw.Hosts[1].Join(t.Context(), []string{nw.Addr(2)}, inv.Token); !errors.Is(err, p2p.ErrWrongCluster) {
			t.Errorf("joined at a host of another cluster: got %v, want p2p.ErrWrongCluster", err)
		}
		if nw.Hosts[1].Cluster() != own {
			t.Error("a host of another cluster let it in")
		}
		// The same with the issuer's ID at the address of another host.
		_, issuer, _ := strings.Cut(nw.Addr(0), "/p2p/")
		fake, _, _ := strings.Cut(nw.Addr(2), "/p2p/")
		if err := nw.Hosts[1].Join(t.Context(), []string{fake + "/p2p/" + issuer}, inv.Token); err == nil || nw.Hosts[1].Cluster() != own {
			t.Errorf("joined at a host that is not the issuer: %v", err)
		}
	})
}

func TestRevokedPeerIsRefusedEverywhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nw := p2ptest.New(t, 5, p2ptest.Options{Dirs: true})
		for i := range 4 {
			nw.Connect(i, i+1) // in a line, so that the revocation must be passed on
		}
		nw.Stop(4) // one host misses the revocation
		bad := nw.Peer(1)
		if err := nw.Hosts[0].Revoke(bad, p2p.Revoking{Reason: "key stolen"}); err != nil {
			t.Fatal(err)
		}
		if err := nw.Hosts[0].Revoke(nw.Peer(0), p2p.Revoking{Reason: "oops"}); err == nil {
			t.Error("a daemon revoked itself")
		}
		pass(100 * time.Millisecond)
		if isConnected(nw.Hosts[0], bad) {
			t.Error("still connected to a revoked peer")
		}
		nw.Connect(0, 2)
		until(t, 5*time.Second, "all but the stopped host know the revocation", func() bool { return !known(nw.Hosts[2], bad) && !known(nw.Hosts[3], bad) })
		if err := nw.Hosts[1].ConnectAddr(t.Context(), nw.Addr(3)); !errors.Is(err, p2p.ErrRevoked) {
			t.Errorf("the revoked peer dials: got %v, want %v", err, p2p.ErrRevoked)
		}
		if err := nw.Hosts[3].ConnectAddr(t.Context(), nw.Addr(1)); !errors.Is(err, p2p.ErrRevoked) {
			t.Errorf("dialling the revoked peer: got %v, want %v", err, p2p.ErrRevoked)
		}
		nw.Start(4)
		until(t, 20*time.Second, "the host that was stopped knows the revocation", func() bool { return connected(nw.Hosts[4]) > 0 && !known(nw.Hosts[4], bad) })

		nw.Stop(3)
		nw.Start(3) // the list is on disk
		if err := nw.Hosts[3].ConnectAddr(t.Context(), nw.Addr(1)); !errors.Is(err, p2p.ErrRevoked) {
			t.Errorf("after a restart: got %v, want p2p.ErrRevoked", err)
		}
		// Its signatures are void, although its own credential has not expired.
		issued := p2p.IssueTo(t, nw.Hosts[1])
		if err := nw.Hosts[2].Check(issued); !errors.Is(err, p2p.ErrRevoked) {
			t.Errorf("a peer signed by the revoked one: got %v, want p2p.ErrRevoked", err)
		}
	})
}

// TestRevokedPeerCannotJoinAgain checks that a revoked peer cannot join again, even with a token.
func TestRevokedPeerCannotJoinAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nw := p2ptest.New(t, 2, p2ptest.Options{Strangers: 2, Dirs: true})
		inv := invite(t, nw.Hosts[0], time.Hour, 2, p2p.AllRoles)
		if err := nw.Hosts[1].Join(t.Context(), inv.Bootstrap, inv.Token); err != nil {
			t.Fatal(err)
		}
		if err := nw.Hosts[0].Revoke(nw.Peer(1), p2p.Revoking{Reason: "gone"}); err != nil {
			t.Fatal(err)
		}
		nw.Stop(1)
		nw.Forget(1)
		nw.Start(1)
		if err := nw.Hosts[1].Join(t.Context(), inv.Bootstrap, inv.Token); !errors.Is(err, p2p.ErrRevoked) {
			t.Errorf("joins again: got %v, want %v", err, p2p.ErrRevoked)
		}
	})
}

func known(h *p2p.Host, p job.Peer) bool {
	_, ok := h.Member(p)
	return ok
}

func TestRevokedPeerRarelyReachesHello(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen, log := logger()
		nw := p2ptest.New(t, 2, p2ptest.Options{Log: log})
		if err := nw.Hosts[0].Revoke(nw.Peer(1), p2p.Revoking{Reason: "gone"}); err != nil {
			t.Fatal(err)
		}
		told := 0
		for range 20 {
			if err := nw.Hosts[1].ConnectAddr(t.Context(), nw.Addr(0)); err == nil {
				t.Fatal("connected")
			} else if errors.Is(err, p2p.ErrRevoked) {
				told++
			}
		}
		if told < 1 || told > 6 || len(seen.Lines("peer refused")) > 6 {
			t.Errorf("told %d times with %d lines logged, want 1 to 6 times and at most 6 lines", told, len(seen.Lines("peer refused")))
		}
	})
}

// TestCredentialsAreRenewed checks that credentials are renewed repeatedly, even after the founder is gone for good.
func TestCredentialsAreRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const life = 2 * time.Minute
		nw := p2ptest.New(t, 4, p2ptest.Options{Strangers: 4, Dirs: true, Config: func(_ int, c *p2p.Config) { c.CredentialLife = life }})
		all := invite(t, nw.Hosts[0], time.Hour, 1, p2p.AllRoles)
		if err := nw.Hosts[1].Join(t.Context(), all.Bootstrap, all.Token); err != nil {
			t.Fatal(err)
		}
		all = invite(t, nw.Hosts[1], time.Hour, 1, p2p.AllRoles)
		if err := nw.Hosts[2].Join(t.Context(), all.Bootstrap, all.Token); err != nil {
			t.Fatal(err)
		}
		worker := invite(t, nw.Hosts[2], time.Hour, 1, p2p.RoleWorker)
		if err := nw.Hosts[3].Join(t.Context(), worker.Bootstrap, worker.Token); err != nil {
			t.Fatal(err)
		}
		until(t, 10*time.Second, "they meet", func() bool { return connected(nw.Hosts[3]) > 0 && connected(nw.Hosts[2]) > 1 })
		nw.Connect(2, 0)
		until(t, life/4, "the later inviter has a grant that does not depend on the earlier one", func() bool { return p2p.Firm(nw.Hosts[2]) })
		nw.Stop(0)
		first := nw.Hosts[3].Credential().NotAfter
		pass(10 * life)
		for i := 1; i < 4; i++ {
			c := nw.Hosts[i].Credential()
			if left := time.Until(c.NotAfter); left < life/4 {
				t.Errorf("host %d: got %s left of a life of %s, want at least %v", i, left, life, life/4)
			}
		}
		if c := nw.Hosts[3].Credential(); !c.NotAfter.After(first.Add(8*life)) || c.Roles != p2p.RoleWorker {
			t.Errorf("the worker has %s until %s, want worker for more than eight lifetimes", c.Roles, c.NotAfter)
		}
		if connected(nw.Hosts[3]) == 0 {
			t.Error("the worker is no longer connected")
		}
		// Another generation can still join.
		if _, err := nw.Hosts[2].Invite(time.Hour, 1, p2p.AllRoles); err != nil {
			t.Errorf("an inviter of the second generation invites: %v", err)
		}
	})
}

// TestMemberTakesRolesOfAnotherToken checks that a member can become an inviter, and that an old token in its settings
// does not change it back.
func TestMemberTakesRolesOfAnotherToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var first p2p.Invitation
		nw := p2ptest.New(t, 2, p2ptest.Options{Strangers: 2, Dirs: true, Config: func(i int, c *p2p.Config) {
			if i == 1 {
				c.Bootstrap, c.Token = first.Bootstrap, first.Token
			}
		}})
		first = invite(t, nw.Hosts[0], time.Hour, 1, p2p.DefaultRoles)
		must := func(inv p2p.Invitation, want p2p.Roles) {
			t.Helper()
			if err := nw.Hosts[1].Join(t.Context(), inv.Bootstrap, inv.Token); err != nil {
				t.Fatal(err)
			}
			pass(time.Minute)
			if got := nw.Hosts[1].Credential().Roles; got != want {
				t.Fatalf("got the roles %s, want %s", got, want)
			}
		}
		must(first, p2p.DefaultRoles)
		if _, err := nw.Hosts[1].Invite(time.Hour, 1, p2p.RoleWorker); !errors.Is(err, p2p.ErrNotInviter) {
			t.Errorf("a member without the role invites: got %v, want p2p.ErrNotInviter", err)
		}
		must(invite(t, nw.Hosts[0], time.Hour, 1, p2p.AllRoles), p2p.AllRoles)
		nw.Stop(1)
		nw.Start(1) // with the token that gave it less
		if got := nw.Hosts[1].Credential().Roles; got != p2p.AllRoles {
			t.Errorf("after a restart it has the roles %s, want p2p.AllRoles", got)
		}
		if _, err := nw.Hosts[1].Invite(time.Hour, 1, p2p.RoleWorker); err != nil {
			t.Errorf("an inviter invites: %v", err)
		}
		nw.Connect(1, 0)
		id := peerOf(t, nw.Peer(1))
		if got := nw.Hosts[0].Grants.Of(id); got != p2p.AllRoles {
			t.Errorf("the other member knows it with the roles %s, want p2p.AllRoles", got)
		}
		must(invite(t, nw.Hosts[0], time.Hour, 1, p2p.RoleWorker), p2p.RoleWorker)
		nw.Connect(1, 0)
		if got := nw.Hosts[0].Grants.Of(id); got != p2p.RoleWorker {
			t.Errorf("after the renewal the other member knows it with the roles %s, want p2p.RoleWorker", got)
		}
	})
}

func peerOf(t *testing.T, p job.Peer) peer.ID {
	t.Helper()
	id, err := peer.Decode(string(p))
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// TestRenewalsKeepLabels checks that a host keeps the labels of its token for good, also over renewals by other
// inviters.
func TestRenewalsKeepLabels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const life = 2 * time.Minute
		nw := p2ptest.New(t, 4, p2ptest.Options{Strangers: 4, Dirs: true, Config: func(_ int, c *p2p.Config) { c.CredentialLife = life }})
		all := invite(t, nw.Hosts[0], time.Hour, 2, p2p.AllRoles)
		for _, i := range []int{1, 3} { // two inviters, which endorse each other
			if err := nw.Hosts[i].Join(t.Context(), all.Bootstrap, all.Token); err != nil {
				t.Fatal(err)
			}
		}
		nw.Connect(1, 3)
		want := map[string]string{"secure": "yes", "rack": "r1"}
		inv, err := nw.Hosts[0].Invite(time.Hour, 1, p2p.RoleWorker, want)
		if err != nil {
			t.Fatal(err)
		}
		if err := nw.Hosts[2].Join(t.Context(), inv.Bootstrap, inv.Token); err != nil {
			t.Fatal(err)
		}
		nw.Connect(2, 0)
		nw.Connect(2, 1)
		first := nw.Hosts[2].Credential().NotAfter
		nw.Stop(0)
		pass(10 * life)
		c := nw.Hosts[2].Credential()
		if !maps.Equal(c.Labels, want) || !c.NotAfter.After(first.Add(8*life)) {
			t.Errorf("got labels %v until %s, want those of the token, renewed", c.Labels, c.NotAfter)
		}
		if got := nw.Hosts[1].Grants.Labels(nw.Peer(2)); !maps.Equal(got, want) {
			t.Errorf("the inviter knows it with %v, want %v", got, want)
		}
		// Another token changes them, with the same roles.
		inv, err = nw.Hosts[1].Invite(time.Hour, 1, p2p.RoleWorker, map[string]string{"rack": "r2"})
		if err != nil {
			t.Fatal(err)
		}
		if err := nw.Hosts[2].Join(t.Context(), inv.Bootstrap, inv.Token); err != nil {
			t.Fatal(err)
		}
		if got := nw.Hosts[2].Credential().Labels; !maps.Equal(got, map[string]string{"rack": "r2"}) {
			t.Errorf("labels after another token: got %v, want rack r2", got)
		}
		if err := nw.Hosts[2].Join(t.Context(), inv.Bootstrap, inv.Token); err != nil { // changes nothing
			t.Error(err)
		}
	})
}

func TestExpiredCredentialIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const life = 2 * time.Minute
		nw := p2ptest.New(t, 2, p2ptest.Options{Strangers: 2, Dirs: true, Config: func(i int, c *p2p.Config) { c.CredentialLife = life }})
		inv := invite(t, nw.Hosts[0], time.Hour, 1, p2p.RoleWorker|p2p.RoleScheduler)
		if err := nw.Hosts[1].Join(t.Context(), inv.Bootstrap, inv.Token); err != nil {
			t.Fatal(err)
		}
		until(t, 10*time.Second, "they meet", func() bool { return connected(nw.Hosts[0]) == 1 })
		sub := nw.Hosts[0].Subscribe()
		defer sub.Close()
		if e, err := sub.Next(t.Context()); err != nil || e.Kind != p2p.MemberUp {
			t.Fatalf("event %+v, %v, want e.Kind = p2p.MemberUp", e, err)
		}
		// Host 2 cannot renew because the only inviter does not answer, so its connection ends with its credential.
		resume := p2p.StopRenewals(nw.Hosts[1])
		pass(life + 20*time.Second)
		if connected(nw.Hosts[0]) != 0 {
			t.Error("still connected after its credential ended")
		}
		if e, err := sub.Next(t.Context()); err != nil || e.Kind != p2p.MemberDown || e.Peer != nw.Peer(1) {
			t.Errorf("event %+v, %v, want that host 1 is down", e, err)
		}
		if err := nw.Hosts[1].ConnectAddr(t.Context(), nw.Addr(0)); !errors.Is(err, p2p.ErrExpired) {
			t.Errorf("dialling with an expired credential: got %v, want p2p.ErrExpired", err)
		}
		resume()
		nw.Stop(1)
		if err := nw.TryStart(t.Context(), 1); !errors.Is(err, p2p.ErrExpired) {
			t.Errorf("starting with an expired credential: got %v, want p2p.ErrExpired", err)
		}
	})
}

// TestChainIsBounded checks that a member of the fourth generation cannot invite.
func TestChainIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := p2p.MaxChain + 2
		nw := p2ptest.New(t, n, p2ptest.Options{Strangers: n})
		for i := 1; i < n-1; i++ {
			inv, err := nw.Hosts[i-1].Invite(time.Hour, 1, p2p.AllRoles)
			if err != nil {
				t.Fatalf("host %d invites: %v", i-1, err)
			}
			if err := nw.Hosts[i].Join(t.Context(), inv.Bootstrap, inv.Token); err != nil {
				t.Fatalf("host %d joins: %v", i, err)
			}
		}
		if _, err := nw.Hosts[n-2].Invite(time.Hour, 1, p2p.AllRoles); !errors.Is(err, p2p.ErrChainTooLong) {
			t.Errorf("the last of the chain invites: got %v, want p2p.ErrChainTooLong", err)
		}
		if err := nw.Hosts[n-2].ConnectAddr(t.Context(), nw.Addr(0)); err != nil {
			t.Errorf("the last of the chain connects: got %v, want no error, because it is a member", err)
		}
	})
}

// TestRestartWithoutBootstrapHost checks that a restarted host finds the cluster within 5 s without its bootstrap host.
func TestRestartWithoutBootstrapHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nw := p2ptest.New(t, 4, p2ptest.Options{Strangers: 3, Dirs: true})
		for i := 1; i < 4; i++ {
			inv := invite(t, nw.Hosts[0], time.Hour, 1, p2p.AllRoles)
			if err := nw.Hosts[i].Join(t.Context(), inv.Bootstrap, inv.Token); err != nil {
				t.Fatal(err)
			}
		}
		nw.Mesh()
		pass(5 * time.Second) // the peer books are written
		nw.Blackhole(0, true)
		nw.Stop(1)
		nw.Start(1)
		took := until(t, 5*time.Second, "host 1 is back", func() bool { return connected(nw.Hosts[1]) == 2 })
		t.Logf("connected after %s", took)
	})
}

func TestBootstrapIsDialledForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var boot []string
		nw := p2ptest.New(t, 2, p2ptest.Options{Config: func(i int, c *p2p.Config) {
			if i == 1 {
				c.Bootstrap = boot
			}
		}})
		boot = []string{nw.Addr(0)}
		nw.Stop(1)
		nw.Start(1)
		until(t, 10*time.Second, "connected", func() bool { return connected(nw.Hosts[1]) == 1 })
		nw.Blackhole(0, true)
		until(t, 2*time.Minute, "the loss is noticed", func() bool { return connected(nw.Hosts[1]) == 0 })
		pass(time.Hour)
		nw.Blackhole(0, false)
		until(t, 30*time.Second, "connected again", func() bool { return connected(nw.Hosts[1]) == 1 })
	})
}

// TestTwentyHostsMeetAgainAfterAPartition checks that twenty hosts find each other again after packet loss and a
// partition. A revocation that was made on one side of the partition reaches the other side.
func TestTwentyHostsMeetAgainAfterAPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, half = 20, 10
		nw := p2ptest.New(t, n, p2ptest.Options{Loss: 0.02, Seed: 7, Dirs: true})
		for i := range n {
			nw.Connect(i, (i+1)%n)
			nw.Connect(i, (i+5)%n)
		}
		pass(5 * time.Second)
		nw.Partition(half)
		until(t, 2*time.Minute, "the two sides are disconnected", func() bool {
			return !isConnected(nw.Hosts[0], nw.Peer(n-1)) && !isConnected(nw.Hosts[n-1], nw.Peer(0))
		})
		bad := nw.Peer(3)
		if err := nw.Hosts[0].Revoke(bad, p2p.Revoking{Reason: "stolen"}); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		if !known(nw.Hosts[n-1], bad) && known(nw.Hosts[half], bad) {
			t.Log("host 3 was never known on the other side") // it need not be known there
		}
		nw.Cut(nil)
		until(t, 3*time.Minute, "all know the revocation and are connected", func() bool {
			for i, h := range nw.Hosts {
				if i != 3 && (known(h, bad) || connected(h) < 2 || h.Check(p2p.ShownCredential(nw.Hosts[3])) == nil) {
					return false
				}
			}
			return true
		})
	})
}

// The peer book is a cache. A book that cannot be read is renamed, and the daemon starts.
func TestDamagedPeerBookIsPutAside(t *testing.T) {
	cfg := p2p.DefaultConfig()
	cfg.DataDir, cfg.Listen = t.TempDir(), []string{"/ip4/127.0.0.1/tcp/0"}
	path := filepath.Join(cfg.DataDir, "peers.json")
	for _, text := range []string{"", "{", `{"schema":"muster.peers/v1","peers":[{"peer":"x"}]}`} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := start(t, cfg).Close(); err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(path + ".damaged"); err != nil || string(b) != text {
			t.Errorf("renamed book: got %q, %v, want %q", b, err, text)
		}
	}
}

func TestErrorsOfDamagedFilesNameTheFile(t *testing.T) {
	dir := t.TempDir()
	cfg := p2p.DefaultConfig()
	cfg.DataDir, cfg.Listen = dir, []string{"/ip4/127.0.0.1/tcp/0"}
	h := start(t, cfg)
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"identity.key", "cluster.key", "membership.json", "invites.json", "revoked.list"} {
		path := filepath.Join(dir, name)
		keep, err := os.ReadFile(path)
		if err != nil && name != "invites.json" && name != "revoked.list" {
			t.Fatal(err)
		}
		if info, err := os.Stat(path); err == nil && info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %04o, want 0600", name, info.Mode().Perm())
		}
		if err := os.WriteFile(path, []byte("{garbage\xff"), 0o600); err != nil {
			t.Fatal(err)
		}
		h, err := p2p.New(cfg, slog.New(slog.DiscardHandler))
		if err == nil {
			err = h.Enter(t.Context())
			h.Close()
		}
		if err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("damaged %s: got %v, want an error that names it", name, err)
		}
		if keep == nil {
			err = os.Remove(path)
		} else {
			err = os.WriteFile(path, keep, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(dir, "identity.key"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := p2p.New(cfg, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("a key that others may read: got %v, want an error with the command", err)
	}
}

func TestConnectNeedsAnIDAndAnAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nw := p2ptest.New(t, 1, p2ptest.Options{})
		if err := nw.Hosts[0].Connect(t.Context(), "nonsense"); err == nil {
			t.Error("connected to nonsense")
		}
		other, err := peer.Decode(nobody)
		if err != nil {
			t.Fatal(err)
		}
		if err := nw.Hosts[0].Connect(t.Context(), job.Peer(other.String())); err == nil {
			t.Error("connected to a peer without an address")
		}
		if err := nw.Hosts[0].ConnectAddr(t.Context(), "/ip4/1.0.0.9/udp/1/quic-v1"); !errors.Is(err, p2p.ErrBadAddr) {
			t.Errorf("an address without an ID: got %v, want p2p.ErrBadAddr", err)
		}
	})
}
