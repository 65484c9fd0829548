package ledger

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/internal/store"
	"github.com/musterhq/muster/internal/store/storetest"
	"github.com/musterhq/muster/job"
)

func TestUseAfterCloseIsAnError(t *testing.T) {
	s := open(t, storetest.Disk())
	ledger := New(s)
	closeStore(t, s)
	if err := ledger.Save(nil, []job.Attempt{{Job: job.NewID(1, 1), N: 1}}, nil, true); !errors.Is(err, store.ErrClosed) {
		t.Errorf("Save after Close = %v, want store.ErrClosed", err)
	}
}

// After any power cut the ledger has what was saved last.
func TestLedgerSurvivesPowerCuts(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		fs := storetest.Disk()
		want, claims := map[job.Attempt]contract.Record{}, map[job.Group]contract.Claim{}
		for range rapid.IntRange(1, 4).Draw(rt, "lives") {
			s := open(t, fs)
			if err := sameLedger(New(s), want, claims); err != nil {
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
				if err := New(s).Save(put, gone, []contract.Claim{c}, true); err != nil {
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
		return fmt.Errorf("got %d records and %d claims, want %d and %d", len(records), len(seen), len(want), len(claims))
	}
	for _, r := range records {
		if !reflect.DeepEqual(r, want[r.Attempt]) {
			return fmt.Errorf("loaded %+v, want %+v", r, want[r.Attempt])
		}
	}
	for _, e := range seen {
		if e != claims[e.Group] {
			return fmt.Errorf("claim: got %+v, want %+v", e, claims[e.Group])
		}
	}
	return nil
}

// A record that cannot be decoded is an error with its key; it is not skipped.
func TestDamagedRecordIsReported(t *testing.T) {
	s := open(t, storetest.Disk())
	defer closeStore(t, s)
	id := job.NewID(s.Group(), 1)
	if err := s.Write(func(b store.Batch) error { return b.Set(attemptKey(job.Attempt{Job: id, N: 1}), []byte{0xff}) }); err != nil {
		t.Fatal(err)
	}
	if _, _, err := New(s).Load(); err == nil || !strings.Contains(err.Error(), string(id)) {
		t.Errorf("Load of the ledger = %v, want an error with the job", err)
	}
}
