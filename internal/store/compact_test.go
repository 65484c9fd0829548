package store

// Compactions run one at a time, and none is forgotten.

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2"

	"github.com/musterhq/muster/internal/store/storetest"
)

func TestCompactionsKeepUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, storetest.Disk())
		defer closeStore(t, s)
		rng := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // to be repeated
		val := make([]byte, 4<<10)
		for range 20_000 {
			for i := range val {
				val[i] = byte(rng.Uint32())
			}
			key := fmt.Appendf(nil, "n/%05d", rng.IntN(5000))
			if err := s.Write(func(b Batch) error { return b.Set(key, val) }); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		m := s.db.Metrics()
		if m.Compact.Count == 0 || m.Compact.NumInProgress != 0 {
			t.Errorf("got %d compactions of which %d run, want some, of which none runs", m.Compact.Count, m.Compact.NumInProgress)
		}
		if l0 := m.Levels[0].Sublevels; l0 > 4 {
			t.Errorf("got %d layers that wait for a compaction, want at most 4", l0)
		}
		if size := m.DiskSpaceUsage(); size > 64<<20 {
			t.Errorf("20 MiB of rows take %d MiB, want at most 64", size>>20)
		}
	})
}

// fakeDB has a number of waiting compactions, and counts those that were granted.
type fakeDB struct {
	waiting, granted int
	asked            func()
}

func (d *fakeDB) GetAllowedWithoutPermission() int { return 1 }

func (d *fakeDB) GetWaitingCompaction() (bool, pebble.WaitingCompaction) {
	found := d.waiting > 0
	if d.asked != nil {
		d.asked()
	}
	return found, pebble.WaitingCompaction{}
}

func (d *fakeDB) Schedule(pebble.CompactionGrantHandle) bool {
	d.waiting--
	d.granted++
	return true
}

func TestOneCompactionAtATime(t *testing.T) {
	db := &fakeDB{}
	c := newOneCompaction()
	c.Register(2, db)
	if ok, _ := c.TrySchedule(); !ok {
		t.Fatal("the first compaction was refused")
	}
	if ok, _ := c.TrySchedule(); ok {
		t.Fatal("a second compaction was granted beside the first")
	}
	db.waiting = 1
	c.Done()
	if ok, _ := c.TrySchedule(); ok || db.granted != 1 {
		t.Fatal("the waiting compaction was not started")
	}
	// A compaction becomes due while the database reports that none waits. The database is asked again.
	db.asked = func() {
		db.asked = nil
		db.waiting++
		if ok, _ := c.TrySchedule(); ok {
			t.Error("a compaction was granted twice")
		}
	}
	c.Done()
	if db.granted != 2 {
		t.Fatalf("a compaction was forgotten: got %v, want 2", db.granted)
	}
	c.Done()
	if ok, _ := c.TrySchedule(); !ok {
		t.Fatal("a compaction was refused while none runs")
	}
	c.Unregister()
	db.waiting = 1
	c.Done()
	if ok, _ := c.TrySchedule(); ok || db.granted != 2 {
		t.Error("a compaction was granted after the end")
	}
}
