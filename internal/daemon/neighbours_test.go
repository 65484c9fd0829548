package daemon

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/p2p"
)

// town holds the neighbours of a daemon, a fake list of members (the most recently seen first) and a clock.
type town struct {
	*neighbours
	keeper *fakeKeeper
	all    []p2p.Member
	out    []job.Peer // those that are no members any more
	now    time.Time
}

func newTown(members int) *town {
	w := &town{keeper: newFakeKeeper(1000), now: time.Now()}
	for i := range members {
		w.all = append(w.all, p2p.Member{Peer: resident(i), Connected: true})
	}
	w.neighbours = newNeighbours(w, testWants(w.keeper).of(forNeighbours), newDeparted(), func(p job.Peer) { w.out = append(w.out, p) })
	return w
}

func resident(i int) job.Peer { return job.Peer(fmt.Sprintf("p%03d", i)) }

func (w *town) Members() []p2p.Member { return w.all }

func (w *town) Member(p job.Peer) (p2p.Member, bool) {
	if i := slices.IndexFunc(w.all, func(m p2p.Member) bool { return m.Peer == p }); i >= 0 {
		return w.all[i], true
	}
	return p2p.Member{}, false
}

// turn connects or disconnects a member.
func (w *town) turn(i int, up bool) {
	w.all[slices.IndexFunc(w.all, func(m p2p.Member) bool { return m.Peer == resident(i) })].Connected = up
	kind := p2p.MemberDown
	if up {
		kind = p2p.MemberUp
	}
	w.changed(p2p.Event{Kind: kind, Peer: resident(i)}, w.now)
}

// pass advances the clock and makes the reviews that are due.
func (w *town) pass(d time.Duration) {
	for end := w.now.Add(d); w.now.Before(end); {
		w.now = w.now.Add(reviewEvery)
		w.review(w.now)
	}
}

func (w *town) checkKept(t *testing.T, what string, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		if !w.keeper.kept[resident(i)] {
			t.Errorf("%s: %s is not kept", what, resident(i))
		}
	}
	if len(w.keeper.kept) > maxNeighbours || len(w.keeper.kept) != len(w.kept) {
		t.Errorf("%s: got %d sessions and %d neighbours, want the same number", what, len(w.keeper.kept), len(w.kept))
	}
	if len(w.keeper.odd) > 0 {
		t.Errorf("got unexpected calls of the session manager: %v, want none", w.keeper.odd)
	}
}

func TestDisconnectedNeighboursAreReplaced(t *testing.T) {
	w := newTown(100)
	w.review(w.now)
	w.checkKept(t, "at first", 0, maxNeighbours)
	for i := range 20 {
		w.turn(i, false)
	}
	w.pass(goneFor - reviewEvery)
	w.checkKept(t, "a restart", 0, maxNeighbours)
	w.pass(2 * reviewEvery)
	w.checkKept(t, "the gone are replaced", 20, maxNeighbours+20)
	// They come back, and replace the next neighbours that go.
	for i := range 20 {
		w.turn(i, true)
	}
	w.checkKept(t, "no place", 20, maxNeighbours+20)
	for i := 30; i < 100; i++ {
		w.turn(i, false)
	}
	w.pass(goneFor + reviewEvery)
	w.checkKept(t, "back again", 20, 30)
	if n := len(w.keeper.kept); n != maxNeighbours {
		t.Errorf("got %d neighbours, want %d", n, maxNeighbours)
	}
	for p := range w.keeper.kept {
		if m, _ := w.Member(p); !m.Connected {
			t.Errorf("%s is disconnected and kept, although 30 members are connected", p)
		}
	}
}

// If no member is connected, this daemon itself may be cut off. It goes on dialling its neighbours.
func TestNeighboursStayIfAllAreDisconnected(t *testing.T) {
	w := newTown(maxNeighbours + 10)
	w.review(w.now)
	for i := range w.all {
		w.turn(i, false)
	}
	w.pass(24 * time.Hour)
	w.checkKept(t, "cut off", 0, maxNeighbours)
	w.turn(maxNeighbours+5, true)
	w.checkKept(t, "one is back", maxNeighbours+5, maxNeighbours+6)
	if n := len(w.keeper.kept); n != maxNeighbours {
		t.Errorf("got %d neighbours that are dialled, want %d", n, maxNeighbours)
	}
}

func TestStoppedNeighbourIsReplaced(t *testing.T) {
	w := newTown(maxNeighbours + 1)
	w.review(w.now)
	w.departed.gone(resident(3)) // it said goodbye; its connection may stay for a while
	w.pass(goneFor + 2*reviewEvery)
	w.checkKept(t, "stopped", maxNeighbours, maxNeighbours+1)
	if w.keeper.kept[resident(3)] {
		t.Error("a neighbour that has stopped is kept")
	}
}

func TestRevokedNeighbourIsDropped(t *testing.T) {
	w := newTown(5)
	w.review(w.now)
	w.all = w.all[1:]
	w.changed(p2p.Event{Kind: p2p.MemberDown, Peer: resident(1)}, w.now) // only disconnected
	if len(w.out) != 0 {
		t.Errorf("reported as revoked: got %v, want none", w.out)
	}
	w.changed(p2p.Event{Kind: p2p.MemberDown, Peer: resident(0)}, w.now)
	if w.keeper.kept[resident(0)] {
		t.Error("a revoked member is dialled")
	}
	if !slices.Equal(w.out, []job.Peer{resident(0)}) {
		t.Errorf("reported as revoked: got %v, want %v", w.out, resident(0))
	}
	w.checkKept(t, "the others", 1, 5)
}

// A daemon that starts knows members from its disk. Most of them are not connected yet.
func TestConnectedMembersBecomeNeighboursAtStart(t *testing.T) {
	w := newTown(100)
	for i := range w.all {
		w.all[i].Connected = i >= 90
	}
	w.review(w.now)
	w.checkKept(t, "those that are there", 90, 100)
	w.checkKept(t, "those seen last", 0, maxNeighbours-10)
	w.pass(time.Hour)
	w.checkKept(t, "no better ones", 90, 100)
	for i := 40; i < 90; i++ {
		w.turn(i, true)
	}
	for p := range w.keeper.kept {
		if m, _ := w.Member(p); !m.Connected {
			t.Errorf("%s is disconnected and kept", p)
		}
	}
}
