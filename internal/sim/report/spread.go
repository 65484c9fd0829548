package report

// Exact means and quantiles.

import (
	"math"
	"slices"
)

// spreadOf describes the values. It sorts them.
func spreadOf(values []float64) Spread {
	n := len(values)
	if n == 0 {
		return Spread{}
	}
	slices.Sort(values)
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	rank := func(q float64) float64 { return round(values[max(0, int(math.Ceil(q*float64(n)))-1)]) }
	return Spread{N: n, Mean: round(sum / float64(n)), P50: rank(0.50), P95: rank(0.95), P99: rank(0.99), Max: round(values[n-1])}
}

// round keeps six digits after the point: microseconds, or millionths of a whole.
func round(x float64) float64 { return math.Round(x*1e6) / 1e6 }

// over returns a/b, or 0 if b is 0.
func over(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

// jain returns Jain's index of fairness. It is 1 for no values.
func jain(values []float64) float64 {
	sum, squares := 0.0, 0.0
	for _, v := range values {
		sum += v
		squares += v * v
	}
	if squares == 0 {
		return 1
	}
	return sum * sum / (float64(len(values)) * squares)
}
