package journal

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/musterhq/muster/internal/store/storetest"
)

// The time of a commit starts with the oldest record in it, even before the journal runs. Entries of an earlier life
// are not counted again.
func TestTimeOfACommitStartsWithItsOldestRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := storetest.Disk()
		s := open(t, fs)
		var mu sync.Mutex
		var took []time.Duration
		cfg := DefaultConfig()
		cfg.Took = func(d time.Duration) {
			mu.Lock()
			defer mu.Unlock()
			took = append(took, d)
		}
		r := &recordingJournal{end: make(chan error, 1)}
		var err error
		if r.Journal, err = New(cfg, s, s.Group(), r, quiet); err != nil {
			t.Fatal(err)
		}
		for i := range 2 {
			if err := r.Propose(submit(s.Group(), i)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(3 * time.Second) // of the fake clock
		}
		ctx, stop := context.WithCancel(t.Context())
		r.stop = stop
		go func() { r.end <- r.Run(ctx) }()
		synctest.Wait()
		if err := r.Propose(submit(s.Group(), 3)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		mu.Lock()
		if len(took) != 2 || took[0] != 6*time.Second || took[1] >= time.Second {
			t.Errorf("commits took %v, want 6s and next to nothing", took)
		}
		took = nil
		mu.Unlock()
		r.halt(t)
		again := run(t, s, cfg)
		synctest.Wait()
		mu.Lock()
		if len(took) != 0 {
			t.Errorf("after a restart commits took %v: nothing was proposed, want none", took)
		}
		mu.Unlock()
		again.halt(t)
		closeStore(t, s)
	})
}
