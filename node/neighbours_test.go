package node

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/p2p"
)

// fakeCluster has the members of a cluster, the one that was seen last first, and a clock.
type fakeCluster struct {
	*neighbours
	keeper *fakeKeeper
	all    []p2p.Member
	now    time.Time
}

func newFakeCluster(members int) *fakeCluster {
	w := &fakeCluster{keeper: newFakeKeeper(1000), now: time.Now()}
	for i := range members {
		w.all = append(w.all, p2p.Member{Peer: memberID(i), Connected: true})
	}
	w.neighbours = newNeighbours(w, testWants(w.keeper).of(forNeighbours), newDeparted())
	return w
}

func memberID(i int) job.Peer { return job.Peer(fmt.Sprintf("p%03d", i)) }

func (w *fakeCluster) Members() []p2p.Member { return w.all }

func (w *fakeCluster) Member(p job.Peer) (p2p.Member, bool) {
	if i := slices.IndexFunc(w.all, func(m p2p.Member) bool { return m.Peer == p }); i >= 0 {
		return w.all[i], true
	}
	return p2p.Member{}, false
}

// setConnected connects or disconnects a member.
func (w *fakeCluster) setConnected(i int, up bool) {
	w.all[slices.IndexFunc(w.all, func(m p2p.Member) bool { return m.Peer == memberID(i) })].Connected = up
	kind := p2p.MemberDown
	if up {
		kind = p2p.MemberUp
	}
	w.changed(p2p.Event{Kind: kind, Peer: memberID(i)}, w.now)
}

// pass advances the clock, with the reviews that are due.
func (w *fakeCluster) pass(d time.Duration) {
	for end := w.now.Add(d); w.now.Before(end); {
		w.now = w.now.Add(reviewEvery)
		w.review(w.now)
	}
}

func (w *fakeCluster) keeps(t *testing.T, what string, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		if !w.keeper.kept[memberID(i)] {
			t.Errorf("%s: %s is not kept", what, memberID(i))
		}
	}
	if len(w.keeper.kept) > standing || len(w.keeper.kept) != len(w.kept) {
		t.Errorf("%s: %d sessions, %d neighbours", what, len(w.keeper.kept), len(w.kept))
	}
	if len(w.keeper.odd) > 0 {
		t.Error(w.keeper.odd)
	}
}

func TestDeadNeighboursAreReplaced(t *testing.T) {
	w := newFakeCluster(100)
	w.review(w.now)
	w.keeps(t, "at first", 0, standing)
	for i := range 20 {
		w.setConnected(i, false)
	}
	w.pass(goneFor - reviewEvery)
	w.keeps(t, "as long as a restart takes", 0, standing)
	w.pass(2 * reviewEvery)
	w.keeps(t, "the dead are replaced", 20, standing+20)
	// They come back, and replace the next neighbours that die.
	for i := range 20 {
		w.setConnected(i, true)
	}
	w.keeps(t, "all places are filled", 20, standing+20)
	for i := 30; i < 100; i++ {
		w.setConnected(i, false)
	}
	w.pass(goneFor + reviewEvery)
	w.keeps(t, "back again", 20, 30)
	if n := len(w.keeper.kept); n != standing {
		t.Errorf("%d of %d places are filled", n, standing)
	}
	for p := range w.keeper.kept {
		if m, _ := w.Member(p); !m.Connected {
			t.Errorf("%s is dead and kept, though 30 members are connected", p)
		}
	}
}

// TestNeighboursStayIfAllAreGone checks that the neighbours are still dialled if no member is connected, because this
// daemon may be the one that is cut off.
func TestNeighboursStayIfAllAreGone(t *testing.T) {
	w := newFakeCluster(standing + 10)
	w.review(w.now)
	for i := range w.all {
		w.setConnected(i, false)
	}
	w.pass(24 * time.Hour)
	w.keeps(t, "cut off", 0, standing)
	w.setConnected(standing+5, true)
	w.keeps(t, "one is back", standing+5, standing+6)
	if n := len(w.keeper.kept); n != standing {
		t.Errorf("%d are dialled", n)
	}
}

func TestStoppedNeighbourIsReplaced(t *testing.T) {
	w := newFakeCluster(standing + 1)
	w.review(w.now)
	w.left.gone(memberID(3)) // said goodbye; its connection may stay for a while
	w.pass(goneFor + 2*reviewEvery)
	w.keeps(t, "stopped", standing, standing+1)
	if w.keeper.kept[memberID(3)] {
		t.Error("the stopped neighbour is kept")
	}
}

func TestRevokedNeighbourIsDropped(t *testing.T) {
	w := newFakeCluster(5)
	w.review(w.now)
	w.all = w.all[1:]
	w.changed(p2p.Event{Kind: p2p.MemberDown, Peer: memberID(0)}, w.now)
	if w.keeper.kept[memberID(0)] {
		t.Error("a revoked member is dialled")
	}
	w.keeps(t, "the others", 1, 5)
}

// TestNeighboursFromPeerBook has a daemon that has just started. It knows most members only from its peer book, without
// a connection.
func TestNeighboursFromPeerBook(t *testing.T) {
	w := newFakeCluster(100)
	for i := range w.all {
		w.all[i].Connected = i >= 90
	}
	w.review(w.now)
	w.keeps(t, "the connected members", 90, 100)
	w.keeps(t, "the members seen last", 0, standing-10)
	w.pass(time.Hour)
	w.keeps(t, "no others are connected", 90, 100)
	for i := 40; i < 90; i++ {
		w.setConnected(i, true)
	}
	for p := range w.keeper.kept {
		if m, _ := w.Member(p); !m.Connected {
			t.Errorf("%s is dead and kept", p)
		}
	}
}
