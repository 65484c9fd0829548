package usage

// Fold: a whole life in a bounded number of points.

import (
	"math"
	"time"
)

// MaxPoints is the largest number of points of a series that travels with a result.
const MaxPoints = 120

// Fold holds a series in at most MaxPoints points at equal distances. When its last point is full, it merges each two
// points, so that the distance doubles. It takes memory only for kinds of which a value is known. It is not safe for
// concurrent use.
type Fold struct {
	began   time.Time
	step    time.Duration
	samples uint64
	columns [Kinds]column
}

// column is one kind of a Fold.
type column struct {
	points []point
	sum    float64 // of all known samples
	known  uint64  // how many there were
	max    float64
}

// point is the mean of the samples in one step.
type point struct {
	mean float32
	n    uint32 // 0: none is known
}

// NewFold returns an empty fold, whose first point begins at this time, with the first distance between points.
func NewFold(began time.Time, step time.Duration) *Fold { return &Fold{began: began, step: step} }

// Add adds a sample. One from before the beginning, by a clock that was set back, counts for the first point.
func (f *Fold) Add(s Sample) {
	at := max(0, s.At.Sub(f.began))
	for at >= MaxPoints*f.step {
		f.merge()
	}
	f.samples++
	i := int(at / f.step)
	for k := range f.columns {
		if x := s.Values[k]; Known(x) {
			f.columns[k].add(i, x)
		}
	}
}

func (c *column) add(i int, x float64) {
	for len(c.points) <= i {
		c.points = append(c.points, point{})
	}
	p := &c.points[i]
	p.n++
	p.mean += (float32(x) - p.mean) / float32(p.n)
	c.sum += x
	c.known++
	c.max = max(c.max, x)
}

// merge doubles the distance between points.
func (f *Fold) merge() {
	f.step *= 2
	for k := range f.columns {
		c := &f.columns[k]
		for i := range (len(c.points) + 1) / 2 {
			p := c.points[2*i]
			if 2*i+1 < len(c.points) {
				p = p.with(c.points[2*i+1])
			}
			c.points[i] = p
		}
		c.points = c.points[:(len(c.points)+1)/2]
	}
}

func (p point) with(q point) point {
	n := p.n + q.n
	if n == 0 {
		return point{}
	}
	return point{(p.mean*float32(p.n) + q.mean*float32(q.n)) / float32(n), n}
}

// Report returns what the fold has, without totals.
func (f *Fold) Report() Report {
	r := NewReport()
	r.Samples, r.Step = f.samples, f.step
	for k := range f.columns {
		c := &f.columns[k]
		if c.known == 0 {
			continue
		}
		s := &r.Series[k]
		s.Mean, s.Max, s.Known = c.sum/float64(c.known), c.max, c.known
		for _, p := range c.points {
			x := math.NaN()
			if p.n > 0 {
				x = float64(p.mean)
			}
			s.Points = append(s.Points, x)
		}
	}
	return r
}
