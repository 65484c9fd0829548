package daemon

// How far the wall clock of this host is off from the clocks of other hosts. No decision depends on that: muster never
// compares times of different hosts. It is for people, who see times, and durations, by the clocks of several hosts.
//
// A pong has the clock of its sender, and half of the round trip bounds the error. A daemon compares its own clock with the
// median of its neighbours and reports only itself, so one wrong clock is named once. Times stay as they were recorded: a
// correction is as old as the session, and wrong if the clock is set meanwhile. Listings have clock_ahead of each job's
// owner instead, so that a duration up to now is a difference of two readings of the owner's clock. NTP says nothing of the
// others, and many hosts have none. What a peer says of its clock is not proven, but only people use it.

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/p2p/session"
)

const (
	// clocksEvery is how often the clocks are compared. Each session measures them every 30 s.
	clocksEvery = 10 * time.Second
	// clockOff is how much the clock must be off before people are told.
	clockOff     = 2 * time.Second
	clocksAdvice = "set the clock: run chrony or systemd-timesyncd on all hosts; until then times in listings are wrong, and nothing else"
)

// clocks compares the clock of this host with the clocks of the daemons with which it has sessions.
type clocks struct {
	peers func() []session.Info
	of    func(job.Peer) session.Clock
	log   *slog.Logger

	mu    sync.Mutex
	ahead time.Duration // guarded by mu; how far it is ahead of most others, as last reported; 0: right, or not known
	known int           // guarded by mu; how many other clocks it was compared with
}

func newClocks(sessions *session.Manager, log *slog.Logger) *clocks {
	return &clocks{peers: sessions.Peers, of: sessions.Clock, log: log}
}

// run compares the clocks every clocksEvery, until ctx ends.
func (c *clocks) run(ctx context.Context) error {
	ticker := time.NewTicker(clocksEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			c.look(ctx)
		}
	}
}

// look compares the clocks once. It logs when the clock of this host begins to be off, and when it is right again.
func (c *clocks) look(ctx context.Context) {
	ahead, n := aheadOfMost(c.peers())
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known = n
	if c.ahead != 0 && ahead != 0 && (ahead-c.ahead).Abs() < max(time.Second, c.ahead.Abs()/20) {
		return // do not report small changes
	}
	was := c.ahead
	c.ahead = ahead
	switch {
	case was == 0 && ahead != 0:
		c.log.WarnContext(ctx, "the clock of this host is off", "ahead", ahead.String(), "daemons", n, "advice", clocksAdvice)
	case was != 0 && ahead == 0:
		c.log.InfoContext(ctx, "the clock of this host is as those of others again", "daemons", n)
	}
}

// aheadOfMost returns by how much the clock of this host is ahead of the median of the others, in whole seconds, and the
// number of the others. It returns 0 if the clock is about right. If that number is even, it uses the middle clock that is
// nearer to this host's.
func aheadOfMost(peers []session.Info) (ahead time.Duration, n int) {
	var all []session.Clock
	for _, p := range peers {
		if p.Clock.Known {
			all = append(all, p.Clock)
		}
	}
	if len(all) == 0 {
		return 0, 0
	}
	slices.SortFunc(all, func(a, b session.Clock) int { return cmp.Compare(a.Ahead, b.Ahead) })
	middle := all[(len(all)-1)/2]
	if other := all[len(all)/2]; other.Ahead.Abs() < middle.Ahead.Abs() {
		middle = other
	}
	if middle.Ahead.Abs() <= clockOff+middle.Within {
		return 0, len(all)
	}
	return -middle.Ahead.Round(time.Second), len(all)
}

// detail tells people by how much the clock is off; it is empty if the clock is right.
func (c *clocks) detail() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.ahead > 0:
		return fmt.Sprintf("its clock is %s ahead of those of most others", job.Duration(c.ahead))
	case c.ahead < 0:
		return fmt.Sprintf("its clock is %s behind those of most others", job.Duration(-c.ahead))
	}
	return ""
}

// fact describes the clock for muster doctor.
func (c *clocks) fact() api.Fact {
	f := api.Fact{Name: "time", State: api.FactOK}
	c.mu.Lock()
	n := c.known
	c.mu.Unlock()
	switch text := c.detail(); {
	case text != "":
		f.State, f.Detail, f.Advice = api.FactWarn, text, clocksAdvice
	case n == 0:
		f.State, f.Detail = api.FactSkip, "not compared with the clock of any other daemon yet"
	default:
		f.Detail = fmt.Sprintf("its clock is within %s of those of most of %d other daemons", clockOff, n)
	}
	return f
}

// Ahead returns by how much the clock of another daemon is ahead, in whole seconds; 0: about right, or not known.
func (c *clocks) Ahead(p job.Peer) time.Duration {
	x := c.of(p)
	if !x.Known || x.Ahead.Abs() <= time.Second+x.Within {
		return 0
	}
	return x.Ahead.Round(time.Second)
}
