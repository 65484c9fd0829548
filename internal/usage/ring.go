package usage

// Ring: the samples of the last hour.

import (
	"math"
	"time"
)

const (
	// Keep is how long a Ring keeps a sample.
	Keep = time.Hour
	// ringSamples bounds the samples of a Ring: one every five seconds.
	ringSamples = 720
)

// Ring holds the samples of the last hour, at most ringSamples. A kind takes no memory until its first value is known;
// then it takes four bytes a sample. The zero value is ready to use. It is not safe for concurrent use.
type Ring struct {
	at      []int64 // ns since 1970, of the oldest sample first, from first on
	columns [Kinds][]float32
	first   int // index of the oldest sample
}

// Add adds a sample. If it is older than the newest one, the clock was set back, and the ring starts again, empty.
func (r *Ring) Add(s Sample) {
	now, n := s.At.UnixNano(), len(r.at)
	if n > 0 && now < r.at[(r.first+n-1)%n] {
		*r = Ring{}
		n = 0
	}
	if n < ringSamples {
		r.at = append(r.at, now)
	} else {
		r.at[r.first] = now
	}
	for k := range r.columns {
		r.columns[k] = r.set(r.columns[k], s.Values[k], n)
	}
	if n == ringSamples {
		r.first = (r.first + 1) % n
	}
}

// set puts a value into a column that had n values. It returns nil for a column without any known value yet.
func (r *Ring) set(column []float32, x float64, n int) []float32 {
	if column == nil && !Known(x) {
		return nil
	}
	for len(column) < n {
		column = append(column, float32(math.NaN()))
	}
	if n < ringSamples {
		return append(column, float32(x))
	}
	column[r.first] = float32(x)
	return column
}

// Points returns the samples of the last hour before now, the oldest first.
func (r *Ring) Points(now time.Time) Points {
	var p Points
	n := len(r.at)
	var index []int
	for i := range n {
		j := (r.first + i) % n
		if at := time.Unix(0, r.at[j]); now.Sub(at) <= Keep {
			p.At = append(p.At, at)
			index = append(index, j)
		}
	}
	for k := range r.columns {
		if r.columns[k] == nil || len(index) == 0 {
			continue
		}
		for _, j := range index {
			p.Columns[k] = append(p.Columns[k], float64(r.columns[k][j]))
		}
	}
	return p
}
