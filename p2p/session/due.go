package session

// When each link is to be looked at again: a heap, so that an event of one of
// thousands of links costs no look at the others.

import (
	"container/heap"
	"time"
)

// agenda holds the links that have a time, the earliest first.
type agenda []*link

// set gives a link a time; the zero time takes it off the agenda.
func (a *agenda) set(k *link, at time.Time) {
	switch {
	case at.IsZero() && k.place < 0:
		return
	case at.IsZero():
		heap.Remove(a, k.place)
		return
	case k.place >= 0 && k.at.Equal(at):
		return
	}
	k.at = at
	if k.place < 0 {
		heap.Push(a, k)
		return
	}
	heap.Fix(a, k.place)
}

// take removes and returns the first link if its time has come.
func (a *agenda) take(now time.Time) *link {
	if len(*a) == 0 || now.Before((*a)[0].at) {
		return nil
	}
	k, _ := heap.Pop(a).(*link)
	return k
}

// wait is how long it is to the next time.
func (a *agenda) wait(now time.Time) time.Duration {
	if len(*a) == 0 {
		return time.Hour
	}
	return (*a)[0].at.Sub(now)
}

// Len, Less, Swap, Push and Pop are for package heap.
func (a *agenda) Len() int           { return len(*a) }
func (a *agenda) Less(i, j int) bool { return (*a)[i].at.Before((*a)[j].at) }

func (a *agenda) Swap(i, j int) {
	s := *a
	s[i], s[j] = s[j], s[i]
	s[i].place, s[j].place = i, j
}

// Push adds a *link at the end.
func (a *agenda) Push(x any) {
	k, _ := x.(*link)
	k.place = len(*a)
	*a = append(*a, k)
}

// Pop takes the last one.
func (a *agenda) Pop() any {
	s := *a
	k := s[len(s)-1]
	s[len(s)-1] = nil
	*a = s[:len(s)-1]
	k.place = -1
	return k
}
