package fabric

// Figures of the network.

import (
	"slices"
	"time"
)

// Totals are sums over the whole network.
type Totals struct {
	Messages   int64 // control messages that were sent
	Delivered  int64
	Lost       int64 // on a link: by chance, or because it was dead
	Unrouted   int64 // because the routers knew no path
	Hops       int64 // links that the messages passed, lost ones apart
	Copies     int64
	CopiesDone int64
	CopiesLost int64 // because one of their hosts failed
}

// Stats are the figures of a network, from the beginning until now.
type Stats struct {
	Totals
	Until time.Duration
	Bin   time.Duration // width of a bin of LinkStats.Use; the last bin may be shorter
	Links []LinkStats   // two for each link of the topology, A to B and then B to A
}

// LinkStats are the figures of one direction of a link.
type LinkStats struct {
	Link      int // of the topology
	From, To  int // nodes
	Bandwidth Bandwidth
	Control   int64 // bytes of control messages
	Bulk      int64 // bytes of copies
	Messages  int64 // control messages
	Lost      int64 // control messages
	Flows     int64 // pairs of hosts and copies that took this link; up to maxPairs pairs are counted
	QueueMean time.Duration
	QueueMost time.Duration
	Use       []float32 // share of the bandwidth that was used, by bin
}

// Totals returns the sums over the network so far.
func (f *Fabric) Totals() Totals { return f.totals }

// Stats returns the figures of all links so far.
func (f *Fabric) Stats() Stats {
	now := int64(f.time.Now())
	for _, fl := range f.bulk.flows {
		if !fl.over {
			f.bulk.account(fl, now)
		}
	}
	s := Stats{Totals: f.totals, Until: time.Duration(now), Links: make([]LinkStats, len(f.links))}
	for i := range f.links {
		x := &f.links[i]
		f.bins.flush(int32(i))
		wire := f.topology.Links[i/2]
		ls := LinkStats{
			Link: i / 2, From: wire.A, To: wire.B, Bandwidth: wire.Bandwidth, Control: x.control, Bulk: x.bulk,
			Messages: x.messages, Lost: x.lost, Flows: x.flows, QueueMost: time.Duration(x.queuedMost),
		}
		if i%2 == 1 {
			ls.From, ls.To = ls.To, ls.From
		}
		if x.messages > 0 {
			ls.QueueMean = time.Duration(x.queued / x.messages)
		}
		s.Links[i] = ls
	}
	f.bins.at(now)
	s.Bin = time.Duration(f.bins.width)
	for i := range s.Links {
		s.Links[i].Use = f.bins.use(i, now, f.links[i].byteTime)
	}
	return s
}

// MaxBins bounds the bins of a link's utilisation over time.
const MaxBins = 128

// bins count the bytes of each link over time. When time goes beyond the last bin, neighbours are merged, so that all
// bins are twice as wide.
type bins struct {
	width int64   // nanoseconds
	links []link  // directed; each holds the bytes of the last bin that it used
	bytes []int64 // MaxBins for each link
}

func newBins(links []link, width time.Duration) bins {
	return bins{width: int64(width), links: links, bytes: make([]int64, len(links)*MaxBins)}
}

// add counts bytes on a link at a time.
func (b *bins) add(l int32, at, bytes int64) {
	x := &b.links[l]
	if bin := b.at(at); bin != x.bin {
		b.flush(l)
		x.bin = bin
	}
	x.binBytes += bytes
}

// at returns the bin of a time. If the time is beyond the last one, all bins are widened first. Times before the
// beginning of the simulation belong to the first bin.
func (b *bins) at(t int64) int32 {
	t = max(t, 0)
	for t >= b.width*MaxBins {
		b.widen()
	}
	return int32(t / b.width)
}

// widen merges each bin with its neighbour.
func (b *bins) widen() {
	b.width *= 2
	for l := range b.links {
		row := b.bytes[l*MaxBins : (l+1)*MaxBins]
		for i := range MaxBins / 2 {
			row[i] = row[2*i] + row[2*i+1]
		}
		clear(row[MaxBins/2:])
		b.links[l].bin /= 2
	}
}

func (b *bins) flush(l int32) {
	x := &b.links[l]
	b.bytes[int(l)*MaxBins+int(x.bin)] += x.binBytes
	x.binBytes = 0
}

// spread counts bytes that moved evenly in a span of time.
func (b *bins) spread(l int32, from, to, bytes int64) {
	if bytes == 0 {
		return
	}
	last := int64(b.at(to))
	first := int64(b.at(from))
	counted := int64(0)
	for bin := first; bin < last; bin++ {
		upTo := int64(float64(bytes) * float64((bin+1)*b.width-from) / float64(to-from))
		b.add(l, bin*b.width, upTo-counted)
		counted = upTo
	}
	b.add(l, to, bytes-counted)
}

func (b *bins) use(l int, now int64, byteTime float64) []float32 {
	n := int((max(now, 0) + b.width - 1) / b.width)
	use := make([]float32, n)
	for i := range use {
		span := min(b.width, now-int64(i)*b.width)
		use[i] = float32(float64(b.bytes[l*MaxBins+i]) * byteTime / float64(span))
	}
	return use
}

// maxPairs bounds the pairs of hosts that are counted in LinkStats.Flows.
const maxPairs = 1 << 22

// pairs is the set of pairs of hosts that have exchanged messages, a hash table with open addressing.
type pairs struct {
	slots []uint64 // 0 is empty
	count int
}

// add reports whether a pair is new.
func (p *pairs) add(from, to int) bool {
	if 2*p.count >= len(p.slots) {
		p.grow()
	}
	key := uint64(from)<<32 | uint64(to)&0xffffffff | 1<<63
	slot := p.slot(key)
	if p.slots[slot] == key || p.count >= maxPairs {
		return false
	}
	p.slots[slot] = key
	p.count++
	return true
}

// slot returns where a key is, or where it would be.
func (p *pairs) slot(key uint64) int {
	mask := len(p.slots) - 1
	i := int(mix(key)) & mask
	for p.slots[i] != 0 && p.slots[i] != key {
		i = (i + 1) & mask
	}
	return i
}

func (p *pairs) grow() {
	if p.count >= maxPairs {
		return
	}
	old := slices.Clone(p.slots)
	p.slots = make([]uint64, max(1024, 2*len(old)))
	for _, key := range old {
		if key != 0 {
			p.slots[p.slot(key)] = key
		}
	}
}
