// Package search looks for further hosts. If no host with a session has room, hosts are searched for by class, with growing
// pauses between the searches, and the need is announced to the cluster.
package search

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/step"
)

const maxFinds = 16 // classes looked for and announced at a time

// Search finds hosts by class, and announces for which classes tasks wait.
type Search struct {
	*step.Turn

	classes  map[string]*Class // by key
	announce bool              // what is to be announced may have changed
	wants    []step.Want       // what was announced last
}

// Class is one or several classes of hosts, as the DHT names them, and the requests that want a host of one of them.
type Class struct {
	key       string
	names     []string
	waiting   int  // tasks that no host has taken
	requests  int  // kinds of requests that wait for a host of the class
	looking   bool // a task waits that no known host has room for
	announced bool
	pause     time.Duration // after the next search
	nextAt    time.Time     // of the next search
	next      int           // which of the names the next search is for; after the last: workers of any class
}

// The first pause between two searches for a class, and the longest.
const (
	findFirst = time.Second
	findMost  = 30 * time.Second
)

// New returns a search that looks for nothing yet.
func New(t *step.Turn) *Search { return &Search{Turn: t, classes: map[string]*Class{}} }

// Join returns the class of these names for one more kind of request. It makes the class if there is none.
func (s *Search) Join(names []string) *Class {
	key := strings.Join(names, " ")
	k := s.classes[key]
	if k == nil {
		k = &Class{key: key, names: names}
		s.classes[key] = k
	}
	k.requests++
	return k
}

// Leave notes that a kind of request of the class is gone. The class is forgotten with the last one.
func (s *Search) Leave(k *Class) {
	if k.requests--; k.requests == 0 {
		delete(s.classes, k.key)
	}
}

// Count changes by n how many tasks of the class wait. When none is left, its search and its announcement end.
func (s *Search) Count(k *Class, n int) {
	if k.waiting += n; k.waiting == 0 {
		k.looking = false
		s.announce = s.announce || k.announced
		k.announced = false
	}
}

// Restart begins the search anew, without a pause, for each class of which tasks wait.
func (s *Search) Restart() {
	for _, key := range slices.Sorted(maps.Keys(s.classes)) {
		if k := s.classes[key]; k.waiting > 0 {
			k.looking, k.next, k.pause, k.nextAt = true, 0, findFirst, s.Now
			s.Look(k, true)
		}
	}
}

// Look searches for hosts of the class until no task of the class waits. An urgent search begins at once, any other
// after a pause in which a known host may become free. No search begins before the pause after the last one is over.
func (s *Search) Look(k *Class, urgent bool) {
	if !k.looking {
		k.looking = true
		if !k.nextAt.After(s.Now) {
			k.pause, k.next, k.nextAt = findFirst, 0, s.Now
			if !urgent {
				s.lookAt(k, s.Now.Add(findFirst))
			}
		}
	}
	if k.nextAt.After(s.Now) {
		return
	}
	if k.next == len(k.names) {
		s.Find(contract.AnyWorker)
		k.next = 0
	} else {
		s.Find(k.names[k.next])
		k.next++
	}
	k.announced, s.announce = true, true
	pause := s.Jitter(k.pause)
	k.pause = min(2*k.pause, findMost)
	s.lookAt(k, s.Now.Add(pause))
}

// lookAt sets the time of the next search.
func (s *Search) lookAt(k *Class, when time.Time) {
	k.nextAt = when
	s.At(when, func() {
		if k.looking && k.nextAt.Equal(when) {
			s.Look(k, true)
		}
	})
}

// Find begins a search, unless the step has begun as many as it may.
func (s *Search) Find(name string) {
	if len(s.Effects.Find) < maxFinds && !slices.Contains(s.Effects.Find, name) {
		s.Effects.Find = append(s.Effects.Find, name)
	}
}

// AnnounceWants announces the classes for which tasks wait, the one with the most tasks first, if they have changed.
func (s *Search) AnnounceWants() {
	if !s.announce {
		return
	}
	s.announce = false
	waiting := map[string]int{} // by name
	for _, k := range s.classes {
		if k.announced && k.waiting > 0 {
			for _, name := range k.names {
				waiting[name] += k.waiting
			}
		}
	}
	var wants []step.Want
	for name, n := range waiting {
		wants = append(wants, step.Want{Class: name, Count: min(n, job.MaxTasks)})
	}
	slices.SortFunc(wants, func(a, b step.Want) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Class, b.Class))
	})
	wants = wants[:min(len(wants), maxFinds)]
	if !slices.Equal(wants, s.wants) {
		s.wants = wants
		s.Effects.Announce, s.Effects.Wants = true, slices.Clone(wants)
	}
}

// LostLead ends all searches, and withdraws the announcement.
func (s *Search) LostLead() {
	for _, k := range s.classes {
		k.looking, k.announced = false, false
	}
	s.announce = true
}
