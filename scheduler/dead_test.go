package scheduler

import (
	"testing"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/step"
)

// perish ends the host with all its tasks and its data directory, without a message.
func (m *model) perish() {
	m.store += "+"
	for a := range m.world.ghosts {
		if e := m.world.core.entries.byID[a.Job]; e != nil && e.job.Task(a.Task).Node == m.peer && e.job.Task(a.Task).Attempt == a.N {
			delete(m.world.ghosts, a)
		}
	}
	for _, a := range m.strays {
		delete(m.world.ghosts, a)
	}
	m.strays, m.dead = nil, false
	m.tries, m.live, m.session, m.until = map[job.Attempt]*modelTry{}, false, 0, time.Time{}
	m.reserved, m.queued = map[uint64]contract.Offer{}, nil
}

// Repeated requests do not pile up while the journal commits nothing.
func TestRepeatedDeclareDeadIsBounded(t *testing.T) {
	s := newStory(t, step.DefaultConfig().KeepWhole)
	for _, line := range []string{"lead", "worker n1", "submit a partition=hold", "take n1 a", "down n1", "journal slow"} {
		s.do(line)
	}
	for range 100 {
		s.do("dead n1")
		s.do("wait 31s")
	}
	if d := s.core.deaths.byHost["n1"]; len(d.tokens) != 1 || len(s.core.requests.open) != 0 {
		t.Errorf("%d tokens are kept, %d requests open, want 1 and none", len(d.tokens), len(s.core.requests.open))
	}
	s.do("commit")
	if len(s.core.deaths.byHost) != 0 {
		t.Errorf("%d deaths are kept, want none", len(s.core.deaths.byHost))
	}
}
