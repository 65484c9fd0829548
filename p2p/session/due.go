package session

// A heap of the links by the time of their next check, so that an event on one of thousands of links does not scan
// the others.

import (
	"container/heap"
	"time"
)

// agenda holds the links that have a time of their next check, earliest first.
type agenda []*link

// set sets the time of a link's next check; the zero time removes the link.
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

// take removes and returns the first link if its time has come, else nil.
func (a *agenda) take(now time.Time) *link {
	if len(*a) == 0 || now.Before((*a)[0].at) {
		return nil
	}
	k, _ := heap.Pop(a).(*link)
	return k
}

// wait returns the time until the first check.
func (a *agenda) wait(now time.Time) time.Duration {
	if len(*a) == 0 {
		return time.Hour
	}
	return (*a)[0].at.Sub(now)
}

// Len, Less, Swap, Push and Pop implement heap.Interface.
func (a *agenda) Len() int           { return len(*a) }
func (a *agenda) Less(i, j int) bool { return (*a)[i].at.Before((*a)[j].at) }

func (a *agenda) Swap(i, j int) {
	s := *a
	s[i], s[j] = s[j], s[i]
	s[i].place, s[j].place = i, j
}

// Push appends a *link.
func (a *agenda) Push(x any) {
	k, _ := x.(*link)
	k.place = len(*a)
	*a = append(*a, k)
}

// Pop removes the last link.
func (a *agenda) Pop() any {
	s := *a
	k := s[len(s)-1]
	s[len(s)-1] = nil
	*a = s[:len(s)-1]
	k.place = -1
	return k
}
