package worker

// Seeking owners: a session is wanted with whoever owns attempts that have
// something to tell, as long as they do. Without it their leases run out.

import (
	"cmp"
	"maps"
	"slices"

	"github.com/musterhq/muster/job"
)

// seeker counts for whom sessions are wanted.
type seeker struct {
	groups map[job.Peer]int      // groups with something to tell, by owner
	wanted map[job.Peer]struct{} // as the last effects left it
	moved  map[job.Peer]struct{} // whose count came from or to nothing since
}

func newSeeker() seeker {
	return seeker{groups: map[job.Peer]int{}, wanted: map[job.Peer]struct{}{}, moved: map[job.Peer]struct{}{}}
}

// own makes a peer the owner of a group.
func (c *Core) own(g *group, p job.Peer) {
	g.owner, g.greeted = p, false
	c.seek(g)
}

// seek follows a change of what a group has to tell, or of its owner.
func (c *Core) seek(g *group) {
	var who job.Peer
	if len(g.kept) > 0 {
		who = cmp.Or(g.owner, g.hint)
	}
	if who == c.cfg.Profile.Peer {
		who = "" // the scheduler of this host needs no session
	}
	if who == g.sought {
		return
	}
	s := &c.seeker
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

// take says what has changed since it was last asked.
func (s *seeker) take() (want, unwant []job.Peer) {
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
