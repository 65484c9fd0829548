package daemon

// Announcements of waiting work: the announcements of this daemon, and sessions to other schedulers that announce.

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/p2p/gossip"
	schedulerloop "github.com/musterhq/muster/scheduler/loop"
	"github.com/musterhq/muster/scheduler/step"
)

// announcer publishes the scheduler's announcements on the gossip topic.
type announcer struct {
	*announcements
	group job.Group
}

var _ schedulerloop.Announcer = announcer{}

// announcements joins what the schedulers of this daemon announce into one announcement.
type announcements struct {
	topic *gossip.Topic

	mu sync.Mutex
	by map[job.Group][]step.Want // guarded by mu
}

func newAnnouncements(topic *gossip.Topic) *announcements {
	return &announcements{topic: topic, by: map[job.Group][]step.Want{}}
}

func (a *announcements) of(g job.Group) announcer { return announcer{a, g} }

// Announce publishes the resource classes that this scheduler needs.
func (a announcer) Announce(wants []step.Want) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.by[a.group] = wants
	a.topic.Announce(sumOf(a.by), sessionsAsked)
}

// sumOf adds up the wants of all groups by their class.
func sumOf(by map[job.Group][]step.Want) []gossip.Want {
	counts := map[string]int{}
	var out []gossip.Want
	for _, g := range slices.Sorted(maps.Keys(by)) {
		for _, w := range by[g] {
			if counts[w.Class] == 0 {
				out = append(out, gossip.Want{Class: w.Class})
			}
			counts[w.Class] += w.Count
		}
	}
	for i := range out {
		out[i].Count = counts[out[i].Class]
	}
	return out
}

// sessionsAsked is how many workers an announcement asks to open a session. It is the number of workers that a scheduler
// compares for one placement.
const sessionsAsked = 64

// callers keeps sessions with callers: schedulers that announced a resource class of this host. Each session is opened
// after a random pause, so that not all hosts open theirs at once. It is kept while the scheduler announces.
type callers struct {
	classes atomic.Pointer[[]string] // of this host; empty if it runs no tasks
	wants   seeker
	members func() int
	heard   chan call

	mu   sync.Mutex
	kept map[job.Peer]time.Time // guarded by mu: when each caller last announced; at most maxCallers
}

// call is one announcement that this host can serve.
type call struct {
	from  job.Peer
	asked int // how many workers should open a session
}

const (
	// maxCalls bounds the announcements that wait. More are dropped; schedulers announce again after ten seconds.
	maxCalls = 256
	// callHolds is how long a session is kept after the caller's last announcement. A scheduler announces every ten
	// seconds while work waits. Tasks that it has started here keep the session anyway.
	callHolds = 5 * time.Minute
	// maxCallers bounds the callers: four times sessionsAsked. A new caller replaces the one whose last announcement is
	// oldest.
	maxCallers = 256
	// callMissed is how long a caller must be silent before another may replace it: three announcements. Without this
	// bound, callers that all announce would keep replacing each other.
	callMissed = 30 * time.Second
)

func newCallers(profile contract.Profile, w seeker, members func() int) *callers {
	c := &callers{wants: w, members: members, heard: make(chan call, maxCalls), kept: map[job.Peer]time.Time{}}
	c.become(profile)
	return c
}

// become sets the new profile of this host.
func (c *callers) become(profile contract.Profile) {
	var classes []string
	if profile.Worker {
		classes = contract.AllClasses(profile)
	}
	c.classes.Store(&classes)
}

// hear handles an announcement. It does not block.
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

// again records that a caller has announced again. It returns false if the scheduler is not a caller.
func (c *callers) again(from job.Peer, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, kept := c.kept[from]
	if kept {
		c.kept[from] = now
	}
	return kept
}

// keep makes a scheduler a caller, unless there are maxCallers and none has missed its announcements. It calls Want while
// it holds the lock, so that Want and Unwant are called in the right order.
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

// expire removes the callers that have not announced for callHolds. It returns after which time to call it again.
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

// run opens sessions after their pauses, and gives up sessions that have expired.
func (c *callers) run(ctx context.Context) error {
	r := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())) //nolint:gosec // it need not be secret
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
