package gossip

// A histogram of durations, for means and quantiles of many of them.

import (
	"math/bits"
	"time"
)

// histogram counts durations in buckets that are at most 1/64 of their value wide. The mean is exact.
type histogram struct {
	count   int64
	sum     float64 // nanoseconds
	buckets []int64
}

// fine is the binary logarithm of the number of buckets in a power of two.
const fine = 6

func bucketOf(v int64) int {
	if v < 1<<fine {
		return int(v)
	}
	power := bits.Len64(uint64(v)) - 1 - fine
	return (power+1)<<fine + int(v>>power) - 1<<fine
}

// top returns the largest value of a bucket.
func top(bucket int) int64 {
	if bucket < 1<<fine {
		return int64(bucket)
	}
	power := bucket>>fine - 1
	return (int64(bucket&(1<<fine-1))+1<<fine+1)<<power - 1
}

func (h *histogram) add(v int64) {
	v = max(v, 0)
	b := bucketOf(v)
	if b >= len(h.buckets) {
		h.buckets = append(h.buckets, make([]int64, b+1-len(h.buckets))...)
	}
	h.buckets[b]++
	h.count++
	h.sum += float64(v)
}

func (h *histogram) mean() time.Duration {
	if h.count == 0 {
		return 0
	}
	return time.Duration(h.sum / float64(h.count))
}

// quantile returns the value that the share q of all does not exceed. It may be up to 1/64 too large.
func (h *histogram) quantile(q float64) time.Duration {
	rest := int64(q * float64(h.count))
	for b, n := range h.buckets {
		if rest -= n; rest < 0 || rest == 0 && n > 0 && q == 1 {
			return time.Duration(top(b))
		}
	}
	return 0
}
