package sim

// The network between the machines, and the default network of a world.

import (
	"math"
	"math/rand/v2"
	"time"
)

// Network carries messages and files between machines, which are named by their indices in load.Load.Machines. Its time is
// the Clock of the World. It calls arrive and done on that clock, never before Send and Copy have returned.
type Network interface {
	// Send delivers a control message of this size: arrive is called when the message is there, or never if it is lost.
	// The network may reorder messages: a session makes a later message wait for an earlier one.
	Send(from, to int, bytes int, arrive func())
	// Copy moves the files of a job: bulk traffic, which shares bandwidth. done is called when all of it is there.
	Copy(from, to int, bytes int64, done func())
	// Cost returns the latency of the path; the largest Duration if there is no path.
	Cost(from, to int) time.Duration
	// Hops returns how many links are on the path; 0: it is the same machine; -1: there is no path.
	Hops(from, to int) int
	// Reachable reports whether there is a path.
	Reachable(from, to int) bool
}

// Tracer is a Network that reports the path of messages: the nodes that they pass, both ends included; nil without a
// path.
type Tracer interface{ Path(from, to int) []int }

// Lossy is a Network that may lose messages between machines that can reach each other. Sessions then send again what has
// not arrived.
type Lossy interface{ Lossy() bool }

// Breakable is a Network of which parts can fail. What a part is called is up to the network.
type Breakable interface {
	// Break makes a part fail, and Mend repairs it. An error says that there is no such part.
	Break(part string) error
	Mend(part string) error
}

// The latencies of the plain network, drawn evenly by their logarithm, and its bandwidth for files.
const (
	plainLeast = 20 * time.Microsecond
	plainMost  = 200 * time.Microsecond
	plainSpeed = 10e9 / 8 // bytes a second
)

// plain is a network of constant latencies: each pair of machines has a link of its own.
type plain struct {
	clock       *Clock
	seed        uint64
	least, most time.Duration
}

// NewPlain returns the default network of a World with this seed.
func NewPlain(clock *Clock, seed uint64) Network { //nolint:ireturn // a World takes any
	return plain{clock, seed, plainLeast, plainMost}
}

func (n plain) Cost(from, to int) time.Duration {
	if from == to {
		return 0
	}
	pair := rand.NewPCG(n.seed, uint64(min(from, to))<<32|uint64(max(from, to)))
	part := float64(pair.Uint64()>>11) / (1 << 53)
	return time.Duration(float64(n.least) * math.Pow(float64(n.most)/float64(n.least), part))
}

func (n plain) Send(from, to int, _ int, arrive func()) { n.clock.after(n.Cost(from, to), arrive) }

func (n plain) Copy(from, to int, bytes int64, done func()) {
	if from == to {
		n.clock.after(0, done)
		return
	}
	n.clock.after(n.Cost(from, to)+time.Duration(float64(bytes)/plainSpeed*float64(time.Second)), done)
}

func (n plain) Hops(from, to int) int {
	if from == to {
		return 0
	}
	return 1
}

func (n plain) Reachable(int, int) bool { return true }
