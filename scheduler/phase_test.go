package scheduler

import (
	"testing"

	"github.com/musterhq/muster/jobs"
)

// Every phase has its legal moves. One that is over has none, and from every other a dispatch can be abandoned.
func TestPhases(t *testing.T) {
	for p := offering; p <= abandoned; p++ {
		to, listed := moves[p]
		if over := p == started || p == abandoned; !listed || over != (len(to) == 0) {
			t.Errorf("moves of %s: %v", p, to)
		} else if !over && to[len(to)-1] != abandoned {
			t.Errorf("%s cannot be abandoned", p)
		}
	}
}

func TestIllegalMoveIsTold(t *testing.T) {
	var tn turn
	d := &dispatch{task: &task{e: &entry{job: &jobs.Job{}}}, phase: abandoned}
	d.move(&tn, started)
	if n := tn.fx.Notices; len(n) != 1 || n[0].Kind != IllegalMove || d.phase != started {
		t.Fatalf("notices %v, phase %s", n, d.phase)
	}
}
