package worker_test

// Acknowledgements delete results, so only those of the owner count.

import (
	"slices"
	"testing"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker"
)

func TestOnlyTheOwnerAcknowledges(t *testing.T) {
	a := attempt(1, 1)
	for name, c := range map[string]struct {
		from job.Peer
		ack  contract.Ack
		gone bool
	}{
		"the owner's":             {amy, contract.Ack{Attempt: a, Group: group, Epoch: epoch(3), N: 4}, true},
		"an older daemon's":       {amy, contract.Ack{Attempt: a, N: 4}, true},
		"another member's":        {bob, contract.Ack{Attempt: a, Group: group, Epoch: epoch(3), N: 4}, false},
		"of another, no group":    {bob, contract.Ack{Attempt: a, N: 4}, false},
		"of another, newer epoch": {bob, contract.Ack{Attempt: a, Group: group, Epoch: epoch(4), N: 4}, false},
		"of another group":        {amy, contract.Ack{Attempt: a, Group: 8, Epoch: epoch(3), N: 4}, false},
		"of an older epoch":       {amy, contract.Ack{Attempt: a, Group: group, Epoch: epoch(2), N: 4}, false},
		"of an older epoch, from": {bob, contract.Ack{Attempt: a, Group: group, Epoch: epoch(2), N: 4}, false},
		"of less":                 {amy, contract.Ack{Attempt: a, Group: group, Epoch: epoch(3), N: 3}, false},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, config(1))
			s := h.meet(amy, 1)
			h.run(amy, 1, a, s, gpus(1))
			h.round(worker.Up{Peer: bob})
			h.meet(amy, 3)
			h.round(exited(a, 0))
			e := h.says(c.from, c.ack)
			_, kept := h.records[a]
			if kept == c.gone || slices.Contains(e.Forget, a) != c.gone {
				t.Fatalf("kept %v, forgotten %v, want the record gone only after a valid acknowledgement", kept, e.Forget)
			}
			stale := got[contract.Stale](h, c.from)
			if want := c.ack.Epoch == epoch(2) && c.from == amy; (len(stale) == 1) != want {
				t.Fatalf("stale = %+v, want one only for an old epoch of the owner", stale)
			}
			if h.claims[group].Epoch != epoch(3) {
				t.Fatalf("epoch = %v, want Epoch %v", h.claims[group], epoch(3))
			}
		})
	}
}

// After a restart the worker knows the owner from its records. While it does not know the owner, no acknowledgement
// counts.
func TestOwnerAcknowledgesAfterARestart(t *testing.T) {
	for name, term := range map[string]uint64{"the same owner": 1, "elected again": 2} {
		t.Run(name, func(t *testing.T) {
			a := attempt(1, 1)
			h := newHost(t, config(1))
			s := h.meet(amy, 1)
			h.run(amy, 1, a, s, gpus(1))
			h.round(exited(a, 0))
			h.meet(amy, term)
			h.boot()
			h.round(worker.Up{Peer: bob}, worker.Up{Peer: amy})
			h.says(bob, contract.Ack{Attempt: a, N: 4})
			if _, kept := h.records[a]; !kept {
				t.Fatal("the acknowledgement of another member counted, want the record kept")
			}
			h.says(amy, contract.Owns{Groups: []contract.GroupEpoch{{Group: group, Epoch: epoch(term)}}}, contract.Ack{Attempt: a, Group: group, Epoch: epoch(term), N: 4})
			h.says(amy, contract.Ack{Attempt: a, Group: group, Epoch: epoch(term), N: 4})
			if _, kept := h.records[a]; kept {
				t.Fatal("the record is kept after the owner's acknowledgement")
			}
		})
	}
}
