package supervisor

import (
	"fmt"
	"log/slog"
	"os"
	"testing"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/runner/protocol"
)

// A segment is deleted when its last exit is forgotten, unless its runner may still write to it.
func TestForgetDeletesSegments(t *testing.T) {
	t.Parallel()
	dir := protocol.Dir(t.TempDir())
	attempt := func(n int) job.Attempt { return job.Attempt{Job: job.NewID(7, 9), Task: n, N: 1} }
	write := func(generation, number int, tasks ...int) {
		t.Helper()
		var text string
		for _, n := range tasks {
			text += fmt.Sprintf("{\"attempt\":%q,\"exit\":{\"state\":\"SUCCEEDED\"}}\n", attempt(n))
		}
		if err := os.WriteFile(dir.Journal(protocol.Segment{Runner: generation, Number: number}), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(1, 1, 1, 2)
	write(1, 2)
	write(2, 1, 3)
	write(2, 2, 4)
	living := map[int]bool{2: true}
	e := newEnds(dir, func(generation int) bool { return living[generation] }, slog.New(slog.DiscardHandler))
	all, err := e.read()
	if err != nil || len(all) != 4 || len(e.names()) != 4 {
		t.Fatalf("%d ends read, %d known: %v, want no error, 4 and 4", len(all), len(e.names()), err)
	}
	left := func(want string) {
		t.Helper()
		if segments, err := dir.Segments(); err != nil || fmt.Sprint(segments) != want {
			t.Errorf("segments %v, %v; want %s", segments, err, want)
		}
	}
	left("[{1 1} {2 1} {2 2}]") // the empty segment of the dead runner is deleted
	e.forget(attempt(1))
	e.forget(attempt(1))
	left("[{1 1} {2 1} {2 2}]")
	e.forget(attempt(2))
	e.forget(attempt(4))
	left("[{2 1} {2 2}]") // the runner may still write to {2 2}
	write(2, 3, 5)
	e.add(attempt(5), protocol.Segment{Runner: 2, Number: 3})
	left("[{2 1} {2 3}]")
	e.forget(attempt(5))
	e.forget(attempt(9))
	living[2] = false
	e.closed(2)
	left("[{2 1}]")
	e.forget(attempt(3))
	left("[]")
}
