package fabric

// Copies of files: flows that share the bandwidth max-min fairly.

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// never is a time that does not come.
const never = int64(math.MaxInt64)

// flow is a copy under way.
type flow struct {
	id       uint64 // in the order of their beginnings
	from, to int
	hash     uint64
	path     []int32 // directed links; empty if the routers know no path
	latency  int64   // of the path
	bytes    int64
	moved    int64   // as counted in the figures
	exact    float64 // bytes moved
	since    int64   // when exact was true
	rate     float64 // bytes a nanosecond
	end      int64   // when it will have moved everything at this rate
	rated    bool
	over     bool
	done     func()
}

// few is up to how many flows each change sets all rates at once. With more flows, changes are collected for gather
// times the number of flows, so that the cost does not grow with the square of that number.
const (
	few    = 256
	gather = 10_000 // nanoseconds
)

// bulk is the flows and their rates.
type bulk struct {
	f       *Fabric
	flows   []*flow // in the order of their beginnings; finished ones stay until the rates are set
	ends    []*flow // flows that move, in the order of their ends
	ended   int     // how many of them have ended
	solver  solver
	begun   uint64
	solveAt int64 // when the rates are set; never if nothing has changed
	wakeAt  int64 // when our next event is due
	wake    func()
	free    []*flow
}

func newBulk(f *Fabric) bulk {
	return bulk{f: f, solver: newSolver(len(f.links)), solveAt: never, wakeAt: never, wake: func() { f.bulk.run() }}
}

// Copy moves files of this size from one host to another. It calls done when all bytes are there. Copies share what
// control messages leave of each link fairly (max-min). A copy waits while routers know no path, or links of the path
// are dead. If one of its hosts fails, done is never called.
func (f *Fabric) Copy(from, to int, bytes int64, done func()) {
	now := int64(f.time.Now())
	f.totals.Copies++
	if from == to {
		f.totals.CopiesDone++
		f.time.At(time.Duration(now), done)
		return
	}
	if f.faults.nodes[from] || f.faults.nodes[to] {
		f.totals.CopiesLost++
		return
	}
	b := &f.bulk
	b.begun++
	fl := b.flow()
	*fl = flow{
		id: b.begun, from: from, to: to, hash: f.hash(from, to, b.begun), path: fl.path[:0], bytes: max(bytes, 0),
		since: now, end: never, done: done,
	}
	b.route(fl)
	b.flows = append(b.flows, fl)
	b.stir()
}

func (b *bulk) flow() *flow {
	if n := len(b.free); n > 0 {
		fl := b.free[n-1]
		b.free = b.free[:n-1]
		return fl
	}
	return &flow{}
}

// route gives a flow its path.
func (b *bulk) route(fl *flow) {
	fl.path = b.f.routes.path(fl.from, fl.to, fl.hash, fl.path[:0])
	fl.latency = 0
	for _, l := range fl.path {
		b.f.links[l].flows++
		fl.latency += b.f.links[l].latency
	}
}

// stir plans to set the rates again soon.
func (b *bulk) stir() {
	if b.solveAt != never || len(b.flows) == 0 {
		return
	}
	b.solveAt = int64(b.f.time.Now())
	if n := len(b.flows); n > few {
		b.solveAt += int64(n) * gather
	}
	b.arm()
}

// urge plans to set the rates at once, because all links may have changed.
func (b *bulk) urge() {
	if len(b.flows) > 0 {
		b.solveAt = int64(b.f.time.Now())
		b.arm()
	}
}

// arm plans the next event, unless an earlier one is planned.
func (b *bulk) arm() {
	next := b.solveAt
	if b.ended < len(b.ends) {
		next = min(next, b.ends[b.ended].end)
	}
	if next < b.wakeAt {
		b.wakeAt = next
		b.f.time.At(time.Duration(next), b.wake)
	}
}

// run does what is due: ends flows, and sets the rates.
func (b *bulk) run() {
	now := int64(b.f.time.Now())
	if now < b.wakeAt {
		return // an earlier event has done it
	}
	b.wakeAt = never
	for ; b.ended < len(b.ends) && b.ends[b.ended].end <= now; b.ended++ {
		if fl := b.ends[b.ended]; !fl.over {
			b.finish(fl, now)
		}
	}
	if b.solveAt <= now {
		b.solve(now)
	}
	b.arm()
}

// finish ends a flow that has moved all its bytes. The last byte arrives after the latency of the path.
func (b *bulk) finish(fl *flow, now int64) {
	b.account(fl, now)
	b.count(fl, fl.bytes-fl.moved, now, now)
	fl.over = true
	b.f.totals.CopiesDone++
	b.f.uses.add(b.f, fl.path, fl.bytes)
	b.f.time.At(time.Duration(now+fl.latency), fl.done)
	b.stir()
}

// account counts what a flow has moved until now.
func (b *bulk) account(fl *flow, now int64) {
	since := fl.since
	fl.since = now
	if fl.rate == 0 || now == since {
		return
	}
	fl.exact = min(fl.exact+fl.rate*float64(now-since), float64(fl.bytes))
	b.count(fl, int64(fl.exact)-fl.moved, since, now)
}

// count adds bytes that a flow has moved in a span of time to the figures of its links.
func (b *bulk) count(fl *flow, bytes, from, to int64) {
	fl.moved += bytes
	for _, l := range fl.path {
		b.f.links[l].bulk += bytes
		b.f.bins.spread(l, from, to, bytes)
	}
}

// solve sets the rates of all flows and the order of their ends.
func (b *bulk) solve(now int64) {
	b.solveAt = never
	kept := b.flows[:0]
	for _, fl := range b.flows {
		if fl.over {
			b.free = append(b.free, fl)
			continue
		}
		b.account(fl, now)
		kept = append(kept, fl)
	}
	clear(b.flows[len(kept):])
	b.flows = kept
	b.solver.solve(b.flows, func(l int32) float64 {
		if b.f.wires[l>>1].down > 0 {
			return 0
		}
		return b.f.links[l].room(now)
	})
	b.ends, b.ended = b.ends[:0], 0
	for _, fl := range b.flows {
		fl.end = never
		switch left := float64(fl.bytes) - fl.exact; {
		case len(fl.path) == 0:
			continue
		case left <= 0:
			fl.end = now
		case fl.rate > 0:
			fl.end = now + int64(min(math.Ceil(left/fl.rate), math.MaxInt64/4))
		default:
			continue
		}
		b.ends = append(b.ends, fl)
	}
	slices.SortFunc(b.ends, func(x, y *flow) int {
		return cmp.Or(cmp.Compare(x.end, y.end), cmp.Compare(x.id, y.id))
	})
}

// reroute gives all flows the paths that the routers now know.
func (b *bulk) reroute() {
	now := int64(b.f.time.Now())
	for _, fl := range b.flows {
		if fl.over {
			continue
		}
		b.account(fl, now)
		old := slices.Clone(fl.path)
		fl.path = b.f.routes.path(fl.from, fl.to, fl.hash, fl.path[:0])
		if !slices.Equal(old, fl.path) {
			b.route(fl)
		}
	}
	b.urge()
}

// drop removes the flows from and to a host, without calling done.
func (b *bulk) drop(host int) {
	now := int64(b.f.time.Now())
	for _, fl := range b.flows {
		if !fl.over && (fl.from == host || fl.to == host) {
			b.account(fl, now)
			fl.over = true
			b.f.totals.CopiesLost++
		}
	}
	b.stir()
}
