package api

import (
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/musterhq/muster/internal/waittime"
)

// queueOf returns a queue in which jobs have waited for the given times, and one has waited since the given time.
func queueOf(since time.Time, users []UserLoad, waited ...time.Duration) QueueInfo {
	var h waittime.Hour
	for _, d := range waited {
		h.Add(since, d)
	}
	q := QueueInfo{Waited: h.Counts(since), Users: users}
	if !since.IsZero() {
		q.Oldest = &since
	}
	return q
}

func seconds(x *float64) float64 {
	if x == nil {
		return math.NaN()
	}
	return *x
}

// The totals are the sums of the waits and users of all daemons, with and without the picture.
func TestStatsAddUpWaitsAndUsers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben", "cat")
		amy, ben, cat := c.daemons[0], c.daemons[1], c.daemons[2]
		now := time.Now()
		amy.queue = queueOf(now.Add(-time.Minute), []UserLoad{{"ada", 1, 2, 0.5}}, time.Second, 2*time.Second, 3*time.Second)
		ben.queue = queueOf(now.Add(-time.Hour), []UserLoad{{"ada", 1, 0, 8}, {"eve", 0, 9, 0}}, 100*time.Second)
		cat.queue = queueOf(now.Add(-time.Second), nil)
		check := func(how string) {
			t.Helper()
			s, err := amy.client.Stats(t.Context())
			if err != nil || s.Waits == nil {
				t.Fatalf("%s: got %+v, %v, want waits", how, s, err)
			}
			w := s.Waits
			if w.Started != 4 || !(seconds(w.P50) >= 2 && seconds(w.P50) <= 2.2) || !(seconds(w.P95) >= 100 && seconds(w.P95) <= 110) || seconds(w.Longest) != 100 ||
				w.Since == nil || !w.Since.Equal(now.Add(-time.Hour)) || len(w.Partial) != 0 {
				t.Errorf("%s: got %v %v %v %+v, want 4 starts with their quantiles, and a wait of 1 h", how, seconds(w.P50), seconds(w.P95), seconds(w.Longest), w)
			}
			if !slices.Equal(s.Users, []UserLoad{{"ada", 2, 2, 8.5}, {"eve", 0, 9, 0}}) || s.Queue != nil {
				t.Errorf("%s: got users %+v, queue %+v, want the sums of ada and eve", how, s.Users, s.Queue)
			}
		}
		check("asked")
		v := amy.makePicture(t)
		check("from the picture")
		if m := v.members[ben.peer]; m.queue == nil {
			t.Error("the picture has no queue of ben")
		}
		close(ben.silent)
		ben.back.cut()
		sleep(t.Context(), 5*time.Second)
		s, err := amy.client.Stats(t.Context())
		if err != nil || !slices.Equal(s.Partial, []string{"ben"}) || s.Waits == nil || s.Waits.Started != 3 || !slices.Equal(s.Users, []UserLoad{{"ada", 1, 2, 0.5}}) {
			t.Errorf("ben is silent: got %+v, %+v, %v, want the sums without ben", s, s.Waits, err)
		}
	})
}

// Unknown values are null and never 0, and a daemon of an earlier version is named.
func TestStatsOfAnUnknownQueueAreNull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben")
		amy, ben := c.daemons[0], c.daemons[1]
		ben.mu.Lock()
		ben.lies = map[string]any{"/v1/stats": Stats{Schema: SchemaStats, Nodes: map[NodeState]int{NodeReady: 1}}}
		ben.mu.Unlock()
		// The first request asks ben; the second one begins a picture, to which ben sends its queue.
		s, err := amy.client.Stats(t.Context())
		if err != nil || s.Waits == nil || !slices.Equal(s.Waits.Partial, []string{"ben"}) || s.Nodes[NodeReady] != 2 || len(s.Partial) != 0 {
			t.Errorf("got %+v, %+v, %v, want waits without ben", s, s.Waits, err)
		}
		ben.mu.Lock()
		ben.lies = nil
		ben.mu.Unlock()
		_, _, text := amy.raw(t, http.MethodGet, "/v1/stats", "")
		for _, want := range []string{`"p50":null`, `"p95":null`, `"longest":null`, `"waiting_since":null`, `"users":[]`} {
			if !strings.Contains(text, want) {
				t.Errorf("no job has started: got %s, want %s", text, want)
			}
		}
	})
}

// A daemon can report at most the bound of users, and no impossible values. The totals show the users with the most
// tasks.
func TestStatsBoundUsersOfOneDaemon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben")
		amy, ben := c.daemons[0], c.daemons[1]
		for i := range 400 {
			ben.queue.Users = append(ben.queue.Users, UserLoad{User: fmt.Sprintf("u%03d", i), GPUs: float64(i)})
		}
		for _, how := range []string{"asked", "from the picture"} {
			s, err := amy.client.Stats(t.Context())
			if err != nil || len(s.Users) != maxStatsUsers || s.Users[0].User != "u399" || s.MoreUsers != 300 {
				t.Errorf("%s: got %d users and %d more, %+v, %v, want the bound and 300 more", how, len(s.Users), s.MoreUsers, s.Users[:min(1, len(s.Users))], err)
			}
			amy.makePicture(t)
		}
	})
	lie := func(u UserLoad) QueueInfo { return QueueInfo{Users: []UserLoad{u}} }
	for i, q := range []QueueInfo{
		{Users: make([]UserLoad, maxLoads+1)},
		{More: -1},
		lie(UserLoad{User: "a\nb"}), lie(UserLoad{User: "a", Running: -1}), lie(UserLoad{User: "a", Pending: -1}),
		lie(UserLoad{User: "a", GPUs: -1}), lie(UserLoad{User: "a", GPUs: math.NaN()}), lie(UserLoad{User: "a", GPUs: 1e300}),
		{Waited: waittime.Counts{Of: map[int]int64{-1: 1}}},
	} {
		s := Stats{Nodes: map[NodeState]int{NodeReady: 1}, Queue: &q}
		if s.ofOneNode() {
			t.Errorf("queue %d: %+v is believed", i, q)
		}
	}
	if _, err := parseFeedLine([]byte(`{"queue": {"users": [{"user": "a", "running": -1}]}}`)); err == nil {
		t.Error("an impossible line of a feed is believed")
	}
}

// With visibility own a user sees only the own row, from the picture, too. A member that has no users sees none.
func TestStatsShowOwnUsersOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben")
		amy, ben := c.daemons[0], c.daemons[1]
		ben.server.auth.ownOnly = true
		ben.server.feeds.hello = helloOf(Config{OwnOnly: true, Operators: []string{"olga"}})
		ben.queue.Users = []UserLoad{{"ada", 1, 1, 1}, {"eve", 2, 2, 2}}
		for _, how := range []string{"asked", "from the picture"} {
			for user, want := range map[string]int{"ada": 1, "mia": 0} {
				amy.server.auth.httpUser = user
				if s, err := amy.client.Stats(t.Context()); err != nil || len(s.Users) != want || s.MoreUsers != 0 {
					t.Errorf("%s, %s: got %+v, %v, want %d users", how, user, s.Users, err, want)
				}
			}
			amy.makePicture(t)
		}
		amy.server.auth.httpUser = "olga"
		if s, err := amy.client.Stats(t.Context()); err != nil || len(s.Users) != 2 {
			t.Errorf("an operator of ben: got %+v, %v, want 2 users", s.Users, err)
		}
	})
}
