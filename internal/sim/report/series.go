package report

// Levels over time: how much is held and how much waits, as means over bins whose number is bounded.

import (
	"math"
	"time"
)

// A level is one quantity at an instant.
const (
	gpusHeld  = iota // thousandths
	cpusHeld         // thousandths
	bytesHeld        // of memory
	fragments        // thousandths of thousandths of GPUs
	waiting          // jobs
	running          // jobs
	gpusAsked        // thousandths, of the jobs that wait
	levels
)

// level is all quantities at an instant. They are integers, so that a run that ends empty ends at 0.
type level [levels]int64

const (
	// maxBins bounds the bins. When time goes beyond the last bin, neighbours are merged.
	maxBins  = 256
	firstBin = time.Second
)

// bins holds the integrals of levels over steps of time.
type bins struct {
	step time.Duration
	area [][levels]float64 // level times seconds
	sum  [levels]float64   // of all bins
}

func newBins() *bins { return &bins{step: firstBin} }

// add adds that the levels had these values from one instant to another.
func (b *bins) add(l *level, from, to time.Duration) {
	for (to-1)/b.step >= maxBins {
		b.join()
	}
	for from < to {
		i := int(from / b.step)
		for len(b.area) <= i {
			b.area = append(b.area, [levels]float64{})
		}
		until := min(to, time.Duration(i+1)*b.step)
		seconds := (until - from).Seconds()
		for q, v := range l {
			if v != 0 {
				x := float64(v) * seconds
				b.area[i][q] += x
				b.sum[q] += x
			}
		}
		from = until
	}
}

// join merges neighbours, so that steps are twice as long.
func (b *bins) join() {
	b.step *= 2
	n := (len(b.area) + 1) / 2
	for i := range n {
		whole := b.area[2*i]
		if 2*i+1 < len(b.area) {
			for q, x := range b.area[2*i+1] {
				whole[q] += x
			}
		}
		b.area[i] = whole
	}
	b.area = b.area[:n]
}

// series returns the means of the bins up to the end.
func (b *bins) series(end time.Duration, c Cluster) Series {
	s := Series{Step: b.step.Seconds()}
	for i, area := range b.area {
		seconds := (min(end, time.Duration(i+1)*b.step) - time.Duration(i)*b.step).Seconds()
		mean := func(q int, of float64) float64 { return math.Round(over(area[q], seconds*of)*1e4) / 1e4 }
		s.GPUs = append(s.GPUs, mean(gpusHeld, float64(c.GPUs)*milli))
		s.CPUs = append(s.CPUs, mean(cpusHeld, c.CPUs*milli))
		s.Memory = append(s.Memory, mean(bytesHeld, float64(c.Memory)))
		s.Fragments = append(s.Fragments, mean(fragments, float64(c.GPUs)*milli*milli))
		s.Waiting = append(s.Waiting, mean(waiting, 1))
		s.Running = append(s.Running, mean(running, 1))
		s.Asked = append(s.Asked, mean(gpusAsked, float64(c.GPUs)*milli))
	}
	return s
}

// use returns the means over the span from the first submission to the end.
func (b *bins) use(span time.Duration, c Cluster) Use {
	mean := func(q int, of float64) float64 { return round(over(b.sum[q], span.Seconds()*of)) }
	all := float64(c.GPUs) * milli
	free := all*span.Seconds() - b.sum[gpusHeld]
	return Use{
		GPUs: mean(gpusHeld, all), CPUs: mean(cpusHeld, c.CPUs*milli), Memory: mean(bytesHeld, float64(c.Memory)),
		Fragments: mean(fragments, all*milli), FragmentRatio: round(over(b.sum[fragments]/milli, free)),
	}
}

// curve holds, for each percentage of GPUs asked for, for how long this was asked for, and how much was allocated.
type curve struct {
	seconds, held [maxAsked + 1]float64
}

// maxAsked is the last point of the curve, in percent of all GPUs.
const maxAsked = 200

func (c *curve) add(l *level, all int64, from, to time.Duration) {
	if all == 0 || from >= to {
		return
	}
	asked := min(maxAsked, (l[gpusHeld]+l[gpusAsked])*100/all)
	seconds := (to - from).Seconds()
	c.seconds[asked] += seconds
	c.held[asked] += seconds * float64(l[gpusHeld]) / float64(all)
}

func (c *curve) points() []Point {
	var out []Point
	for i, s := range c.seconds {
		if s > 0 {
			out = append(out, Point{Asked: float64(i) / 100, Allocated: math.Round(c.held[i]/s*1e4) / 1e4, For: round(s)})
		}
	}
	return out
}
