package store

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// small mounts a small file system in memory, which is removed after the test.
func small(t *testing.T, options string) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("mounting a small file system needs root")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		t.Skipf("no small file system can be mounted here: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}

// use uses up the space of a file system, and then its files.
func use(t *testing.T, dir string) {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "fill"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, n := range []int{1 << 16, 1} {
		for block := make([]byte, n); err == nil; {
			_, err = f.Write(block)
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
		err = nil
	}
	for i := 0; err == nil; i++ {
		err = unix.Mknod(filepath.Join(dir, "file"+strconv.Itoa(i)), unix.S_IFREG|0o600, 0)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
}

// TestWritesOnAFullDiskSurvive fills the disk of a database, and writes more than its log and a memtable hold. After
// that the database opens again, and has everything.
func TestWritesOnAFullDiskSurvive(t *testing.T) {
	dir := small(t, "size=64m,nr_inodes=200")
	cfg := DefaultConfig()
	cfg.Dir = dir
	cfg.OnFatal = func(err error) { t.Errorf("the process would end: %v", err) }
	s, err := Open(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	use(t, dir)
	if err := s.CheckSpace(); !errors.Is(err, ErrNoRoom) {
		t.Errorf("new work on a full disk: got %v, want ErrNoRoom", err)
	}
	const n = 24
	value := bytes.Repeat([]byte("end "), 16<<10)
	key := func(i int) []byte { return []byte{'n', '/', byte('a' + i)} }
	for i := range n { // 1.5 MiB, more than a memtable
		if err := s.WriteSync(func(b Batch) error { return b.Set(key(i), value) }); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if s, err = Open(cfg, slog.New(slog.DiscardHandler)); err != nil {
			t.Fatal(err)
		}
		for i := range n {
			if v, err := s.Read(key(i)); err != nil || !bytes.Equal(v, value) {
				t.Fatalf("value %d: got %d bytes, %v, want the same value", i, len(v), err)
			}
		}
	}
	names, err := filepath.Glob(filepath.Join(dir, "fil*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = Open(cfg, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if r := s.reserve; len(r.big.names) != r.big.want {
		t.Errorf("with free space the reserve has %d of %d big files, want all", len(r.big.names), r.big.want)
	}
}
