// Package fabric simulates the network of a data center: hosts and switches, the links between them, and the messages
// and copies of files on them. It runs on a virtual timeline.
//
// A control message follows one of the cheapest paths. On each link it waits for the messages before it, then takes its
// size divided by the bandwidth, then the latency. A switch passes a message on when it has received all of it. Copies
// of files are flows that share the bandwidth max-min fairly. Control messages never wait for copies; copies get the
// bandwidth that control messages leave.
//
// A message books all links of its path when it is sent, so that it costs one event. If a message reaches a link before
// another one that has booked it earlier, it goes first if there is enough time for all of it. The order of messages
// between two hosts is kept. An event for each link would be exact for messages that overtake each other, at four times the
// cost; the difference is less than the latency of a link. Packets and congestion control would be a thousand times the
// events, for the same shares of bandwidth. A route for each pair of hosts would need memory with their square.
//
// The same topology, seed and calls give the same times and figures.
package fabric

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// Timeline is the virtual clock. At calls f at the time t. It calls functions with the same t in the order of the calls
// of At.
type Timeline interface {
	Now() time.Duration
	At(t time.Duration, f func())
}

// Config says how a network behaves.
type Config struct {
	Seed uint64 // for losses, and for the choice among equal paths
	// Convergence is how long routers take to react when a link fails or works again. Until then they send into a dead
	// link, and what they send is lost.
	Convergence time.Duration
	Loss        float64       // probability that a link loses a control message, in addition to the loss of the link itself
	Bin         time.Duration // width of a bin of utilisation; bins are merged in pairs if there are more than MaxBins
}

// DefaultConfig returns a network without loss, whose routers need 200 ms to react to a change.
func DefaultConfig() Config {
	return Config{Seed: 1, Convergence: 200 * time.Millisecond, Bin: time.Second}
}

// Validate returns an error that names the first value that is out of range.
func (c Config) Validate() error {
	switch {
	case c.Convergence < 0:
		return fmt.Errorf("convergence time %v: want 0 or more", c.Convergence)
	case !(c.Loss >= 0 && c.Loss < 1):
		return fmt.Errorf("loss %v: want at least 0 and less than 1", c.Loss)
	case c.Bin <= 0:
		return fmt.Errorf("width of a bin %v: want more than 0", c.Bin)
	}
	return nil
}

// Fabric is the network. Hosts are numbered from 0, as the machines of the simulation.
type Fabric struct {
	cfg      Config
	topology *Topology
	time     Timeline
	random   *rand.Rand
	lossy    bool

	routes *routes
	links  []link // directed: 2i leads from A to B of the link i of the topology, 2i+1 back
	wires  []wire // by link of the topology
	bins   bins
	bulk   bulk
	pairs  pairs
	faults faults
	totals Totals
	uses   uses // how often copies used each path

	free []*message // messages for reuse
	path []int32    // for the path of the message that is being sent
}

// New builds the network of a topology, which must not change afterwards.
func New(cfg Config, t *Topology, timeline Timeline) (*Fabric, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("network: %w", err)
	}
	if err := t.Validate(); err != nil {
		return nil, err
	}
	f := &Fabric{
		cfg: cfg, topology: t, time: timeline, random: rand.New(rand.NewPCG(cfg.Seed, 0x6d75737465)),
		links: make([]link, 2*len(t.Links)), wires: make([]wire, len(t.Links)),
	}
	for i, l := range t.Links {
		f.lossy = f.lossy || cfg.Loss > 0 || l.Loss > 0
		for d := range 2 {
			f.links[2*i+d] = newLink(l, 1-(1-cfg.Loss)*(1-l.Loss))
		}
	}
	f.routes = newRoutes(t)
	f.bins = newBins(f.links, cfg.Bin)
	f.bulk = newBulk(f)
	f.faults = newFaults(t)
	return f, nil
}

