package daemon

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/musterhq/muster/job"
)

// fakeKeeper is a session.Manager without sessions.
type fakeKeeper struct {
	mu   sync.Mutex
	kept map[job.Peer]bool
	most int
	odd  []string // calls that a manager must not get
}

func newFakeKeeper(most int) *fakeKeeper { return &fakeKeeper{kept: map[job.Peer]bool{}, most: most} }

// has reports whether a session is kept; it is safe while parts run.
func (k *fakeKeeper) has(p job.Peer) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.kept[p]
}

func (k *fakeKeeper) Want(p job.Peer) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.kept[p] {
		k.odd = append(k.odd, "wanted twice: "+string(p))
	}
	if len(k.kept) >= k.most {
		return false
	}
	k.kept[p] = true
	return true
}

func (k *fakeKeeper) Unwant(p job.Peer) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.kept[p] {
		k.odd = append(k.odd, "unwanted without a want: "+string(p))
	}
	delete(k.kept, p)
}

// testWants are the wants of a daemon named self.
func testWants(k *fakeKeeper) *wantedSessions {
	return newWantedSessions("self", k, slog.New(slog.DiscardHandler))
}

func TestSessionIsKeptWhileAnyPartWantsIt(t *testing.T) {
	k := newFakeKeeper(10)
	w := testWants(k)
	sched, work := w.of(forScheduler), w.of(forWorker)
	sched.Want("a")
	work.Want("a")
	work.Want("a")
	sched.Unwant("a")
	sched.Unwant("a")
	if !k.kept["a"] {
		t.Fatal("the session was given up although the worker wants it")
	}
	work.Unwant("a")
	if k.kept["a"] {
		t.Fatal("the session is kept although nobody wants it")
	}
	work.Want("self")
	work.Unwant("self")
	work.Unwant("b")
	if len(k.odd) > 0 {
		t.Errorf("got unexpected calls of the session manager: %v, want none", k.odd)
	}
}

// For any order of wants, the wanted sessions are kept, up to the keeper's maximum, and no others.
func TestWantedSessionsAreKeptInAnyOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const most = 4
		k := newFakeKeeper(most)
		w := testWants(k)
		want := map[job.Peer]reason{}
		for range rapid.IntRange(0, 200).Draw(t, "steps") {
			p := job.Peer(fmt.Sprint(rapid.IntRange(0, 7).Draw(t, "peer")))
			why := rapid.SampledFrom([]reason{forScheduler, forWorker, forNeighbours, forCallers, forEarlier}).Draw(t, "reason")
			if rapid.Bool().Draw(t, "want") {
				w.of(why).Want(p)
				want[p] |= why
			} else {
				w.of(why).Unwant(p)
				if want[p] &^= why; want[p] == 0 {
					delete(want, p)
				}
			}
			for p := range k.kept {
				if want[p] == 0 {
					t.Fatalf("%s is kept and nobody wants it", p)
				}
			}
			if len(k.kept) != min(most, len(want)) {
				t.Fatalf("got %d of %d wanted sessions, want all up to %d", len(k.kept), len(want), most)
			}
			if len(w.waiting) != len(want)-len(k.kept) || len(w.by) != len(want) {
				t.Fatalf("got %d that wait and %d that are noted, of %d wanted, want all noted, and those without a session waiting", len(w.waiting), len(w.by), len(want))
			}
		}
		if len(k.odd) > 0 {
			t.Fatalf("got unexpected calls of the session manager: %v, want none", k.odd)
		}
	})
}

func TestTooManyWantsAreLogged(t *testing.T) {
	var text bytes.Buffer
	w := newWantedSessions("self", newFakeKeeper(1), slog.New(slog.NewTextHandler(&text, nil)))
	w.of(forWorker).Want("a")
	w.of(forWorker).Want("b")
	if !strings.Contains(text.String(), "level=WARN") || !strings.Contains(text.String(), "peer=b") {
		t.Errorf("log: got %s, want a warning about b", &text)
	}
}
