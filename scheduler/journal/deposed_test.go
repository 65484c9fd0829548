package journal

// Proposals and owners when another voter takes over the group.

import (
	"errors"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler"
	"github.com/musterhq/muster/scheduler/step"
)

// settleTime is enough for an election, or for a voter to catch up.
const settleTime = 20 * time.Second

// heard returns the calls of the owner other than deliveries.
func (r *recordingJournal) heard() (refused []refusal, deposed []job.Epoch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.refused), slices.Clone(r.deposed)
}

// lastRefusal checks that the newest refusal is of one record, for one reason.
func (r *recordingJournal) lastRefusal(t *testing.T, want job.Record, why error) {
	t.Helper()
	refused, _ := r.heard()
	if len(refused) == 0 {
		t.Fatalf("no answer, want %v", why)
	}
	last := refused[len(refused)-1]
	if !errors.Is(last.err, why) || !reflect.DeepEqual(last.records, []job.Record{want}) {
		t.Errorf("NotProposed(%+v, %v), want %v", last.records, last.err, why)
	}
}

func propose(t *testing.T, j interface{ Propose(...job.Record) error }, r job.Record) {
	t.Helper()
	if err := j.Propose(r); err != nil {
		t.Fatal(err)
	}
}

// elected returns the leading one of three voters, and one of the other two.
func elected(t *testing.T, w *wires) (voters [3]*recordingJournal, first, other *recordingJournal, epoch job.Epoch) {
	t.Helper()
	voters = three(t, w)
	time.Sleep(settleTime)
	if first, epoch = owner(voters); first == nil {
		t.Fatal("nobody leads, want a leader")
	}
	for _, v := range voters {
		if v != first {
			other = v
		}
	}
	return voters, first, other, epoch
}

func TestProposalsAreNotForwarded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		voters, _, other, _ := elected(t, newWires())
		propose(t, other, submit(1, 1))
		time.Sleep(time.Second)
		other.lastRefusal(t, submit(1, 1), ErrNotOwner)
		for _, v := range voters {
			if ids := v.ids(); len(ids) != 0 {
				t.Errorf("delivered %v, want none", ids)
			}
		}
	})
}

func TestDroppedProposalIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWires()
		_, first, other, _ := elected(t, w)
		// While leadership moves to a voter that cannot be reached, Raft drops proposals.
		w.set(other.id, true)
		if err := first.Step(&raftpb.Message{Type: new(raftpb.MsgTransferLeader), From: new(other.id), To: new(first.id)}); err != nil {
			t.Fatal(err)
		}
		propose(t, first, submit(1, 1))
		synctest.Wait()
		first.lastRefusal(t, submit(1, 1), ErrDropped)
		if _, deposed := first.heard(); len(deposed) != 0 {
			t.Errorf("deposed in %v, want none", deposed)
		}
		// The transfer is abandoned, and the journal continues.
		time.Sleep(settleTime)
		propose(t, first, submit(1, 2))
		time.Sleep(time.Second)
		if ids := first.ids(); !slices.Equal(ids, []job.ID{job.NewID(1, 2)}) {
			t.Errorf("delivered %v, want %v", ids, []job.ID{job.NewID(1, 2)})
		}
	})
}

func TestDeposedOwnerIsNotified(t *testing.T) {
	for name, replicated := range map[string]bool{"lost": false, "committed by the new owner": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWires()
				voters, first, _, epoch := elected(t, w)
				propose(t, first, submit(1, 1))
				time.Sleep(time.Second)

				// The owner's next entry is not acknowledged, so it cannot know whether it will be committed.
				if replicated {
					w.deafen(first.id, true)
				} else {
					w.set(first.id, true)
				}
				propose(t, first, submit(1, 2))
				time.Sleep(time.Second)
				w.set(first.id, true)
				time.Sleep(settleTime)
				if _, deposed := first.heard(); !slices.Equal(deposed, []job.Epoch{epoch}) {
					t.Fatalf("deposed in %v, want %s", deposed, epoch)
				}
				first.lastRefusal(t, submit(1, 2), ErrUncertain)
				propose(t, first, submit(1, 3))
				time.Sleep(time.Second)
				first.lastRefusal(t, submit(1, 3), ErrNotOwner)
				second, later := owner(voters)
				if second == first || !epoch.Less(later) {
					t.Fatalf("the epoch after %s is %s, want a later one of another voter", epoch, later)
				}

				propose(t, second, submit(1, 4))
				w.deafen(first.id, false)
				w.set(first.id, false)
				time.Sleep(settleTime)
				want := []job.ID{job.NewID(1, 1), job.NewID(1, 4)}
				if replicated {
					want = slices.Insert(want, 1, job.NewID(1, 2))
				}
				for _, v := range voters {
					if ids := v.ids(); !slices.Equal(ids, want) {
						t.Errorf("delivered %v, want %v", ids, want)
					}
				}
				for _, c := range first.delivered() {
					for _, r := range c.Records {
						if s, ok := r.(job.SubmitRecord); ok && s.Job == job.NewID(1, 2) && c.Epoch != epoch {
							t.Errorf("an entry of %s was delivered under %s", epoch, c.Epoch)
						}
					}
				}
			})
		})
	}
}

// driven is a scheduler core that uses the journal of a voter.
type driven struct {
	journal *Journal
	unaware bool // it does not learn that its ownership has ended

	mu   sync.Mutex
	core *scheduler.Core // guarded by mu
	done acts            // guarded by mu
}

// acts are the effects that a core has returned.
type acts struct {
	proposed []job.Record
	sent     []contract.ToWorker
	replies  []step.Reply
}

