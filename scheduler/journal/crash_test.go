package journal

// After any crash the journal delivers again each entry that it delivered before, in the same order, except for those
// that the saved rows contain. No call of Propose is ever committed in part.

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strconv"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/musterhq/muster/internal/store"
	"github.com/musterhq/muster/internal/store/storetest"
	"github.com/musterhq/muster/job"
)

// history is everything that was seen in the lives of one store.
type history struct {
	fs      *vfs.MemFS
	entries map[uint64]job.Committed
	rows    map[uint64]int // jobs that were saved with an index
	id      string
	calls   int
	size    map[string]int // the number of records of each call of Propose
}

// life is the time from a start of the journal to its end or to a power cut.
type life struct {
	*recordingJournal
	s    *store.Store
	over bool
}

// finish ends a life, unless it has ended.
func (l *life) finish(t *testing.T) {
	if l != nil && !l.over {
		l.halt(t)
		closeStore(t, l.s)
	}
}

// begin starts the store on its disk, and checks the rows on it.
func (h *history) begin(t *testing.T) (*life, error) {
	s := open(t, h.fs)
	if h.id != "" && h.id != s.ID() {
		closeStore(t, s)
		return nil, fmt.Errorf("store %s became %s", h.id, s.ID())
	}
	h.id = s.ID()
	cfg := DefaultConfig()
	cfg.MaxLogEntries = 8
	r := run(t, s, cfg)
	l := &life{recordingJournal: r, s: s}
	rows, applied, err := load(r.Journal)
	if err != nil {
		return l, err
	}
	if applied > firstIndex && len(rows) != h.rows[applied] {
		return l, fmt.Errorf("%d rows at %d, want %d", len(rows), applied, h.rows[applied])
	}
	for _, row := range rows {
		if string(row.Data) != strconv.FormatUint(applied, 10) {
			return l, fmt.Errorf("a row of %s is among those up to entry %d", row.Data, applied)
		}
	}
	return l, nil
}

// check compares the entries that a life delivered with those of the lives before it.
func (h *history) check(got []job.Committed, applied uint64) error {
	for i, c := range got {
		if c.Index != applied+1+uint64(i) {
			return fmt.Errorf("entry %d comes after entry %d", c.Index, applied+uint64(i))
		}
		c.Lead = false // true only in the life in which the entry was proposed
		if old, ok := h.entries[c.Index]; ok && !reflect.DeepEqual(old, c) {
			return fmt.Errorf("entry %d was %+v and is %+v", c.Index, old, c)
		}
		h.entries[c.Index] = c
		calls := map[string]int{}
		for _, r := range c.Records {
			calls[r.(job.CancelRecord).Reason]++
		}
		for call, n := range calls {
			if n != h.size[call] {
				return fmt.Errorf("entry %d holds %d of the %d records of call %s", c.Index, n, h.size[call], call)
			}
		}
	}
	return nil
}

func (h *history) propose(l *life, records int) error {
	h.calls++
	name := strconv.Itoa(h.calls)
	h.size[name] = records
	batch := make([]job.Record, records)
	for i := range batch {
		batch[i] = job.CancelRecord{Job: job.NewID(1, uint64(i)), Reason: name}
	}
	return l.Propose(batch...)
}

func (h *history) save(l *life) error {
	got := l.delivered()
	if len(got) == 0 {
		return nil
	}
	at := got[len(got)-1].Index
	rows := make([]job.Row, 5)
	for i := range rows {
		rows[i] = job.Row{Job: job.NewID(1, uint64(i)), Data: strconv.AppendUint(nil, at, 10)}
	}
	h.rows[at] = len(rows)
	return l.Save(at, rows, nil)
}

// end stops a life, with or without a power cut.
func (h *history) end(t *testing.T, l *life, cut bool, seed uint64, applied uint64) error {
	before := l.delivered()
	if cut {
		h.fs = storetest.Crash(h.fs, vfs.CrashCloneCfg{
			UnsyncedDataPercent: int(seed % 101), RNG: rand.New(rand.NewPCG(seed, 1)), //nolint:gosec // to be repeated
		})
	}
	l.finish(t)
	l.over = true
	if !cut {
		before = l.delivered()
	}
	return h.check(before, applied)
}

type action struct {
	Kind    int // 0 to 3 propose, 4 wait, 5 save, 6 restart, 7 power cut
	Records int
	Seed    uint64
}

func (h *history) play(t *testing.T, steps []action) error {
	l, err := h.begin(t)
	defer func() { l.finish(t) }()
	if err != nil {
		return err
	}
	applied := l.saved.Load()
	for _, s := range steps {
		switch s.Kind {
		case 4:
			synctest.Wait()
		case 5:
			err = h.save(l)
		case 6, 7:
			if err = h.end(t, l, s.Kind == 7, s.Seed, applied); err != nil {
				return err
			}
			if l, err = h.begin(t); err != nil {
				return err
			}
			applied = l.saved.Load()
		default:
			err = h.propose(l, s.Records)
		}
		if err != nil {
			return err
		}
	}
	synctest.Wait()
	all := len(h.entries)
	last := uint64(all + firstIndex)
	got := l.delivered()
	if len(got) == 0 || got[len(got)-1].Index < last {
		return fmt.Errorf("entries up to %d were delivered before, but now they end at %+v", last, got)
	}
	return h.end(t, l, false, 0, applied)
}

func TestCrashesLoseAndRepeatNoEntry(t *testing.T) {
	gen := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) action {
		return action{
			Kind: rapid.IntRange(0, 7).Draw(t, "kind"), Records: rapid.IntRange(1, 5).Draw(t, "records"),
			Seed: rapid.Uint64().Draw(t, "seed"),
		}
	}), 1, 30)
	rapid.Check(t, func(rt *rapid.T) {
		steps := gen.Draw(rt, "steps")
		var err error
		synctest.Test(t, func(t *testing.T) {
			h := &history{fs: storetest.Disk(), entries: map[uint64]job.Committed{}, rows: map[uint64]int{}, size: map[string]int{}}
			err = h.play(t, steps)
		})
		if err != nil {
			rt.Fatal(err)
		}
	})
}
