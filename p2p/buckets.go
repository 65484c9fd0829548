package p2p

// Rate limits for those whom we do not know: a fixed number of buckets, however many ask.

import (
	"hash/maphash"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// bucketCount bounds the memory; two callers that share a bucket share its allowance.
const bucketCount = 1024

type buckets struct {
	seed  maphash.Seed
	every time.Duration
	burst int

	mu   sync.Mutex
	list [bucketCount]*rate.Limiter // guarded by mu
}

// newBuckets allows each key a burst, and then one in every so long.
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
