package fabric

// One direction of a link: the queue of its control messages, and its figures.

import "math"

// link is one direction of a link. Times are virtual nanoseconds.
type link struct {
	busySince, busyUntil int64 // the last span in which it sends control messages without a pause, as booked so far
	freeFrom             int64 // from here to busySince nothing is booked
	latency              int64
	byteTime             float64 // nanoseconds that a byte takes
	loss                 float64

	control, bulk int64 // bytes
	messages      int64
	lost          int64
	flows         int64 // pairs of hosts, and copies, whose path uses it
	queued        int64 // sum of the nanoseconds that messages waited
	queuedMost    int64

	window, current, before int64 // number of the window of time; bytes of control messages in it, and in the one before

	bin      int32 // the bin that binBytes belong to
	binBytes int64
}

// longAgo is before all times of a simulation, which may begin before 0.
const longAgo = int64(math.MinInt64 / 4)

func newLink(l Link, loss float64) link {
	return link{
		latency: int64(l.Latency), byteTime: 8e9 / float64(l.Bandwidth), loss: loss,
		busySince: longAgo, busyUntil: longAgo, freeFrom: longAgo, window: longAgo,
	}
}

// book books a message that reaches the link at t, and returns when the message leaves the other end. Bookings never
// overlap. Messages that reach the link in the order in which they are booked leave it in this order.
func (x *link) book(t int64, bytes int) int64 {
	takes := int64(math.Ceil(float64(bytes) * x.byteTime))
	begins := t
	switch {
	case t >= x.busyUntil:
		x.freeFrom = x.busyUntil
		x.busySince, x.busyUntil = t, t+takes
	case max(t, x.freeFrom) < x.busySince && max(t, x.freeFrom)+takes <= x.busySince: // it overtakes an earlier booking
		begins = max(t, x.freeFrom)
		x.freeFrom = begins + takes
	default:
		begins = x.busyUntil
		x.busyUntil += takes
		if t < x.busySince {
			x.freeFrom = x.busySince // smaller ones must not overtake it
		}
	}
	x.control += int64(bytes)
	x.messages++
	wait := begins - t
	x.queued += wait
	x.queuedMost = max(x.queuedMost, wait)
	x.turn(t)
	x.current += int64(bytes)
	return begins + takes + x.latency
}

// window is the time over which control messages are counted, to know what they leave to copies.
const window = int64(100e6)

func windowOf(t int64) int64 {
	w := t / window
	if w*window > t {
		w-- // before 0
	}
	return w
}

// turn begins a new window if t is past the end of the present one.
func (x *link) turn(t int64) {
	if w := windowOf(t); w > x.window {
		x.before = x.current
		if w > x.window+1 {
			x.before = 0
		}
		x.window, x.current = w, 0
	}
}

// leastBulk is the share of a link that copies have in any case.
const leastBulk = 0.01

// room returns what control messages leave of the link, in bytes a nanosecond. It assumes that they use as much as in
// the last window.
func (x *link) room(now int64) float64 {
	x.turn(now)
	past := float64(now-windowOf(now)*window) / float64(window)
	used := (float64(x.current) + float64(x.before)*(1-past)) / float64(window) * x.byteTime
	return max(1-used, leastBulk) / x.byteTime
}
