package worker

import (
	"testing"

	"github.com/musterhq/muster/internal/contract"
)

// Every phase has legal moves, except the last ones. No move goes back on disk.
func TestPhases(t *testing.T) {
	order := map[contract.Phase]int{contract.PhaseReserved: 0, contract.PhaseStarted: 1, contract.PhaseDone: 2, contract.PhaseRefused: 2}
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
	if fx := turn.end(); len(fx.Log) != 1 || a.phase != launched || a.rec.Phase != contract.PhaseStarted {
		t.Fatalf("log %v, phase %s", fx.Log, a.phase)
	}
}
