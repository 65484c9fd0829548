package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"testing"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/p2p"
)

func TestVisitsBecomeAuditEntries(t *testing.T) {
	cfg := audit.DefaultConfig()
	cfg.Dir = t.TempDir()
	l, err := audit.Open(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	at := netip.MustParseAddr("10.0.0.7")
	for _, x := range []struct {
		v    p2p.Visit
		want string
	}{
		{p2p.Visit{Act: p2p.Joining, Roles: p2p.RoleWorker, Object: "inv"}, "join ok network  inv worker"},
		{p2p.Visit{Act: p2p.Joining, Err: fmt.Errorf("join: %w", p2p.ErrTokenUsed)}, "join refused network used-token  "},
		{p2p.Visit{Act: p2p.Renewing, Roles: p2p.RoleWorker}, "renew ok peer   worker"},
		{p2p.Visit{Act: p2p.Renewing, Err: p2p.ErrExpired}, "renew refused network expired  "},
		{p2p.Visit{Act: p2p.Entering, Err: p2p.ErrRevoked}, "hello refused network revoked  "},
		{p2p.Visit{Act: p2p.Entering, Err: errors.New("any")}, "hello refused network denied  "},
		{p2p.Visit{Act: p2p.Opening, Object: "/p", Err: errors.New("roles")}, "role refused peer denied /p "},
	} {
		x.v.Peer, x.v.Addr, x.v.IP = "12D3KooWPeer", "/ip4/10.0.0.7/tcp/1", at
		gateAudit{l}.Visited(x.v)
		all, err := l.Find(t.Context(), audit.Query{Limit: 1})
		if err != nil || len(all) != 1 {
			t.Fatalf("got entries %v, %v, want one", all, err)
		}
		e := all[0]
		if got := fmt.Sprintf("%s %s %s %s %s %s", e.Action, e.Outcome, e.From, e.Code, e.Object, e.Details["roles"]); got != x.want || e.Peer != x.v.Peer || !e.Action.Known() {
			t.Errorf("%+v: got %q, want %q", x.v, got, x.want)
		}
	}
}

func TestLossesOfTheAuditLogAreReported(t *testing.T) {
	for _, x := range []struct {
		lost audit.Losses
		want api.FactState
	}{
		{audit.Losses{}, api.FactOK},
		{audit.Losses{Entries: 3, Reason: fs.ErrPermission.Error()}, api.FactWarn},
		{audit.Losses{Entries: 3, Now: true}, api.FactFail},
	} {
		if f := auditFact(x.lost); f.State != x.want || (f.State != api.FactOK && f.Advice == "") {
			t.Errorf("%+v: got %+v, want %s, with advice unless it is OK", x.lost, f, x.want)
		}
	}
}
