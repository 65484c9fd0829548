package fleet

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/musterhq/muster/internal/fairshare"
	"github.com/musterhq/muster/job"
)

// asking is a request for so many GPUs, of a user who has used so much, created at a time.
func asking(user string, used float32, born, gpus int) *Request {
	return &Request{
		Shape: &Shape{User: user, Need: job.Resources{CPUs: 1, GPUs: gpus}},
		Rank:  Rank{Share: fairshare.Standing{User: used}, Born: start.Add(time.Duration(born)), Job: job.ID(fmt.Sprint(born))},
	}
}

// queues queues a request at the host, if necessary in place of a claim, which it returns. It returns false if the
// request may not queue.
func (t *Table) queues(h *Host, r *Request) (displaced *Claim, ok bool) {
	t.Count(start)
	if !t.MayQueue(h, r) {
		return nil, false
	}
	if displaced = h.Displaced(r); displaced != nil {
		h.Unclaim(displaced)
	}
	h.Claim(&Claim{ID: uint64(r.Rank.Born.Sub(start)), User: r.User, Rank: r.Rank, Need: r.Need, State: Queued, Limited: r.Limited, Gang: r.Gang, Gathers: r.Gathers})
	t.Count(start)
	return displaced, true
}

// Each account has a place for its first task of a kind that is full, whatever it and others have used. Its other tasks
// take the places of its own younger ones.
func TestEachAccountHasAPlaceInAFullKind(t *testing.T) {
	table := NewTable()
	h := aHost(&table, "n1", 8)
	for i := range MaxQueued {
		if c, ok := table.queues(h, asking("ada", 5, 10+i, 8)); !ok || c != nil {
			t.Fatalf("task %d may queue: %v, in place of %+v, want a place of its own", i, ok, c)
		}
	}
	urgent := asking("fay", 9, 50, 8)
	urgent.Rank.Priority = 1
	for _, c := range []struct {
		what      string
		r         *Request
		ok        bool
		displaced uint64 // 0: none
	}{
		{"a younger one of the user", asking("ada", 5, 30, 8), false, 0},
		{"an older one of the user, who has used more by now", asking("ada", 7, 1, 8), true, 10 + MaxQueued - 1},
		{"of a user who has used more", asking("eve", 9, 2, 8), true, 0},
		{"a younger one of that user", asking("eve", 9, 3, 8), false, 0},
		{"of a user who has used less", asking("ben", 3, 40, 8), true, 0},
		{"another of that user", asking("ben", 3, 41, 8), false, 0},
		{"another kind", asking("ben", 3, 42, 1), true, 0},
		{"another kind of the other user", asking("ada", 5, 43, 1), true, 0},
		{"of a user who has another kind there", asking("cyd", 2, 44, 1), true, 0},
		{"and who has not this kind", asking("cyd", 2, 45, 8), true, 0},
		{"of a higher priority", urgent, true, 0},
	} {
		got, ok := table.queues(h, c.r)
		if ok != c.ok || ok && (got == nil) != (c.displaced == 0) || got != nil && got.ID != c.displaced {
			t.Errorf("%s: may queue %v, in place of %+v, want what the case says", c.what, ok, got)
		}
	}
}

// When one account with many kinds of requests has all places, each other account gets one in turn.
func TestEachAccountHasAPlaceInAFullQueue(t *testing.T) {
	table := NewTable()
	h := aHost(&table, "n1", 8)
	for i := range MaxQueuedAll {
		if _, ok := table.queues(h, asking("ada", 5, 10+i, 1+i)); !ok {
			t.Fatalf("task %d may not queue", i)
		}
	}
	if _, ok := table.queues(h, asking("ada", 5, 100, 100)); ok {
		t.Error("a younger task of the same user may queue")
	}
	if c, ok := table.queues(h, asking("ada", 6, 1, 100)); !ok || c == nil || c.ID != 10+MaxQueuedAll-1 {
		t.Errorf("an older task of the same user may queue: %v, in place of %+v, want the youngest", ok, c)
	}
	for i := 1; i < MaxQueuedAll; i++ {
		user := fmt.Sprintf("user%d", i)
		if c, ok := table.queues(h, asking(user, 1, 100+i, 100+i)); !ok || c == nil || c.ID != uint64(10+MaxQueuedAll-1-i) {
			t.Fatalf("%s may queue: %v, in place of %+v, want the youngest", user, ok, c)
		}
		if _, ok := table.queues(h, asking(user, 1, 200+i, 200+i)); ok {
			t.Fatalf("%s gets a second place", user)
		}
	}
	if _, ok := table.queues(h, asking("late", 0, 300, 1)); ok {
		t.Error("another user displaces the only claim of a user")
	}
}

