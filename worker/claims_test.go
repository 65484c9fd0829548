package worker_test

// Whose commands count for a journal group.

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker"
	"github.com/musterhq/muster/worker/driver"
)

const mallory job.Peer = "mallory"

// amysGroup is a group that amy has founded with a number drawn at random. It is made once, because that takes some time.
var amysFounding, amysGroup = job.Found(amy)

// commands returns one message of each kind about a group, under an epoch.
func commands(g job.Group, e contract.Epoch, a job.Attempt) []contract.ToWorker {
	return []contract.ToWorker{
		contract.Owns{Groups: []contract.GroupEpoch{{Group: g, Epoch: e}}},
		contract.Offer{ID: 77, Attempt: job.Attempt{Job: a.Job, Task: a.Task, N: a.N + 1}, Group: g, Epoch: e, Need: cpu, User: "ada"},
		contract.Start{Offer: 1, Attempt: a, Group: g, Epoch: e, User: "ada", File: file(spec(cpu))},
		contract.Signal{Attempt: a, Group: g, Epoch: e, Number: 9},
		contract.Cancel{Attempt: a, Group: g, Epoch: e},
		contract.Query{Attempt: job.Attempt{Job: a.Job, N: 9}, Group: g, Epoch: e, Store: store},
		contract.Release{Offer: 1},
		contract.Ack{Attempt: a, Group: g, Epoch: e, N: 4},
		contract.Ack{Attempt: a, N: 4},
		contract.Renewed{Group: g, Epoch: e, Verdicts: []contract.Verdict{{Attempt: a}}},
	}
}

// owned is a host on which a task of amy's group runs.
func owned(t *testing.T, g job.Group, f job.Founding) (*host, job.Attempt) {
	h := newHost(t, config(0))
	a := job.Attempt{Job: job.NewID(g, 1), N: 1}
	h.round(worker.Up{Peer: amy})
	h.says(amy, contract.Owns{Groups: []contract.GroupEpoch{{Group: g, Epoch: epoch(3), Founding: f}}})
	s := h.answer(amy, 3)
	m := offer(1, a, cpu)
	m.Group, m.Epoch = g, epoch(3)
	h.says(amy, m)
	st := start(1, a, s, cpu)
	st.Group, st.Epoch = g, epoch(3)
	h.says(amy, st)
	h.round(driver.Event{Attempt: a, Kind: driver.Started, PID: 42})
	clear(h.sent)
	return h, a
}

// A member that knows a group, its epoch and its attempts can command nothing and does not disturb the owner, even over
// restarts of the host.
func TestOnlyTheOwnerCommands(t *testing.T) {
	other, _ := job.Found(mallory)
	for name, g := range map[string]struct {
		group    job.Group
		founding job.Founding
	}{"proven": {amysGroup, amysFounding}, "proven by the harness": {group, job.Founding{}}} {
		for _, e := range []contract.Epoch{epoch(1), epoch(3), epoch(4), {Generation: math.MaxUint64, Term: math.MaxUint64}} {
			t.Run(fmt.Sprint(name, " ", e), func(t *testing.T) {
				h, a := owned(t, g.group, g.founding)
				h.round(worker.Up{Peer: mallory})
				clear(h.sent)
				before := len(h.records)
				claims := []contract.ToWorker{
					contract.Owns{Groups: []contract.GroupEpoch{{Group: g.group, Epoch: e, Founding: g.founding}}},
					contract.Owns{Groups: []contract.GroupEpoch{{Group: g.group, Epoch: e, Founding: other}}},
				}
				for range 2 {
					for _, m := range append(claims, commands(g.group, e, a)...) {
						done := h.says(mallory, m)
						if len(done.Start)+len(done.Stop)+len(done.Signal)+len(done.Extend)+len(done.Forget)+len(h.records)-before != 0 {
							t.Fatalf("%T of mallory was obeyed: %+v", m, done)
						}
					}
					if n := len(h.sent[mallory]); n > 0 {
						t.Fatalf("mallory was told %+v, want nothing", h.sent[mallory])
					}
					if c := h.claims[g.group]; c != (contract.Claim{Group: g.group, Epoch: epoch(3), Owner: amy}) {
						t.Fatalf("claim = %+v, want %v", c, (contract.Claim{Group: g.group, Epoch: epoch(3), Owner: amy}))
					}
					h.boot(driver.Event{Attempt: a, Kind: driver.Started, PID: 42})
					h.round(worker.Up{Peer: mallory})
					clear(h.sent)
				}
				h.round(worker.Up{Peer: amy})
				done := h.says(amy, contract.Owns{Groups: []contract.GroupEpoch{{Group: g.group, Epoch: epoch(4), Founding: g.founding}}}, contract.Cancel{Attempt: a, Group: g.group, Epoch: epoch(4)})
				if len(done.Stop) != 1 {
					t.Fatalf("the owner is not obeyed: %+v, want 1 Stop", done)
				}
			})
		}
	}
}

