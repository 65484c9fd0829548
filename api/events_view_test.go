package api

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/musterhq/muster/api/view"
	"github.com/musterhq/muster/job"
)

// collectEvents reads a stream of events for a time, and returns its events.
func (d *daemon) collectEvents(t *testing.T, query, after string, d1 time.Duration, during func()) (all []Event) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d1)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:1/v1/events?"+query, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if after != "" {
		req.Header.Set("Last-Event-ID", after)
	}
	resp, err := d.client.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if during != nil {
		later := time.AfterFunc(d1/2, during)
		defer later.Stop()
	}
	_ = readEvents(resp.Body, func() {}, func(e Event) bool { all = append(all, e); return true })
	return all
}

// kinds returns what events are about, in order.
func kinds(all []Event) (out []string) {
	for _, e := range all {
		out = append(out, string(e.Kind))
	}
	return out
}

// Changes of jobs, tasks, nodes, GPUs and members on all hosts are events, which can be selected. Measured values are
// no events.
func TestChangesInTheClusterAreEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben", "cal")
		amy, ben, cal := c.daemons[0], c.daemons[1], c.daemons[2]
		j := ben.put(ben.newJob(1))
		amy.makePicture(t)
		changes := func() {
			ben.put(running(j, cal))
			cal.mu.Lock()
			cal.drained = &Drain{Reason: "fans", By: "root"}
			cal.mu.Unlock()
			amy.mu.Lock()
			amy.states[ben.peer] = NodeDraining
			amy.mu.Unlock()
			sleep(t.Context(), time.Second/2)
			ben.put(ended(running(j, cal), job.Exit{State: job.Succeeded}))
		}
		reset := func() {
			ben.put(j)
			cal.mu.Lock()
			cal.drained = nil
			cal.mu.Unlock()
			amy.mu.Lock()
			delete(amy.states, ben.peer)
			amy.mu.Unlock()
			sleep(t.Context(), 3*time.Second)
		}
		for query, want := range map[string][]string{
			"":                             {"open", "job", "job", "member", "node", "task", "task"},
			"kind=node,member":             {"open", "member", "node"},
			"kind=task&user=amy":           {"open", "task", "task"},
			"user=nobody":                  {"open"},
			"node=cal":                     {"open", "job", "job", "node", "task", "task"},
			"kind=job&job=" + string(j.ID): {"open", "job", "job"},
		} {
			all := amy.collectEvents(t, query, "", 4*time.Second, changes)
			got := kinds(all)
			slices.Sort(got[1:])
			if !slices.Equal(got, want) {
				t.Errorf("query %q: got %v, want %v", query, got, want)
			}
			for _, e := range all {
				if e.EventID == "" || e.Kind == EventTask && (e.Task == nil || e.Task.Job != j.ID) || e.Kind == EventNode && (e.Node == nil || e.Node.Drain == nil || len(e.Node.GPUs) > 0) {
					t.Errorf("got %+v, want an ID, and the object without the values of its GPUs", e)
				}
			}
			reset()
		}
		if status, _, text := amy.raw(t, http.MethodGet, "/v1/events?kind=weather", ""); status != http.StatusUnprocessableEntity || !strings.Contains(text, "member") {
			t.Errorf("an unknown kind: got %d %s, want 422 with the known ones", status, text)
		}
	})
}

