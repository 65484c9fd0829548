package gossip

// What each host believes of each other host, and the figures of that.

import (
	"fmt"
	"time"

	"github.com/musterhq/muster/internal/sim/fabric"
)

// MaxHosts bounds the hosts that take part. What each host believes of each other needs 32 bytes: 3.1 GiB for this
// number of hosts.
const MaxHosts = 10_240

// belief is what a host knows of the news of a host. The beliefs of a host form a list, the latest first.
type belief struct {
	born    int64  // when the version was published
	seq     uint64 // when it was learnt: the number of versions that the host had learnt by then; 0: never
	version uint32
	source  int32 // index of the peer from which it came; -1: the host itself
	before  int32 // the belief learnt just before this; -1: none
	after   int32 // the belief learnt just after this; -1: none
}

// board holds the beliefs of all hosts.
type board struct {
	hosts   int
	time    fabric.Timeline
	deliver Deliver
	beliefs []belief // hosts for each host
	latest  []int32  // by host: the belief that it has learnt last; -1: none
	lessons []uint64 // of each host
	spread  []spread // of the news of each host

	readers  []bool // hosts that should learn the news; nil: all
	members  int    // how many of these have a running daemon
	ages     histogram
	delays   histogram
	reach    histogram
	unknown  int64 // pairs in samples of which nothing was known
	sampled  int64
	unspread int64 // published versions that fewer than 99 % of the readers know
}

// spread holds the versions of a host's news that fewer than 99 % of the readers know yet, in ascending order.
type spread struct{ versions []wave }

// maxWaves bounds the versions of one host whose spread is tracked. Older ones count as not spread.
const maxWaves = 64

type wave struct {
	version uint32
	born    int64
	hosts   int32 // hosts that know it or a newer one
}

func newBoard(hosts int, timeline fabric.Timeline, deliver Deliver) (*board, error) {
	if hosts > MaxHosts {
		return nil, fmt.Errorf("gossip: %d hosts: at most %d are supported, as each remembers the news of each", hosts, MaxHosts)
	}
	b := &board{
		hosts: hosts, time: timeline, deliver: deliver, beliefs: make([]belief, hosts*hosts), latest: make([]int32, hosts),
		lessons: make([]uint64, hosts), spread: make([]spread, hosts), members: hosts,
	}
	for h := range b.latest {
		b.latest[h] = -1
	}
	return b, nil
}

// publish adds a version of a host's news. It returns false if the version is not newer than the one before.
func (b *board) publish(host int, version uint32) bool {
	e := entry{about: int32(host), version: version, born: int64(b.time.Now())}
	if version <= b.beliefs[host*b.hosts+host].version {
		return false
	}
	s := &b.spread[host]
	if len(s.versions) == maxWaves {
		s.versions = append(s.versions[:0], s.versions[1:]...)
	}
	s.versions = append(s.versions, wave{version: version, born: e.born})
	b.unspread++
	return b.learn(host, e, -1)
}

// learn makes a host believe an entry if it is newer than what the host believes. It reports whether it was newer.
func (b *board) learn(at int, e entry, source int32) bool {
	x := &b.beliefs[at*b.hosts+int(e.about)]
	if e.version <= x.version {
		return false
	}
	if b.reads(at) {
		b.count(e, x.version)
	}
	b.lessons[at]++
	b.front(at, e.about)
	x.version, x.born, x.seq, x.source = e.version, e.born, b.lessons[at], source
	if at != int(e.about) {
		age := int64(b.time.Now()) - e.born
		b.delays.add(age)
		if b.deliver != nil {
			b.deliver(at, int(e.about), e.version, time.Duration(age))
		}
	}
	return true
}

// front moves a belief to the front of its host's list.
func (b *board) front(at int, about int32) {
	row := b.beliefs[at*b.hosts : (at+1)*b.hosts]
	x := &row[about]
	if b.latest[at] == about {
		return
	}
	if x.seq > 0 {
		row[x.after].before = x.before // it is not the latest, so there is a later one
		if x.before >= 0 {
			row[x.before].after = x.after
		}
	}
	x.before, x.after = b.latest[at], -1
	if x.before >= 0 {
		row[x.before].after = about
	}
	b.latest[at] = about
}

// reads reports whether a host should learn the news.
func (b *board) reads(host int) bool { return b.readers == nil || b.readers[host] }

