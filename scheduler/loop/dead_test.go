package loop

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/step"
)

// If a host is declared dead, all its attempts are written off. The request is answered once the journal has recorded
// that. A host that answers cannot be declared dead.
func TestDeclareDeadWritesOffAllAttempts(t *testing.T) {
	withLoop(t, nil, func(t *testing.T, h loopRig) {
		h.host.runs = 24 * time.Hour
		h.host.connect("n1")
		const n = 40
		for i := range n {
			r := request(fmt.Sprint("j", i))
			r.Spec.Partition = job.PartitionHold
			if _, err := h.loop.Submit(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		for what, try := range map[string]func() (int, error){
			"MayBeDead":   func() (int, error) { return h.loop.MayBeDead(t.Context(), "n1", "") },
			"DeclareDead": func() (int, error) { return h.loop.DeclareDead(t.Context(), "n1", "", "root") },
		} {
			if _, err := try(); !errors.Is(err, step.ErrConflict) || !strings.Contains(err.Error(), "node n1 answers: drain it instead") {
				t.Errorf(`%s of a host that answers = %v, want ErrConflict and "node n1 answers: drain it instead" in it`, what, err)
			}
		}
		if given, err := h.loop.DeclareDead(t.Context(), "never heard of", "", "root"); given != 0 || err != nil {
			t.Errorf("DeclareDead of a stranger = %d, %v, want 0 and no error", given, err)
		}
		h.loop.SessionDown("n1")
		if would, err := h.loop.MayBeDead(t.Context(), "n1", ""); would != n || err != nil {
			t.Errorf("MayBeDead = %d, %v; want %d", would, err, n)
		}
		if given, err := h.loop.DeclareDead(t.Context(), "n1", "", "root"); given != n || err != nil {
			t.Fatalf("DeclareDead = %d, %v; want %d", given, err, n)
		}
		h.journal.mu.Lock()
		durable := map[job.Attempt]bool{}
		for _, m := range h.journal.entries {
			for _, r := range m.Records {
				if u, ok := r.(job.UnassignRecord); ok && u.Proof == job.ProofOperator && u.Detail == "n1 was declared dead by root" {
					durable[u.Attempt] = true
				}
			}
		}
		h.journal.mu.Unlock()
		if len(durable) != n {
			t.Errorf("the journal has %d records when the request is answered, want %d", len(durable), n)
		}
		list, err := h.loop.Jobs(t.Context(), job.Query{States: []job.State{job.Pending}})
		if err != nil || len(list) != n {
			t.Errorf("%d jobs wait, %v; want %d", len(list), err, n)
		}
		h.host.connect("n2")
		time.Sleep(2 * time.Minute)
		list, err = h.loop.Jobs(t.Context(), job.Query{States: []job.State{job.Running}})
		if err != nil || len(list) != n || list[0].Tasks[0].NodeName != "n2" || list[0].Tasks[0].Attempt != 2 {
			t.Errorf("%d jobs run elsewhere, %v; want %d", len(list), err, n)
		}
	})
}

// A host that returns with a new data directory knows nothing of its earlier tasks. These can be declared dead, and
// only these.
func TestDeclareDeadWritesOffAttemptsOfAnEarlierStore(t *testing.T) {
	withLoop(t, nil, func(t *testing.T, h loopRig) {
		h.host.runs = 24 * time.Hour
		h.host.connect("n1")
		submit := func(key string) {
			r := request(key)
			r.Spec.Partition = job.PartitionHold
			if _, err := h.loop.Submit(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		submit("before")
		h.loop.SessionDown("n1")
		h.host.store = "new"
		h.host.connect("n1")
		time.Sleep(time.Minute)
		submit("after")
		if _, err := h.loop.DeclareDead(t.Context(), "n1", "another", "root"); !errors.Is(err, step.ErrConflict) {
			t.Errorf("with a store that it does not have: %v, want ErrConflict", err)
		}
		if given, err := h.loop.DeclareDead(t.Context(), "n1", h.host.store, "root"); given != 1 || err != nil {
			t.Errorf("DeclareDead = %d, %v, want 1", given, err)
		}
		time.Sleep(2 * time.Minute)
		list, err := h.loop.Jobs(t.Context(), job.Query{States: []job.State{job.Running}})
		if err != nil || len(list) != 2 {
			t.Fatalf("%d jobs run, %v, want no error and 2", len(list), err)
		}
		if a, b := list[0].Tasks[0].Attempt, list[1].Tasks[0].Attempt; a != 1 || b != 2 {
			t.Errorf("attempts %d and %d, want 1 of the newest job and 2 of the one before", a, b)
		}
	})
}
