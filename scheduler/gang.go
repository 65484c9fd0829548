package scheduler

// The soft state of a gang that gathers: which members have a place at a host.
// See docs/adr, ADR 89.

import (
	"math/bits"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/scheduler/place"
)

// gang is what a dispatch knows of a gang. It is made when the first member is offered, so a gang that waits costs no
// more than a task.
type gang struct {
	size  int
	home  place.Home // a rack with enough hosts; all hosts if none is known
	due   bool       // it is in offers.due
	since time.Time  // when a host first held a place while others were missing; zero while none does
	shown int        // how many members entry.shown counts as RESERVED
	// gathers says that usage counts and hosts hold places for some of its members. So the gang keeps its places in the
	// queues of other hosts, whatever accounts have used.
	gathers bool
	// revokes counts the places that hosts have taken back.
	revokes int
}

// homeAt returns where the gang looks for places at this age of its job. It looks in turns: first in its home, then at
// all hosts, then in its home again. Each turn is twice as long as the one before. So a home whose hosts are busy, or
// are not what they say, costs a gang no more than twice the time that it had waited by then.
func (g *gang) homeAt(age, first time.Duration) place.Home {
	if turn := bits.Len64(uint64(max(age, 0)/max(first, 1)) + 1); turn%2 == 0 {
		return place.Home{}
	}
	return g.home
}

// most bounds the offers of a gang. It is more than the gang has members, because at some hosts a member may never get
// a place.
func (g *gang) most() int { return min(2*g.size, g.size+8) }

// seat is the place of one member at the host of its offer.
type seat struct {
	rank    int
	state   seatState
	waits   bool // the host may queue the offer
	preempt bool // preemptible tasks are to make room
	firm    bool // the host was told to end them
	why     string

	// From the Commit.
	session contract.Session
	address string
	port    int
	devices []string
}

// seatState is how far a member has come at one host.
type seatState int

const (
	asked    seatState = iota // the host has the offer; a member fits there, as far as this daemon knows
	inQueue                   // the offer queues at a full host
	promised                  // the host would end preemptible tasks for the member
	seated                    // the host has reserved what the member needs
)
