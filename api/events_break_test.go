package api

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/musterhq/muster/api/view"
	"github.com/musterhq/muster/job"
)

// Each change while the feed of a member was broken is an event once it is back, exactly once: a new job, one that
// began and ended meanwhile, one that ended, one that was deleted. What did not change is none. It makes no difference
// whether another reader has the member's feed meanwhile.
func TestChangesDuringABreakAreEventsOnce(t *testing.T) {
	for _, read := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, "amy", "ben")
			amy, ben := c.daemons[0], c.daemons[1]
			_, ends, goes := ben.put(ben.newJob(1)), ben.put(running(ben.newJob(2), ben)), ben.put(ben.newJob(3))
			amy.makePicture(t)
			if read {
				_, leave := ben.server.feeds.read(t.Context())
				defer leave()
				sleep(t.Context(), time.Second)
			}
			ben.put(running(ben.newJob(4), ben)) // after the feed has reported everything
			sleep(t.Context(), time.Second)
			all := amy.collectEvents(t, "kind=job,gone", "", 4*relist, func() {
				ben.back.cut()
				ben.put(ended(ends, job.Exit{State: job.Succeeded}))
				ben.put(ben.newJob(5))
				ben.put(ended(running(ben.newJob(6), ben), job.Exit{State: job.Failed, Code: 1}))
				ben.mu.Lock()
				delete(ben.jobs, goes.ID)
				ben.mu.Unlock()
			})
			var got []string
			for _, e := range all {
				switch e.Kind { //nolint:exhaustive // the stream has only these
				case EventJob:
					got = append(got, fmt.Sprintf("%s %s", e.ID, e.Job.State))
				case EventGone:
					got = append(got, fmt.Sprintf("%s gone", e.ID))
				}
			}
			slices.Sort(got)
			want := []string{
				string(ends.ID) + " SUCCEEDED", string(goes.ID) + " gone", fmt.Sprintf("%s PENDING", job.NewID(ben.group, 5)), fmt.Sprintf("%s FAILED", job.NewID(ben.group, 6)),
			}
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("read by another: %t: got %v, want %v", read, got, want)
			}
		})
	}
}

// A feed that is sent from the beginning again has jobs that the picture does not have. One that is too old to be kept
// is no event each time, and one that is only too old to be sent is not reported as deleted.
func TestRestartedFeedReportsUnknownJobsOnly(t *testing.T) {
	w := newView(&daemons{self: "me"}, nil, nil, feedHello{})
	m := &viewMember{Member: Member{Peer: "ben"}, shelf: view.NewShelf(), sight: &seen{}, sync: map[job.ID]bool{}}
	w.members["ben"] = m
	of := func(n int) *feedLine {
		return &feedLine{Job: &Job{ID: job.NewID(7, uint64(n)), State: job.Pending, SubmittedAt: time.Unix(int64(n), 0), Tasks: []Task{}}}
	}
	tell := func(lines ...*feedLine) (kinds []string) {
		from := w.ring.Last()
		for _, l := range lines {
			w.apply(m, l)
		}
		events, _, _ := w.ring.After(from, 100)
		for _, e := range events {
			kinds = append(kinds, fmt.Sprintf("%s %s", e.kind, e.job))
		}
		return kinds
	}
	old := &feedLine{Totals: &feedTotals{Open: cursorOf(job.Position{Submitted: time.Unix(2, 0), ID: job.NewID(7, 2)})}}
	synced, anew := &feedLine{Synced: true}, &feedLine{Anew: true}
	for i, step := range []struct {
		lines []*feedLine
		want  []string
	}{
		{[]*feedLine{of(1), of(3), of(4), of(5), synced}, []string{"open "}}, // a viewer loads the present state
		{[]*feedLine{anew, of(1), of(3), of(4), of(5), of(6), synced}, []string{"job " + string(job.NewID(7, 6))}},
		{[]*feedLine{anew, of(1), of(3), of(4), of(5), of(6), synced}, nil},
		{[]*feedLine{anew, old, of(3), of(4), of(6), synced}, []string{"gone " + string(job.NewID(7, 5))}}, // 1 is too old
		{[]*feedLine{anew, of(1), of(3), of(4), of(6), synced}, nil},
	} {
		if got := tell(step.lines...); !slices.Equal(got, step.want) {
			t.Errorf("step %d: got %v, want %v", i+1, got, step.want)
		}
	}
}
