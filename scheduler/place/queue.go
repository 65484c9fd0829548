package place

// Queues: at which full hosts a task waits for room.

import (
	"cmp"
	"slices"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/fleet"
)

const (
	// queueHosts is at how many hosts a task queues at first.
	queueHosts = 3
	// QueueWide is at how many it queues if tasks of a lower priority could pass it at others. A task may queue at some
	// more hosts than these: at hosts that get room later, and at one where other tasks end for it.
	QueueWide = 12
)

// Queue returns the full hosts where the task is to queue. Of up to SampleSize hosts it chooses those with the fewest
// queued tasks of the same or a higher priority. Hosts that the task avoids while there is another come last. The slice
// is valid until the next call of the Placer.
func (p *Placer) Queue(t *Task, from int, now time.Time) []*fleet.Host {
	return p.queueAt(t, from, now, queueHosts)
}

// Passed returns hosts where tasks of a lower priority would pass the task because it does not queue there: up to
// QueueWide in all. It looks at the hosts that the last call of Queue found, without the first ones. This scheduler
// knows where its own tasks queue. Tasks of other schedulers may queue anywhere, which counts for a task of more than
// the usual priority.
func (p *Placer) Passed(t *Task, first int) []*fleet.Host {
	p.passed = p.passed[:0]
	for _, h := range p.full[min(len(p.full), first):] {
		if len(t.At)+first+len(p.passed) >= QueueWide {
			break
		}
		if !h.shunned && (t.Urgent() || h.after > 0) {
			p.passed = append(p.passed, h.Host)
		}
	}
	return p.passed
}

// usualPriority is the priority of a job whose user gives none.
var usualPriority = job.DefaultSpec().Priority

// Urgent says whether the task has more than the usual priority.
func (t *Task) Urgent() bool { return t.Rank.Priority > usualPriority }

// queueAt does what Queue does, for at most this many hosts.
func (p *Placer) queueAt(t *Task, from int, now time.Time, most int) []*fleet.Host {
	p.full, p.queue = p.full[:0], p.queue[:0]
	for h := range p.fleet.WithQueue(&t.Request, from) {
		a, avoided := t.avoids(now, h)
		if avoided && a.Hard || !t.Home.Has(h) || t.OverQuota(h) != "" || slices.Contains(t.At, h) {
			continue
		}
		x := fullHost{Host: h, shunned: avoided && !a.Kept}
		x.before, x.after = h.Claims.QueuedAround(t.Rank.Priority)
		if p.full = append(p.full, x); len(p.full) >= max(SampleSize, most) {
			break
		}
	}
	slices.SortStableFunc(p.full, func(a, b fullHost) int {
		if a.shunned != b.shunned {
			if b.shunned {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(a.before, b.before), cmp.Compare(min(b.after, 1), min(a.after, 1)))
	})
	for _, h := range p.full[:min(len(p.full), most)] {
		p.queue = append(p.queue, h.Host)
	}
	return p.queue
}
