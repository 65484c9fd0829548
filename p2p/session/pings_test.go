package session

import (
	"testing"
	"time"
)

// A round trip is reported when it is first known and when it has changed by a fourth, and at most once for each Ping.
func TestRoundTripsAreReportedWhenTheyChange(t *testing.T) {
	p := &pings{}
	now := time.Unix(0, 0)
	for i, c := range []struct {
		took time.Duration
		told bool
	}{
		{100 * time.Microsecond, true},
		{100 * time.Microsecond, false},
		{110 * time.Microsecond, false},
		{90 * time.Microsecond, false},
		{400 * time.Microsecond, true},
		{130 * time.Microsecond, false},
		{0, false},
		{time.Hour, true},
		{0, false},
	} {
		number := p.next(now)
		now = now.Add(c.took)
		if rtt, told := p.answered(number, time.Time{}, now); told != c.told || rtt <= 0 || rtt != p.roundTrip() {
			t.Errorf("Ping %d: got %s, reported %v, want %v", i, rtt, told, c.told)
		}
		if _, told := p.answered(number, time.Time{}, now); told {
			t.Errorf("Ping %d: its second answer was accepted", i)
		}
	}
}

// A peer cannot seem near by answering Pings that have not arrived, because it does not know their numbers.
func TestAnswersToUnsentPingsAreIgnored(t *testing.T) {
	p := &pings{}
	now := time.Unix(0, 0)
	var last uint64
	for range 100 {
		number := p.next(now)
		for guess := range uint64(1000) { // near the number before, and near zero
			for _, n := range []uint64{guess, last + guess, last - guess} {
				if _, told := p.answered(n, time.Time{}, now); told && n != number || p.roundTrip() != 0 && p.roundTrip() < 4*time.Millisecond {
					t.Fatalf("the answer %d to the Ping %d was accepted: got a round trip of %s, want at least 4ms", n, number, p.roundTrip())
				}
			}
		}
		now = now.Add(5 * time.Millisecond)
		p.answered(number, time.Time{}, now)
		last = number
	}
	if p.roundTrip() != 5*time.Millisecond {
		t.Errorf("got a round trip of %s, want 5ms", p.roundTrip())
	}
}

// How far the clock of a peer is ahead is known to half of a round trip, whatever the clock of this host reads
// meanwhile. Slow answers change nothing.
func TestClockOfAPeerIsKnownToHalfARoundTrip(t *testing.T) {
	p := &pings{}
	now := time.Unix(1000, 0)
	if p.clock() != (Clock{}) {
		t.Errorf("got clock %+v before the first answer, want none", p.clock())
	}
	for _, c := range []struct {
		there, back, ahead time.Duration
		want               Clock
	}{
		{40 * time.Millisecond, 40 * time.Millisecond, time.Hour, Clock{true, time.Hour, 40 * time.Millisecond}},
		{0, 80 * time.Millisecond, -5 * time.Second, Clock{true, -5*time.Second - 40*time.Millisecond, 40 * time.Millisecond}},
		{time.Second, 3 * time.Second, 7 * time.Hour, Clock{true, -5*time.Second - 40*time.Millisecond, 40 * time.Millisecond}},
	} {
		number := p.next(now)
		clock := now.Add(c.there + c.ahead)
		now = now.Add(c.there + c.back)
		p.answered(number, clock, now)
		if got := p.clock(); got != c.want {
			t.Errorf("got %+v, want %+v", got, c.want)
		}
	}
	number := p.next(now)
	p.answered(number, time.Time{}, now.Add(time.Millisecond)) // of an earlier version
	if !p.clock().Known {
		t.Error("the known offset was forgotten")
	}
}
