package p2p_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/musterhq/muster/p2p"
)

// copyOf copies the files of a data directory.
func copyOf(t *testing.T, dir string) string {
	t.Helper()
	to := t.TempDir()
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(to, "identity.key"), 0o600); err != nil {
		t.Fatal(err)
	}
	return to
}

// A daemon that is started on a copy of the data directory of a running one learns first of all where that one runs.
// All members that see both tell it. The daemon of the original may start again and again.
func TestTwinDoesNotStart(t *testing.T) {
	for kind, listen := range kinds {
		t.Run(kind, func(t *testing.T) {
			member := start(t, config(listen))
			inv, err := member.Invite(time.Hour, 1, p2p.RoleWorker)
			if err != nil {
				t.Fatal(err)
			}
			cfg := config(listen)
			cfg.DataDir, cfg.Bootstrap, cfg.Token = t.TempDir(), inv.Bootstrap, inv.Token
			t.Run("an earlier life", func(t *testing.T) {
				if err := start(t, cfg).Twins.Alone(t.Context()); err != nil {
					t.Error(err)
				}
			})
			first := start(t, cfg)
			if err := first.Twins.Alone(t.Context()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2100 * time.Millisecond) // so that its age decides, and not its number
			cfg.DataDir = copyOf(t, cfg.DataDir)
			began := time.Now()
			twin := start(t, cfg)
			err = twin.Twins.Alone(t.Context())
			var e *p2p.TwinError
			if !errors.As(err, &e) || e.Peer != first.Peer() {
				t.Fatalf("the twin starts: got %v, want an error that names the first", err)
			}
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("it learnt of the twin after %s, want at most 5 s", took)
			}
			if e.There == "" || e.Here == "" || e.There == e.Here || !strings.Contains(e.Error(), e.There) {
				t.Errorf("got %v, want two different addresses, with that of the twin in the text", e)
			}
			if err := first.Twins.Alone(t.Context()); err != nil {
				t.Errorf("the older one: got %v, want no error", err)
			}
			for _, h := range []*p2p.Host{member, first} {
				if seen := h.Twins.Seen(); len(seen) != 1 || seen[0].Peer != first.Peer() || seen[0].Here == "" || seen[0].There == "" {
					t.Errorf("%s has seen %+v, want one sighting of the twins", h.Peer(), seen)
				}
			}
		})
	}
}

// A daemon that knows no other member does not wait.
func TestFounderDoesNotWaitForTwins(t *testing.T) {
	h := start(t, config(kinds["tcp"]))
	began := time.Now()
	if err := h.Twins.Alone(t.Context()); err != nil || time.Since(began) > 100*time.Millisecond {
		t.Errorf("got %v after %s, want no error at once", err, time.Since(began))
	}
}

// No member can make up a proof, or use one again.
func TestProofsOfTwinsAreNotForgedOrReused(t *testing.T) {
	p2p.CheckTwinProofs(t)
}

// Sightings that nobody has asked for are forgotten too.
func TestOldSightingsOfTwinsAreForgotten(t *testing.T) {
	synctest.Test(t, p2p.CheckTwinSightings)
}
