// Package fleet is what one scheduler believes of the hosts: what each has, what is free there, what its own offers
// take of that, and which hosts a request could go to.
//
// Host is one host: its word, and the claims that this scheduler's offers have on it. Table holds the hosts so that a
// search over ten thousand of them costs microseconds. A Request is what a search looks for. All of it is soft: it is
// forgotten with the daemon, and a host's next word may correct it. Nothing here knows of jobs' states, of offers
// under way or of the journal, and nothing here acts: times are given, and what follows is the scheduler's to do.
// A Table and its hosts are for one goroutine.
package fleet

import (
	"github.com/musterhq/muster/job"
)

const (
	// MaxClaims bounds the claims on one host. It is below lease.MaxOffers, so that late ones fit.
	MaxClaims = 48
	// MaxQueued bounds the claims that queue at one full host. Some more do that were made because they fitted.
	MaxQueued = 8
)

// Shape is what a user asks for, whoever of his tasks it is for: tasks of one Shape have the same candidates.
type Shape struct {
	User string
	Need job.Resources // with GPUModel as lease.ModelName gives it
	Foot Footprint     // of Need
	Pool *Pool         // the hosts that meet the rest
	// never holds the hosts that said that they can never run it, and by which of their Hellos.
	never map[job.Peer]uint64
}

// Request is a Shape that one task asks for.
type Request struct {
	*Shape
	Rank Rank
}

// Refuse notes the host's word that it can never run the shape. It holds until the host says Hello again.
func (s *Shape) Refuse(h *Host) {
	if s.never == nil {
		s.never = map[job.Peer]uint64{}
	}
	s.never[h.Peer] = h.hellos
}

// Forget drops what is remembered of a host that is not known any more.
func (s *Shape) Forget(h *Host) { delete(s.never, h.Peer) }

func (s *Shape) refusedBy(h *Host) bool { return len(s.never) > 0 && s.never[h.Peer] == h.hellos }
