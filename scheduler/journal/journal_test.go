package journal

// The journal with one voter: order, epochs, reads, bounds.

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/musterhq/muster/internal/store"
	"github.com/musterhq/muster/internal/store/storetest"
	"github.com/musterhq/muster/job"
)

func TestLeadIsTheFirstEntry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, storetest.Disk())
		defer closeStore(t, s)
		r := &recordingJournal{end: make(chan error, 1)}
		var err error
		if r.Journal, err = New(DefaultConfig(), s, s.Group(), r, quiet); err != nil {
			t.Fatal(err)
		}
		// Both calls wait until the journal runs.
		if err := r.Propose(submit(s.Group(), 1), cancel(s.Group(), 1)); err != nil {
			t.Fatal(err)
		}
		asked := make(chan int, 1)
		r.ReadIndex(func(e job.Epoch, err error) {
			if err != nil || e != (job.Epoch{Generation: 1, Term: 2}) {
				t.Errorf("ReadIndex = %v, %v, want no error and %v", e, err, (job.Epoch{Generation: 1, Term: 2}))
			}
			asked <- len(r.delivered())
		})
		go func() { r.end <- r.Run(t.Context()) }()
		if n := <-asked; n == 0 {
			t.Error("a read was answered before the owner's term began")
		}
		synctest.Wait()
		got := r.delivered()
		if len(got) != 2 || !got[0].Lead || len(got[0].Records) != 0 || got[1].Lead || len(got[1].Records) != 2 {
			t.Fatalf("delivered %+v, want a Lead without records, and then 2 records", got)
		}
		if got[0].Index != firstIndex+1 || got[1].Index != firstIndex+2 || got[1].Epoch != got[0].Epoch {
			t.Fatalf("delivered %+v, want [0].Index %v, [1].Index %v and [1].Epoch %v", got, firstIndex+1, firstIndex+2, got[0].Epoch)
		}
	})
}

func TestRestartReplaysUnderANewTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := storetest.Disk()
		s := open(t, fs)
		id, g := s.ID(), s.Group()
		r := run(t, s, DefaultConfig())
		for i := range 5 {
			if err := r.Propose(submit(g, i)); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		r.halt(t)
		if err := r.Propose(submit(g, 9)); !errors.Is(err, store.ErrClosed) {
			t.Errorf("Propose after the end = %v, want store.ErrClosed", err)
		}
		r.ReadIndex(func(_ job.Epoch, err error) {
			if !errors.Is(err, store.ErrClosed) {
				t.Errorf("ReadIndex after the end = %v, want store.ErrClosed", err)
			}
		})
		want := r.ids()
		closeStore(t, s)

		s = open(t, fs)
		defer closeStore(t, s)
		if s.ID() != id || s.Group() != g || len(id) != 32 {
			t.Errorf("store %s of group %s became %s of %s, want the same ids", id, g, s.ID(), s.Group())
		}
		r = run(t, s, DefaultConfig())
		synctest.Wait()
		got := r.delivered()
		if !slices.Equal(r.ids(), want) || len(want) != 5 {
			t.Errorf("replayed %v, want %v", r.ids(), want)
		}
		last := got[len(got)-1]
		if !last.Lead || last.Epoch.Term != 3 {
			t.Errorf("the last of a replay is %+v, want a Lead of term 3", last)
		}
		for i, c := range got {
			if c.Index != firstIndex+1+uint64(i) || c.Lead != (i == len(got)-1) {
				t.Errorf("entry %d: %+v, want Index %v and Lead %v", i, c, firstIndex+1+uint64(i), (i == len(got)-1))
			}
		}
		r.halt(t)
	})
}

