package loop

import (
	"errors"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/step"
)

func distant(n int) job.ID { return job.NewID(8, uint64(n)) }

// A follower gets the state of each job, then each change, for jobs in memory and on disk, until this daemon is no
// longer the owner.
func TestFollowerGetsEachChange(t *testing.T) {
	withLoop(t, nil, func(t *testing.T, h loopRig) {
		h.host.connect("here")
		var ids []job.ID
		for _, array := range []string{"", "3-4", "", "", ""} { // two of the ended ones stay in memory
			r := request("j")
			r.Spec.Array = array
			j, err := h.loop.Submit(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, j.ID)
			time.Sleep(time.Minute)
		}
		running, err := h.loop.Submit(t.Context(), request("r"))
		if err != nil {
			t.Fatal(err)
		}
		nobody := job.NewID(7, 12345)
		var got []job.Progress
		enough := errors.New("enough")
		err = h.loop.Follow(t.Context(), []job.Follow{{Job: ids[1], Tasks: true}, {Job: ids[4]}, {Job: nobody}, {Job: running.ID}}, func(p job.Progress) error {
			if got = append(got, p); p.Job == running.ID && p.State == job.Succeeded {
				return enough
			}
			return nil
		})
		if !errors.Is(err, enough) {
			t.Fatalf("Follow = %v after %+v, want enough", err, got)
		}
		if x := got[0]; x.Job != ids[1] || x.State != job.Succeeded || !x.Started || x.Ago < 3*time.Minute || !reflect.DeepEqual(x.Tasks.Succeeded, []job.Range{{First: 3, Last: 4}}) {
			t.Errorf("an archived array: %+v, want the job that succeeded more than 3 minutes ago, with the tasks 3 and 4", x)
		}
		if x := got[1]; x.Job != ids[4] || x.State != job.Succeeded || x.Tasks.Len() != 0 {
			t.Errorf("a job: %+v, want Job %v, State %v and Tasks.Len() 0", x, ids[4], job.Succeeded)
		}
		if x := got[2]; x.Job != nobody || x.State != "" || x.Started {
			t.Errorf("no job: %+v, want no state", x)
		}
		if len(got) < 5 || got[3].State.Ended() {
			t.Errorf("a job that runs: %+v, want a job that has not ended", got[3:])
		}

		over := make(chan error, 1)
		go func() {
			over <- h.loop.Follow(t.Context(), []job.Follow{{Job: ids[0]}}, func(job.Progress) error { return nil })
		}()
		synctest.Wait()
		h.loop.Deposed(job.Epoch{Term: 1})
		if err := <-over; !errors.Is(err, step.ErrNotOwner) {
			t.Errorf("after the ownership: %v, want ErrNotOwner", err)
		}
		if err := h.loop.Follow(t.Context(), []job.Follow{{Job: ids[0]}}, nil); !errors.Is(err, step.ErrNotOwner) {
			t.Errorf("without the ownership: %v, want ErrNotOwner", err)
		}
		synctest.Wait()
		if fs := &h.loop.execute.followers; fs.n != 0 || len(fs.of) != 0 {
			t.Errorf("%d followers are kept, want none", fs.n)
		}
	})
}

// A follower that has gone is forgotten, and the number of followers is bounded.
func TestFollowersAreBounded(t *testing.T) {
	var fs followers
	var all []*follower
	for range maxFollowers {
		f := newFollower([]job.Follow{{Job: distant(1)}, {Job: distant(2), Tasks: true}})
		if err := fs.add(f); err != nil {
			t.Fatal(err)
		}
		all = append(all, f)
	}
	if err := fs.add(newFollower([]job.Follow{{Job: distant(3)}})); !errors.Is(err, step.ErrBusy) {
		t.Errorf("one more: %v, want ErrBusy", err)
	}
	all[0].take()
	fs.publish([]job.ID{distant(2), distant(2), distant(3)}, []job.ID{distant(1)})
	if ids, _ := all[0].take(); !slices.Equal(ids, []job.ID{distant(2), distant(1)}) {
		t.Errorf("it is told of %v, want %v", ids, []job.ID{distant(2), distant(1)})
	}
	for _, f := range all {
		fs.remove(f)
		fs.remove(f)
	}
	if fs.n != 0 || len(fs.of) != 0 || fs.jobs != 0 {
		t.Errorf("%d followers of %d jobs are left, want none", fs.n, len(fs.of))
	}
	many := make([]job.Follow, MaxFollowed)
	for i := range many {
		many[i].Job = distant(i)
	}
	n := 0
	for ; fs.add(newFollower(many)) == nil; n++ {
	}
	if n != maxAllFollowed/MaxFollowed {
		t.Errorf("%d followers of %d jobs each are taken, want %v", n, MaxFollowed, maxAllFollowed/MaxFollowed)
	}
}
