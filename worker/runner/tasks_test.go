package runner

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/musterhq/muster/job"
)

// sequences lists the legal sequences of phases, one in a line.
var sequences = []string{
	"queued spawning running ended gone",           // it ran, and left nothing
	"queued spawning running lingering ended gone", // it left processes, which were killed
	"queued spawning ended gone",                   // its program does not exist, or its start hung
	"queued spawning gone",                         // an earlier runner has it
	"queued ended gone",                            // it was stopped before a spawner took it from the queue
	"preparing running ended gone",                 // a container
	"preparing ended gone",                         // its image does not exist, or it was stopped before it started
	"preparing gone",                               // an earlier runner has it
}

// TestLegalMovesAreThoseOfTheSequences checks that the sequences above are legal, and that every legal move is part of
// one of them.
func TestLegalMovesAreThoseOfTheSequences(t *testing.T) {
	t.Parallel()
	used := map[[2]phase]bool{}
	for _, sequence := range sequences {
		var log bytes.Buffer
		ts := newTasks(slog.New(slog.NewTextHandler(&log, nil)))
		a := job.Attempt{Job: job.NewID(7, 9), N: 1}
		k := &task{attempt: a, name: a.String(), pid: 42}
		for name := range strings.FieldsSeq(sequence) {
			to := phase(slices.Index(phaseNames[:], name))
			used[[2]phase{k.phase, to}] = true
			if !ts.move(k, to) {
				t.Errorf("%s: the move to %s is illegal: %s", sequence, name, log.String())
			}
		}
		if len(ts.all)+len(ts.left)+ts.starting() != 0 {
			t.Errorf("%s: not everything is removed at the end: %+v", sequence, ts)
		}
	}
	for from, all := range nextPhases {
		for _, to := range all {
			if !used[[2]phase{from, to}] {
				t.Errorf("no sequence moves from %s to %s", from, to)
			}
		}
	}
}

// TestIllegalMoveChangesNothing checks that a move that is not in the table changes nothing and is logged.
func TestIllegalMoveChangesNothing(t *testing.T) {
	t.Parallel()
	for from := range phase(len(phaseNames)) {
		for to := range phase(len(phaseNames)) {
			if slices.Contains(nextPhases[from], to) {
				continue
			}
			var log bytes.Buffer
			ts := newTasks(slog.New(slog.NewTextHandler(&log, nil)))
			k := &task{name: "a", phase: from}
			if ts.move(k, to) || k.phase != from || len(ts.all)+len(ts.left)+len(ts.mains) != 0 {
				t.Errorf("the illegal move from %s to %s was made", from, to)
			}
			if text := log.String(); !strings.Contains(text, "level=ERROR") || !strings.Contains(text, "from="+from.String()+" to="+to.String()) {
				t.Errorf(`%s to %s: logged %q, want "level=ERROR" in it and %v in it`, from, to, text, "from="+from.String()+" to="+to.String())
			}
		}
	}
}