// readBy sets which hosts should learn the news.
func (b *board) readBy(hosts []int) {
	b.readers, b.members = make([]bool, b.hosts), len(hosts)
	for _, h := range hosts {
		b.readers[h] = true
	}
}

// begin notes that the daemon of a host has started again.
func (b *board) begin(host int) {
	if b.reads(host) {
		b.members++
	}
}

// enough returns 99 % of the hosts that should learn the news.
func (b *board) enough() int { return max(1, (99*b.members+99)/100) }

// forget makes a host whose daemon has ended forget all that it has learnt from others.
func (b *board) forget(at int) {
	reads := b.reads(at)
	if reads {
		b.members--
	}
	row := b.beliefs[at*b.hosts : (at+1)*b.hosts]
	for about := range row {
		if about == at || row[about].version == 0 {
			continue
		}
		for i := range b.spread[about].versions {
			if !reads {
				break
			}
			if v := &b.spread[about].versions[i]; v.version <= row[about].version {
				v.hosts--
			}
		}
		row[about] = belief{}
	}
	b.latest[at] = -1
	if own := &row[at]; own.version > 0 {
		b.latest[at] = int32(at)
		own.before, own.after = -1, -1
	}
}

// since appends what a host has learnt after number seq, except from one source.
func (b *board) since(at int, seq uint64, source int32, entries []entry) []entry {
	row := b.beliefs[at*b.hosts : (at+1)*b.hosts]
	for i := b.latest[at]; i >= 0 && row[i].seq > seq; i = row[i].before {
		if row[i].source != source {
			entries = append(entries, entry{about: i, version: row[i].version, born: row[i].born})
		}
	}
	return entries
}

// learnt returns how many versions a host has learnt so far.
func (b *board) learnt(at int) uint64 { return b.lessons[at] }

func (b *board) version(at, about int) (uint32, time.Duration) {
	x := b.beliefs[at*b.hosts+about]
	if x.version == 0 {
		return 0, 0
	}
	return x.version, b.time.Now() - time.Duration(x.born)
}

// count notes that one more host knows version e.version. Before, it knew version old.
func (b *board) count(e entry, old uint32) {
	s := &b.spread[e.about]
	for i := range s.versions {
		if v := &s.versions[i]; v.version > old && v.version <= e.version {
			v.hosts++
		}
	}
	done, enough := 0, b.enough()
	for done < len(s.versions) && int(s.versions[done].hosts) >= enough {
		b.reach.add(int64(b.time.Now()) - s.versions[done].born)
		b.unspread--
		done++
	}
	if done > 0 {
		s.versions = append(s.versions[:0], s.versions[done:]...)
	}
}

// sample adds the ages of all beliefs of others to the figures.
func (b *board) sample() {
	now := int64(b.time.Now())
	for at := range b.hosts {
		for about, x := range b.beliefs[at*b.hosts : (at+1)*b.hosts] {
			switch {
			case at == about:
			case x.version == 0:
				b.unknown++
				b.sampled++
			default:
				b.ages.add(now - x.born)
				b.sampled++
			}
		}
	}
}

// Figures say how well news has spread. Readers are the hosts that should learn the news; by default all.
type Figures struct {
	Pushes  int64 // messages with news, acknowledgements apart
	Entries int64 // news in them

	AgeMean, AgeP99     time.Duration // of what hosts believe of others: since it was published, over all samples
	Unknown             float64       // share of pairs in the samples of which nothing was known
	DelayMean, DelayP99 time.Duration // from the publication until a host learns it
	ReachMean, ReachP99 time.Duration // from the publication until 99 % of the readers know it, or a newer version
	Reached, Unreached  int64         // versions that 99 % of the readers know, and the other versions
}

// Figures returns the figures so far.
func (n *News) Figures() Figures {
	f := n.board.figures()
	f.Pushes, f.Entries = n.pushes, n.entries
	return f
}

func (b *board) figures() Figures {
	f := Figures{
		AgeMean: b.ages.mean(), AgeP99: b.ages.quantile(0.99), DelayMean: b.delays.mean(), DelayP99: b.delays.quantile(0.99),
		ReachMean: b.reach.mean(), ReachP99: b.reach.quantile(0.99), Reached: b.reach.count, Unreached: b.unspread,
	}
	if b.sampled > 0 {
		f.Unknown = float64(b.unknown) / float64(b.sampled)
	}
	return f
}