// A group with a founder cannot be claimed by others, not even before its founder has come. A false claim in the ledger
// of an earlier version is corrected when the founder comes.
func TestFounderKeepsItsGroup(t *testing.T) {
	last := contract.Epoch{Generation: math.MaxUint64, Term: math.MaxUint64}
	h := newHost(t, config(0))
	h.claims[amysGroup] = contract.Claim{Group: amysGroup, Epoch: last}
	h.boot()
	h.round(worker.Up{Peer: mallory}, worker.Up{Peer: amy})
	clear(h.sent)
	h.says(mallory, commands(amysGroup, last, job.Attempt{Job: job.NewID(amysGroup, 1), N: 1})...)
	if len(h.sent[mallory])+len(h.records) > 0 || h.claims[amysGroup].Owner != "" {
		t.Fatalf("mallory claimed the group: %+v, told %+v", h.claims, h.sent[mallory])
	}
	h.says(amy, contract.Owns{Groups: []contract.GroupEpoch{{Group: amysGroup, Epoch: epoch(3), Founding: amysFounding}}})
	if c := h.claims[amysGroup]; c != (contract.Claim{Group: amysGroup, Epoch: epoch(3), Owner: amy}) {
		t.Fatalf("claim = %+v, want %v", c, (contract.Claim{Group: amysGroup, Epoch: epoch(3), Owner: amy}))
	}
	if r := one[contract.Renew](h, amy); r.Group != amysGroup {
		t.Fatalf("renew = %+v, want Group %v", r, amysGroup)
	}
	// If amy was restored from a backup, an operator can have the host forget the epoch. She stays the owner.
	h.round(worker.ForgetClaim{Group: amysGroup})
	h.says(mallory, contract.Owns{Groups: []contract.GroupEpoch{{Group: amysGroup, Epoch: last}}})
	h.says(amy, contract.Owns{Groups: []contract.GroupEpoch{{Group: amysGroup, Epoch: epoch(1)}}})
	if c := h.claims[amysGroup]; c != (contract.Claim{Group: amysGroup, Epoch: epoch(1), Owner: amy}) {
		t.Fatalf("after it was forgotten: claim = %+v, want %v", c, (contract.Claim{Group: amysGroup, Epoch: epoch(1), Owner: amy}))
	}
}

// A group without a proof has no owner, even if attempts of its owner run here and the ledger names no owner. The ID of
// a group of the version before needs the proof of that version, which proves no other ID.
func TestGroupWithoutAProofHasNoOwner(t *testing.T) {
	before, f := job.Group(0), job.Founding{1}
	for ; before == 0 || !before.OfVersionBefore(); before = f.Group(amy) {
		for i := len(f) - 1; ; i-- {
			if f[i]++; f[i] != 0 {
				break
			}
		}
	}
	short := job.Founding{2} // 64 bits of its digest are those of the ID
	for _, c := range []struct {
		name     string
		group    job.Group
		founding job.Founding
		counts   bool
	}{
		{"drawn", 7, job.Founding{}, false},
		{"64 bits", short.Group(amy), short, false},
		{"of the version before", before, f, true},
		{"of the version before, no proof", before, job.Founding{}, false},
		{"all bits", amysGroup, amysFounding, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHost(t, config(0))
			h.claims[c.group] = contract.Claim{Group: c.group, Epoch: epoch(math.MaxUint64)}
			a := job.Attempt{Job: job.NewID(c.group, 1), N: 1}
			h.records[a] = contract.Record{Attempt: a, Group: c.group, Epoch: epoch(1), Owner: amy, Phase: contract.PhaseRefused}
			h.boot()
			h.round(worker.Up{Peer: amy})
			h.says(amy, contract.Owns{Groups: []contract.GroupEpoch{{Group: c.group, Epoch: epoch(2), Founding: c.founding}}})
			if owner := h.claims[c.group].Owner; (owner == amy) != c.counts {
				t.Errorf("the owner is %q, want amy only with a valid proof", owner)
			}
		})
	}
}

// One member claims as many groups as it can, for days. It fills only its own places, and those expire.
func TestClaimsOfOneMemberAreBounded(t *testing.T) {
	h := newHost(t, config(0))
	h.round(worker.Up{Peer: mallory})
	var claims []contract.Owns
	for i := range 20 {
		f, g := job.FoundFrom(mallory, job.Founding{byte(i)})
		claims = append(claims, contract.Owns{Groups: []contract.GroupEpoch{{Group: g, Epoch: epoch(1), Founding: f}}})
	}
	for n := range 40_000 {
		h.says(mallory, claims[n%len(claims)])
		clear(h.sent)
		if n%1000 == 0 {
			h.pass(2 * time.Hour)
		}
	}
	if n := len(h.claims); n != 16 {
		t.Errorf("mallory has %d groups here, want 16", n)
	}
	h.round(worker.Up{Peer: amy})
	h.says(amy, contract.Owns{Groups: []contract.GroupEpoch{{Group: amysGroup, Epoch: epoch(1), Founding: amysFounding}}})
	if h.claims[amysGroup].Owner != amy {
		t.Fatal("amy is not the owner of her group")
	}
	h.round(worker.Down{Peer: mallory})
	h.pass(26 * time.Hour)
	if len(h.claims) != 1 || worker.Sizes(h.core)["leases.claims.by"] != 1 {
		t.Errorf(`after a day: %d claims, %v, want 1 and ["leases.claims.by"] 1`, len(h.claims), worker.Sizes(h.core))
	}
}
