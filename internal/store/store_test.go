package store

// The store: its ID, its lock, its keys, its ledger.

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/musterhq/muster/internal/contract"
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
				t.Errorf("second Open = %v", err)
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
		t.Error("a store without a directory opened")
	}
	if err := (Config{Dir: "x", Reserve: -1}).Validate(); err == nil {
		t.Error("a reserve below 0 is good")
	}
}

func TestKeys(t *testing.T) {
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
			t.Errorf("Put(%.5q) = %v", k, err)
		}
	}
	if err := s.Put("k", make([]byte, MaxValueBytes+1)); !errors.Is(err, ErrTooLarge) {
		t.Errorf("Put of a large value = %v", err)
	}
	fs = storetest.Crash(fs, vfs.CrashCloneCfg{})
	closeStore(t, s)
	s = open(t, fs)
	defer closeStore(t, s)
	got, err := s.Scan("group/")
	if err != nil || len(got) != 2 || string(got["group/a"]) != "p" || got["group/b"] == nil {
		t.Errorf("Scan = %q, %v", got, err)
	}
	if all, err := s.Scan(""); err != nil || !reflect.DeepEqual(slices.Sorted(maps.Keys(all)), slices.Sorted(maps.Keys(want))) {
		t.Errorf("Scan of all = %q, %v", all, err)
	}
	if err := s.Delete("group/a"); err != nil {
		t.Fatal(err)
	}
	if err := s.Delete("group/a"); err != nil {
		t.Fatal(err)
	}
	if v, err := s.Get("group/a"); v != nil || err != nil {
		t.Errorf("Get of a deleted key = %q, %v", v, err)
	}
	if v, err := s.Get("grou"); string(v) != "no" || err != nil {
		t.Errorf("Get = %q, %v", v, err)
	}
	s.own.n = MaxKeys
	if err := s.Put("one more", nil); !errors.Is(err, ErrFull) {
		t.Errorf("Put beyond the bound = %v", err)
	}
	if err := s.Put("grou", []byte("yes")); err != nil {
		t.Errorf("Put over an old value = %v", err)
	}
}

func TestAfter(t *testing.T) {
	for in, want := range map[string]string{"n/": "n0", "a\xff": "b", "\xff\xff": ""} {
		if got := string(after([]byte(in))); got != want {
			t.Errorf("after(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestUseAfterCloseIsAnError(t *testing.T) {
	s := open(t, storetest.Disk())
	ledger := s.Ledger()
	closeStore(t, s)
	if err := ledger.Save(nil, []job.Attempt{{Job: job.NewID(1, 1), N: 1}}, nil, true); !errors.Is(err, ErrClosed) {
		t.Errorf("Save after Close = %v", err)
	}
}

// After any power cut the ledger holds what was last saved.
func TestLedgerSurvives(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		fs := storetest.Disk()
		want, claims := map[job.Attempt]contract.Record{}, map[job.Group]contract.Claim{}
		for range rapid.IntRange(1, 4).Draw(rt, "lives") {
			s := open(t, fs)
			if err := sameLedger(s.Ledger(), want, claims); err != nil {
				rt.Fatal(err)
			}
			for range rapid.IntRange(0, 4).Draw(rt, "saves") {
				put := rapid.SliceOfN(anyHeld, 0, 3).Draw(rt, "put")
				var gone []job.Attempt
				for a := range want {
					if len(gone) == 0 && rapid.Bool().Draw(rt, "gone") {
						gone = append(gone, a)
					}
				}
				c := contract.Claim{
					Group: job.Group(rapid.Uint64Range(0, 3).Draw(rt, "group")), Epoch: storetest.Epoch.Draw(rt, "epoch"),
					Owner: rapid.SampledFrom([]job.Peer{"", "amy", "bob"}).Draw(rt, "owner"),
				}
				if rapid.Bool().Draw(rt, "forgotten") {
					c.Epoch = contract.Epoch{}
				}
				if err := s.Ledger().Save(put, gone, []contract.Claim{c}, true); err != nil {
					rt.Fatal(err)
				}
				for _, r := range put {
					want[r.Attempt] = r
				}
				for _, a := range gone {
					delete(want, a)
				}
				if claims[c.Group] = c; c.Epoch == (contract.Epoch{}) {
					delete(claims, c.Group)
				}
			}
			fs = storetest.Crash(fs, vfs.CrashCloneCfg{})
			closeStore(t, s)
		}
	})
}

func sameLedger(l *Ledger, want map[job.Attempt]contract.Record, claims map[job.Group]contract.Claim) error {
	records, seen, err := l.Load()
	if err != nil {
		return err
	}
	if len(records) != len(want) || len(seen) != len(claims) {
		return fmt.Errorf("%d records and %d claims, want %d and %d", len(records), len(seen), len(want), len(claims))
	}
	for _, r := range records {
		if !reflect.DeepEqual(r, want[r.Attempt]) {
			return fmt.Errorf("loaded %+v, want %+v", r, want[r.Attempt])
		}
	}
	for _, e := range seen {
		if e != claims[e.Group] {
			return fmt.Errorf("claim is %+v, want %+v", e, claims[e.Group])
		}
	}
	return nil
}

// Values that cannot be decoded are an error with their key; they are not skipped.
func TestDamageIsReported(t *testing.T) {
	s := open(t, storetest.Disk())
	defer closeStore(t, s)
	rows, id := s.Rows(s.Group()), job.NewID(s.Group(), 1)
	for _, k := range [][]byte{rows.key("short", ""), attemptKey(job.Attempt{Job: id, N: 1})} {
		if err := s.Write(func(b Batch) error { return b.Set(k, []byte{0xff}) }); err != nil {
			t.Fatal(err)
		}
	}
	if err := rows.Load(func(job.Row) error { return nil }); err == nil || !strings.Contains(err.Error(), "short") {
		t.Errorf("Load of rows = %v", err)
	}
	if _, _, err := s.Ledger().Load(); err == nil || !strings.Contains(err.Error(), string(id)) {
		t.Errorf("Load of the ledger = %v", err)
	}
	if err := s.Write(func(b Batch) error { return b.Set(keyStore, []byte{1}) }); err != nil {
		t.Fatal(err)
	}
	if err := s.identify(); err == nil {
		t.Error("a damaged id was not seen")
	}
}
