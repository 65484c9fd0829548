package store

// Helpers for the tests: stores on disks in memory.

import (
	"log/slog"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

var quiet = slog.New(slog.DiscardHandler)

func open(t testing.TB, fs vfs.FS) *Store {
	t.Helper()
	cfg := DefaultConfig()
	cfg.Dir, cfg.FS = "/data", fs
	cfg.OnFatal = func(err error) { panic(err) }
	s, err := Open(cfg, quiet)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func closeStore(t testing.TB, s *Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
