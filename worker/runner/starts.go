package runner

// Orders on their way through the spawners. A start hangs if a directory or file that its user named lies on a file
// server that does not answer. A thread that is blocked there cannot be interrupted, so another spawner takes its
// place.

import (
	"github.com/musterhq/muster/worker/runner/spawn"
)

const (
	// spawners is how many starts run at the same time, not counting those that hang.
	spawners = 4
	// maxStuck bounds the starts that hang; maxStuckUser bounds those of one user.
	maxStuck     = 64
	maxStuckUser = 8
)

// starts are the orders that wait for a spawner and those that spawners have taken.
type starts struct {
	spawner *spawn.Spawner
	orders  chan *spawn.Order
	waiting []*task
	taken   map[*spawn.Order]*task  // orders that spawners have, including withdrawn ones
	stuck   map[*spawn.Order]string // the orders among taken that hang, with their users
}

func newStarts(s *spawn.Spawner) *starts {
	return &starts{spawner: s, orders: make(chan *spawn.Order), taken: map[*spawn.Order]*task{}, stuck: map[*spawn.Order]string{}}
}

// next returns the order that waits longest and the channel to send it on. The channel is nil if no order waits.
func (s *starts) next() (chan<- *spawn.Order, *spawn.Order) {
	if len(s.waiting) == 0 {
		return nil, nil
	}
	o := s.waiting[0].order
	if o.Refused == nil && len(s.stuck) > 0 {
		o.Refused = s.refusal(o.Start.User) // others of the user may hang since it was queued
	}
	return s.orders, o
}

// take records that a spawner has taken the order that next returned.
func (s *starts) take() *task {
	t := s.waiting[0]
	s.waiting = s.waiting[1:]
	s.taken[t.order] = t
	return t
}

// back records that a spawner is done with an order.
func (s *starts) back(o *spawn.Order) {
	delete(s.taken, o)
	delete(s.stuck, o)
}

// hangs records that an order takes long, and starts another spawner in place of the one that has it. It returns
// false if the spawner is done with the order by now.
func (s *starts) hangs(o *spawn.Order) bool {
	if s.taken[o] == nil {
		return false
	}
	s.stuck[o] = o.Start.User
	if len(s.stuck) <= maxStuck {
		go s.spawner.Run(s.orders)
	}
	return true
}

// refusal returns the reason why no more starts of this user are tried, because too many of them hang. Nil: they are.
func (s *starts) refusal(user string) error {
	n := 0
	for _, other := range s.stuck {
		if other == user {
			n++
		}
	}
	if n < maxStuckUser {
		return nil
	}
	return spawn.RefuseHere("%d starts of user %s hang in files that do not answer on this node", n, user)
}

// takeUnwanted removes and returns the waiting tasks for which unwanted returns true.
func (s *starts) takeUnwanted(unwanted func(*task) bool) []*task {
	var off []*task
	keep := s.waiting[:0]
	for _, t := range s.waiting {
		if unwanted(t) {
			off = append(off, t)
		} else {
			keep = append(keep, t)
		}
	}
	clear(s.waiting[len(keep):])
	s.waiting = keep
	return off
}
