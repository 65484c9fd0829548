package api

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/musterhq/muster/api/view"
	"github.com/musterhq/muster/job"
)

// makePicture creates the picture of a daemon, and waits until it has all members.
func (d *daemon) makePicture(t *testing.T) *clusterView {
	t.Helper()
	for range 2 {
		if _, err := d.client.Nodes(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	sleep(t.Context(), time.Second/2) // of the virtual clock
	synctest.Wait()
	v := d.picture()
	if v == nil {
		t.Fatal("no picture after two requests")
	}
	return v
}

// getIfChanged gets a listing unless it has this ETag.
func (d *daemon) getIfChanged(t *testing.T, path, tag string) (status int, etag, text string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1:1"+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("If-None-Match", tag)
	resp, err := d.client.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header.Get("ETag"), string(body)
}

// A listing of jobs is answered from what the members have reported. No member is asked, a change is shown within a
// second, and a change by this daemon itself at once.
func TestListingFromThePictureAsksNoMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben", "cal")
		amy, ben, cal := c.daemons[0], c.daemons[1], c.daemons[2]
		j := ben.put(running(ben.newJob(1), cal))
		amy.makePicture(t)
		close(cal.silent) // only for new requests
		began := time.Now()
		list := func() Listing[Job] {
			l, err := amy.client.Jobs(t.Context(), JobFilter{})
			if err != nil {
				t.Fatal(err)
			}
			return l
		}
		if l := list(); len(l.Items) != 1 || l.Items[0].State != job.Running || len(l.Partial) > 0 || time.Since(began) > time.Millisecond {
			t.Errorf("after %s: got %+v, want the running job at once", time.Since(began), l)
		}
		own := amy.put(amy.newJob(2))
		if l := list(); len(l.Items) != 2 || !slices.ContainsFunc(l.Items, func(x Job) bool { return x.ID == own.ID }) {
			t.Errorf("a job of this daemon is not listed at once: got %+v", l)
		}
		ben.put(ended(j, job.Exit{State: job.Succeeded}))
		sleep(t.Context(), time.Second)
		if l := list(); len(l.Items) != 2 || !slices.ContainsFunc(l.Items, func(x Job) bool { return x.ID == j.ID && x.State == job.Succeeded }) {
			t.Errorf("a second after its end: got %+v, want SUCCEEDED", l)
		}
		k := ben.put(ben.newJob(3))
		sleep(t.Context(), time.Second)
		if _, err := amy.client.Cancel(t.Context(), k.ID, Change{}); err != nil {
			t.Fatal(err)
		}
		if l := list(); !slices.ContainsFunc(l.Items, func(x Job) bool { return x.ID == k.ID && x.State == job.Cancelled }) {
			t.Errorf("a job that was cancelled here: got %+v, want CANCELLED", l)
		}
		ben.mu.Lock()
		delete(ben.jobs, j.ID)
		ben.mu.Unlock()
		sleep(t.Context(), 3*time.Second)
		if l := list(); slices.ContainsFunc(l.Items, func(x Job) bool { return x.ID == j.ID }) {
			t.Errorf("a deleted job is still listed: got %+v", l)
		}
	})
}