func TestSavedRowsShortenTheReplay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := storetest.Disk()
		s := open(t, fs)
		g := s.Group()
		r := run(t, s, DefaultConfig())
		for i := range 6 {
			if err := r.Propose(submit(g, i)); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		var rows []job.Row
		for i := range uint64(3) {
			rows = append(rows, job.Row{Job: job.NewID(g, i), Data: []byte("header")})
		}
		part := job.Row{Job: rows[0].Job, Part: "t0000", Data: []byte("chunk")}
		rows = append([]job.Row{part}, rows...)
		at := r.delivered()[3].Index
		if err := r.Save(at-1, rows[:3], nil); err != nil {
			t.Fatal(err)
		}
		if err := r.Save(at, rows[2:], []job.ID{part.Job}); err != nil {
			t.Fatal(err)
		}
		for _, wrong := range []uint64{at - 1, at + 100} {
			if err := r.Save(wrong, nil, nil); err == nil {
				t.Errorf("rows up to entry %d were saved, want an error", wrong)
			}
		}
		r.halt(t)
		closeStore(t, s)

		s = open(t, fs)
		defer closeStore(t, s)
		r = run(t, s, DefaultConfig())
		kept, applied, err := load(r.Journal)
		if err != nil || applied != at || !reflect.DeepEqual(kept, rows[2:]) {
			t.Errorf("Load = %v, %d, %v, want no error, %v and %v", kept, applied, err, at, rows[2:])
		}
		if one, err := r.Rows(rows[2].Job, "", ""); err != nil || !reflect.DeepEqual(one, rows[2:3]) {
			t.Errorf("Rows = %+v, %v, want no error and %v", one, err, rows[2:3])
		}
		if gone, err := r.Rows(part.Job, "", ""); err != nil || len(gone) != 0 {
			t.Errorf("the rows that were deleted are %+v, %v, want no error and none", gone, err)
		}
		synctest.Wait()
		if ids := r.ids(); len(ids) != 3 || ids[0] != job.NewID(g, 3) {
			t.Errorf("replayed %v, want 3 of them and [0] %v", ids, job.NewID(g, 3))
		}
		r.halt(t)
	})
}

func TestWaitingRecordsShareEntries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, storetest.Disk())
		defer closeStore(t, s)
		r := &recordingJournal{end: make(chan error, 1)}
		var err error
		if r.Journal, err = New(DefaultConfig(), s, s.Group(), r, quiet); err != nil {
			t.Fatal(err)
		}
		const n = 3*MaxRecords + 1
		for i := range n {
			if err := r.Propose(submit(s.Group(), i)); err != nil {
				t.Fatal(err)
			}
		}
		go func() { r.end <- r.Run(t.Context()) }()
		synctest.Wait()
		if got := r.delivered(); len(got) != 1+4 {
			t.Errorf("%d records are in %d entries, want 4 entries", n, len(got)-1)
		}
		for i, id := range r.ids() {
			if id != job.NewID(s.Group(), uint64(i)) {
				t.Fatalf("record %d is %s, want %v", i, id, job.NewID(s.Group(), uint64(i)))
			}
		}
	})
}

