package scheduler

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/musterhq/muster/internal/testkit/stories"
	"github.com/musterhq/muster/scheduler/step"
)

// Each phase can be reached from idle, has legal moves, and leads back to idle. No move leads back to the Start of an
// attempt, and only one out of given up: to idle (R7).
func TestEachPhaseLeadsBackToIdle(t *testing.T) {
	for p := idle; p <= givenUp; p++ {
		for q := idle; q <= givenUp; q++ {
			if !reaches(p, q) {
				t.Errorf("%s never becomes %s", p, q)
			}
		}
		switch {
		case p.canMove(p):
			t.Errorf("%s moves to itself", p)
		case p.canMove(startSent) != (p == recorded), p.canMove(recorded) && !p.proposed() && p != idle: // R1; idle: ranks of a gang
			t.Errorf("moves of %s: %v break R1", p, moves[p])
		case p.over() && (len(moves[p]) != 1 || !p.canMove(idle)): // R7
			t.Errorf("%s is over and moves to %v, want idle alone (R7)", p, moves[p])
		}
	}
}

// reaches reports whether one or more legal moves lead from one phase to the other.
func reaches(from, to phase) bool {
	seen := map[phase]bool{}
	for todo := []phase{from}; len(todo) > 0; todo = todo[1:] {
		for _, p := range moves[todo[0]] {
			if !seen[p] {
				seen[p] = true
				todo = append(todo, p)
			}
		}
	}
	return seen[to]
}

// A move that is not in the table is made, and reported.
func TestIllegalMoveIsReported(t *testing.T) {
	s := newStory(t, 0)
	var told []step.Notice
	s.illegal = func(n step.Notice) { told = append(told, n) }
	for _, line := range []string{"lead", "worker n1", "submit a", "take n1 a"} {
		s.do(line)
	}
	x := s.core.entries.byID[s.id("a")].tasks[0]
	x.move(s.core.turn, offering)
	s.step()
	if len(told) != 1 || told[0].Attempt != x.attempt() || told[0].Peer != "n1" || told[0].Detail != "start sent to offering" {
		t.Errorf("notices: %+v, want one about the attempt at n1 with the detail \"start sent to offering\"", told)
	}
	if x.phase != offering {
		t.Errorf("the phase is %s, want %v", x.phase, offering)
	}
}

// Without a table of legal moves each move is reported as a defect. So the stories show which moves occur: exactly
// those of the table.
func TestStoriesMakeExactlyTheLegalMoves(t *testing.T) {
	table := moves
	moves = nil
	defer func() { moves = table }()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	occurs := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		s := newStory(t, 0)
		s.illegal = func(n step.Notice) { occurs[n.Detail] = true }
		stories.Tell(string(text), func(c stories.Command) string {
			s.act(c)
			return ""
		})
	}
	for p, to := range table {
		for _, q := range to {
			if move := p.String() + " to " + q.String(); !occurs[move] {
				t.Errorf("no story has the legal move %s", move)
			} else {
				delete(occurs, move)
			}
		}
	}
	for move := range occurs {
		t.Errorf("a story has the move %s, which is not legal", move)
	}
}