// A member that falls silent delays only the first listing, which asks it. Its rows stay, with their age.
func TestSilentMemberKeepsItsRowsInThePicture(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben")
		amy, ben := c.daemons[0], c.daemons[1]
		j := ben.put(running(ben.newJob(1), ben))
		amy.makePicture(t)
		close(ben.silent)
		ben.back.cut()
		sleep(t.Context(), 5*time.Second)
		began := time.Now()
		nodes, err := amy.client.Nodes(t.Context())
		if err != nil || !slices.Equal(nodes.Partial, []string{"ben"}) || time.Since(began) > time.Millisecond {
			t.Fatalf("after %s: got %+v, %v, want all but ben at once", time.Since(began), nodes, err)
		}
		at := slices.IndexFunc(nodes.Items, func(n Node) bool { return n.ID == ben.peer })
		if n := nodes.Items[at]; n.State != NodeSuspect || n.Age == nil || *n.Age < 4 || *n.Age > 6 || n.Free.CPUs != 0 {
			t.Errorf("ben = %+v, want suspect, with an age of 4 to 6 s", n)
		}
		l, err := amy.client.Jobs(t.Context(), JobFilter{})
		if err != nil || !slices.Equal(l.Partial, []string{"ben"}) || len(l.Items) != 1 || l.Items[0].ID != j.ID || l.Items[0].Age < 4 {
			t.Errorf("jobs: got %+v, %v, want the job of ben with its age", l, err)
		}
		s, err := amy.client.Stats(t.Context())
		if err != nil || !slices.Equal(s.Partial, []string{"ben"}) || s.Nodes[NodeSuspect] != 1 || s.Nodes[NodeReady] != 1 {
			t.Errorf("stats: got %+v, %v, want ben suspect", s, err)
		}
		if l, err := amy.client.Jobs(t.Context(), JobFilter{Fresh: true}); err != nil || len(l.Items) != 0 || !slices.Equal(l.Partial, []string{"ben"}) {
			t.Errorf("a fresh listing: got %+v, %v, want no jobs, without ben", l, err)
		}
	})
}

// Of what a daemon shows from its picture, a user sees what the owner of the job would show.
func TestPictureShowsWhatTheOwnerWouldShow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben")
		amy, ben := c.daemons[0], c.daemons[1]
		ben.server.auth.ownOnly = true
		ben.server.feeds.hello = helloOf(Config{OwnOnly: true, Operators: []string{"root", "olga"}})
		j := running(ben.newJob(1), ben)
		j.User = "ada"
		j.Tasks[0].PID = 4711
		ben.put(j)
		amy.makePicture(t)
		for user, want := range map[string]string{"ada": "4711", "olga": "4711", "eve": ""} {
			amy.server.auth.httpUser = user
			_, _, text := amy.raw(t, http.MethodGet, "/v1/jobs", "")
			if seen := strings.Contains(text, string(j.ID)); seen != (want != "") || seen && !strings.Contains(text, `"pid":4711`) {
				t.Errorf("%s: got %s, want the job: %v", user, text, want != "")
			}
			if v := amy.picture(); v == nil || len(v.members) != 2 {
				t.Fatal("the answer is not from the picture")
			}
		}
	})
}

// Without requests nothing of the picture is left, on either side; each request within keepView keeps it.
func TestPictureWithoutRequestsIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben")
		amy, ben := c.daemons[0], c.daemons[1]
		before, _ := bubbled()
		if _, err := amy.client.Nodes(t.Context()); err != nil {
			t.Fatal(err)
		}
		if amy.picture() != nil {
			t.Error("one request makes a picture")
		}
		v := amy.makePicture(t)
		ctx, cancel := context.WithCancel(t.Context())
		opened := make(chan struct{}, 10)
		for range 50 { // many requests open one feed for each member
			go func() {
				for e := range amy.client.Events(ctx, EventFilter{}) {
					if e.Kind == EventOpen {
						opened <- struct{}{}
					}
				}
			}()
		}
		for range 50 {
			<-opened
		}
		sleep(t.Context(), 2*keepView)
		if amy.picture() != v {
			t.Error("dropped while streams are open")
		}
		ben.server.feeds.open.mu.Lock()
		if n := len(ben.server.feeds.open.open); n != 1 {
			t.Errorf("got %d feeds, want 1", n)
		}
		ben.server.feeds.open.mu.Unlock()
		cancel()
		sleep(t.Context(), keepView-time.Second)
		if amy.picture() == nil {
			t.Error("dropped too soon")
		}
		sleep(t.Context(), 2*time.Second)
		synctest.Wait()
		ben.server.feeds.mu.Lock()
		lines := ben.server.feeds.lines
		ben.server.feeds.mu.Unlock()
		if amy.picture() != nil || lines != nil {
			t.Error("not dropped")
		}
		amy.client.Close()
		ben.back.cut()
		sleep(t.Context(), 3*time.Minute) // idle connections end
		synctest.Wait()
		if after, stacks := bubbled(); after > before+4 {
			t.Errorf("got %d goroutines, want at most 4 more than %d:\n%s", after, before, stacks)
		}
	})
}

