package api

import (
	"encoding/json"
	"fmt"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/musterhq/muster/job"
)

// The times of a job are those of its owner's clock. A job says by how much that clock is ahead of the clock of the
// daemon that was asked, and that daemon's clock decides which jobs were submitted since some time.
func TestJobsOfAnOwnerWithAWrongClockAreInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben")
		amy, ben := c.daemons[0], c.daemons[1]
		c.fast = map[job.Peer]time.Duration{ben.peer: time.Hour}
		submitted := func(d *daemon, n uint64, ago time.Duration) job.ID {
			j := d.newJob(n)
			j.Submitted = time.Now().Add(c.fast[d.peer] - ago)
			return d.put(j).ID
		}
		mine, old := submitted(amy, 1, 45*time.Minute), submitted(amy, 2, 80*time.Minute)
		theirs, older := submitted(ben, 3, 20*time.Minute), submitted(ben, 4, 90*time.Minute) // which is 30 minutes ago by its clock
		listed := func(ago time.Duration, limit int) (ids []job.ID) {
			t.Helper()
			for cursor := ""; ; {
				q := url.Values{"since": {time.Now().Add(-ago).Format(time.RFC3339Nano)}, "limit": {fmt.Sprint(limit)}, "cursor": {cursor}}
				_, _, text := amy.getIfChanged(t, "/v1/jobs?"+q.Encode(), "")
				var l Listing[Job]
				if err := json.Unmarshal([]byte(text), &l); err != nil {
					t.Fatal(err)
				}
				for _, j := range l.Items {
					if want := c.fast[j.Owner]; j.Ahead() != want {
						t.Errorf("%s of %s: got %s ahead, want %s", j.ID, j.OwnerName, j.Ahead(), want)
					}
					ids = append(ids, j.ID)
				}
				if cursor = l.Next; cursor == "" {
					return ids
				}
			}
		}
		check := func(how string) {
			t.Helper()
			for _, x := range []struct {
				ago  time.Duration
				want []job.ID
			}{{2 * time.Hour, []job.ID{theirs, older, mine, old}}, {time.Hour, []job.ID{theirs, mine}}, {30 * time.Minute, []job.ID{theirs}}, {time.Minute, nil}} {
				for _, limit := range []int{1, 2, 10} {
					if got := listed(x.ago, limit); fmt.Sprint(got) != fmt.Sprint(x.want) {
						t.Errorf("%s, since %s, %d a page: got %v, want %v", how, x.ago, limit, got, x.want)
					}
				}
			}
		}
		check("asked")
		amy.makePicture(t)
		check("from the picture")
		for _, x := range []struct {
			asked *daemon
			id    job.ID
			want  time.Duration
		}{{amy, mine, 0}, {amy, theirs, time.Hour}, {ben, theirs, 0}, {ben, mine, -time.Hour}} {
			if j, err := x.asked.client.Job(t.Context(), x.id); err != nil || j.Ahead() != x.want {
				t.Errorf("%s says that the clock of %s is %s ahead, want %s; %v", x.asked.name, x.id, j.Ahead(), x.want, err)
			}
		}
	})
}

// The longest wait does not depend on the clocks of owners.
func TestLongestWaitDoesNotDependOnClocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben")
		amy, ben := c.daemons[0], c.daemons[1]
		c.fast = map[job.Peer]time.Duration{ben.peer: -time.Hour}
		now := time.Now()
		amy.queue, ben.queue = queueOf(now.Add(-10*time.Minute), nil), queueOf(now.Add(-time.Hour-time.Minute), nil)
		check := func(how string) {
			t.Helper()
			if s, err := amy.client.Stats(t.Context()); err != nil || s.Waits == nil || s.Waits.Since == nil || !s.Waits.Since.Equal(now.Add(-10*time.Minute)) {
				t.Errorf("%s: got %+v, %v, want a wait since 10 min", how, s.Waits, err)
			}
		}
		check("asked")
		amy.makePicture(t)
		check("from the picture")
	})
}