// One call of Propose accepts MaxRecords jobs with the largest job files.
func TestProposeAcceptsTheLargestSubmits(t *testing.T) {
	s := open(t, storetest.Disk())
	defer closeStore(t, s)
	j, err := New(DefaultConfig(), s, s.Group(), &recordingJournal{}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	largest := submit(s.Group(), 0).Spec
	largest.Command, largest.Script = nil, "#"
	text, err := job.EncodeSpec(largest)
	if err != nil {
		t.Fatal(err)
	}
	largest.Script += strings.Repeat("<", job.MaxSpecBytes-len(text))
	one := submit(s.Group(), 1)
	one.Spec, one.User, one.Key = largest, strings.Repeat("u", job.MaxName), strings.Repeat("k", job.MaxName)
	record, err := appendRecord(nil, one)
	if err != nil {
		t.Fatal(err)
	}
	all := &batch{}
	for range MaxRecords {
		all.buf = append(all.buf, record...)
		all.ends = append(all.ends, len(all.buf))
	}
	if err := newQueue().put(all); err != nil {
		t.Error(err)
	}
	if err := j.Propose(one); err != nil {
		t.Error(err)
	}
}

func TestProposeIsBounded(t *testing.T) {
	s := open(t, storetest.Disk())
	defer closeStore(t, s)
	j, err := New(DefaultConfig(), s, s.Group(), &recordingJournal{}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	big := submit(s.Group(), 1)
	big.Spec.Script = strings.Repeat("x", maxRecordBytes)
	if err := j.Propose(big); !errors.Is(err, store.ErrTooLarge) {
		t.Errorf("a huge record: %v, want store.ErrTooLarge", err)
	}
	for _, bad := range []job.Record{
		nil,
		job.PurgeRecord{Job: "no id"},
		job.AssignRecord{Attempt: job.Attempt{Job: big.Job}},
	} {
		if err := j.Propose(bad); err == nil {
			t.Errorf("Propose(%+v) was accepted", bad)
		}
	}
	for i := range maxQueueRecords {
		if err := j.Propose(cancel(s.Group(), i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.Propose(cancel(s.Group(), 0)); !errors.Is(err, store.ErrFull) {
		t.Errorf("a full queue: %v, want store.ErrFull", err)
	}
	for range maxReads {
		j.ReadIndex(func(job.Epoch, error) {})
	}
	var refused error
	j.ReadIndex(func(_ job.Epoch, err error) { refused = err })
	if !errors.Is(refused, store.ErrFull) {
		t.Errorf("a full queue of reads: %v, want store.ErrFull", refused)
	}
}

func TestLogIsTruncatedAfterASave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := storetest.Disk()
		cfg := DefaultConfig()
		cfg.MaxLogEntries = 10
		s := open(t, fs)
		g := s.Group()
		r := run(t, s, cfg)
		for i := range 100 {
			if err := r.Propose(submit(g, i)); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if err := r.Save(r.delivered()[len(r.delivered())-1].Index-1, nil, nil); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			kept := 0
			if err := s.ReadPrefix(keysOf(g).entries(), func(_, _ []byte) error { kept++; return nil }); err != nil {
				t.Fatal(err)
			}
			if kept > 11 {
				t.Fatalf("%d entries are kept, want at most 11", kept)
			}
		}
		r.halt(t)
		closeStore(t, s)

		s = open(t, fs)
		defer closeStore(t, s)
		r = run(t, s, cfg)
		synctest.Wait()
		if ids := r.ids(); len(ids) != 1 || ids[0] != job.NewID(g, 99) {
			t.Errorf("replayed %v, want 1 of them and [0] %v", ids, job.NewID(g, 99))
		}
		if err := r.Propose(submit(g, 100)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if ids := r.ids(); len(ids) != 2 {
			t.Errorf("delivered %v, want 2 of them", ids)
		}
		r.halt(t)
	})
}

func TestLogAboveItsBytesIsTruncated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := DefaultConfig()
		cfg.MaxLogBytes = 1 << 20
		s := open(t, storetest.Disk())
		defer closeStore(t, s)
		r := run(t, s, cfg)
		big := submit(s.Group(), 1)
		big.Spec.Script = strings.Repeat("x", 300<<10)
		for range 4 {
			if err := r.Propose(big); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		if err := r.Save(6, nil, nil); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		r.halt(t)
		if r.entries.cut != 6 || r.entries.bytes != 0 || r.entries.large.Load() {
			t.Errorf("cut at %d, %d bytes kept, want cut at 6 with no bytes kept", r.entries.cut, r.entries.bytes)
		}
	})
}

func TestStoresHaveDifferentIDs(t *testing.T) {
	a, b := open(t, storetest.Disk()), open(t, storetest.Disk())
	defer closeStore(t, a)
	defer closeStore(t, b)
	if a.ID() == b.ID() || a.Group() == b.Group() || voterOf(a) == voterOf(b) || uint64(a.Group()) == voterOf(a) {
		t.Errorf("%s and %s: groups %s, %s, want different ids of stores, groups and voters", a.ID(), b.ID(), a.Group(), b.Group())
	}
}

func TestConfigWithoutBoundsIsRefused(t *testing.T) {
	s := open(t, storetest.Disk())
	defer closeStore(t, s)
	if _, err := New(Config{}, s, s.Group(), &recordingJournal{}, quiet); err == nil {
		t.Error("a journal without bounds was opened")
	}
}

// Entries that cannot be decoded are an error. They are not skipped.
func TestDamageIsReported(t *testing.T) {
	s := open(t, storetest.Disk())
	defer closeStore(t, s)
	g := s.Group()
	if _, err := New(DefaultConfig(), s, g, &recordingJournal{}, quiet); err != nil {
		t.Fatal(err)
	}
	for _, damage := range [][2][]byte{
		{keysOf(g).entry(7), {1}},
		{[]byte(keysOf(g) + "a"), {0, 0, 0, 0, 0, 0, 0, 9}},
		{keysOf(g).generation(), {1}},
	} {
		old, err := s.Read(damage[0])
		if err != nil {
			t.Fatal(err)
		}
		set := func(v []byte) {
			if err := s.Write(func(b store.Batch) error {
				if v == nil {
					return b.Delete(damage[0])
				}
				return b.Set(damage[0], v)
			}); err != nil {
				t.Fatal(err)
			}
		}
		set(damage[1])
		if _, err = New(DefaultConfig(), s, g, &recordingJournal{}, quiet); err == nil {
			t.Errorf("damage at %q was not reported", damage[0])
		}
		set(old)
	}
}
