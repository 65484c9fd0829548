package worker

// Sessions: with which schedulers there is one, and with whom one is wanted. Without a session the leases of an owner's
// attempts run out.

import (
	"cmp"
	"maps"
	"slices"

	"github.com/musterhq/muster/job"
)

// sessions are those that are open, and those that are wanted: with each owner of attempts that have something to tell.
type sessions struct {
	self   job.Peer
	peers  []job.Peer            // sorted
	groups map[job.Peer]int      // groups with something to tell, by owner
	wanted map[job.Peer]struct{} // as the last effects left it
	moved  map[job.Peer]struct{} // whose count of groups came from or to nothing since
}

func newSessions(self job.Peer) *sessions {
	return &sessions{self: self, groups: map[job.Peer]int{}, wanted: map[job.Peer]struct{}{}, moved: map[job.Peer]struct{}{}}
}

// open notes a session.
func (s *sessions) open(p job.Peer) {
	i, _ := slices.BinarySearch(s.peers, p)
	s.peers = slices.Insert(s.peers, i, p)
}

// close forgets a session, and says whether there was one.
func (s *sessions) close(p job.Peer) bool {
	i, ok := slices.BinarySearch(s.peers, p)
	if ok {
		s.peers = slices.Delete(s.peers, i, i+1)
	}
	return ok
}

func (s *sessions) connected(p job.Peer) bool {
	_, ok := slices.BinarySearch(s.peers, p)
	return ok
}

// own makes a peer the owner of a group.
func (s *sessions) own(g *group, p job.Peer) {
	g.owner, g.greeted = p, false
	s.follow(g)
}

// follow sees whether a session is wanted for a group: what it has to tell has changed, or its owner.
func (s *sessions) follow(g *group) {
	var who job.Peer
	if len(g.kept) > 0 {
		who = cmp.Or(g.owner, g.hint)
	}
	if who == s.self {
		who = "" // the scheduler of this host needs no session
	}
	if who == g.sought {
		return
	}
	if g.sought != "" {
		if s.groups[g.sought]--; s.groups[g.sought] == 0 {
			delete(s.groups, g.sought)
			s.moved[g.sought] = struct{}{}
		}
	}
	if who != "" {
		if s.groups[who]++; s.groups[who] == 1 {
			s.moved[who] = struct{}{}
		}
	}
	g.sought = who
}

// take returns with whom a session is wanted, and is wanted no longer, since it was last called.
func (s *sessions) take() (want, unwant []job.Peer) {
	if len(s.moved) == 0 {
		return nil, nil
	}
	for _, p := range slices.Sorted(maps.Keys(s.moved)) {
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
	clear(s.moved)
	return want, unwant
}