// picture returns the picture that a daemon has now; nil: none.
func (d *daemon) picture() *clusterView {
	d.server.viewer.mu.Lock()
	defer d.server.viewer.mu.Unlock()
	return d.server.viewer.now
}

// bubbled returns the number of goroutines in the test's bubble, and their stacks. Those of the rest of the process,
// such as connections of other tests that are still closing, do not count.
func bubbled() (n int, stacks string) {
	b := make([]byte, 4<<20)
	stacks = string(b[:runtime.Stack(b, true)])
	return strings.Count(stacks, ", synctest bubble "), stacks
}

// A listing that differs only in ages is not sent again.
func TestUnchangedListingIsNotSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben")
		amy, ben := c.daemons[0], c.daemons[1]
		ben.put(ben.newJob(1))
		amy.makePicture(t)
		for _, path := range []string{"/v1/nodes", "/v1/gpus", "/v1/jobs", "/v1/stats"} {
			get := func(tag string) (int, string, string) {
				return amy.getIfChanged(t, path, tag)
			}
			status, tag, text := get("")
			if status != http.StatusOK || tag == "" || !json.Valid([]byte(text)) {
				t.Fatalf("%s: got %d %s %s, want 200 with an ETag", path, status, tag, text)
			}
			sleep(t.Context(), 700*time.Millisecond)
			if status, again, text := get(`"x", ` + tag); status != http.StatusNotModified || again != tag || text != "" {
				t.Errorf("%s: got %d %s %s, want 304", path, status, again, text)
			}
		}
		_, tag, _ := amy.getIfChanged(t, "/v1/jobs", "")
		ben.put(ben.newJob(2))
		sleep(t.Context(), time.Second)
		if _, now, _ := amy.getIfChanged(t, "/v1/jobs", ""); now == tag {
			t.Error("the same tag after a change")
		}
	})
}

// A client requests some fields of the GPUs of some nodes, and gets them again only after a change.
func TestListGPUsSelectsFieldsAndNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben", "cal")
		amy, ben := c.daemons[0], c.daemons[1]
		amy.makePicture(t)
		f := ListFilter{Fields: []string{"node_id", "uuid", "utilization"}, Nodes: []job.Peer{ben.peer}}
		l, err := amy.client.ListGPUs(t.Context(), f)
		if err != nil || len(l.Items) != 1 || l.Items[0].NodeID != ben.peer || l.Items[0].UUID == "" || l.Items[0].Model != "" || l.Tag == "" || l.Bytes == 0 || l.Same {
			t.Fatalf("got %+v, %v, want one GPU of ben with the fields and a tag", l, err)
		}
		f.Tag = l.Tag
		if l, err := amy.client.ListGPUs(t.Context(), f); err != nil || !l.Same || l.Tag != f.Tag || len(l.Items) > 0 {
			t.Errorf("again: got %+v, %v, want that it is the same", l, err)
		}
		f.Tag, f.Nodes = "", []job.Peer{"ben"} // by name
		if l, err := amy.client.ListGPUs(t.Context(), f); err != nil || len(l.Items) != 1 || l.Items[0].NodeID != ben.peer {
			t.Errorf("by name: got %+v, %v, want one GPU of ben", l, err)
		}
		f.Nodes = []job.Peer{ben.peer, amy.peer}
		if l, err := amy.client.ListGPUs(t.Context(), f); err != nil || l.Same || len(l.Items) != 2 {
			t.Errorf("of two nodes: got %+v, %v, want 2", l, err)
		}
		if l, err := amy.client.ListNodes(t.Context(), ListFilter{Fields: []string{"name"}}); err != nil || len(l.Items) != 3 || l.Items[0].Name == "" || l.Items[0].CPUs != 0 {
			t.Errorf("nodes: got %+v, %v, want 3 with their names only", l, err)
		}
	})
}

