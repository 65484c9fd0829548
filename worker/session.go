package worker

// Sessions: with which schedulers there is a session, and with which one is wanted. Without a session to their owner,
// the leases of attempts run out.

import (
	"cmp"
	"maps"
	"slices"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
)

// sessions records the open sessions, and those that are wanted: one with each owner of an attempt that is not
// acknowledged.
type sessions struct {
	self    job.Peer
	peers   []job.Peer                 // peers with an open session, sorted
	paths   map[job.Peer]contract.Path // of the open sessions
	groups  map[job.Peer]int           // number of groups with unacknowledged attempts, by owner
	wanted  map[job.Peer]struct{}      // peers with a wanted session, as take last returned
	changed map[job.Peer]struct{}      // peers whose number in groups has become 0 or 1 since
}

func newSessions(self job.Peer) *sessions {
	return &sessions{self: self, paths: map[job.Peer]contract.Path{}, groups: map[job.Peer]int{}, wanted: map[job.Peer]struct{}{}, changed: map[job.Peer]struct{}{}}
}

// open records a session.
func (s *sessions) open(p job.Peer, path contract.Path) {
	i, _ := slices.BinarySearch(s.peers, p)
	s.peers = slices.Insert(s.peers, i, p)
	s.paths[p] = path
}

// close drops a session, and reports whether there was one.
func (s *sessions) close(p job.Peer) bool {
	i, ok := slices.BinarySearch(s.peers, p)
	if ok {
		s.peers = slices.Delete(s.peers, i, i+1)
		delete(s.paths, p)
	}
	return ok
}

func (s *sessions) connected(p job.Peer) bool {
	_, ok := slices.BinarySearch(s.peers, p)
	return ok
}

// setOwner makes a peer the owner of a group.
func (s *sessions) setOwner(g *group, p job.Peer) {
	g.owner, g.resynced = p, false
	s.update(g)
}

// update recomputes with which peer a session is wanted for a group. It is called when the owner or the attempts of the
// group have changed.
func (s *sessions) update(g *group) {
	var who job.Peer
	if len(g.kept) > 0 {
		who = cmp.Or(g.owner, g.lastOwner)
	}
	if who == s.self {
		who = "" // the scheduler of this host needs no session
	}
	if who == g.wantedPeer {
		return
	}
	if g.wantedPeer != "" {
		if s.groups[g.wantedPeer]--; s.groups[g.wantedPeer] == 0 {
			delete(s.groups, g.wantedPeer)
			s.changed[g.wantedPeer] = struct{}{}
		}
	}
	if who != "" {
		if s.groups[who]++; s.groups[who] == 1 {
			s.changed[who] = struct{}{}
		}
	}
	g.wantedPeer = who
}

// take returns the peers with which a session has become wanted, or unwanted, since the last call.
func (s *sessions) take() (want, unwant []job.Peer) {
	if len(s.changed) == 0 {
		return nil, nil
	}
	for _, p := range slices.Sorted(maps.Keys(s.changed)) {
		_, wanted := s.wanted[p]
		switch needed := s.groups[p] > 0; {
		case needed && !wanted:
			s.wanted[p] = struct{}{}
			want = append(want, p)
		case !needed && wanted:
			delete(s.wanted, p)
			unwant = append(unwant, p)
		}
	}
	clear(s.changed)
	return want, unwant
}
