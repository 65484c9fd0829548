package ledger

// Helpers for the tests: stores on disks in memory.

import (
	"log/slog"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/musterhq/muster/internal/store"
)

func open(t testing.TB, fs vfs.FS) *store.Store {
	t.Helper()
	cfg := store.DefaultConfig()
	cfg.Dir, cfg.FS = "/data", fs
	cfg.OnFatal = func(err error) { panic(err) }
	s, err := store.Open(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func closeStore(t testing.TB, s *store.Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
