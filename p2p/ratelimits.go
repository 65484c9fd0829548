package p2p

// Rate limits for unknown callers. The number of buckets is fixed, however many callers there are.

import (
	"hash/maphash"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// bucketCount bounds the memory. Two callers that hash to the same bucket share its allowance.
const bucketCount = 1024

type buckets struct {
	seed  maphash.Seed
	every time.Duration
	burst int

	mu   sync.Mutex
	list [bucketCount]*rate.Limiter // guarded by mu
}

// newBuckets returns buckets that allow each key a burst, and after that one call per interval.
func newBuckets(every time.Duration, burst int) *buckets {
	return &buckets{seed: maphash.MakeSeed(), every: every, burst: burst}
}

func (b *buckets) allow(key string, now time.Time) bool {
	i := maphash.String(b.seed, key) % bucketCount
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.list[i] == nil {
		b.list[i] = rate.NewLimiter(rate.Every(b.every), b.burst)
	}
	return b.list[i].AllowN(now, 1)
}
