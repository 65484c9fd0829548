package journal

// The journal with three voters.

import (
	"errors"
	"reflect"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/musterhq/muster/internal/store"
	"github.com/musterhq/muster/internal/store/storetest"
	"github.com/musterhq/muster/job"
)

// wires connects voters. A cut voter neither sends nor receives. A deaf voter does not receive.
type wires struct {
	mu   sync.Mutex
	end  map[uint64]*Journal // guarded by mu
	cut  map[uint64]bool     // guarded by mu
	deaf map[uint64]bool     // guarded by mu
}

func newWires() *wires {
	return &wires{end: map[uint64]*Journal{}, cut: map[uint64]bool{}, deaf: map[uint64]bool{}}
}

func (w *wires) Send(m *raftpb.Message) {
	w.mu.Lock()
	to, lost := w.end[m.GetTo()], w.cut[m.GetTo()] || w.cut[m.GetFrom()] || w.deaf[m.GetTo()]
	w.mu.Unlock()
	if to != nil && !lost {
		_ = to.Step(proto.CloneOf(m)) // refused by a voter that has ended
	}
}

func (w *wires) set(id uint64, cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut[id] = cut
}

func (w *wires) deafen(id uint64, deaf bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.deaf[id] = deaf
}

// three are the voters of one group.
func three(t *testing.T, w *wires) (voters [3]*recordingJournal) {
	t.Helper()
	var stores [3]*store.Store
	var ids []uint64
	for i := range stores {
		stores[i] = open(t, storetest.Disk())
		t.Cleanup(func() { closeStore(t, stores[i]) })
		ids = append(ids, voterOf(stores[i]))
	}
	g := stores[0].Group()
	for i, s := range stores {
		if err := foundGroup(s, g, ids); err != nil {
			t.Fatal(err)
		}
		cfg := DefaultConfig()
		cfg.Transport = w
		voters[i] = &recordingJournal{end: make(chan error, 1)}
		var err error
		if voters[i].Journal, err = New(cfg, s, g, voters[i], quiet); err != nil {
			t.Fatal(err)
		}
		w.end[ids[i]] = voters[i].Journal
	}
	for _, v := range voters {
		go func() { v.end <- v.Run(t.Context()) }()
	}
	return voters
}

// owner returns the voter that led last, and its epoch.
func owner(voters [3]*recordingJournal) (who *recordingJournal, epoch job.Epoch) {
	for _, v := range voters {
		for _, c := range v.delivered() {
			if c.Lead && epoch.Less(c.Epoch) {
				who, epoch = v, c.Epoch
			}
		}
	}
	return who, epoch
}

func TestThreeVotersElectAnotherOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWires()
		voters := three(t, w)
		time.Sleep(20 * time.Second)
		first, epoch := owner(voters)
		if first == nil {
			t.Fatal("no voter leads")
		}
		if err := first.Propose(submit(1, 1)); err != nil {
			t.Fatal(err)
		}
		if e, err := read(first, time.Second); err != nil || e != epoch {
			t.Errorf("the owner's read = %v, %v, want no error and %v", e, err, epoch)
		}
		for _, v := range voters {
			if v != first {
				if _, err := read(v, time.Second); !errors.Is(err, ErrNotOwner) {
					t.Errorf("a follower's read = %v, want ErrNotOwner", err)
				}
			}
		}

		// The owner is disconnected. It gets no quorum for a read, and learns that it no longer owns the group. Its
		// proposals are never committed.
		w.set(first.id, true)
		if err := first.Propose(submit(1, 2)); err != nil {
			t.Fatal(err)
		}
		if _, err := read(first, time.Minute); !errors.Is(err, ErrNotOwner) {
			t.Errorf("a read without a quorum = %v, want ErrNotOwner", err)
		}
		time.Sleep(20 * time.Second)
		second, later := owner(voters)
		if second == first || !epoch.Less(later) {
			t.Fatalf("the epoch after %s is %s, want a later one of another voter", epoch, later)
		}
		if err := second.Propose(submit(1, 3)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		w.set(first.id, false)
		time.Sleep(20 * time.Second)

		want := plain(second.delivered())
		for _, v := range voters {
			if got := plain(v.delivered()); !reflect.DeepEqual(got, want) {
				t.Errorf("delivered %+v, want %+v", got, want)
			}
		}
		if ids := second.ids(); len(ids) != 2 || ids[1] != job.NewID(1, 3) {
			t.Errorf("committed %v, want 2 of them and [1] %v", ids, job.NewID(1, 3))
		}
	})
}

// read waits for the answer to a ReadIndex.
func read(r *recordingJournal, most time.Duration) (job.Epoch, error) {
	type told struct {
		e   job.Epoch
		err error
	}
	ch := make(chan told, 1)
	r.ReadIndex(func(e job.Epoch, err error) { ch <- told{e, err} })
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case a := <-ch:
		return a.e, a.err
	case <-timer.C:
		return job.Epoch{}, errors.New("no answer")
	}
}

// plain returns the delivered entries without their Lead marks.
func plain(got []job.Committed) []job.Committed {
	for i := range got {
		got[i].Lead = false
	}
	return got
}
