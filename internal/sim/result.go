package sim

// What a simulation counts.

import (
	"math/bits"
	"time"
)

// Result is what a simulation has counted, up to its end.
type Result struct {
	End    time.Duration // virtual time of the end
	Events int           // of the clock
	// Skipped is the quiet time that the clock has skipped. Messages and events of idle daemons in this time are not
	// counted.
	Skipped time.Duration

	Jobs    int    // in the load
	Refusal string // of the first job that was refused for good; empty: none was
	Defects int    // forbidden moves of cores, and messages that no session would take: must be 0

	Tasks
	Traffic
	Work

	// Ages are the ages of what a scheduler believed of a host when it made the host an offer.
	Ages Ages
}

// Tasks counts what happened to jobs and tasks.
type Tasks struct {
	Accepted  int
	Ended     int // have done their work, or have failed for good
	Starts    int // of tasks and of gangs as wholes
	Finished  int // likewise
	Preempted int // likewise
	Faults    int // faults that have happened
	Lost      int // likewise, by faults
	Rejected  int // tasks and gangs that have failed for good
	Released  int // tasks that lost too many hosts, and that a person let run again
	// LostWork is the work that lost tasks had done, times their GPUs, or times 1 for a task without GPUs.
	LostWork time.Duration
}

// Traffic counts what went over the network.
type Traffic struct {
	Messages int           // between daemons on different machines
	Bytes    int64         // of these messages, by the lengths of their encoding
	Local    int           // messages within a daemon
	Copies   int           // of the files of jobs to machines
	Copied   int64         // bytes of these
	CopyTime time.Duration // how long the completed copies took, all together
	ByKind   []KindCount
	Told     Told
}

// Told counts the messages about free capacity that sessions between machines carried: Hello and Availability. It is
// empty unless Contact.Measured is set.
type Told struct {
	Messages  int
	Bytes     int64
	LinkBytes int64 // each byte counts once for each link that it passed
}

// Work counts what daemons did.
type Work struct {
	Steps         int // of schedulers
	Rounds        int // of workers
	Offers        int
	Commits       int
	Declines      int
	Finds         int // searches by class
	Announcements int // of what schedulers look for
	Bulletins     int // about free capacity that hosts have published, if the sessions alone do not carry it
	Sessions      int // that were opened between machines
	Broken        int // of these, by faults
	Fenced        int // tasks that ended because their lease ran out
}

// KindCount is the number and the size of the messages of one kind.
type KindCount struct {
	Kind  string
	Count int
	Bytes int64
}

// Ages are times, counted by powers of two.
type Ages struct {
	Count int
	Sum   time.Duration
	Most  time.Duration
	// Powers[i] counts ages below 2 to the power of i microseconds, and at least half of that.
	Powers [48]int
}

func (a *Ages) add(d time.Duration) {
	a.Count++
	a.Sum += d
	a.Most = max(a.Most, d)
	a.Powers[min(bits.Len64(uint64(max(d, 0)/time.Microsecond)), len(a.Powers)-1)]++
}

// Mean returns the mean age; 0 if there is none.
func (a *Ages) Mean() time.Duration {
	if a.Count == 0 {
		return 0
	}
	return a.Sum / time.Duration(a.Count)
}

// Below returns the age that this part of the ages, from 0 to 1, does not exceed. The result may be up to twice too
// large.
func (a *Ages) Below(part float64) time.Duration {
	n := 0
	for power, count := range a.Powers {
		if n += count; count > 0 && float64(n) >= part*float64(a.Count) {
			return min(time.Duration(1)<<power*time.Microsecond, a.Most)
		}
	}
	return a.Most
}

// result returns the counts so far.
func (w *World) result() Result {
	r := w.counts
	r.End, r.Events, r.Jobs, r.Ended = w.Now(), w.ran, len(w.works), len(w.works)-w.left
	r.Defects, r.Skipped = w.found, w.skipped
	for k, c := range w.kinds {
		if c.Count > 0 {
			c.Kind = kindNames[k]
			r.ByKind = append(r.ByKind, c)
		}
	}
	return r
}
