//go:build e2e

package e2e

// The red team: all attacks on one stage, one after the other, and a table of the costs of each. docs/redteam.md
// describes it.

import (
	"context"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// attack is something that an attacker does for a while. Its effects on others are measured at the same time.
type attack struct {
	name  string
	users bool // it needs several accounts, and so root
	long  bool // it takes too long for each run: see atFullSize
	try   func(*field)
}

// attacks lists them by attacker.
var attacks = slices.Concat(strangersAttacks, guestsAttacks, schedulersAttacks, usersAttacks, pathsAttacks, together)

// field is where one attack happens.
type field struct {
	*scene
	t    *testing.T
	span time.Duration   // how long floods last
	ctx  context.Context //nolint:containedctx // it ends when a flood is to end
}

// begins starts the time of a flood, when the attacker is ready.
func (f *field) begins() {
	ctx, cancel := context.WithTimeout(f.t.Context(), f.span)
	f.t.Cleanup(cancel)
	f.ctx = ctx
}

// flood repeats a function in n goroutines, until its time is over.
func (f *field) flood(n int, do func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			for f.ctx.Err() == nil {
				do(i)
			}
		})
	}
	wg.Wait()
}

// pause waits, or until the flood is to end.
func (f *field) pause(d time.Duration) {
	select {
	case <-f.ctx.Done():
	case <-time.NewTimer(d).C:
	}
}

// TestRedTeam runs all attacks against one cluster. None of them may cost others more than the bounds of costs.
func TestRedTeam(t *testing.T) {
	span := 2 * time.Second
	if os.Getenv("MUSTER_E2E_FULL") != "" {
		span = 20 * time.Second
	}
	s := newScene(t)
	w := s.watch("none")
	<-time.NewTimer(span).C
	calm := w.end(nil)
	perProbe := map[string]float64{}
	for _, d := range s.attacked() {
		for cause, n := range d.causes(w.from[d]) {
			perProbe[cause] = max(perProbe[cause], float64(n)/float64(max(1, len(calm.probes))))
		}
	}
	rows := []string{tableHead, calm.row()}
	for _, a := range attacks {
		t.Run(a.name, func(t *testing.T) {
			if a.users {
				asRoot(t)
			}
			if a.long {
				atFullSize(t)
			}
			c := s.attack(t, a, span, perProbe)
			rows = append(rows, c.row())
			t.Log(c.row())
			for _, wrong := range c.wrong {
				t.Error(wrong)
			}
		})
	}
	t.Log("\n" + strings.Join(rows, "\n"))
}

func (s *scene) attack(t *testing.T, a attack, span time.Duration, calm map[string]float64) *costs {
	t.Helper()
	w := s.watch(a.name)
	ended := false
	defer func() { // an attack that fails its own test ends this goroutine
		if !ended {
			w.end(calm)
		}
	}()
	f := &field{scene: s, t: t, span: span}
	f.begins()
	a.try(f)
	c := w.end(calm)
	ended, c.failed = true, t.Failed()
	if left := s.leftovers(); len(left) > 0 {
		c.wrong = append(c.wrong, "processes that the attack has left: "+strings.Join(left, ", "))
	}
	return c
}
