package report

// Where jobs start: how far from the daemon that accepted them, and in how many racks.

import (
	"math"
	"slices"
	"time"

	"github.com/musterhq/muster/internal/sim/load"
	"github.com/musterhq/muster/internal/sim/record"
)

// away counts starts by their distance.
type away struct {
	starts, away int
	tasks, hops  int64
	byHops       []int
	bytes        int64
	far          int64                         // tasks on other hosts
	latency      time.Duration                 // sum over the paths to them
	waited       time.Duration                 // sum of the waits for their files
	ring         struct{ members, hops int64 } // of gangs
	delays       [2]struct {                   // of first starts: [0] of jobs that stayed, [1] of the others
		n   int
		sum float64
	}
}

// maxHops bounds the list of distances. Tasks that are farther away count in the last entry.
const maxHops = 15

// start adds a start, which may be the first one of its element.
func (w *away) start(j *load.Job, r record.Record, first bool) {
	w.starts++
	far := 0
	for _, a := range r.Alloc {
		w.tasks++
		w.hops += int64(max(a.Hops, 0))
		at := min(max(a.Hops, 0), maxHops)
		for len(w.byHops) <= at {
			w.byHops = append(w.byHops, 0)
		}
		w.byHops[at]++
		if a.Hops > 0 {
			far = 1
			w.bytes += j.Bytes
			w.far++
			w.latency += a.Way.Latency
			w.waited += a.Way.Waited
		}
		if len(r.Alloc) > 1 {
			w.ring.members++
			w.ring.hops += int64(a.Way.Next)
		}
	}
	w.away += far
	if first {
		w.delays[far].n++
		w.delays[far].sum += (r.At - j.Submit).Seconds()
	}
}

func (w *away) figures() Remote {
	mean := func(i int) float64 { return round(over(w.delays[i].sum, float64(w.delays[i].n))) }
	return Remote{
		Starts: w.starts, Away: w.away, Hops: round(over(float64(w.hops), float64(w.tasks))), ByHops: w.byHops, Bytes: w.bytes,
		LocalDelay: mean(0), RemoteDelay: mean(1),
		Latency: math.Round(1e9*over(w.latency.Seconds(), float64(w.far))) / 1e9, FileWait: round(over(w.waited.Seconds(), float64(w.far))),
	}
}

// racks counts the racks of gangs. It is nil if machines have no racks.
type racks struct {
	of     []int // of each machine
	most   []int // most[i] machines are in the i+1 largest racks
	starts int
	extra  int
}

func newRacks(machines []load.Machine) *racks {
	k := &racks{of: make([]int, len(machines))}
	number := map[string]int{}
	var sizes []int
	for i, m := range machines {
		name := m.Labels["rack"]
		if name == "" {
			return nil
		}
		n, known := number[name]
		if !known {
			n = len(sizes)
			number[name] = n
			sizes = append(sizes, 0)
		}
		k.of[i] = n
		sizes[n]++
	}
	slices.SortFunc(sizes, func(a, b int) int { return b - a })
	sum := 0
	for _, n := range sizes {
		sum += n
		k.most = append(k.most, sum)
	}
	return k
}

func (k *racks) start(alloc []record.Alloc) {
	if k == nil || len(alloc) < 2 {
		return
	}
	in := make([]int, len(alloc))
	for i, a := range alloc {
		in[i] = k.of[a.Machine]
	}
	slices.Sort(in)
	fewest := 1
	for fewest < len(k.most) && k.most[fewest-1] < len(alloc) {
		fewest++
	}
	k.starts++
	k.extra += len(slices.Compact(in)) - fewest
}

func (k *racks) figures() Gangs {
	if k == nil {
		return Gangs{}
	}
	return Gangs{Starts: k.starts, Racks: round(over(float64(k.extra), float64(k.starts)))}
}
