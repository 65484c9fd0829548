package daemon

// The sessions that parts of this daemon want. Several parts may want a session with the same peer; the session is kept
// while at least one of them wants it.

import (
	"log/slog"
	"slices"
	"sync"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/p2p/session"
)

// reason says which part of the daemon wants a session.
type reason uint8

const (
	forScheduler  reason = 1 << iota // a host that could take or has taken a task
	forWorker                        // the owner of a live attempt
	forNeighbours                    // a neighbour
	forCallers                       // a scheduler that announced a resource class of this host
	forEarlier                       // as forScheduler, for the jobs of the previous version
)

// keeper opens and closes sessions. Want returns false if too many sessions are kept.
type keeper interface {
	Want(p job.Peer) bool
	Unwant(p job.Peer)
}

var _ keeper = (*session.Manager)(nil)

// wantedSessions holds the peers that parts want sessions with. It is safe for concurrent use. Each part bounds its own peers.
// wants calls the keeper, which does not block, while it holds the lock. So the keeper gets all calls in order.
type wantedSessions struct {
	self   job.Peer
	keeper keeper
	log    *slog.Logger

	mu      sync.Mutex
	by      map[job.Peer]reason // guarded by mu: all reasons to want each peer
	waiting []job.Peer          // guarded by mu: peers that the keeper has refused, the longest waiting first
}

func newWantedSessions(self job.Peer, k keeper, log *slog.Logger) *wantedSessions {
	return &wantedSessions{self: self, keeper: k, log: log, by: map[job.Peer]reason{}}
}

// seeker is the view of one part on wants.
type seeker struct {
	*wantedSessions
	why reason
}

func (w *wantedSessions) of(why reason) seeker { return seeker{w, why} }

// Want keeps a session with the peer. A second call has no effect.
func (s seeker) Want(p job.Peer) { s.want(p, s.why) }

// Unwant ends the Want of this part.
func (s seeker) Unwant(p job.Peer) { s.unwant(p, s.why) }

func (w *wantedSessions) want(p job.Peer, why reason) {
	if p == w.self {
		return
	}
	w.mu.Lock()
	had := w.by[p]
	w.by[p] = had | why
	late := had == 0 && !w.keeper.Want(p)
	if late {
		w.waiting = append(w.waiting, p)
	}
	n := len(w.by)
	w.mu.Unlock()
	if late {
		w.log.Warn("session waits: too many are kept", "peer", string(p), "wanted", n)
	}
}

func (w *wantedSessions) unwant(p job.Peer, why reason) {
	w.mu.Lock()
	defer w.mu.Unlock()
	had, ok := w.by[p]
	switch {
	case !ok:
		return
	case had&^why != 0:
		w.by[p] = had &^ why
		return
	}
	delete(w.by, p)
	if i := slices.Index(w.waiting, p); i >= 0 {
		w.waiting = slices.Delete(w.waiting, i, i+1)
		return
	}
	w.keeper.Unwant(p)
	for len(w.waiting) > 0 && w.keeper.Want(w.waiting[0]) {
		w.waiting = slices.Delete(w.waiting, 0, 1)
	}
}
