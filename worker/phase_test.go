package worker

import (
	"testing"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/worker/step"
)

// Each phase has legal moves, except the final ones. No move goes back on disk.
func TestEachPhaseHasLegalMoves(t *testing.T) {
	order := map[contract.Phase]int{contract.PhaseReserved: 0, contract.PhaseStarted: 1, contract.PhaseDone: 2, contract.PhaseRefused: 2}
	for p := reserving; p <= refused; p++ {
		to, listed := moves[p]
		if over := p == done || p == refused; !listed || over != (len(to) == 0) {
			t.Errorf("moves of %s: %v, want none only for a final phase", p, to)
		}
		for _, next := range to {
			if next <= p || order[next.onDisk()] < order[p.onDisk()] {
				t.Errorf("the move from %s to %s goes back", p, next)
			}
		}
	}
}

func TestIllegalMoveIsLogged(t *testing.T) {
	var s step.Turn
	a := &attempt{phase: done}
	a.move(&s, launched)
	if fx := s.End(); len(fx.Log) != 1 || a.phase != launched || a.rec.Phase != contract.PhaseStarted {
		t.Fatalf("log %v, phase %s, want one line, and the phase of the move", fx.Log, a.phase)
	}
}
