package scheduler

// Sessions: with which hosts there is one, and with which hosts this scheduler wants one. It wants sessions with hosts
// that a search has found, and with every host that may be running one of its tasks. It gives up sessions that nobody
// uses.

import (
	"cmp"
	"slices"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/fleet"
	"github.com/musterhq/muster/scheduler/step"
)

// HelloWait is how long the Hello of a host that a search has found may take. Then the host counts as silent.
const HelloWait = 5 * time.Second

const (
	// maxSessions bounds the sessions that are wanted with hosts that run none of our tasks. Each costs some 60 KB on
	// either side.
	maxSessions = 512
	// wantFor is how long this scheduler waits for a session that it wants. A dial may take 20 s, and a host that
	// restarts is back within seconds.
	wantFor = time.Minute
	// idleFor is how long an unused session is kept. Jobs often come in waves.
	idleFor = 10 * time.Minute
	// settleFor is how long a host that was found has for its Hello. Until then its session is not given up for
	// another.
	settleFor = 10 * time.Second
	// giveUpEvery is how often unused sessions are looked for.
	giveUpEvery = time.Minute
)

// contact knows which sessions there are and which are wanted.
type contact struct {
	*step.Turn
	hosts    *hosts
	assigned *assigned

	sessions    map[job.Peer]uint64        // the number of each session; the first of this life of the daemon is 1
	lastSession uint64                     // the highest number so far
	paths       map[job.Peer]contract.Path // of the sessions that go straight from host to host
	distances   map[job.Peer]fleet.Distance
	wanted      map[job.Peer]*want
}

// want is a session that this scheduler wants.
type want struct {
	since time.Time // when it was asked for, or when it ended
	used  time.Time // when an offer was last sent to the host, or when a task last needed the session
}

// seek wants a session with a host that may be running one of our tasks: without a session its lease runs out. The
// number of tasks is the only bound.
func (ct *contact) seek(p job.Peer) {
	if !ct.Lead || p == "" || p == ct.Config.Self {
		return
	}
	if ct.wanted[p] != nil {
		ct.used(p)
		return
	}
	ct.wanted[p] = &want{since: ct.Now, used: ct.Now}
	ct.Effects.Want = append(ct.Effects.Want, p)
}

// seekAll wants sessions with all hosts that may be running our tasks.
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

// wantFound wants a session with a host that a search has found. If there are too many it gives up the least useful one.
// It reports whether the host is not known yet and its Hello may still come.
func (ct *contact) wantFound(p job.Peer) bool {
	if p == ct.Config.Self || ct.sessions[p] != 0 {
		return false
	}
	unknown := ct.hosts.workers[p] == nil // for a known host its earlier Hello counts
	if w := ct.wanted[p]; w != nil {
		return unknown && ct.Now.Sub(w.since) < HelloWait
	}
	if ct.wantedIdle() >= maxSessions && !ct.giveUpOne() {
		return false
	}
	ct.wanted[p] = &want{since: ct.Now, used: ct.Now}
	ct.Effects.Want = append(ct.Effects.Want, p)
	return unknown
}

// wantedIdle counts the wanted sessions with hosts that run none of our tasks.
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

// useful reports whether a task is assigned to the host, or an offer is open there.
func (ct *contact) useful(p job.Peer) bool {
	if len(ct.assigned.byNode[p]) > 0 {
		return true
	}
	w := ct.hosts.workers[p]
	return w != nil && !w.Claims.None()
}

// down notes the end of a session. If the session is still wanted, the wait for it begins again.
func (ct *contact) down(p job.Peer) {
	if w := ct.wanted[p]; w != nil {
		w.since = ct.Now
	}
	if len(ct.assigned.byNode[p]) > 0 {
		ct.seek(p)
	}
}

// used notes that a session is used now.
func (ct *contact) used(p job.Peer) {
	if w := ct.wanted[p]; w != nil {
		w.used = ct.Now
	}
}

// unwant gives up a session.
func (ct *contact) unwant(p job.Peer) {
	delete(ct.wanted, p)
	ct.Effects.Unwant = append(ct.Effects.Unwant, p)
}

// giveUpOne gives up the least useful session: first one that has not come, then the one that was used longest ago. A
// session that was asked for or used a moment ago stays. It reports whether it gave one up.
func (ct *contact) giveUpOne() bool {
	var worst job.Peer
	for p, w := range ct.wanted {
		if ct.Now.Sub(w.since) < settleFor || ct.Now.Sub(w.used) < settleFor || ct.useful(p) {
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

// lessUseful orders wanted sessions. The least useful is the first.
func (ct *contact) lessUseful(p, q job.Peer) int {
	if a, b := ct.sessions[p] != 0, ct.sessions[q] != 0; a != b {
		if b {
			return -1
		}
		return 1
	}
	return cmp.Or(ct.wanted[p].used.Compare(ct.wanted[q].used), cmp.Compare(p, q))
}

// giveUpIdle gives up the sessions that do not come and those that were not used for long. It arms its own timer again.
func (ct *contact) giveUpIdle() {
	var gone []job.Peer
	for p, w := range ct.wanted {
		up := ct.sessions[p] != 0
		if !ct.useful(p) && (!up && ct.Now.Sub(w.since) >= wantFor || up && ct.Now.Sub(w.used) >= idleFor) {
			gone = append(gone, p)
		}
	}
	slices.Sort(gone)
	for _, p := range gone {
		ct.unwant(p)
	}
	ct.After(giveUpEvery, ct.giveUpIdle)
}

// found wants sessions with hosts that a search has found. A Hello then tells what the host has. It reports whether any
// Hello is yet to come.
func (ct *contact) found(peers []job.Peer) (more bool) {
	for _, p := range peers {
		more = ct.wantFound(p) || more
	}
	return more
}