// Topology returns the topology of the network.
func (f *Fabric) Topology() *Topology { return f.topology }

// message is a control message under way.
type message struct {
	arrive  func()
	hops    []hop
	bytes   int
	arrives int64
	changes int    // how many changes of links had happened when it was sent
	deliver func() // made once for all uses of the message
}

// hop is a link that a message uses, and when it reaches it.
type hop struct {
	link int32
	at   int64
}

// Send delivers a control message of this size: arrive is called when the message is there, or never if it is lost. A
// message to the same host arrives at once. All messages between two hosts follow the same path until routes change.
func (f *Fabric) Send(from, to, bytes int, arrive func()) {
	now := int64(f.time.Now())
	f.totals.Messages++
	if from == to {
		f.totals.Delivered++
		f.time.At(time.Duration(now), arrive)
		return
	}
	bytes = max(bytes, 0)
	f.path = f.routes.path(from, to, f.hash(from, to, 0), f.path[:0])
	if len(f.path) == 0 {
		f.totals.Unrouted++
		return
	}
	fresh := f.pairs.add(from, to)
	m := f.message()
	suspect := false
	t := now
	for _, l := range f.path {
		x := &f.links[l]
		m.hops = append(m.hops, hop{link: l, at: t})
		suspect = suspect || f.wires[l>>1].down > 0
		if fresh {
			x.flows++
		}
		f.bins.add(l, t, int64(bytes))
		t = x.book(t, bytes)
		if f.lossy && x.loss > 0 && f.random.Float64() < x.loss {
			x.lost++
			f.totals.Lost++
			f.recycle(m)
			return
		}
	}
	f.totals.Hops += int64(len(f.path))
	m.arrive, m.bytes, m.arrives, m.changes = arrive, bytes, t, f.faults.changes
	if suspect {
		m.changes = -1
	}
	f.time.At(time.Duration(t), m.deliver)
}

// hash returns the hash of a flow between two hosts. Copies between them have several flows.
func (f *Fabric) hash(from, to int, flow uint64) uint64 {
	return mix(mix(f.cfg.Seed^uint64(from)<<32^uint64(to)) + flow)
}

// mix is the finalizer of splitmix64.
func mix(z uint64) uint64 {
	z += 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

func (f *Fabric) message() *message {
	if n := len(f.free); n > 0 {
		m := f.free[n-1]
		f.free = f.free[:n-1]
		return m
	}
	m := &message{hops: make([]hop, 0, 8)}
	m.deliver = func() { f.deliver(m) }
	return m
}

func (f *Fabric) recycle(m *message) {
	m.arrive, m.hops = nil, m.hops[:0]
	f.free = append(f.free, m)
}

// deliver ends the flight of a message.
func (f *Fabric) deliver(m *message) {
	if m.changes != f.faults.changes {
		if at := f.brokenAt(m); at >= 0 {
			f.lose(m, at)
			f.recycle(m)
			return
		}
	}
	f.totals.Delivered++
	arrive := m.arrive
	f.recycle(m)
	arrive()
}

// brokenAt returns the index of the first link of a message that was dead at some time while the message was there, or -1.
func (f *Fabric) brokenAt(m *message) int {
	for i, h := range m.hops {
		left := m.arrives
		if i+1 < len(m.hops) {
			left = m.hops[i+1].at
		}
		if f.wires[h.link>>1].deadWithin(h.at, left) {
			return i
		}
	}
	return -1
}

// lose counts a message as lost on a link, and takes it from the figures of the links after it.
func (f *Fabric) lose(m *message, at int) {
	f.totals.Lost++
	f.links[m.hops[at].link].lost++
	f.totals.Hops -= int64(len(m.hops))
	for _, h := range m.hops[at+1:] {
		x := &f.links[h.link]
		x.control -= int64(m.bytes)
		x.messages--
		f.bins.add(h.link, h.at, -int64(m.bytes))
	}
}
