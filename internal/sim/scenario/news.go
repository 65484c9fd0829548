package scenario

// News of capacity: adapts the overlays and the DHT of package gossip to the world.

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/internal/sim"
	"github.com/musterhq/muster/internal/sim/fabric"
	"github.com/musterhq/muster/internal/sim/gossip"
	"github.com/musterhq/muster/internal/sim/report"
)

// News says how schedulers hear of what is free at the hosts.
type News struct {
	Way    string        // one of Ways; empty: by sessions, and the report has no figures of the news
	Stale  time.Duration // delay before schedulers believe it
	Silent float64       // the probability that a host passes nothing on in an overlay
}

// The ways.
const (
	BySessions  = "sessions"  // as in the daemons: each host tells those with which it has a session
	ByRandom    = "random"    // gossip over a random overlay
	ByMST       = "mst"       // gossip over a minimum spanning tree
	ByOptimised = "optimised" // gossip over an overlay of low diameter, bounded degree and short edges
	ByDHT       = "dht"       // records that schedulers look up
)

// Ways are all ways.
var Ways = []string{BySessions, ByRandom, ByMST, ByOptimised, ByDHT}

// Check returns an error if the news is not valid in a cluster with this number of machines.
func (n News) Check(machines int) error {
	switch {
	case n.Way != "" && !slices.Contains(Ways, n.Way):
		return fmt.Errorf("information %q: want %s or %s", n.Way, strings.Join(Ways[:len(Ways)-1], ", "), Ways[len(Ways)-1])
	case n.carried() && machines > gossip.MaxHosts:
		return fmt.Errorf("information %s: there are %d machines; news among more than %d is not simulated, as each remembers what each has told", n.Way, machines, gossip.MaxHosts)
	case n.Stale < 0:
		return fmt.Errorf("stale %s: a time cannot be negative", n.Stale)
	}
	return nil
}

// carried reports whether an overlay or the DHT carries the news.
func (n News) carried() bool { return n.Way != "" && n.Way != BySessions }

// asked reports whether the report is to have the figures of the news.
func (n News) asked() bool { return n.Way != "" || n.Stale > 0 }

// degree bounds the neighbours of a host in an overlay, except in the spanning tree.
const degree = 6

// lookUpEvery is how often a scheduler looks into the DHT.
const lookUpEvery = 10 * time.Second

// carrier carries the news of a world: it is a sim.News.
type carrier struct {
	way interface {
		Publish(host int, version uint32)
		SetUp(host int, up bool)
		Figures() gossip.Figures
	}
	meter *meter
	clock *sim.Clock
	seed  uint64
	heard func(reader, about int, version uint32)
	reads []bool
}

// carrier builds the carrier for a network; nil if the sessions carry the news.
func (s *Scenario) carrier(net sim.Network, clock *sim.Clock) (*carrier, error) {
	hosts := len(s.Load.Machines)
	if err := s.News.Check(hosts); err != nil || !s.News.carried() {
		return nil, err
	}
	c := &carrier{meter: &meter{Network: net}, clock: clock, seed: s.Seed, reads: make([]bool, hosts)}
	cfg := gossip.DefaultConfig()
	cfg.Seed = s.Seed
	deliver := func(at, about int, version uint32, _ time.Duration) {
		if c.reads[at] {
			c.heard(at, about, version)
		}
	}
	var o gossip.Overlay
	var err error
	switch s.News.Way {
	case ByDHT:
		c.way, err = gossip.NewDHT(cfg, hosts, c.meter, clock, deliver)
		return c, err
	case ByMST:
		o = gossip.SpanningTree(net, hosts, degree)
	case ByOptimised:
		o = gossip.Optimised(net, hosts, degree, s.Seed)
	default:
		o = gossip.Random(hosts, degree, s.Seed)
	}
	n, err := gossip.New(cfg, o, c.meter, clock, deliver)
	if err != nil {
		return nil, err
	}
	c.way = n
	chance := rand.New(rand.NewPCG(s.Seed, 0x73696c656e74))
	for h := range hosts {
		if chance.Float64() < s.News.Silent {
			n.SetSilent(h)
		}
	}
	return c, nil
}

// Begin begins the look-ups of the schedulers, if the DHT carries the news.
func (c *carrier) Begin(readers []int, heard func(reader, about int, version uint32)) {
	c.heard = heard
	for _, r := range readers {
		c.reads[r] = true
	}
	d, isDHT := c.way.(*gossip.DHT)
	if !isDHT {
		return
	}
	d.ReadBy(readers)
	chance := rand.New(rand.NewPCG(c.seed, 0x6c6f6f6b))
	for _, r := range readers {
		var again func()
		again = func() {
			d.LookUp(r, nil)
			c.clock.At(c.clock.Now()+lookUpEvery, again)
		}
		c.clock.At(c.clock.Now()+time.Duration(chance.Int64N(int64(lookUpEvery))), again)
	}
}

// Publish publishes a version of a machine's news.
func (c *carrier) Publish(about int, version uint32) { c.way.Publish(about, version) }

// SetUp says whether the daemon of a machine runs.
func (c *carrier) SetUp(machine int, up bool) { c.way.SetUp(machine, up) }

// meter counts what news sends.
type meter struct {
	sim.Network

	messages, bytes, linkBytes int64
}

// Send counts a message and sends it.
func (m *meter) Send(from, to, bytes int, arrive func()) {
	m.messages++
	m.bytes += int64(bytes)
	m.linkBytes += int64(bytes) * int64(max(0, m.Hops(from, to)))
	m.Network.Send(from, to, bytes, arrive)
}

// linksOf returns the number of links that lead to machines or join switches; 0: each pair of machines has a link of
// its own.
func linksOf(t *fabric.Topology, machines int) int {
	n := 0
	if t != nil {
		for _, l := range t.Links {
			if !unused(l.A, machines, t) && !unused(l.B, machines, t) {
				n++
			}
		}
	}
	return n
}

// information returns what the news cost, and how old the schedulers' beliefs were when they used them.
func (s *Scenario) information(c *carrier, r sim.Result) *report.Information {
	out := &report.Information{
		Way: BySessions, Messages: int64(r.Messages), Bytes: r.Bytes,
		AgeMean: r.Ages.Mean().Seconds(), AgeP99: r.Ages.Below(0.99).Seconds(),
	}
	if !s.News.asked() {
		return out
	}
	out.Messages, out.Bytes = int64(r.Told.Messages), r.Told.Bytes
	out.Stale, out.Published, out.Offers, out.Declined = s.News.Stale.Seconds(), r.Bulletins, r.Offers, r.Declines
	linkBytes := r.Told.LinkBytes
	if c != nil {
		out.Way = s.News.Way
		if s.News.Way != ByDHT {
			out.Way = "gossip-" + s.News.Way
		}
		out.Messages += c.meter.messages
		out.Bytes += c.meter.bytes
		linkBytes += c.meter.linkBytes
		out.Reach99 = c.way.Figures().ReachMean.Seconds()
	}
	if links := linksOf(s.Topology, len(s.Load.Machines)); links > 0 {
		out.LinkBytes = float64(linkBytes) / float64(links)
	}
	return out
}