// A reader that reconnects gets what it has missed, or is told to load again.
func TestEventsResumeAfterAReconnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben")
		amy, ben := c.daemons[0], c.daemons[1]
		amy.makePicture(t)
		first := amy.collectEvents(t, "kind=job", "", time.Second, func() { ben.put(ben.newJob(1)) })
		if len(first) != 2 {
			t.Fatalf("got %v, want 2 events", kinds(first))
		}
		ben.put(ben.newJob(2))
		sleep(t.Context(), time.Second)
		again := amy.collectEvents(t, "kind=job", first[1].EventID, time.Second, nil)
		if len(again) != 2 || again[1].Job == nil || again[1].ID != job.NewID(ben.group, 2) {
			t.Errorf("after %s: got %+v, want an open event and the second job", first[1].EventID, again)
		}
		for _, wrong := range []string{"other-3", "x", first[1].EventID + "9"} {
			if got := kinds(amy.collectEvents(t, "kind=job", wrong, time.Second, nil)); !slices.Equal(got, []string{"open", "gap"}) {
				t.Errorf("after %s: got %v, want open and gap", wrong, got)
			}
		}
		now := time.Now()
		all := amy.collectEvents(t, "kind=job&follow=false&since="+now.Add(-10*time.Second).UTC().Format(time.RFC3339), "", time.Hour, nil)
		if got := kinds(all); !slices.Equal(got, []string{"open", "gap", "open", "job", "job"}) || time.Since(now) > time.Second {
			t.Errorf("since before the picture was made: got %v after %s, want a gap and two jobs at once", got, time.Since(now))
		}
		sleep(t.Context(), time.Second)
		for i := range maxEvents + 10 { // more than the ring holds
			x := ben.newJob(3)
			x.Spec.Priority = i % 100
			amy.picture().with(ben.peer, func(m *viewMember) {
				d := briefDocument(&x, 1)
				amy.picture().apply(m, &feedLine{Job: &d})
			})
		}
		got := kinds(amy.collectEvents(t, "kind=job", first[1].EventID, time.Second, nil))
		if len(got) != maxEvents+2 || got[1] != "gap" {
			t.Errorf("after a flood: got %d events, %v, want a gap and those of the ring", len(got), got[:3])
		}
	})
}

// Each event is encoded once, and many changes of one job are merged before they are sent.
func TestEventsAreMerged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben")
		amy, ben := c.daemons[0], c.daemons[1]
		amy.makePicture(t)
		all := amy.collectEvents(t, "kind=job", "", 4*time.Second, func() {
			for i := range 100 {
				x := ben.newJob(1)
				x.Spec.Priority = i
				ben.put(x)
				sleep(t.Context(), 10*time.Millisecond)
			}
		})
		if n := len(all) - 1; n < 4 || n > 7 || all[n].Job.Priority != 99 {
			t.Errorf("got %d events in a second, the last %+v, want 4 to 7, the last with priority 99", n, all[n].Job)
		}
	})
}

// countedWriter counts the writes to a client.
type countedWriter struct {
	header http.Header
	writes []time.Time
}

func (w *countedWriter) Header() http.Header { return w.header }
func (w *countedWriter) WriteHeader(int)     {}
func (w *countedWriter) Flush()              {}
func (w *countedWriter) Write(text []byte) (int, error) {
	w.writes = append(w.writes, time.Now())
	return len(text), nil
}

// Events of a busy cluster wake a client ten times a second, however many there are. An event after a quiet time is
// sent at once.
func TestEventsAreWrittenTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newView(&daemons{self: "me"}, nil, nil, feedHello{})
		ctx, cancel := context.WithCancel(t.Context())
		w := &countedWriter{header: http.Header{}}
		s := clusterStream{clusterView: v, filter: &eventFilter{}, w: w, flush: func() error { return nil }}
		done := make(chan struct{})
		go func() { defer close(done); _ = s.run(ctx, 0, false, true) }()
		sleep(ctx, 5*time.Second)
		synctest.Wait()
		w.writes = nil
		began := time.Now()
		for range 100 { // in two seconds
			v.tell(&change{viewEvent: viewEvent{kind: EventGone}})
			sleep(ctx, 20*time.Millisecond)
		}
		sleep(ctx, time.Second)
		cancel()
		<-done
		if n := len(w.writes); n < 18 || n > 21 || !w.writes[0].Equal(began) {
			t.Errorf("got %d writes in two seconds, the first after %s, want 18 to 21, the first at once", n, w.writes[0].Sub(began))
		}
	})
}

// A client that gets no event of a busy cluster is shown that its stream is alive.
func TestStreamWithoutMatchingEventsIsShownAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newView(&daemons{self: "me"}, nil, nil, feedHello{})
		ctx, cancel := context.WithCancel(t.Context())
		w := &countedWriter{header: http.Header{}}
		s := clusterStream{clusterView: v, filter: &eventFilter{kinds: []EventKind{EventMember}}, w: w, flush: func() error { return nil }}
		close(v.ready)
		done := make(chan struct{})
		go func() { defer close(done); _ = s.run(ctx, 0, false, true) }()
		for range 61 {
			v.tell(&change{viewEvent: viewEvent{kind: EventGone}})
			sleep(ctx, time.Second)
		}
		cancel()
		<-done
		if len(w.writes) != 7 {
			t.Errorf("got %d writes in a minute, want 7: %v", len(w.writes), w.writes)
		}
	})
}

