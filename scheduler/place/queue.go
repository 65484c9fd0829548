package place

// Queues: at which full hosts a task waits for room.

import (
	"cmp"
	"slices"
	"time"

	"github.com/musterhq/muster/scheduler/fleet"
)

// queueHosts is at how many hosts a task queues at first.
const queueHosts = 3

// Queue returns the full hosts where the task is to queue: of up to SampleSize hosts those with the fewest queued
// tasks. Hosts that the task avoids while there is another come last. The slice is valid until the next call of the
// Placer.
func (p *Placer) Queue(t *Task, from int, now time.Time) []*fleet.Host {
	return p.queueAt(t, from, now, queueHosts)
}

// queueAt does so for at most so many hosts.
func (p *Placer) queueAt(t *Task, from int, now time.Time, most int) []*fleet.Host {
	p.full, p.queue = p.full[:0], p.queue[:0]
	for h := range p.fleet.WithQueue(&t.Request, from) {
		a, avoided := t.avoids(now, h)
		if avoided && a.Hard || !t.Home.Has(h) || t.OverQuota(h) != "" || slices.Contains(t.At, h) {
			continue
		}
		if p.full = append(p.full, fullHost{h, avoided && !a.Kept}); len(p.full) >= max(SampleSize, most) {
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
		return cmp.Compare(a.Claims.Queued(), b.Claims.Queued())
	})
	for _, h := range p.full[:min(len(p.full), most)] {
		p.queue = append(p.queue, h.Host)
	}
	return p.queue
}
