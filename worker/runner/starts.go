package runner

// Orders on their way through the spawners. A start hangs if a directory or file that its user named lies on a file
// server that does not answer. Its thread cannot be called back, so another spawner takes its place.

import (
	"github.com/musterhq/muster/worker/runner/spawn"
)

const (
	// spawners is how many tasks may be started at once, beside those that hang.
	spawners = 4
	// maxStuck bounds the starts that hang, and maxStuckUser those of one user.
	maxStuck     = 64
	maxStuckUser = 8
)

// starts are the orders that wait for a spawner and those that spawners have.
type starts struct {
	spawner *spawn.Spawner
	orders  chan *spawn.Order
	waiting []*task
	out     map[*spawn.Order]*task  // spawners have them, also those that were withdrawn
	stuck   map[*spawn.Order]string // those of out that hang, with their users
}

func newStarts(s *spawn.Spawner) *starts {
	return &starts{spawner: s, orders: make(chan *spawn.Order), out: map[*spawn.Order]*task{}, stuck: map[*spawn.Order]string{}}
}

// next returns the order that waits longest, and the channel to send it on; without one, the channel is nil.
func (s *starts) next() (chan<- *spawn.Order, *spawn.Order) {
	if len(s.waiting) == 0 {
		return nil, nil
	}
	return s.orders, s.waiting[0].order
}

// taken notes that a spawner has taken the order of next.
func (s *starts) taken() *task {
	t := s.waiting[0]
	s.waiting = s.waiting[1:]
	s.out[t.order] = t
	return t
}

// back notes that a spawner is done with an order.
func (s *starts) back(o *spawn.Order) {
	delete(s.out, o)
	delete(s.stuck, o)
}

// hangs notes that an order takes long, and has another spawner take the place of its own. It returns false if the
// spawner is done with the order by now.
func (s *starts) hangs(o *spawn.Order) bool {
	if s.out[o] == nil {
		return false
	}
	s.stuck[o] = o.Start.User
	if len(s.stuck) <= maxStuck {
		go s.spawner.Run(s.orders)
	}
	return true
}

// refusal is why a start of this user would only hang as well; nil: it may not.
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
	return spawn.Refuse(spawn.CodeNotExecutable, "%d starts of user %s hang in files that do not answer on this node", n, user)
}

// takeUnwanted takes off the waiting tasks for which unwanted says so.
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