// A daemon of an earlier version, which has no feed, is asked at each request.
func TestDaemonWithoutAFeedIsAskedEachTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben")
		amy, ben := c.daemons[0], c.daemons[1]
		ben.mu.Lock()
		ben.lies = map[string]any{pathFeed: http.StatusNotFound}
		ben.mu.Unlock()
		ben.put(ben.newJob(1))
		amy.makePicture(t)
		for i := range 3 {
			ben.put(ben.newJob(uint64(2 + i)))
			l, err := amy.client.Jobs(t.Context(), JobFilter{})
			if err != nil || len(l.Items) != 2+i || len(l.Partial) > 0 {
				t.Errorf("step %d: got %+v, %v, want one job more, of all members", i, l, err)
			}
			if n, err := amy.client.Nodes(t.Context()); err != nil || len(n.Items) != 2 || len(n.Partial) > 0 {
				t.Errorf("step %d: got %+v, %v, want 2 nodes, of all members", i, n, err)
			}
		}
	})
}

// What a member can make another remember is bounded, and the rest is requested when needed.
func TestPictureOfManyJobsIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben")
		amy, ben := c.daemons[0], c.daemons[1]
		const most = 700 // ended jobs, more than a picture holds
		for i := range most {
			ben.put(ended(running(ben.newJob(uint64(i)), ben), job.Exit{State: job.Succeeded}))
		}
		v := amy.makePicture(t)
		shelf := 0
		v.with(ben.peer, func(m *viewMember) { m.shelf.All(func(*view.Row) { shelf++ }) })
		if shelf < 500 || shelf > 600 {
			t.Errorf("got %d rows, want 500 to 600", shelf)
		}
		seen := map[job.ID]bool{}
		f := JobFilter{Limit: 100}
		for page := 0; ; page++ {
			l, err := amy.client.Jobs(t.Context(), f)
			if err != nil {
				t.Fatal(err)
			}
			for _, j := range l.Items {
				seen[j.ID] = true
			}
			if f.Cursor = l.Next; f.Cursor == "" {
				break
			}
		}
		if len(seen) != most {
			t.Errorf("got %d jobs on all pages, want %v", len(seen), most)
		}
	})
}

func FuzzFeedLine(f *testing.F) {
	f.Add([]byte(`{"hello":{"own":true,"operators":["root"]}}`))
	f.Add([]byte(`{"totals":{"jobs":{"PENDING":3},"open":"1.0000000007-0000000000002"}}`))
	f.Add([]byte(`{"gone":"0000000007-0000000000002","older":true}`))
	d := Job{ID: "0000000007-0000000000002", State: job.Running, Tasks: []Task{{PID: 3, State: job.Running}}}
	n := Node{ID: "p", State: NodeReady, GPUs: []GPU{{UUID: "u", NodeID: "p"}}}
	f.Add(encodeLine(feedLine{Job: &d}))
	f.Add(encodeLine(feedLine{Node: &n}))
	f.Fuzz(func(_ *testing.T, text []byte) {
		l, err := parseFeedLine(text)
		if err != nil {
			return
		}
		w := newView(&daemons{self: "me"}, nil, nil, feedHello{})
		m := &viewMember{Member: Member{Peer: "p"}, shelf: view.NewShelf(), sight: &seen{}}
		w.members["p"] = m
		w.apply(m, &l)
		w.apply(m, &l)
		if m.node != nil {
			if s := nodeStats(m.node, m.counts); !s.ofOneNode() {
				panic(fmt.Sprintf("totals that cannot be: %+v", s))
			}
		}
		all, _, _ := w.ring.After(0, maxEvents)
		for _, e := range all {
			for _, all := range []bool{false, true} {
				text := string(w.packer.Append(nil, e.frame, all))
				if !strings.HasSuffix(text, "\n\n") || strings.Count(text, "\n") != 4 {
					panic(fmt.Sprintf("a broken event: %q", text))
				}
			}
		}
	})
}
