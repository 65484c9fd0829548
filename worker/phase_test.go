package worker

import (
	"testing"

	"github.com/musterhq/muster/lease"
)

// Every phase has legal moves, except the last ones. No move goes back on disk.
func TestPhases(t *testing.T) {
	order := map[lease.Phase]int{lease.PhaseReserved: 0, lease.PhaseStarted: 1, lease.PhaseDone: 2, lease.PhaseRefused: 2}
	for p := reserving; p <= refused; p++ {
		to, listed := moves[p]
		if over := p == done || p == refused; !listed || over != (len(to) == 0) {
			t.Errorf("moves of %s: %v", p, to)
		}
		for _, next := range to {
			if next <= p || order[next.onDisk()] < order[p.onDisk()] {
				t.Errorf("%s to %s goes back", p, next)
			}
		}
	}
}

func TestIllegalMoveIsLogged(t *testing.T) {
	var turn turn
	a := &attempt{phase: done}
	a.move(&turn, launched)
	if fx := turn.end(); len(fx.Log) != 1 || a.phase != launched || a.rec.Phase != lease.PhaseStarted {
		t.Fatalf("log %v, phase %s", fx.Log, a.phase)
	}
}