// A member that reports ever more jobs displaces those of no other member, and the dropped ones are requested when
// needed.
func TestPictureBoundsALyingMember(t *testing.T) {
	w := newView(&daemons{self: "me"}, nil, nil, feedHello{})
	w.bytes = newSlots("bytes", 200_000, 0)
	tell := func(peer job.Peer, from, n int) *viewMember {
		m := w.members[peer]
		if m == nil {
			m = &viewMember{Member: Member{Peer: peer}, shelf: view.NewShelf(), sight: &seen{}}
			w.members[peer] = m
		}
		for i := range n {
			j := Job{ID: job.NewID(7, uint64(from+i)), Name: strings.Repeat("x", 100), State: job.Running, SubmittedAt: time.Unix(int64(from+i), 0), Tasks: []Task{}}
			w.apply(m, &feedLine{Job: &j})
		}
		return m
	}
	mal := tell("mal", 0, 10_000)
	if size := mal.shelf.Size(); size > 100_000 {
		t.Errorf("got %d bytes of mal, want at most half of 200,000", size)
	}
	if from := mal.shelf.From(nil); from.ID == "" {
		t.Error("jobs are missing, and nothing says so")
	}
	ben := tell("ben", 0, 20)
	if from := ben.shelf.From(nil); from.ID != "" {
		t.Errorf("a member with few jobs has lost some: got %q, want an empty text", from.ID)
	}
	for range 3 { // the same again takes no more space
		tell("ben", 0, 20)
	}
	var sum int64
	for _, m := range w.members {
		sum += m.shelf.Size()
	}
	if w.bytes.used != sum {
		t.Errorf("got %d bytes counted, want %d", w.bytes.used, sum)
	}
	w.leave(mal)
	w.leave(ben)
	if w.bytes.used != 0 || len(w.bytes.has) != 0 {
		t.Errorf("got %d bytes left, want 0", w.bytes.used)
	}
}

// A member that floods its feed is read at the pace of an honest one, also if it begins again each time.
func TestFloodingFeedIsReadSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "mal")
		amy, mal := c.daemons[0], c.daemons[1]
		var sent atomic.Int64
		flood := func(w http.ResponseWriter, r *http.Request) {
			j := mal.newJob(1)
			for n := 0; r.Context().Err() == nil && n < feedBurst; { // no more, so that this test ends if nothing else bounds it
				j.Spec.Priority = (j.Spec.Priority + 1) % 100
				doc := briefDocument(&j, 1)
				line := bytes.Repeat(append(encodeLine(feedLine{Job: &doc}), '\n', '\n'), 1000)
				n += len(line)
				if _, err := w.Write(line); err != nil {
					return
				}
				sent.Add(int64(len(line)))
			}
		}
		mal.mu.Lock()
		mal.lies = map[string]any{pathFeed: http.HandlerFunc(flood)}
		mal.mu.Unlock()
		_, leave := amy.server.viewer.hold(t.Context())
		sleep(t.Context(), 20*time.Second)
		leave()
		if most := int64(feedBurst + 22*feedRate); sent.Load() > most || sent.Load() < feedBurst/2 {
			t.Errorf("got %d bytes of a flood in 20 s, want at most %d", sent.Load(), most)
		}
	})
}

