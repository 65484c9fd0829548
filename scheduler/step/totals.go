package step

// Totals: what has happened since the daemon began, for its metrics. No decision depends on them.

import (
	"maps"
	"time"

	"github.com/musterhq/muster/job"
)

// Totals count what has happened in this life of the daemon, while it owned the jobs.
type Totals struct {
	Offers map[OfferResult]uint64 // that are no longer open, by what became of them
	Ended  map[job.State]uint64   // attempts of tasks, by the state in which they ended
	// Queued is how long tasks waited for a host: from when they might have been placed until their Start was sent.
	Queued Durations
	// Started is how long it took from the submission of a job until a process of the task ran, for first attempts.
	Started Durations
}

// OfferResult is what became of an offer.
type OfferResult string

// The results of offers.
const (
	OfferCommitted  OfferResult = "committed"
	OfferDeclined   OfferResult = "declined"
	OfferUnanswered OfferResult = "unanswered" // in time
	OfferWithdrawn  OfferResult = "withdrawn"  // another host was first, the job was changed, or the session ended
)

// Bounds are the upper bounds of Durations, in seconds: from the start of a task on an idle host to a week in the queue.
var Bounds = [...]float64{0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60, 300, 900, 3600, 4 * 3600, 12 * 3600, 24 * 3600, 72 * 3600, 168 * 3600}

// Durations counts durations by size. Counts[i] is the number of those above Bounds[i-1], up to Bounds[i]; the last has
// those above all bounds.
type Durations struct {
	Counts [len(Bounds) + 1]uint64
	Sum    time.Duration
}

// Add counts one duration; a negative one counts as 0.
func (d *Durations) Add(took time.Duration) {
	took = max(took, 0)
	i := 0
	for i < len(Bounds) && took.Seconds() > Bounds[i] {
		i++
	}
	d.Counts[i]++
	d.Sum += took
}

// NewTotals returns totals in which what has not happened yet is 0.
func NewTotals() *Totals {
	t := &Totals{Offers: map[OfferResult]uint64{OfferCommitted: 0, OfferDeclined: 0, OfferUnanswered: 0, OfferWithdrawn: 0}, Ended: map[job.State]uint64{}}
	for _, s := range job.States() {
		if s.Ended() {
			t.Ended[s] = 0
		}
	}
	return t
}

// Clone returns a copy that does not change any more.
func (t *Totals) Clone() Totals {
	c := *t
	c.Offers, c.Ended = maps.Clone(t.Offers), maps.Clone(t.Ended)
	return c
}

// Counting is what a task remembers for Totals.
type Counting struct {
	Waited time.Time // since when the task waits for a host; zero: it does not
	Fresh  bool      // it was sent to a host for the first time, and no process of it was reported yet
}
