package store

// The store: its ID, its lock, its keys, its ledger.

import (
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/musterhq/muster/internal/store/storepb"
	"github.com/musterhq/muster/internal/store/storetest"
	"github.com/musterhq/muster/job"
)

func TestSecondDaemonIsRefused(t *testing.T) {
	for name, fs := range map[string]vfs.FS{"disk": nil, "memory": storetest.Disk()} {
		t.Run(name, func(t *testing.T) {
			cfg := DefaultConfig()
			cfg.Dir, cfg.FS = t.TempDir(), fs
			s, err := Open(cfg, quiet)
			if err != nil {
				t.Fatal(err)
			}
			_, err = Open(cfg, quiet)
			if !errors.Is(err, ErrInUse) || strings.Contains(err.Error(), "\n") {
				t.Errorf("second Open = %v, want ErrInUse in one line", err)
			}
			closeStore(t, s)
			if s, err = Open(cfg, quiet); err != nil {
				t.Fatalf("Open after Close = %v", err)
			}
			closeStore(t, s)
		})
	}
}

func TestConfigIsChecked(t *testing.T) {
	if _, err := Open(DefaultConfig(), quiet); err == nil {
		t.Error("a store without a directory was opened")
	}
	if err := (Config{Dir: "x", Reserve: -1}).Validate(); err == nil {
		t.Error("a negative reserve was accepted")
	}
}

func TestKeysAndValuesAreBounded(t *testing.T) {
	fs := storetest.Disk()
	s := open(t, fs)
	want := map[string][]byte{"group/a": []byte("p"), "group/b": {}, "grou": []byte("no"), "group0": []byte("no")}
	for k, v := range want {
		if err := s.Put(k, v); err != nil {
			t.Fatal(err)
		}
	}
	for _, k := range []string{"", strings.Repeat("k", MaxKeyBytes+1)} {
		if err := s.Put(k, nil); !errors.Is(err, ErrTooLarge) {
			t.Errorf("Put(%.5q) = %v, want ErrTooLarge", k, err)
		}
	}
	if err := s.Put("k", make([]byte, MaxValueBytes+1)); !errors.Is(err, ErrTooLarge) {
		t.Errorf("Put of a large value = %v, want ErrTooLarge", err)
	}
	fs = storetest.Crash(fs, vfs.CrashCloneCfg{})
	closeStore(t, s)
	s = open(t, fs)
	defer closeStore(t, s)
	got, err := s.Scan("group/")
	if err != nil || len(got) != 2 || string(got["group/a"]) != "p" || got["group/b"] == nil {
		t.Errorf("Scan = %q, %v, want 2 rows", got, err)
	}
	if all, err := s.Scan(""); err != nil || !reflect.DeepEqual(slices.Sorted(maps.Keys(all)), slices.Sorted(maps.Keys(want))) {
		t.Errorf("Scan of all = %q, %v, want all keys", all, err)
	}
	if err := s.Delete("group/a"); err != nil {
		t.Fatal(err)
	}
	if err := s.Delete("group/a"); err != nil {
		t.Fatal(err)
	}
	if v, err := s.Get("group/a"); v != nil || err != nil {
		t.Errorf("Get of a deleted key = %q, %v, want none", v, err)
	}
	if v, err := s.Get("grou"); string(v) != "no" || err != nil {
		t.Errorf("Get = %q, %v, want no", v, err)
	}
	s.own.n = MaxKeys
	if err := s.Put("one more", nil); !errors.Is(err, ErrFull) {
		t.Errorf("Put beyond the bound = %v, want ErrFull", err)
	}
	if err := s.Put("grou", []byte("yes")); err != nil {
		t.Errorf("Put over an old value = %v, want no error", err)
	}
}

func TestAfterReturnsTheEndOfAPrefix(t *testing.T) {
	for in, want := range map[string]string{"n/": "n0", "a\xff": "b", "\xff\xff": ""} {
		if got := string(after([]byte(in))); got != want {
			t.Errorf("after(%q) = %q, want %q", in, got, want)
		}
	}
}

// Values that cannot be decoded are an error with their key; they are not skipped.
func TestDamageIsReported(t *testing.T) {
	s := open(t, storetest.Disk())
	defer closeStore(t, s)
	rows := s.Rows(s.Group())
	if err := s.Write(func(b Batch) error { return b.Set(rows.key("short", ""), []byte{0xff}) }); err != nil {
		t.Fatal(err)
	}
	if err := rows.Load(func(job.Row) error { return nil }); err == nil || !strings.Contains(err.Error(), "short") {
		t.Errorf("Load of rows = %v, want an error with short", err)
	}
	if err := s.Write(func(b Batch) error { return b.Set(keyStore, []byte{1}) }); err != nil {
		t.Fatal(err)
	}
	if err := s.identify(); err == nil {
		t.Error("a damaged id was not noticed")
	}
}

// A job file on disk that needs 0 CPUs is decoded as 0 CPUs, not as the default of one.
func TestSpecKeepsItsZeroes(t *testing.T) {
	b, err := job.EncodeSpec(job.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	if s, err := storepb.DecodeSpec(b); err != nil || !reflect.DeepEqual(s, job.Spec{}) {
		t.Errorf("an empty spec became %+v, %v, want it empty", s, err)
	}
}
