package store

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/musterhq/muster/internal/store/storetest"
)

// key and value are what the tests below store. Tables with different keys are not compacted.
func key(i int) string { return fmt.Sprintf("%04d", i) }

func value(i int) []byte { return bytes.Repeat([]byte(fmt.Sprintf("value %d ", i)), 1+i%7*9) }

// written returns the disk after a crash of the process, with n values of which each was synced. The first half is in a
// table and the rest in the log.
func written(t *testing.T, n int) *vfs.MemFS {
	t.Helper()
	fs := storetest.Disk()
	s := open(t, fs)
	for i := range n {
		if err := s.Put(key(i), value(i)); err != nil {
			t.Fatal(err)
		}
		if i == n/2 {
			if err := s.db.Flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
	left := storetest.Crash(fs, vfs.CrashCloneCfg{})
	closeStore(t, s)
	return left
}

// reads opens the database and returns how many of the n values it has, or an error.
func reads(fs vfs.FS, n int) (has int, err error) {
	cfg := DefaultConfig()
	cfg.Dir, cfg.FS = "/data", fs
	cfg.OnFatal = func(err error) { panic(err) }
	s, err := Open(cfg, quiet)
	if err != nil {
		return 0, err
	}
	all, err := s.Scan("")
	if err := errors.Join(err, s.Close()); err != nil {
		return 0, err
	}
	for i := range n {
		if bytes.Equal(all[key(i)], value(i)) {
			has++
		}
	}
	return has, nil
}

func content(t *testing.T, fs vfs.FS, path string) []byte {
	t.Helper()
	f, err := fs.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func replace(t *testing.T, fs vfs.FS, path string, b []byte) {
	t.Helper()
	f, err := fs.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

// files returns the files of the database with their content, without those that are only a name.
func files(t *testing.T, fs vfs.FS) map[string][]byte {
	t.Helper()
	names, err := fs.List("/data/db")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]byte{}
	for _, name := range names {
		if b := content(t, fs, "/data/db/"+name); len(b) > 0 && !strings.HasPrefix(name, "OPTIONS") {
			all["/data/db/"+name] = b
		}
	}
	return all
}

// stride is the distance of the bytes that tests change: changing every byte takes a minute.
const stride = 13

// TestChangedByteIsNoticed changes bytes of a database in turn. The database opens with all stored values, or reports
// that it is damaged.
func TestChangedByteIsNoticed(t *testing.T) {
	const n = 20
	disk := written(t, n)
	for path, b := range files(t, disk) {
		refused := 0
		for at := 0; at < len(b); at += stride {
			changed := bytes.Clone(b)
			changed[at] ^= 1 << (at % 8)
			if at%3 == 0 {
				changed[at] ^= byte(at)
			}
			fs := storetest.Crash(disk, vfs.CrashCloneCfg{})
			replace(t, fs, path, changed)
			has, err := reads(fs, n)
			switch {
			case errors.Is(err, ErrDamaged):
				if refused++; strings.Contains(err.Error(), "\n") {
					t.Fatalf("byte %d of %s: got %v, want one line", at, path, err)
				}
			case err != nil:
				t.Fatalf("byte %d of %s: %v", at, path, err)
			case has < n:
				t.Fatalf("byte %d of %s: opens with %d of %d values, want all or an error", at, path, has, n)
			}
		}
		if refused == 0 {
			t.Errorf("no change of %s was noticed", path)
		}
	}
}

// newest returns the write-ahead log after a crash, with its content.
func newest(t *testing.T, fs vfs.FS) (path string, b []byte) {
	t.Helper()
	for p, content := range files(t, fs) {
		if isLog(p) && p > path {
			path, b = p, content
		}
	}
	return path, b
}

// TestTornLogKeepsEarlierValues opens a database whose log ends too early, or has zeros or old bytes at its end, as
// after a power cut. It has all earlier values.
func TestTornLogKeepsEarlierValues(t *testing.T) {
	const n = 20
	disk := written(t, n)
	path, b := newest(t, disk)
	last := 0
	for at := 1; at < len(b); at += stride {
		for name, end := range map[string][]byte{"nothing": nil, "zeros": make([]byte, len(b)-at), "old bytes": bytes.Repeat([]byte("old"), len(b))[:len(b)-at]} {
			fs := storetest.Crash(disk, vfs.CrashCloneCfg{})
			replace(t, fs, path, append(bytes.Clone(b[:at]), end...))
			has, err := reads(fs, n)
			if err != nil {
				t.Fatalf("%s from byte %d of %d: %v", name, at, len(b), err)
			}
			last = has
		}
	}
	if last < n-2 {
		t.Errorf("without the last %d bytes of the log: got %d of %d values, want at most two missing", stride, last, n)
	}
}

// TestChangedBlockIsNoticed changes several bytes of a log. The log counts as damaged if records follow that were
// synced later.
func TestChangedBlockIsNoticed(t *testing.T) {
	const n = 20
	disk := written(t, n)
	path, b := newest(t, disk)
	for _, bytes := range []int{2, 100, 1000} {
		fs := storetest.Crash(disk, vfs.CrashCloneCfg{})
		changed := append([]byte{}, b...)
		for i := range bytes {
			changed[200+i] ^= 0x55
		}
		replace(t, fs, path, changed)
		if has, err := reads(fs, n); !errors.Is(err, ErrDamaged) {
			t.Errorf("with %d changed bytes: opens with %d of %d values, %v, want ErrDamaged", bytes, has, n, err)
		}
	}
}

// TestChangedByteOfAnOldLogIsNoticed does the same for a log in the format of a database that the version before has
// just made.
func TestChangedByteOfAnOldLogIsNoticed(t *testing.T) {
	const dir = "/data/db"
	disk := storetest.Disk()
	if err := makeDir(disk, dir); err != nil {
		t.Fatal(err)
	}
	db, err := pebble.Open(dir, &pebble.Options{FS: disk, FormatMajorVersion: pebble.FormatColumnarBlocks, Logger: engineLog{newFatality(nil, quiet)}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		if err := db.Set([]byte(key(i)), value(i), pebble.Sync); err != nil {
			t.Fatal(err)
		}
	}
	left := storetest.Crash(disk, vfs.CrashCloneCfg{})
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if err := checkLogs(left, dir); err != nil {
		t.Fatal(err)
	}
	path, b := newest(t, left)
	for at := range len(bytes.TrimRight(b, "\x00")) {
		changed := bytes.Clone(b)
		changed[at] ^= 0x10
		replace(t, left, path, changed)
		if err := checkLogs(left, dir); !errors.Is(err, ErrDamaged) {
			t.Fatalf("byte %d of %s: got %v, want ErrDamaged", at, path, err)
		}
	}
}
