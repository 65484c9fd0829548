package p2p_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/musterhq/muster/p2p"
)

// TestCopyOfTheClusterKeyCanRevokeAnyPeer puts a copy of the founder's key into another member's data directory. From
// its next start on that member can revoke any peer.
func TestCopyOfTheClusterKeyCanRevokeAnyPeer(t *testing.T) {
	cfg := config(kinds["tcp"])
	cfg.DataDir = t.TempDir()
	founder := start(t, cfg)
	join := func(dir string) p2p.Config {
		inv, err := founder.Invite(time.Hour, 1, p2p.RoleWorker)
		if err != nil {
			t.Fatal(err)
		}
		c := config(kinds["tcp"])
		c.DataDir, c.Bootstrap, c.Token = dir, inv.Bootstrap, inv.Token
		return c
	}
	other := start(t, join(t.TempDir()))
	member := join(t.TempDir())
	t.Run("before", func(t *testing.T) {
		h := start(t, member)
		if err := h.ConnectAddr(t.Context(), other.Addrs()[0]); err != nil {
			t.Fatal(err)
		}
		if err := h.Revoke(other.Peer(), p2p.Revoking{}); !errors.Is(err, p2p.ErrNotYours) {
			t.Errorf("a worker revokes another: got %v, want p2p.ErrNotYours", err)
		}
	})
	text, err := os.ReadFile(filepath.Join(cfg.DataDir, "cluster.key"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(member.DataDir, "cluster.key"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	h := start(t, member)
	if err := h.Revoke(other.Peer(), p2p.Revoking{}); err != nil {
		t.Errorf("with the cluster key: %v, want no error", err)
	}
}
