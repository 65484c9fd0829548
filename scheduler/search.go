package scheduler

// Looking for hosts: when none of those with a session has room, others are searched for by class, with a growing pause,
// and the need is announced.

import (
	"cmp"
	"slices"
	"time"

	"github.com/musterhq/muster/lease"
)

// search looks for hosts by class, and announces what is looked for.
type search struct {
	*turn

	classes  map[string]*class
	announce bool   // wants may have changed
	wants    []Want // announced last
}

// class is what waiting requests ask for in the words of the DHT.
type class struct {
	name      string
	waiting   int // tasks
	shapes    int
	looking   bool // something waits that no known host can take now
	announced bool
	pause     time.Duration
	nextAt    time.Time
	broad     bool // the next search is for any worker
}

const (
	findFirst = time.Second
	findMost  = 30 * time.Second
)

func (s *search) class(name string) *class {
	k := s.classes[name]
	if k == nil {
		k = &class{name: name}
		s.classes[name] = k
	}
	return k
}

// look starts or goes on looking for hosts of the class: at once if none is
// known, else after a pause in which one may become free.
func (s *search) look(k *class, urgent bool) {
	if !k.looking {
		k.looking = true
		if !k.nextAt.After(s.now) {
			k.pause, k.broad, k.nextAt = findFirst, false, s.now
			if !urgent {
				s.lookAt(k, s.now.Add(findFirst))
			}
		}
	}
	if k.nextAt.After(s.now) {
		return
	}
	if k.broad {
		s.find(lease.AnyWorker)
	} else {
		s.find(k.name)
	}
	k.broad = !k.broad && k.name != lease.AnyWorker
	k.announced, s.announce = true, true
	pause := s.jitter(k.pause)
	k.pause = min(2*k.pause, findMost)
	s.lookAt(k, s.now.Add(pause))
}

func (s *search) lookAt(k *class, when time.Time) {
	k.nextAt = when
	s.at(when, func() {
		if k.looking && k.nextAt.Equal(when) {
			s.look(k, true)
		}
	})
}

func (s *search) find(name string) {
	if len(s.fx.Find) < maxFinds && !slices.Contains(s.fx.Find, name) {
		s.fx.Find = append(s.fx.Find, name)
	}
}

// announceWants tells, on change, what is looked for: most waiting first.
func (s *search) announceWants() {
	if !s.announce {
		return
	}
	s.announce = false
	var wants []Want
	for _, k := range s.classes {
		if k.announced && k.waiting > 0 {
			wants = append(wants, Want{Class: k.name, Count: k.waiting})
		}
	}
	slices.SortFunc(wants, func(a, b Want) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Class, b.Class))
	})
	wants = wants[:min(len(wants), maxFinds)]
	if !slices.Equal(wants, s.wants) {
		s.wants = wants
		s.fx.Announce, s.fx.Wants = true, slices.Clone(wants)
	}
}

// lostLead ends all searches, and takes back what was announced.
func (s *search) lostLead() {
	for _, k := range s.classes {
		k.looking, k.announced = false, false
	}
	s.announce = true
}