// Accounts that take places from each other stop at some time, within the bounds. A search predicts what then happens.
// In the end no task waits while a younger one of its account queues, unless older ones with the same request do.
func TestPlacesBecomeStable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table := NewTable()
		h := aHost(&table, "n1", 8)
		users, used := rapid.IntRange(1, 40).Draw(t, "users"), rapid.SampledFrom([]float32{0, 1}).Draw(t, "share")
		var waiting []*Request
		for i := range rapid.IntRange(1, 80).Draw(t, "requests") {
			u := rapid.IntRange(0, users-1).Draw(t, "user")
			r := asking(fmt.Sprint("user", u), used*float32(1+u), 1+i, rapid.IntRange(0, 5).Draw(t, "gpus"))
			r.Rank.Priority = rapid.SampledFrom([]int{0, 0, 0, 1}).Draw(t, "priority")
			r.Limited = rapid.IntRange(0, 3).Draw(t, "limited") == 0
			waiting = append(waiting, r)
		}
		byID := map[uint64]*Request{}
		for moves := 0; ; {
			next := -1
			for i, r := range waiting {
				if table.MayQueue(h, r) {
					next = i
					break
				}
			}
			if next < 0 {
				break
			}
			if moves++; moves > 1000 {
				t.Fatal("the accounts take places from each other for ever")
			}
			r := waiting[next]
			waiting = append(waiting[:next], waiting[next+1:]...)
			byID[uint64(r.Rank.Born.Sub(start))] = r
			c, ok := table.queues(h, r)
			if !ok {
				t.Fatal("the task may not queue, although the search said so")
			}
			if c != nil {
				waiting = append(waiting, byID[c.ID])
			}
			if n := h.Claims.Queued(); n > MaxQueuedAll {
				t.Fatalf("%d queue, want at most %v", n, MaxQueuedAll)
			}
		}
		for _, r := range waiting {
			if used == 0 {
				break // then all tasks of a kind are ordered by age
			}
			c, same := h.Claims.youngest(r, false), h.Claims.youngest(r, true)
			if c != nil && r.Rank.CompareAge(&c.Rank) < 0 && (same == nil || r.Rank.CompareAge(&same.Rank) < 0) {
				t.Fatalf("%+v waits while a younger one of its account queues: %+v", r.Rank, c.Rank)
			}
		}
	})
}

// BenchmarkCountFull counts a changed host with a full queue of one kind or of many.
func BenchmarkCountFull(b *testing.B) {
	for _, kinds := range []int{1, 4, MaxQueuedAll} {
		b.Run(fmt.Sprintf("kinds=%d", kinds), func(b *testing.B) {
			table := NewTable()
			h := aHost(&table, "n1", 8)
			for i := range MaxQueuedAll {
				table.queues(h, asking(fmt.Sprint("user", i), float32(1+i), 1+i, 1+i%kinds))
			}
			r := asking("late", 0.5, 100, 1)
			b.ReportAllocs()
			for b.Loop() {
				h.Touch()
				table.Count(start)
				table.MayQueue(h, r)
			}
		})
	}
}

// A gang that gathers takes the place of any task that does not, and of a younger gang that does, whatever accounts
// have used. No task of its priority takes its place.
func TestGatheringGangTakesPlacesOfOthers(t *testing.T) {
	table := NewTable()
	h := aHost(&table, "n1", 8)
	gathers := func(user string, used float32, born int) *Request {
		r := asking(user, used, born, 8)
		r.Gathers = true
		return r
	}
	for i := range MaxQueued {
		if _, ok := table.queues(h, asking("ada", 1, 10+i, 8)); !ok {
			t.Fatalf("task %d may not queue", i)
		}
	}
	for i := range MaxQueued {
		if c, ok := table.queues(h, gathers("ada", 9, 50+i)); !ok || c == nil || c.Gathers {
			t.Fatalf("gang %d may queue: %v, in place of %+v, want a task that does not gather", i, ok, c)
		}
	}
	urgent := asking("ada", 9, 90, 8)
	urgent.Rank.Priority = 1
	for _, c := range []struct {
		what      string
		r         *Request
		ok        bool
		displaced uint64 // 0: none
	}{
		{"the first task of the user that does not", asking("ada", 1, 4, 8), true, 0},
		{"a younger one", asking("ada", 1, 6, 8), false, 0},
		{"an older one", asking("ada", 1, 3, 8), true, 4},
		{"a younger gang of the user", gathers("ada", 1, 60), false, 0},
		{"an older gang", gathers("ada", 9, 5), true, 50 + MaxQueued - 1},
		{"a task of a higher priority", urgent, true, 50 + MaxQueued - 2},
	} {
		got, ok := table.queues(h, c.r)
		if ok != c.ok || (got == nil) != (c.displaced == 0) || got != nil && got.ID != c.displaced {
			t.Errorf("%s: may queue %v, in place of %+v, want what the case says", c.what, ok, got)
		}
	}
	for _, c := range h.Claims.all { // they no longer gather
		Gather(h, c, false)
	}
	if got, ok := table.queues(h, asking("ada", 1, 2, 8)); !ok || got == nil || got.ID != 50+MaxQueued-3 {
		t.Errorf("then an older task of the user may queue: %v, in place of %+v, want the youngest gang", ok, got)
	}
}

// Members of gangs that wait for whole hosts leave places to single tasks with the same request, and the reverse.
func TestGangsAndSingleTasksHavePlacesOfTheirOwn(t *testing.T) {
	for _, gangs := range []bool{true, false} {
		table := NewTable()
		h := aHost(&table, "n1", 8)
		for i := range MaxQueued {
			r := asking("ada", 0, i, 8)
			r.Gang = gangs
			if c, ok := table.queues(h, r); !ok || c != nil {
				t.Fatalf("task %d may queue: %v, in place of %+v, want a place of its own", i, ok, c)
			}
		}
		r := asking("ada", 0, 50, 8)
		r.Gang = gangs
		if _, ok := table.queues(h, r); ok {
			t.Errorf("gangs %v: one more may queue", gangs)
		}
		r.Gang = !gangs
		if c, ok := table.queues(h, r); !ok || c != nil {
			t.Errorf("gangs %v: another kind may queue: %v, in place of %+v, want a place of its own", gangs, ok, c)
		}
	}
}
