package sim

// Wall clocks that are wrong and are set.

import (
	"time"
	"unsafe"
)

// to1885 leads from seconds since 1970 to seconds since 1885, the way in which
// a time.Time with a monotonic reading counts them.
const to1885 = (1969*365 + 1969/4 - 1969/100 + 1969/400 - (1884*365 + 1884/4 - 1884/100 + 1884/400)) * 86_400

// moment is the reading of time.Now on a host whose wall clock is wrong by offset: the wall clock and the monotonic
// clock differ. No function of package time makes such a value. TestClocksOfAWorldReadLikeRealOnes proves that it is
// read correctly.
func moment(now, offset time.Duration) time.Time {
	const hasMonotonic = 1 << 63
	wall := firstDay*int64(time.Second) + int64(now+offset)
	t := struct {
		wall uint64
		ext  int64
		loc  *time.Location
	}{
		wall: hasMonotonic | uint64(wall/int64(time.Second)+to1885)<<30 | uint64(wall%int64(time.Second)),
		ext:  int64(now) + 1,
	}
	return *(*time.Time)(unsafe.Pointer(&t))
}
