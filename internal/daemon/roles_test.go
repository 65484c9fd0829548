package daemon

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/dht"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/internal/testkit/rogue"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/p2p"
	"github.com/musterhq/muster/p2p/gossip"
	"github.com/musterhq/muster/p2p/p2ptest"
)

// Records of the DHT and announcements count only if their daemon has the role: a worker is found only where a worker
// is, and only schedulers announce.
func TestHintsWithoutTheRoleAreIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		roles := []p2p.Roles{p2p.AllRoles, p2p.RoleWorker, p2p.RoleScheduler, p2p.RoleInviter}
		nw := p2ptest.New(t, len(roles), p2ptest.Options{Roles: func(i int) p2p.Roles { return roles[i] }})
		log := slog.New(slog.DiscardHandler)
		var rogues []*rogue.Peer
		for _, h := range nw.Hosts[1:] {
			rogues = append(rogues, rogue.On(t, h))
		}
		host := nw.Hosts[0]
		tc := dht.DefaultConfig()
		tc.Cluster = host.Cluster()
		table, err := dht.New(tc, host.Libp2p(), log)
		if err != nil {
			t.Fatal(err)
		}
		heard := map[job.Peer]bool{}
		gc := gossip.DefaultConfig()
		gc.Cluster = host.Cluster()
		topic, err := gossip.New(gc, host.Libp2p(), grants{host}, func(p job.Peer, _ gossip.Announcement) { heard[p] = true }, log)
		if err != nil {
			t.Fatal(err)
		}
		runParts(t, []part{{"dht", table.Run}, {"gossip", topic.Run}})
		nw.Mesh()
		for _, r := range rogues {
			r.Advertise("h100")
			r.Announce(1, 64, "cpu/1")
		}
		pass(time.Minute)
		for i, r := range rogues {
			has := roles[i+1]
			if heard[r.ID()] != has.Has(p2p.RoleScheduler) {
				t.Errorf("the announcement of a daemon with %s: heard %v, want only that of a scheduler", has, heard[r.ID()])
			}
			for _, role := range []p2p.Roles{p2p.RoleWorker, p2p.RoleScheduler} {
				found := false
				for p := range (holding{table, host, role}).Find(t.Context(), "h100", 0) {
					found = found || p == r.ID()
				}
				if found != has.Has(role) {
					t.Errorf("the record of a daemon with %s, as one of %s: found %v, want only that of its role", has, role, found)
				}
			}
		}
		bounded := 0
		for range (holding{table, host, p2p.RoleWorker}).Find(t.Context(), "h100", 1) {
			bounded++
		}
		if bounded != 1 {
			t.Errorf("got %d found, want 1", bounded)
		}
	})
}

// A daemon does what its credential allows, whatever its settings say.
func TestCredentialLimitsTheRolesOfADaemon(t *testing.T) {
	for _, c := range []struct {
		roles                 p2p.Roles
		noWorker, noScheduler bool
	}{
		{p2p.AllRoles, false, false}, {p2p.RoleWorker, false, true}, {p2p.RoleScheduler, true, false}, {p2p.RoleInviter, true, true},
	} {
		cfg := DefaultConfig().withRoles(c.roles)
		if cfg.NoWorker != c.noWorker || cfg.NoScheduler != c.noScheduler {
			t.Errorf("with %s: got no worker %v, no scheduler %v, want %v, %v", c.roles, cfg.NoWorker, cfg.NoScheduler, c.noWorker, c.noScheduler)
		}
	}
	own := func() *p2p.Credential { return &p2p.Credential{Roles: p2p.RoleWorker} }
	_, err := jobsBackend{own: own}.Submit(t.Context(), job.Submission{})
	if !errors.Is(err, api.ErrDenied) || !strings.Contains(err.Error(), "role scheduler") {
		t.Errorf("submit at a worker: got %v, want ErrDenied with the role", err)
	}
}

