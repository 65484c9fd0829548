package scheduler

// Sessions: which hosts have one, and with which hosts this scheduler asks for one. It asks for those that a search found,
// and for every host that may be running a task of its own. Sessions of no use are given up.

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

// contact is with whom this scheduler has sessions, and those that it asked for and has not given up.
type contact struct {
	*turn
	hosts    *hosts
	assigned *assigned

	sessions    map[job.Peer]uint64 // and which of this daemon's life each is
	lastSession uint64
	wanted      map[job.Peer]*want
}

type want struct {
	since time.Time // it was asked for, or the session ended
	used  time.Time // an offer went to the host, or a task ended there
}

// seek asks for a session with a host that may be running a task of ours: without
// one its lease runs out. There is no bound but that of the tasks.
func (ct *contact) seek(p job.Peer) {
	if !ct.lead || p == "" || p == ct.cfg.Self {
		return
	}
	if ct.wanted[p] != nil {
		ct.used(p)
		return
	}
	ct.wanted[p] = &want{since: ct.now, used: ct.now}
	ct.fx.Want = append(ct.fx.Want, p)
}

// seekAll asks for sessions with all hosts that may be running tasks of ours.
func (ct *contact) seekAll() {
	peers := make([]job.Peer, 0, len(ct.assigned.byNode))
	for p := range ct.assigned.byNode {
		if ct.sessions[p] == 0 {
			peers = append(peers, p)
		}
	}
	slices.Sort(peers)
	for _, p := range peers {
		ct.seek(p)
	}
}

// wantFound asks for a session with a host that a search turned up, if need be in
// place of the least useful one. It says whether the host's Hello is yet to come.
func (ct *contact) wantFound(p job.Peer) bool {
	if p == ct.cfg.Self || ct.sessions[p] != 0 {
		return false
	}
	if ct.wanted[p] != nil {
		return true
	}
	if ct.wantedIdle() >= maxSessions && !ct.giveUpOne() {
		return false
	}
	ct.wanted[p] = &want{since: ct.now, used: ct.now}
	ct.fx.Want = append(ct.fx.Want, p)
	return true
}

// wantedIdle counts the wanted sessions with hosts that run nothing of ours.
func (ct *contact) wantedIdle() int {
	n := len(ct.wanted)
	if n < maxSessions {
		return n
	}
	for p := range ct.assigned.byNode {
		if ct.wanted[p] != nil {
			n--
		}
	}
	return n
}

// useful says whether the session carries something: an attempt, an offer, a
// commit.
func (ct *contact) useful(p job.Peer) bool {
	if len(ct.assigned.byNode[p]) > 0 {
		return true
	}
	w := ct.hosts.workers[p]
	return w != nil && !w.Claims.None()
}

// down notes the end of a session: one that is still wanted is waited for
// anew.
func (ct *contact) down(p job.Peer) {
	if w := ct.wanted[p]; w != nil {
		w.since = ct.now
	}
	if len(ct.assigned.byNode[p]) > 0 {
		ct.seek(p)
	}
}

// used notes that a session is of use.
func (ct *contact) used(p job.Peer) {
	if w := ct.wanted[p]; w != nil {
		w.used = ct.now
	}
}

// unwant says that a session is not wanted any more.
func (ct *contact) unwant(p job.Peer) {
	delete(ct.wanted, p)
	ct.fx.Unwant = append(ct.fx.Unwant, p)
}

// giveUpOne gives up the least useful session: first one that never came, then the
// one that was used longest ago. What was asked for a moment ago stays.
func (ct *contact) giveUpOne() bool {
	var worst job.Peer
	for p, w := range ct.wanted {
		if ct.now.Sub(w.since) < settleFor || ct.now.Sub(w.used) < settleFor || ct.useful(p) {
			continue
		}
		if worst == "" || ct.lessUseful(p, worst) < 0 {
			worst = p
		}
	}
	if worst == "" {
		return false
	}
	ct.unwant(worst)
	return true
}

// lessUseful orders wanted sessions, the least useful first.
func (ct *contact) lessUseful(p, q job.Peer) int {
	if a, b := ct.sessions[p] != 0, ct.sessions[q] != 0; a != b {
		if b {
			return -1
		}
		return 1
	}
	return cmp.Or(ct.wanted[p].used.Compare(ct.wanted[q].used), cmp.Compare(p, q))
}

// giveUpIdle gives up what never came and what was not used for long; the timer
// renews itself.
func (ct *contact) giveUpIdle() {
	var gone []job.Peer
	for p, w := range ct.wanted {
		up := ct.sessions[p] != 0
		if !ct.useful(p) && (!up && ct.now.Sub(w.since) >= wantFor || up && ct.now.Sub(w.used) >= idleFor) {
			gone = append(gone, p)
		}
	}
	slices.Sort(gone)
	for _, p := range gone {
		ct.unwant(p)
	}
	ct.after(giveUpEvery, ct.giveUpIdle)
}

// found asks for sessions with hosts that a search turned up. What they can do is learnt from their Hello. It says
// whether some of them have yet to say it.
func (ct *contact) found(peers []job.Peer) (more bool) {
	for _, p := range peers {
		more = ct.wantFound(p) || more
	}
	return more
}
