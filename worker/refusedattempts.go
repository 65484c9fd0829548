package worker

// Graves: the attempts that were refused and whose owner has not acknowledged that. See docs/adr, ADR 115.

import (
	"slices"

	"github.com/musterhq/muster/worker/leaseclock"
)

// refusals counts these attempts. Each group has a list of its own.
type refusals struct {
	claims *claims
	count  int
}

// ended returns how many attempts of the owner of a group have ended, or were refused, without its acknowledgement.
func (s *refusals) ended(g *group) int {
	if !g.bound {
		return len(g.kept) - len(g.running)
	}
	n := 0
	for _, x := range s.claims.by[g.owner] {
		n += len(x.kept) - len(x.running)
	}
	return n
}

// add adds an attempt that is refused now.
func (s *refusals) add(a *attempt, now leaseclock.BootTime) {
	a.group.refused = append(a.group.refused, refusedAttempt{a, now})
	s.count++
}

// forget notes that a refused attempt was dropped. The list of its group is cleared of such attempts now and then.
func (s *refusals) forget(a *attempt) {
	s.count--
	if g := a.group; len(g.refused) > 2*(len(g.kept)-len(g.running))+16 {
		g.refused = slices.DeleteFunc(g.refused, func(x refusedAttempt) bool { return !x.there() })
	}
}

// oldest returns the oldest attempt of a group that was refused before a time; nil: there is none.
func (s *refusals) oldest(g *group, before leaseclock.BootTime) *attempt {
	for len(g.refused) > 0 && !g.refused[0].there() {
		g.refused = slices.Delete(g.refused, 0, 1)
	}
	if len(g.refused) == 0 || g.refused[0].at >= before {
		return nil
	}
	return g.refused[0].attempt
}
