package p2p_test

// What an auditor receives, on a simulated network.

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/musterhq/muster/p2p"
	"github.com/musterhq/muster/p2p/p2ptest"
)

// auditor records the visits that it receives.
type auditor struct {
	mu   sync.Mutex
	told []p2p.Visit // guarded by mu
}

func (a *auditor) Visited(v p2p.Visit) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.told = append(a.told, v)
}

// take returns the visits since the last call.
func (a *auditor) take() []p2p.Visit {
	a.mu.Lock()
	defer a.mu.Unlock()
	told := a.told
	a.told = nil
	return told
}

func TestAuditorReceivesVisits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var door auditor
		nw := p2ptest.New(t, 4, p2ptest.Options{Strangers: 4, Dirs: true, Config: func(i int, c *p2p.Config) {
			if i == 0 {
				c.Audit = &door
			}
		}})
		ctx := t.Context()
		inv, err := nw.Hosts[0].Invite(time.Hour, 1, p2p.RoleWorker, map[string]string{"rack": "r1"})
		if err != nil {
			t.Fatal(err)
		}
		if len(inv.ID) != 12 || strings.Contains(inv.Token, inv.ID) {
			t.Errorf("invitation %q of token %q, want an ID of 12 characters that is no part of the token", inv.ID, inv.Token)
		}
		if err := nw.Hosts[1].Join(ctx, inv.Bootstrap, inv.Token); err != nil {
			t.Fatal(err)
		}
		told := door.take()
		if len(told) != 1 || told[0].Act != p2p.Joining || told[0].Err != nil || told[0].Peer != nw.Peer(1) || told[0].Object != inv.ID ||
			told[0].Roles != p2p.RoleWorker || told[0].Labels["rack"] != "r1" || told[0].Addr == "" || !told[0].IP.IsValid() {
			t.Errorf("visits after a join: got %+v, want one with all facts", told)
		}
		if err := nw.Hosts[2].Join(ctx, inv.Bootstrap, inv.Token); !errors.Is(err, p2p.ErrTokenUsed) {
			t.Errorf("a second join: got %v, want p2p.ErrTokenUsed", err)
		}
		told = door.take()
		if len(told) != 1 || told[0].Act != p2p.Joining || !errors.Is(told[0].Err, p2p.ErrTokenUsed) || told[0].Peer != nw.Peer(2) || told[0].Object != inv.ID {
			t.Errorf("visits after the second use of a token: got %+v, want one with ErrTokenUsed", told)
		}
		// a host of another cluster
		if err := nw.Hosts[3].ConnectAddr(ctx, nw.Addr(0)); !errors.Is(err, p2p.ErrWrongCluster) {
			t.Errorf("a stranger: got %v, want p2p.ErrWrongCluster", err)
		}
		told = door.take()
		if len(told) != 1 || told[0].Act != p2p.Entering || !errors.Is(told[0].Err, p2p.ErrWrongCluster) || told[0].Peer != nw.Peer(3) {
			t.Errorf("visits after the call of a stranger: got %+v, want one with ErrWrongCluster", told)
		}
		// Each visit of a revoked member is reported, also when it no longer gets as far as a hello.
		if err := nw.Hosts[0].ConnectAddr(ctx, nw.Addr(1)); err != nil {
			t.Fatal(err)
		}
		if err := nw.Hosts[0].Revoke(nw.Peer(1), p2p.Revoking{}); err != nil {
			t.Fatal(err)
		}
		until(t, 5*time.Second, "the member is out", func() bool { return !isConnected(nw.Hosts[0], nw.Peer(1)) && !isConnected(nw.Hosts[1], nw.Peer(0)) })
		door.take()
		const tries = 8
		for range tries {
			if err := nw.Hosts[1].ConnectAddr(ctx, nw.Addr(0)); err == nil {
				t.Error("the revoked member is let in")
			}
			time.Sleep(time.Second)
		}
		told = door.take()
		for _, v := range told {
			if v.Act != p2p.Entering || !errors.Is(v.Err, p2p.ErrRevoked) || v.Peer != nw.Peer(1) || v.Addr == "" {
				t.Errorf("got visit %+v, want one of the revoked member with ErrRevoked and an address", v)
			}
		}
		if len(told) < tries {
			t.Errorf("got %d visits, want %d, one for each try", len(told), tries)
		}
	})
}
