// Package waittime counts how long jobs have waited: Hour has the waits that ended within the last hour, and Counts is what
// it says, in a form that can be sent to other daemons and added up. Percentiles come from the sum. They are at most a
// tenth too high.
package waittime

import (
	"math"
	"time"
)

const (
	// buckets is the number of sizes of waits, from shortest on, each a tenth longer than the one before: up to 100 days.
	buckets  = 240
	shortest = time.Millisecond
	growth   = 1.1
	// slots of slotTime are an hour and the one that is being filled.
	slots    = 13
	slotTime = 5 * time.Minute
	// maxCount bounds what a daemon is believed to have started in an hour.
	maxCount = 1 << 30
)

// Hour counts the waits that ended within the last hour. The zero value is ready to use. It is not safe for concurrent
// use.
type Hour struct {
	slots [slots]slot
}

// slot has the waits that ended in one slotTime.
type slot struct {
	number int64 // of slotTimes since 1970
	counts Counts
}

// Counts is a number of waits by size.
type Counts struct {
	Of      map[int]int64 `json:"of,omitempty" doc:"Number of waits in each bucket that has any: bucket n is up to 1.1^n milliseconds."`
	Longest time.Duration `json:"longest_ns,omitempty" doc:"The longest wait, in nanoseconds."`
}

// bucketOf returns the bucket of a wait.
func bucketOf(took time.Duration) int {
	if took <= shortest {
		return 0
	}
	n := math.Ceil(math.Log(float64(took)/float64(shortest))/math.Log(growth) - 1e-9)
	return min(int(n), buckets-1)
}

// longestOf returns the longest wait of a bucket but the last.
func longestOf(bucket int) time.Duration {
	return time.Duration(float64(shortest) * math.Pow(growth, float64(bucket)))
}

// Add counts a wait that has ended now.
func (h *Hour) Add(now time.Time, took time.Duration) {
	number := now.UnixNano() / int64(slotTime)
	s := &h.slots[((number%slots)+slots)%slots]
	if s.number != number {
		*s = slot{number: number}
	}
	s.counts.add(bucketOf(took), 1)
	s.counts.Longest = max(s.counts.Longest, took)
}

// Counts returns the waits that ended within the last hour, or up to five minutes more.
func (h *Hour) Counts(now time.Time) (sum Counts) {
	number := now.UnixNano() / int64(slotTime)
	for i := range h.slots {
		if s := &h.slots[i]; s.number > number-slots && s.number <= number {
			sum.Add(s.counts)
		}
	}
	return sum
}

func (c *Counts) add(bucket int, n int64) {
	if c.Of == nil {
		c.Of = map[int]int64{}
	}
	c.Of[bucket] = min(c.Of[bucket]+n, maxCount)
}

// Add adds what another daemon has counted.
func (c *Counts) Add(o Counts) {
	for bucket, n := range o.Of {
		c.add(bucket, n)
	}
	c.Longest = max(c.Longest, o.Longest)
}

// Valid reports whether counts of another daemon can be true.
func (c Counts) Valid() bool {
	for bucket, n := range c.Of {
		if bucket < 0 || bucket >= buckets || n < 1 || n > maxCount {
			return false
		}
	}
	return c.Longest >= 0 && (len(c.Of) > 0 || c.Longest == 0)
}

// Total returns the number of waits.
func (c Counts) Total() (n int64) {
	for _, of := range c.Of {
		n += of
	}
	return n
}

// Quantile returns what that part of the waits does not exceed, from 0 to 1. It returns false if there are none.
func (c Counts) Quantile(part float64) (time.Duration, bool) {
	total := c.Total()
	if total == 0 {
		return 0, false
	}
	want, seen := int64(math.Ceil(part*float64(total))), int64(0)
	for bucket := range buckets {
		if seen += c.Of[bucket]; seen >= want && seen > 0 {
			if bucket == buckets-1 {
				break
			}
			return min(longestOf(bucket), c.Longest), true
		}
	}
	return c.Longest, true
}
