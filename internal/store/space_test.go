package store

// The reserve of free space, and a disk that is full for some time.

import (
	"bytes"
	"log/slog"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

func TestReserveIsBoundedByTheDisk(t *testing.T) {
	const gib = 1 << 30
	for _, c := range []struct{ most, total, want int64 }{
		{defaultReserve, 100 * gib, 64 << 20},
		{defaultReserve, gib, gib / 50},
		{defaultReserve, 16 << 20, 8 << 20},
		{1 << 20, 100 * gib, 1 << 20},
		{0, gib, 0},
	} {
		if got := leastFree(c.most, c.total); got != c.want {
			t.Errorf("leastFree(%d, %d) = %d, want %d", c.most, c.total, got, c.want)
		}
	}
}

// A database that cannot write its tables retries slowly, and does not fill the log. There is no fake clock, because
// Pebble pauses with its lock held.
func TestFullDiskIsRetriedSlowly(t *testing.T) {
	var on atomic.Bool
	tries := make(chan time.Time, 1000)
	cfg := DefaultConfig()
	cfg.Dir = t.TempDir()
	cfg.FS = errorfs.Wrap(vfs.Default, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if on.Load() && op.Kind.ReadOrWrite() == errorfs.OpIsWrite && strings.Contains(op.Path, "/reserve/") {
			return syscall.ENOSPC
		}
		if on.Load() && op.Kind.ReadOrWrite() == errorfs.OpIsWrite && strings.HasSuffix(op.Path, ".sst") {
			tries <- time.Now()
			return syscall.ENOSPC
		}
		return nil
	}))
	var said bytes.Buffer
	log := slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{Level: slog.LevelError}))
	s, err := Open(cfg, log)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Put("k", nil); err != nil {
		t.Fatal(err)
	}
	on.Store(true)
	flushed, err := s.db.AsyncFlush()
	if err != nil {
		t.Fatal(err)
	}
	last := <-tries
	for range 4 {
		next := <-tries
		if pause := next.Sub(last); pause < backgroundPause {
			t.Errorf("tried again after %s, want at least %s", pause, backgroundPause)
		}
		last = next
	}
	on.Store(false)
	<-flushed
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if out := said.String(); strings.Count(out, "\n") != 1 || !strings.Contains(out, "no space left on device") || strings.Contains(out, "stack trace") {
		t.Errorf("log: got\n%.3000s\nwant one line without a stack trace", out)
	}
}
