package journal

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/musterhq/muster/internal/store/storetest"
	"github.com/musterhq/muster/job"
)

// An owner that learns of a higher epoch leads again with one beyond it, both at once and after a restart. No record is
// lost.
func TestOwnerLeadsAgainBeyondAHigherEpoch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := storetest.Disk()
		s := open(t, fs)
		g := s.Group()
		r := run(t, s, DefaultConfig())
		synctest.Wait()
		propose(t, r, submit(g, 1))
		synctest.Wait()
		first := r.delivered()[0].Epoch
		if first.Term != 2 {
			t.Fatalf("it leads with %s, want Term 2", first)
		}
		for _, e := range []job.Epoch{{Generation: 1, Term: 1}, {Generation: 2, Term: 9}, {Generation: 1, Term: 1 << 63}} {
			r.Raise(e)
			synctest.Wait()
			if _, deposed := r.heard(); len(deposed) != 0 {
				t.Fatalf("deposed because of %s, want the owner to stay", e)
			}
		}
		r.Raise(job.Epoch{Generation: 1, Term: 7})
		r.Raise(job.Epoch{Generation: 1, Term: 5})
		propose(t, r, submit(g, 2))
		synctest.Wait()
		refused, deposed := r.heard()
		if len(deposed) != 1 || deposed[0] != first || len(refused) != 0 {
			t.Fatalf("deposed %v, refused %v, want 1 of them, [0] %v and none", deposed, refused, first)
		}
		got := r.delivered()
		lead := got[2]
		if !lead.Lead || lead.Epoch != (job.Epoch{Generation: 1, Term: 8}) || len(got) != 4 || got[3].Epoch != lead.Epoch {
			t.Fatalf("delivered %+v, want a Lead of term 8, and 4 in all with that epoch", got)
		}
		told := make(chan job.Epoch, 1)
		r.ReadIndex(func(e job.Epoch, err error) {
			if err != nil {
				t.Error(err)
			}
			told <- e
		})
		if e := <-told; e != lead.Epoch {
			t.Errorf("it owns the group in %s, want %v", e, lead.Epoch)
		}
		r.halt(t)
		closeStore(t, s)
		s = open(t, fs)
		r = run(t, s, DefaultConfig())
		synctest.Wait()
		if ids := r.ids(); len(ids) != 2 {
			t.Errorf("after a restart it has %v, want 2 of them", ids)
		}
		if all := r.delivered(); all[len(all)-1].Epoch.Term != 9 {
			t.Errorf("after a restart it leads with %s, want Term 9", all[len(all)-1].Epoch)
		}
		r.halt(t)
		closeStore(t, s)
	})
}

// Of several voters the leading one steps down, and the next elected one has a higher epoch.
func TestRaiseElectsAVoterWithAHigherEpoch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		voters, first, _, epoch := elected(t, newWires())
		first.Raise(job.Epoch{Generation: epoch.Generation, Term: epoch.Term + 10})
		time.Sleep(settleTime)
		if next, now := owner(voters); next == nil || now.Term <= epoch.Term+10 {
			t.Errorf("after %s it is %s, want more than 10 terms later", epoch, now)
		}
	})
}