// Parameters of listings select and shape rows, and wrong ones are errors that name the valid ones.
func TestListingParametersSelectAndShapeRows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben")
		amy, ben := c.daemons[0], c.daemons[1]
		for i := range 5 {
			x := []*daemon{amy, ben}[i%2].newJob(uint64(i))
			x.Spec.Priority = (i * 7) % 5
			[]*daemon{amy, ben}[i%2].put(x)
		}
		for range 2 { // by asking, and from the picture
			got := func(query string) (ids []string) {
				path := "/v1/jobs?" + query
				for {
					status, _, text := amy.raw(t, http.MethodGet, path, "")
					var l Listing[Job]
					if err := json.Unmarshal([]byte(text), &l); err != nil || status != http.StatusOK {
						t.Fatalf("%s: got %d %s, want 200", path, status, text)
					}
					for _, j := range l.Items {
						ids = append(ids, j.Name)
					}
					if l.Next == "" {
						return ids
					}
					path = "/v1/jobs?" + query + "&cursor=" + l.Next
				}
			}
			for query, want := range map[string]string{
				"":                           "job-4 job-3 job-2 job-1 job-0",
				"limit=2":                    "job-4 job-3 job-2 job-1 job-0",
				"sort=name":                  "job-0 job-1 job-2 job-3 job-4",
				"sort=-priority":             "job-2 job-4 job-1 job-3 job-0",
				"sort=priority&limit=2":      "job-0 job-3 job-1 job-4 job-2",
				"since=2023-11-14T22:13:23Z": "job-4 job-3",
			} {
				if names := strings.Join(got(query), " "); names != want {
					t.Errorf("query %q: got %s, want %s", query, names, want)
				}
			}
			for path, want := range map[string]string{
				"/v1/jobs?fields=id,colour": "estimated_start", "/v1/jobs?sort=colour": "priority", "/v1/nodes?fields=colour": "seen_at",
				"/v1/nodes?sort=colour": "running", "/v1/gpus?fields=colour": "memory_used", "/v1/gpus?sort=-colour": "utilization", "/v1/jobs?sort=name&cursor=@x": "next",
			} {
				if status, _, text := amy.raw(t, http.MethodGet, path, ""); status != http.StatusUnprocessableEntity || !strings.Contains(text, want) {
					t.Errorf("%s: got %d %s, want 422 with the hint", path, status, text)
				}
			}
			_, _, text := amy.raw(t, http.MethodGet, "/v1/nodes?fields=name,age&sort=-name", "")
			var l struct{ Items []map[string]any }
			if err := json.Unmarshal([]byte(text), &l); err != nil || len(l.Items) != 2 || len(l.Items[0]) != 2 || l.Items[0]["name"] != "ben" || l.Items[1]["age"] == nil {
				t.Errorf("got %s, want 2 rows with the two fields", text)
			}
			amy.makePicture(t)
		}
	})
}

// A listing by priority has all jobs that have not ended, of this daemon and of others, however many newer ones have
// ended.
func TestSortedListingHasOldJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben")
		amy, ben := c.daemons[0], c.daemons[1]
		for _, d := range []*daemon{amy, ben} {
			for i := range maxLimit + 100 {
				j := d.newJob(uint64(i))
				if i > 0 {
					j = ended(running(j, amy), job.Exit{State: job.Succeeded})
				}
				d.put(j)
			}
		}
		amy.makePicture(t)
		sleep(t.Context(), 2*time.Second)
		l, err := amy.client.Jobs(t.Context(), JobFilter{Limit: 2})
		if err != nil || len(l.Items) != 2 || l.Next == "" {
			t.Fatalf("the newest: got %d, %q, %v, want 2 and a next page", len(l.Items), l.Next, err)
		}
		_, _, text := amy.raw(t, http.MethodGet, "/v1/jobs?sort=state&limit=2&fields=id,state,owner", "")
		if strings.Count(text, `"PENDING"`) != 2 || !strings.Contains(text, string(ben.peer)) || !strings.Contains(text, string(amy.peer)) {
			t.Errorf("got %s, want one pending job of each daemon", text)
		}
	})
}