func (d *driven) all() acts {
	d.mu.Lock()
	defer d.mu.Unlock()
	return acts{slices.Clone(d.done.proposed), slices.Clone(d.done.sent), slices.Clone(d.done.replies)}
}

func (d *driven) step(events ...step.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	fx := d.core.Step(time.Now(), events...)
	d.done.proposed = append(d.done.proposed, fx.Propose...)
	for _, r := range fx.Propose {
		_ = d.journal.Propose(r)
	}
	for _, o := range fx.Send {
		d.done.sent = append(d.done.sent, o.Msg)
	}
	d.done.replies = append(d.done.replies, fx.Reply...)
}

func (d *driven) Deliver(c job.Committed) { d.step(step.Committed{Committed: c}) }

func (d *driven) NotProposed(records []job.Record, err error) {
	if !d.unaware {
		d.step(step.NotProposed{Records: records, Err: err})
	}
}

func (d *driven) Deposed(epoch job.Epoch) {
	if !d.unaware {
		d.step(step.Deposed{Epoch: epoch})
	}
}

// sentOf returns the messages of one type that the core has sent.
func sentOf[M contract.ToWorker](d *driven) (found []M) {
	for _, m := range d.all().sent {
		if m, ok := m.(M); ok {
			found = append(found, m)
		}
	}
	return found
}

// drive connects a core with a voter, and gives it the entries that were delivered so far.
func drive(v *recordingJournal, unaware bool) *driven {
	cfg := step.DefaultConfig()
	cfg.Self, cfg.Group, cfg.Seed = "owner", 1, 1
	d := &driven{journal: v.Journal, core: scheduler.NewCore(cfg, scheduler.Saved{}, time.Now()), unaware: unaware}
	for _, c := range v.delivered() {
		d.Deliver(c)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.next = d
	return d
}

// A deposed owner must not act on an Assign record of a new owner. The new owner may have written off that attempt and
// started the task elsewhere.
func TestDeposedOwnerStartsNothing(t *testing.T) {
	for name, unaware := range map[string]bool{"it was told": false, "it does not know yet": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWires()
				voters, first, _, _ := elected(t, w)
				d := drive(first, unaware)
				spec := submit(1, 1).Spec
				profile := contract.Profile{Peer: "w", Name: "w", Store: "s", CPUs: 1, Drivers: []string{contract.DriverExec}, Worker: true}
				d.step(step.SessionUp{Peer: "w"}, step.FromWorker{Peer: "w", Msg: contract.Hello{Profile: profile}}) // the host is full
				d.step(step.Submit{Token: 1, Submission: job.Submission{User: "amy", Spec: spec}})
				time.Sleep(time.Second)
				offers := sentOf[contract.Offer](d)
				if len(offers) != 1 {
					t.Fatalf("sent %+v, want one offer", d.all().sent)
				}

				// The owner is disconnected, and another voter leads. Then the host commits. An owner that does not
				// know that it is deposed proposes an Assign.
				w.set(first.id, true)
				time.Sleep(settleTime)
				second, _ := owner(voters)
				if second == first {
					t.Fatal("no other voter leads, want a leader other than the first")
				}
				assign := job.AssignRecord{Attempt: offers[0].Attempt, Node: "w", NodeName: "w", Store: "s"}
				d.step(step.FromWorker{Peer: "w", Msg: contract.Commit{
					Offer: offers[0].ID, Attempt: offers[0].Attempt, Group: 1, Session: 5,
				}})
				proposes := slices.ContainsFunc(d.all().proposed, func(r job.Record) bool {
					x, ok := r.(job.AssignRecord)
					x.At = assign.At // it has the time of this daemon
					return ok && x == assign
				})
				if all := d.all(); proposes != unaware {
					t.Errorf("proposed %+v, want an Assign only of an owner that does not know", all.proposed)
				}

				// The new owner commits the same Assign.
				propose(t, second, assign)
				w.set(first.id, false)
				time.Sleep(3 * time.Second)
				got := first.delivered()
				if last := got[len(got)-1].Records; !reflect.DeepEqual(last, []job.Record{assign}) {
					t.Fatalf("the last entry holds %+v, want %v", last, []job.Record{assign})
				}
				if starts := sentOf[contract.Start](d); len(starts) != 0 {
					t.Errorf("a deposed owner sent %+v, want none", starts)
				}
				if released := sentOf[contract.Release](d); len(released) == 0 {
					t.Error("the offer was not withdrawn, want a Release")
				}
			})
		})
	}
}

func TestRequestsOfADeposedOwnerAreAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWires()
		_, first, _, _ := elected(t, w)
		d := drive(first, false)
		held := submit(1, 1).Spec
		held.Hold = true
		w.set(first.id, true)
		d.step(step.Submit{Token: 1, Submission: job.Submission{User: "amy", Spec: held}})
		time.Sleep(settleTime)
		d.step(step.Submit{Token: 2, Submission: job.Submission{User: "amy", Spec: held}})
		got := d.all().replies
		if len(got) != 2 || !errors.Is(got[0].Err, step.ErrNotOwner) || !errors.Is(got[1].Err, step.ErrNotOwner) {
			t.Errorf("replies %+v, want 2 of them, [0].Err scheduler.ErrNotOwner and [1].Err scheduler.ErrNotOwner", got)
		}
		if refused, _ := first.heard(); len(refused) != 1 || !errors.Is(refused[0].err, ErrUncertain) {
			t.Errorf("refused %+v, want 1 of them and [0].err ErrUncertain", refused)
		}
	})
}