func TestMissingInvitersAreReported(t *testing.T) {
	inviter := func(name string, connected bool) p2p.Member {
		return p2p.Member{Name: name, Roles: p2p.AllRoles, Connected: connected}
	}
	worker := p2p.Member{Name: "w", Roles: p2p.DefaultRoles, Connected: true}
	for _, c := range []struct {
		own     p2p.Roles
		members []p2p.Member
		state   api.FactState
		words   []string
	}{
		{p2p.AllRoles, nil, api.FactSkip, []string{"alone"}},
		{p2p.AllRoles, []p2p.Member{worker}, api.FactWarn, []string{"only here has the role", "muster invite --roles worker,scheduler,inviter"}},
		{p2p.DefaultRoles, []p2p.Member{worker, inviter("amy", true), inviter("ben", false)}, api.FactWarn, []string{"only amy", "not connected: ben", "on amy"}},
		{p2p.AllRoles, []p2p.Member{inviter("amy", true)}, api.FactOK, []string{"2 hosts"}},
		{p2p.DefaultRoles, []p2p.Member{inviter("amy", false), worker}, api.FactWarn, []string{"not connected: amy", "ends at 2030-01-02", "restore its data directory"}},
	} {
		own := &p2p.Credential{Roles: c.own, NotAfter: time.Date(2030, 1, 2, 0, 0, 0, 0, time.UTC)}
		f := inviterFact(own, "here", c.members)
		for _, w := range c.words {
			if f.State != c.state || !strings.Contains(f.Detail+f.Advice, w) {
				t.Errorf("%v: got %+v, want %s with %q", c.members, f, c.state, w)
			}
		}
	}
}

func TestInvitersNearTheirEndAreReported(t *testing.T) {
	now := time.Date(2030, 1, 2, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		end   time.Time
		state api.FactState
		words string
	}{
		{time.Time{}, api.FactSkip, "founder itself"},
		{now.Add(13 * 24 * time.Hour), api.FactOK, "2030-01-15"},
		{now.Add(11 * 24 * time.Hour), api.FactWarn, "copy of its cluster.key"},
		{now.Add(-time.Hour), api.FactWarn, "not renewed"},
	} {
		if f := endFact(c.end, now); f.State != c.state || !strings.Contains(f.Detail+f.Advice, c.words) {
			t.Errorf("%s: got %+v, want %s with %q", c.end, f, c.state, c.words)
		}
	}
}

func TestInvitersThatDependOnOneAreReported(t *testing.T) {
	for _, c := range []struct {
		roles      p2p.Roles
		endorsable bool
		state      api.FactState
		words      string
	}{
		{p2p.DefaultRoles, true, api.FactSkip, "no inviter"},
		{p2p.AllRoles, true, api.FactOK, "any other inviter"},
		{p2p.AllRoles, false, api.FactWarn, "ends at 2030-01-02"},
	} {
		own := &p2p.Credential{Roles: c.roles, NotAfter: time.Date(2030, 1, 2, 0, 0, 0, 0, time.UTC)}
		if f := grantFact(own, c.endorsable); f.State != c.state || !strings.Contains(f.Detail+f.Advice, c.words) {
			t.Errorf("%s: got %+v, want %s with %q", c.roles, f, c.state, c.words)
		}
	}
}

// The labels in a Hello are the host's own; signed labels come from its credential.
func TestLabelsComeFromTheCredential(t *testing.T) {
	r := &router{signed: func(p job.Peer) map[string]string {
		if p == "good" {
			return map[string]string{"secure": "yes"}
		}
		return nil
	}}
	for peer, want := range map[job.Peer]string{"good": "map[mine:1 secure:yes] map[secure:yes]", "liar": "map[mine:1 secure:no] map[]"} {
		hello := contract.Hello{Profile: contract.Profile{Peer: peer, Labels: map[string]string{"mine": "1", "secure": "no"}, Signed: map[string]string{"secure": "forged"}}}
		m := r.vouched(peer, hello)
		if got := fmt.Sprint(m.Profile.Labels, " ", m.Profile.Signed); got != want {
			t.Errorf("%s: got %s, want %s", peer, got, want)
		}
		if hello.Profile.Labels["secure"] != "no" {
			t.Error("the message itself was changed")
		}
	}
}
