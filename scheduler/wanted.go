package scheduler

// Sessions that this scheduler asks for: with hosts that a search found, and with
// every host that may be running a task of its own, for as long as it may. Of the
// others those of no use are given up.

import (
	"cmp"
	"slices"
	"time"

	"github.com/musterhq/muster/job"
)

const (
	// maxSessions bounds the sessions that are wanted with hosts that run nothing of
	// ours; each costs some 60 KB on either side.
	maxSessions = 512
	// wantFor is how long a session is asked for in vain: a dial may take 20 s, and
	// a host that was restarted comes back within seconds.
	wantFor = time.Minute
	// idleFor is how long a session without use is kept: work often comes in waves.
	idleFor = 10 * time.Minute
	// settleFor is how long a found host has to say what it has, before another may
	// take its place.
	settleFor   = 10 * time.Second
	giveUpEvery = time.Minute
)

// wanted are the sessions that were asked for and not given up.
type wanted struct {
	peers map[job.Peer]*want
}

type want struct {
	since time.Time // it was asked for, or the session ended
	used  time.Time // an offer went to the host, or a task ended there
}

func newWanted() wanted { return wanted{peers: map[job.Peer]*want{}} }

// seek asks for a session with a host that may be running a task of ours: without
// one its lease runs out. There is no bound but that of the tasks.
func (c *Core) seek(p job.Peer) {
	if !c.lead || p == "" || p == c.cfg.Self {
		return
	}
	if c.wanted.peers[p] != nil {
		c.used(p)
		return
	}
	c.wanted.peers[p] = &want{since: c.now, used: c.now}
	c.fx.Want = append(c.fx.Want, p)
}

// seekAll asks for sessions with all hosts that may be running tasks of ours.
func (c *Core) seekAll() {
	peers := make([]job.Peer, 0, len(c.byNode))
	for p := range c.byNode {
		if c.sessions[p] == 0 {
			peers = append(peers, p)
		}
	}
	slices.Sort(peers)
	for _, p := range peers {
		c.seek(p)
	}
}

// wantFound asks for a session with a host that a search turned up, if need be in
// place of the least useful one. It says whether the host's Hello is yet to come.
func (c *Core) wantFound(p job.Peer) bool {
	if p == c.cfg.Self || c.sessions[p] != 0 {
		return false
	}
	if c.wanted.peers[p] != nil {
		return true
	}
	if c.wantedIdle() >= maxSessions && !c.giveUpOne() {
		return false
	}
	c.wanted.peers[p] = &want{since: c.now, used: c.now}
	c.fx.Want = append(c.fx.Want, p)
	return true
}

// wantedIdle counts the wanted sessions with hosts that run nothing of ours.
func (c *Core) wantedIdle() int {
	n := len(c.wanted.peers)
	if n < maxSessions {
		return n
	}
	for p := range c.byNode {
		if c.wanted.peers[p] != nil {
			n--
		}
	}
	return n
}

// useful says whether the session carries something: an attempt, an offer, a
// commit.
func (c *Core) useful(p job.Peer) bool {
	if len(c.byNode[p]) > 0 {
		return true
	}
	w := c.workers[p]
	return w != nil && !w.Claims.None()
}

// lostTouch notes the end of a session: one that is still wanted is waited for
// anew.
func (c *Core) lostTouch(p job.Peer) {
	if w := c.wanted.peers[p]; w != nil {
		w.since = c.now
	}
	if len(c.byNode[p]) > 0 {
		c.seek(p)
	}
}

// used notes that a session is of use.
func (c *Core) used(p job.Peer) {
	if w := c.wanted.peers[p]; w != nil {
		w.used = c.now
	}
}

// unwant says that a session is not wanted any more.
func (c *Core) unwant(p job.Peer) {
	delete(c.wanted.peers, p)
	c.fx.Unwant = append(c.fx.Unwant, p)
}

// giveUpOne gives up the least useful session: first one that never came, then the
// one that was used longest ago. What was asked for a moment ago stays.
func (c *Core) giveUpOne() bool {
	var worst job.Peer
	for p, w := range c.wanted.peers {
		if c.now.Sub(w.since) < settleFor || c.now.Sub(w.used) < settleFor || c.useful(p) {
			continue
		}
		if worst == "" || c.lessUseful(p, worst) < 0 {
			worst = p
		}
	}
	if worst == "" {
		return false
	}
	c.unwant(worst)
	return true
}

// lessUseful orders wanted sessions, the least useful first.
func (c *Core) lessUseful(p, q job.Peer) int {
	if a, b := c.sessions[p] != 0, c.sessions[q] != 0; a != b {
		if b {
			return -1
		}
		return 1
	}
	return cmp.Or(c.wanted.peers[p].used.Compare(c.wanted.peers[q].used), cmp.Compare(p, q))
}

// giveUpIdle gives up what never came and what was not used for long; the timer
// renews itself.
func (c *Core) giveUpIdle() {
	var gone []job.Peer
	for p, w := range c.wanted.peers {
		up := c.sessions[p] != 0
		if !c.useful(p) && (!up && c.now.Sub(w.since) >= wantFor || up && c.now.Sub(w.used) >= idleFor) {
			gone = append(gone, p)
		}
	}
	slices.Sort(gone)
	for _, p := range gone {
		c.unwant(p)
	}
	c.after(giveUpEvery, c.giveUpIdle)
}
