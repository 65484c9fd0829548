package node

// Who is told when work waits, and who comes.

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
	"github.com/musterhq/muster/p2p/gossip"
	"github.com/musterhq/muster/scheduler"
)

// announcer is the scheduler's voice on the topic.
type announcer struct{ topic *gossip.Topic }

var _ scheduler.Announcer = announcer{}

// Announce says what this scheduler looks for.
func (a announcer) Announce(wants []scheduler.Want) {
	out := make([]gossip.Want, 0, len(wants))
	for _, w := range wants {
		out = append(out, gossip.Want{Class: w.Class, Count: w.Count})
	}
	a.topic.Announce(out, sessionsAsked)
}

// sessionsAsked is how many workers an announcement asks to come: as many as a
// scheduler weighs for one decision.
const sessionsAsked = 64

// callers answers schedulers that look for what this host has: it opens a
// session to some of them, after a pause, so that not all hosts come at once,
// and keeps it as long as they look.
type callers struct {
	classes atomic.Pointer[[]string] // none if this host runs no tasks
	wants   seeker
	members func() int
	heard   chan call

	mu   sync.Mutex
	kept map[job.Peer]time.Time // guarded by mu; when each was last heard. At most maxCallers
}

type call struct {
	from  job.Peer
	asked int
}

const (
	// maxCalls bounds the announcements that wait; more come again in ten seconds.
	maxCalls = 256
	// callHolds is how long a scheduler's call is answered: it announces every ten
	// seconds while work waits, and work that it places meanwhile keeps the
	// session by itself.
	callHolds = 5 * time.Minute
	// maxCallers bounds the schedulers that are kept: four times as many as a
	// scheduler asks workers to come. The one heard longest ago goes first.
	maxCallers = 256
	// callMissed is how long a scheduler must not have been heard before another
	// takes its place: three announcements. All who call now would take turns
	// otherwise.
	callMissed = 30 * time.Second
)

func newCallers(profile lease.Profile, w seeker, members func() int) *callers {
	c := &callers{wants: w, members: members, heard: make(chan call, maxCalls), kept: map[job.Peer]time.Time{}}
	c.become(profile)
	return c
}

// become takes what the host could now ever give.
func (c *callers) become(profile lease.Profile) {
	var classes []string
	if profile.Worker {
		classes = lease.Classes(profile)
	}
	c.classes.Store(&classes)
}

// hear takes an announcement; it does not wait.
func (c *callers) hear(from job.Peer, a gossip.Announcement) {
	classes := *c.classes.Load()
	if !slices.ContainsFunc(a.Wants, func(w gossip.Want) bool { return slices.Contains(classes, w.Class) }) {
		return
	}
	if c.again(from, time.Now()) {
		return
	}
	select {
	case c.heard <- call{from, a.Sessions}:
	default:
	}
}

// again notes that a scheduler which is kept was heard; false if it is not kept.
func (c *callers) again(from job.Peer, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, kept := c.kept[from]
	if kept {
		c.kept[from] = now
	}
	return kept
}

// keep wants a session with a scheduler that was heard, if there is place. The
// wants are told under the lock, so that what they hear is in order.
func (c *callers) keep(from job.Peer, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, kept := c.kept[from]; !kept && len(c.kept) >= maxCallers {
		oldest, at := c.oldestLocked()
		if now.Sub(at) < callMissed {
			return
		}
		c.dropLocked(oldest)
	}
	c.kept[from] = now
	c.wants.Want(from)
}

func (c *callers) oldestLocked() (oldest job.Peer, at time.Time) {
	for p, t := range c.kept {
		if oldest == "" || t.Before(at) || t.Equal(at) && p < oldest {
			oldest, at = p, t
		}
	}
	return oldest, at
}

func (c *callers) dropLocked(p job.Peer) {
	delete(c.kept, p)
	c.wants.Unwant(p)
}

// expire gives up those that were not heard for long, and says how long it is
// until the next may be.
func (c *callers) expire(now time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	next := callHolds
	for p, heard := range c.kept {
		if left := callHolds - now.Sub(heard); left > 0 {
			next = min(next, left)
			continue
		}
		c.dropLocked(p)
	}
	return next
}

// run opens the sessions, each in its time, and gives them up.
func (c *callers) run(ctx context.Context) error {
	r := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())) //nolint:gosec // chance, not secrecy
	var wg sync.WaitGroup
	defer wg.Wait()
	expiry := time.NewTimer(callHolds)
	defer expiry.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-expiry.C:
			expiry.Reset(c.expire(time.Now()))
		case h := <-c.heard:
			after, open := gossip.Answer(h.asked, c.members(), r)
			if !open {
				continue
			}
			wg.Go(func() {
				t := time.NewTimer(after)
				defer t.Stop()
				select {
				case <-t.C:
					c.keep(h.from, time.Now())
				case <-ctx.Done():
				}
			})
		}
	}
}
