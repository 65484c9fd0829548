package gossip

// News by provider records in a DHT: a host stores a record, and the others look all records up.

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/musterhq/muster/internal/sim/fabric"
)

// lookUpCosts is what provider records cost in go-libp2p-kad-dht 0.42, measured on real DHT nodes over QUIC in a
// simulated network with a round trip of 10 ms, where the median of all operations was a multiple of the round trip.
// Between the rows the cost is interpolated, linear in the logarithm of the hosts; beyond them it is extrapolated.
var lookUpCosts = []struct {
	hosts                     float64
	findTrips, findRequests   float64 // cost of a look-up that finds all records
	storeTrips, storeRequests float64 // cost of storing a record
}{
	{10, 3, 22, 4, 37},
	{50, 3, 29, 3, 51},
	{200, 6, 31, 6, 55},
	{500, 7, 30, 8, 84},
}

// holders is how many hosts keep each record; each of them answers a look-up with all records.
const holders = 20

// recordBytes is the size of one record in an answer: the id of the host and two addresses.
const recordBytes = 65

// answerTimeout is how long an operation waits for the answers of a round trip.
const answerTimeout = time.Second

// opCost is the cost of one operation.
type opCost struct{ trips, requests int }

func costs(hosts int) (find, store opCost) {
	x := math.Log2(float64(max(hosts, 2)))
	t := lookUpCosts
	i := 1
	for i < len(t)-1 && float64(hosts) > t[i].hosts {
		i++
	}
	at := (x - math.Log2(t[i-1].hosts)) / (math.Log2(t[i].hosts) - math.Log2(t[i-1].hosts))
	at = max(at, 0)
	between := func(a, b float64) int { return int(math.Round(a + at*(b-a))) }
	find = opCost{between(t[i-1].findTrips, t[i].findTrips), between(t[i-1].findRequests, t[i].findRequests)}
	store = opCost{between(t[i-1].storeTrips, t[i].storeTrips), between(t[i-1].storeRequests, t[i].storeRequests)}
	return find, store
}

// DHT is news by provider records: a host stores a record when it publishes, and learns of others when it looks up.
type DHT struct {
	header      int
	net         Network
	time        fabric.Timeline
	random      *rand.Rand
	board       *board
	find, store opCost
	stored      []entry // of each host; version 0: none
	records     int     // how many hosts have one
	storing     []bool
	down        []bool
	messages    int64
}

// NewDHT makes the first hosts of a network take part. Deliver may be nil.
func NewDHT(cfg Config, hosts int, net Network, timeline fabric.Timeline, deliver Deliver) (*DHT, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if there, known := hostsOf(net); known && hosts > there {
		return nil, fmt.Errorf("gossip: %d hosts take part, the network has %d", hosts, there)
	}
	b, err := newBoard(hosts, timeline, deliver)
	if err != nil {
		return nil, err
	}
	d := &DHT{
		header: cfg.Header, net: net, time: timeline, random: rand.New(rand.NewPCG(cfg.Seed, 0x646874)), board: b,
		stored: make([]entry, hosts), storing: make([]bool, hosts), down: make([]bool, hosts),
	}
	d.find, d.store = costs(hosts)
	return d, nil
}

// Publish stores a new version of a host's news. The new version waits while an older one is being stored.
func (d *DHT) Publish(host int, version uint32) {
	if d.board.publish(host, version) && !d.storing[host] {
		d.put(host)
	}
}

// ReadBy sets which hosts look up, for the figures. At first all do.
func (d *DHT) ReadBy(hosts []int) { d.board.readBy(hosts) }

// SetUp says whether the daemon of a host runs; at first all do. A daemon that does not run answers nothing and learns
// nothing. When it starts again, it has forgotten what it had looked up.
func (d *DHT) SetUp(host int, up bool) {
	if d.down[host] == !up {
		return
	}
	d.down[host] = !up
	if up {
		d.board.begin(host)
	} else {
		d.board.forget(host)
	}
}

// put stores the newest version.
func (d *DHT) put(host int) {
	d.storing[host] = true
	own := d.board.beliefs[host*d.board.hosts+host]
	d.run(host, d.store, func(int) int { return d.header }, func() {
		if d.stored[host].version == 0 {
			d.records++
		}
		d.stored[host] = entry{about: int32(host), version: own.version, born: own.born}
		d.storing[host] = false
		if d.board.beliefs[host*d.board.hosts+host].version > own.version {
			d.put(host)
		}
	})
}

// LookUp makes a host learn all records. done is called when the look-up is over; it may be nil.
func (d *DHT) LookUp(host int, done func()) {
	d.run(host, d.find, func(left int) int {
		if left < holders { // the last requests go to the holders of the records
			return d.header + recordBytes*d.records
		}
		return d.header
	}, func() {
		for _, e := range d.stored {
			if d.down[host] {
				break
			}
			if e.version > 0 && int(e.about) != host {
				d.board.learn(host, e, -1)
			}
		}
		if done != nil {
			done()
		}
	})
}

// Version returns the newest version of one host's news that another host knows, and how long ago it was published.
func (d *DHT) Version(at, about int) (version uint32, age time.Duration) {
	return d.board.version(at, about)
}

// Sample adds the age of what each host believes of each other host to the figures.
func (d *DHT) Sample() { d.board.sample() }

// Figures returns the figures so far. Pushes are requests.
func (d *DHT) Figures() Figures {
	f := d.board.figures()
	f.Pushes = d.messages
	return f
}

// operation is a store or a look-up: a series of round trips, each with several requests at once to random hosts.
type operation struct {
	d       *DHT
	host    int
	cost    opCost
	answer  func(left int) int // the bytes of an answer, given how many requests follow
	done    func()
	trip    int
	sent    int
	waiting int
}

func (d *DHT) run(host int, cost opCost, answer func(left int) int, done func()) {
	(&operation{d: d, host: host, cost: cost, answer: answer, done: done}).next()
}

// next makes a round trip. It waits for answers at most until the timeout.
func (o *operation) next() {
	if o.trip == o.cost.trips {
		o.done()
		return
	}
	o.trip++
	d, trip := o.d, o.trip
	upTo := o.cost.requests * o.trip / o.cost.trips
	o.waiting = upTo - o.sent
	for ; o.sent < upTo; o.sent++ {
		to := d.random.IntN(d.board.hosts)
		bytes := o.answer(o.cost.requests - 1 - o.sent)
		d.messages++
		d.net.Send(o.host, to, d.header, func() {
			if d.down[to] {
				return
			}
			d.net.Send(to, o.host, bytes, func() {
				if o.trip != trip {
					return
				}
				if o.waiting--; o.waiting == 0 {
					o.next()
				}
			})
		})
	}
	d.time.At(d.time.Now()+answerTimeout, func() {
		if o.trip == trip && o.waiting > 0 {
			o.next()
		}
	})
}
