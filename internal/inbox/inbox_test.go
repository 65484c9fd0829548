package inbox

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

var small = Limits{Messages: 8, Weight: 100, All: 300, Small: 10, Share: 20, Turn: 40}

type letterOf struct{ from, n int }

func box(l Limits) *Inbox[int, letterOf] { return New[int, letterOf](l, func() {}) }

// A member without a backlog goes before those with one, whoever sent first.
func TestSparseMembersGoFirst(t *testing.T) {
	b := box(small)
	for n := range 8 {
		b.Put(1, letterOf{1, n}, 10)
	}
	b.Take(nil)
	b.Put(2, letterOf{2, 0}, 10)
	got, more := b.Take(nil)
	if got[0] != (letterOf{2, 0}) || !more {
		t.Errorf("got %v, more %t, want that of member 2 first, true", got, more)
	}
}

// Members with backlogs get equal shares by weight, whatever the number of their messages.
func TestSharesAreByWeight(t *testing.T) {
	l := small
	l.Messages, l.Weight, l.All, l.Turn = 1e4, 1e5, 1e6, 200
	b := box(l)
	for n := range 1000 {
		b.Put(1, letterOf{1, n}, 30) // heavier than a share
		b.Put(2, letterOf{2, n}, 1)
	}
	weights := map[int]int{}
	for range 5 {
		got, _ := b.Take(nil)
		for _, m := range got {
			weights[m.from] += map[int]int{1: 30, 2: 1}[m.from]
		}
	}
	if d := weights[1] - weights[2]; d < -60 || d > 60 {
		t.Errorf("got weights %v, want a difference of at most 60", weights)
	}
}

// A member whose queue is full waits, and no other does.
func TestOnlyTheMemberWithAFullQueueWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := box(small)
		sent := 0
		go func() {
			for b.Put(1, letterOf{1, sent}, 10) {
				sent++
			}
		}()
		synctest.Wait()
		if sent != 8 {
			t.Fatalf("got %d messages that wait, want 8", sent)
		}
		for from := 2; from < 22; from++ {
			if !b.Put(from, letterOf{from, 0}, 10) || !b.Offer(from, letterOf{from, 1}, 10, 2) {
				t.Fatal("a message of another member was refused")
			}
		}
		var of1 []int
		for range 20 {
			got, _ := b.Take(nil)
			for _, m := range got {
				if m.from == 1 {
					of1 = append(of1, m.n)
				}
			}
			synctest.Wait()
		}
		if len(of1) < 16 || !slices.IsSorted(of1) {
			t.Errorf("got %v of the fast member, want at least 16 in order", of1)
		}
		b.Close()
		synctest.Wait()
	})
}

// The messages of all members are bounded. Small messages of members without any are still accepted.
func TestMessagesOfAllMembersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := box(small)
		defer b.Close()
		for from := range 50 {
			go b.Put(from, letterOf{from, 0}, 90)
		}
		synctest.Wait()
		if b.weight != 270 {
			t.Errorf("got messages of weight %d, want 270", b.weight)
		}
		if !b.Put(100, letterOf{100, 0}, 10) {
			t.Error("a small message of another member was refused")
		}
		time.Sleep(time.Second)
		if got, _ := b.Take(nil); !slices.Contains(got, letterOf{100, 0}) && b.queues[100] == nil {
			t.Errorf("got %v, want the small message too", got)
		}
		for got, seen := []letterOf(nil), 0; seen < 48; seen += len(got) {
			got, _ = b.Take(nil)
			synctest.Wait()
		}
	})
}

// Members that fill the space for all leave some to each other member, also to one that has messages waiting.
func TestFullQueuesLeaveSpaceForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := box(small)
		defer b.Close()
		for from := 1; from <= 50; from++ {
			go func() {
				for n := 0; b.Put(from, letterOf{from, n}, 5); n++ {
				}
			}()
		}
		synctest.Wait()
		sent := 0
		go func() {
			for b.Put(0, letterOf{0, sent}, 3) {
				sent++
			}
		}()
		synctest.Wait()
		if sent != small.Small/3 {
			t.Errorf("got space for %d messages of another member, want %d", sent, small.Small/3)
		}
		if b.weight > small.All+51*small.Small {
			t.Errorf("got messages of weight %d, want at most %v", b.weight, small.All+51*small.Small)
		}
	})
}

// Nothing is lost, the messages of one member stay in order, and the memory of members without messages is freed.
func TestMessagesArriveCompleteAndInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := box(small)
		sent, got := map[int]int{}, map[int]int{}
		take := func() bool {
			mail, more := b.Take(nil)
			for _, m := range mail {
				if m.n != got[m.from] {
					t.Fatalf("of member %d: got %d, want %d", m.from, m.n, got[m.from])
				}
				got[m.from]++
			}
			return more
		}
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			if rapid.IntRange(0, 3).Draw(t, "what") == 0 {
				take()
				continue
			}
			from := rapid.IntRange(0, 5).Draw(t, "from")
			if b.Offer(from, letterOf{from, sent[from]}, rapid.IntRange(0, 60).Draw(t, "weight"), 200) {
				sent[from]++
			}
		}
		for take() {
		}
		take() // frees members without messages
		take()
		if fmt.Sprint(sent) != fmt.Sprint(got) {
			t.Fatalf("got %[2]v, want %[1]v", sent, got)
		}
		if len(b.queues)+len(b.fresh)+len(b.backlog)+b.weight != 0 {
			t.Fatalf("got %d queues, %d fresh, %d with a backlog, weight %d, want 0", len(b.queues), len(b.fresh), len(b.backlog), b.weight)
		}
	})
}

func BenchmarkPutTake(b *testing.B) {
	for _, members := range []int{1, 1000} {
		b.Run(fmt.Sprintf("members=%d", members), func(b *testing.B) {
			in := New[int, letterOf](Limits{Messages: 4096, Weight: 2 << 20, All: 64 << 20, Small: 16 << 10, Share: 64 << 10, Turn: 2 << 20}, func() {})
			var spare []letterOf
			b.ReportAllocs()
			for n := range b.N {
				in.Put(n%members, letterOf{n, n}, 256)
				if n%256 == 255 {
					spare, _ = in.Take(spare[:0])
				}
			}
		})
	}
}
