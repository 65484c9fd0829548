package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/musterhq/muster/internal/testkit/logtest"
	"github.com/musterhq/muster/job"
)

type logResult struct {
	end LogEnd
	err error
}

func (d *daemon) follow(ctx context.Context, r LogRequest, w io.Writer) <-chan logResult {
	done := make(chan logResult, 1)
	go func() {
		end, err := d.client.Logs(ctx, r, w)
		done <- logResult{end, err}
	}()
	return done
}

// The client uses amy, ben owns the job, and the attempt runs at cal. The bytes arrive as they are written, and so does
// the end.
func TestFollowAcrossThreeDaemons(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben", "cal")
		amy, ben, cal := c.daemons[0], c.daemons[1], c.daemons[2]
		j := ben.put(ben.newJob(1))
		out := &logtest.Buffer{}
		done := amy.follow(t.Context(), LogRequest{Job: j.ID, Follow: true}, out)
		synctest.Wait() // it waits for the start
		l := cal.log(job.Attempt{Job: j.ID, N: 1}, "stdout")
		j = ben.put(running(j, cal))
		for _, text := range []string{"one\n", "two\n"} {
			l.write(text)
			synctest.Wait()
			if !strings.HasSuffix(out.String(), text) {
				t.Errorf("got %q, want %q at its end", out, text)
			}
		}
		l.end()
		synctest.Wait()
		select {
		case r := <-done:
			t.Fatalf("the follower returned before the job had ended: %+v", r)
		default:
		}
		ben.put(ended(j, job.Exit{State: job.Succeeded}))
		if r := <-done; r.err != nil || r.end != (LogEnd{Attempt: 1, Next: 8}) || out.String() != "one\ntwo\n" {
			t.Errorf("got %+v %q, want both lines of attempt 1", r, out)
		}
	})
}

// Wherever and however often a connection breaks, each byte arrives once.
func TestFollowResumesAfterBreaks(t *testing.T) {
	for _, where := range []string{"client", "owner", "worker"} {
		t.Run(where, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, "amy", "ben", "cal")
				amy, ben, cal := c.daemons[0], c.daemons[1], c.daemons[2]
				cut := map[string]*pipes{"client": amy.front, "owner": ben.back, "worker": cal.back}[where]
				j := ben.put(running(ben.newJob(1), cal))
				l := cal.log(job.Attempt{Job: j.ID, N: 1}, "stderr")
				out, want := &logtest.Buffer{}, ""
				done := amy.follow(t.Context(), LogRequest{Job: j.ID, Stream: "stderr", Follow: true}, out)
				for i := range 10 {
					text := fmt.Sprintf("line %d\n", i)
					want += text
					l.write(text)
					synctest.Wait()
					cut.cut()
				}
				l.end()
				ben.put(ended(j, job.Exit{State: job.Failed, Code: 1}))
				if r := <-done; r.err != nil || r.end.Next != int64(len(want)) || out.String() != want {
					t.Errorf("got %+v %q, want %q", r, out, want)
				}
			})
		})
	}
}

// When a job runs again, following goes on with the next attempt.
func TestFollowGoesOnWithTheNextAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben")
		amy, ben := c.daemons[0], c.daemons[1]
		j := amy.put(running(amy.newJob(1), ben))
		first := ben.log(job.Attempt{Job: j.ID, N: 1}, "stdout")
		out := &logtest.Buffer{}
		done := amy.follow(t.Context(), LogRequest{Job: j.ID, Follow: true}, out)
		first.write("first\n")
		first.end()
		synctest.Wait()
		task := j.Tasks[0] // one attempt was declined and never ran
		task.State, task.Attempt, task.Started = job.Reserved, 2, time.Time{}
		j.Tasks = []job.Task{task}
		amy.put(j)
		synctest.Wait()
		task.State = job.Pending
		j.Tasks = []job.Task{task}
		amy.put(j)
		synctest.Wait()
		l := amy.log(job.Attempt{Job: j.ID, N: 3}, "stdout")
		l.write("second\n")
		l.end()
		j = amy.put(running(j, amy))
		synctest.Wait()
		amy.put(ended(j, job.Exit{State: job.Succeeded}))
		if r := <-done; r.err != nil || r.end.Attempt != 3 || out.String() != "first\nsecond\n" {
			t.Errorf("got %+v %q, want the output of attempts 1 and 3", r, out)
		}
	})
}

// Following a task ends with the task, or goes on with its next attempt, also in an array with so many tasks that
// events have none of them.
func TestFollowOfATaskEndsWithTheTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben")
		amy, ben := c.daemons[0], c.daemons[1]
		j := ben.newArray(1, fmt.Sprintf("1-%d", briefTasks+1))
		change := func(state job.State, attempt int) {
			j.Tasks = slices.Clone(j.Tasks)
			last := &j.Tasks[briefTasks]
			last.State, last.Attempt, last.Node, last.NodeName, last.Started = state, attempt, ben.peer, ben.name, j.Submitted
			ben.put(j)
			synctest.Wait()
		}
		change(job.Running, 1)
		for n, text := range []string{"first\n", "second\n"} {
			l := ben.log(job.Attempt{Job: j.ID, Task: briefTasks, N: n + 1}, "stdout")
			l.write(text)
			l.end()
		}
		out := &logtest.Buffer{}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		done := amy.follow(ctx, LogRequest{Job: j.ID, Task: briefTasks + 1, Follow: true}, out)
		synctest.Wait()
		change(job.Pending, 1)
		time.Sleep(time.Second)
		change(job.Running, 2)
		time.Sleep(time.Second)
		change(job.Failed, 2)
		if r := <-done; r.err != nil || r.end.Attempt != 2 || out.String() != "first\nsecond\n" {
			t.Errorf("got %+v %q, want the output of both attempts", r, out)
		}
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("it took %s, want at most 3 s", took)
		}
	})
}

func TestLogsWithoutFollowingEndAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben")
		amy, ben := c.daemons[0], c.daemons[1]
		j := amy.put(running(amy.newJob(1), ben))
		l := ben.log(job.Attempt{Job: j.ID, N: 1}, "stdout")
		l.write("0123456789")
		read := func(r LogRequest) (string, LogEnd, error) {
			r.Job = j.ID
			var out bytes.Buffer
			end, err := amy.client.Logs(t.Context(), r, &out)
			return out.String(), end, err
		}
		for name, c := range map[string]struct {
			r    LogRequest
			want string
			next int64
		}{
			"whole":          {LogRequest{}, "0123456789", 10},
			"from 4":         {LogRequest{Attempt: 1, Offset: 4}, "456789", 10},
			"last 3":         {LogRequest{Offset: -3}, "789", 10},
			"last 99":        {LogRequest{Offset: -99}, "0123456789", 10},
			"old attempt":    {LogRequest{Attempt: 7, Offset: 4}, "", 0},
			"beyond the end": {LogRequest{Offset: 50}, "", 50},
		} {
			got, end, err := read(c.r)
			if name == "old attempt" {
				if !errors.Is(err, ErrConflict) {
					t.Errorf("%s: got %v, want ErrConflict", name, err)
				}
				continue
			}
			if err != nil || got != c.want || end != (LogEnd{1, c.next}) {
				t.Errorf("%s: got %q %+v %v, want %q %+v", name, got, end, err, c.want, LogEnd{1, c.next})
			}
		}
		l.change(func() { l.start = 6 })
		if got, end, err := read(LogRequest{Offset: 2}); err != nil || got != "\n--- muster: 4 bytes cut here ---\n6789" || end.Next != 10 {
			t.Errorf("after a rotation: got %q %+v %v, want the cut and the rest", got, end, err)
		}
		l.change(func() { l.start, l.gap = 0, [2]int64{2, 7} })
		for offset, want := range map[int64]string{
			0: "01\n--- muster: 5 bytes cut here ---\n789", 1: "1\n--- muster: 5 bytes cut here ---\n789",
			3: "\n--- muster: 4 bytes cut here ---\n789", 8: "89", -3: "789", -6: "789",
		} {
			if got, end, err := read(LogRequest{Offset: offset}); err != nil || got != want || end.Next != 10 {
				t.Errorf("with a gap, from %d: got %q %+v %v, want %q", offset, got, end, err, want)
			}
			if got := byHand(t, amy, "/v1/jobs/"+string(j.ID)+"/tasks/0/logs", offset); got != want {
				t.Errorf("with a gap, from %d, by hand: got %q, want %q", offset, got, want)
			}
		}
		l.change(func() { l.gap = [2]int64{} })
		for r, want := range map[LogRequest]error{{Stream: "stdin"}: ErrBad, {Task: 4}: ErrNotFound, {Stream: "stderr"}: ErrNotFound} {
			if _, _, err := read(r); !errors.Is(err, want) {
				t.Errorf("%+v: got %v, want %v", r, err, want)
			}
		}
		waiting := amy.put(amy.newJob(2))
		if _, err := amy.client.Logs(t.Context(), LogRequest{Job: waiting.ID}, io.Discard); !errors.Is(err, ErrConflict) {
			t.Errorf("output of a waiting job: got %v, want ErrConflict", err)
		}
		amy.put(ended(waiting, job.Exit{State: job.Cancelled}))
		never := amy.jobs[waiting.ID]
		never.Tasks[0].Ended = time.Time{}
		for _, follow := range []bool{false, true} {
			if end, err := amy.client.Logs(t.Context(), LogRequest{Job: waiting.ID, Follow: follow}, io.Discard); err != nil || end.Next != 0 {
				t.Errorf("output of a job that never started: got %+v, %v, want none", end, err)
			}
		}
		close(ben.silent)
		if _, _, err := read(LogRequest{Follow: false}); !errors.Is(err, ErrUnavailable) {
			t.Errorf("with a silent node: got %v, want ErrUnavailable", err)
		}
	})
}

// byHand reads a log as curl does.
func byHand(t *testing.T, d *daemon, path string, offset int64) string {
	t.Helper()
	resp, err := d.client.open(t.Context(), http.MethodGet, path, url.Values{"offset": {strconv.FormatInt(offset, 10)}}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

func TestLogsReturnTheErrorOfTheWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		amy := newCluster(t, "amy").daemons[0]
		j := amy.put(running(amy.newJob(1), amy))
		amy.log(job.Attempt{Job: j.ID, N: 1}, "stdout").write("x")
		want := errors.New("no space")
		if _, err := amy.client.Logs(t.Context(), LogRequest{Job: j.ID, Follow: true}, failing{want}); !errors.Is(err, want) {
			t.Errorf("Logs = %v, want %v", err, want)
		}
	})
}

// Wait sees the ends of jobs of several owners, despite breaks and silences.
func TestWaitSeesEndsDespiteBreaks(t *testing.T) {
	states := 0
	for _, seen := range []func(Job){nil, func(Job) { states++ }} {
		synctest.Test(t, func(t *testing.T) { testWait(t, seen) })
	}
	if states < 6 { // each job in its present state, and three changes
		t.Errorf("got %d states, want at least 6", states)
	}
}

func testWait(t *testing.T, seen func(Job)) {
	c := newCluster(t, "amy", "ben", "cal")
	amy, ben, cal := c.daemons[0], c.daemons[1], c.daemons[2]
	a, b, b2 := amy.put(amy.newJob(1)), ben.put(ben.newJob(1)), ben.put(ended(running(ben.newJob(2), cal), job.Exit{State: job.Failed, Code: 3}))
	type result struct {
		jobs []Job
		err  error
	}
	done := make(chan result, 1)
	go func() {
		jobs, err := cal.client.Wait(t.Context(), []job.ID{b.ID, a.ID, b2.ID, a.ID}, seen)
		done <- result{jobs, err}
	}()
	synctest.Wait()
	a = amy.put(running(a, amy))
	synctest.Wait()
	cal.front.cut()
	ben.back.cut()
	b = ben.put(ended(running(b, ben), job.Exit{State: job.Succeeded})) // while no client is connected
	idle := time.NewTimer(time.Minute)                                  // comments keep the streams alive
	<-idle.C
	amy.put(ended(a, job.Exit{State: job.Timeout}))
	r := <-done
	if r.err != nil || len(r.jobs) != 4 || r.jobs[0].ID != b.ID || r.jobs[1].State != job.Timeout || r.jobs[2].ID != b2.ID || r.jobs[3].ID != a.ID {
		t.Errorf("Wait = %+v, %v, want the ends of 4 jobs", r.jobs, r.err)
	}
	if code, _ := r.jobs[2].Exit(); code != 3 {
		t.Errorf("got exit code %d, want 3", code)
	}
	if _, err := cal.client.Wait(t.Context(), []job.ID{job.NewID(ben.group, 99), b.ID}, nil); !errors.Is(err, ErrNotFound) {
		t.Errorf("Wait for an unknown job = %v, want ErrNotFound", err)
	}
	if _, err := cal.client.Wait(t.Context(), []job.ID{job.NewID(cal.group, 99)}, nil); !errors.Is(err, ErrNotFound) {
		t.Errorf("Wait for an unknown job of this daemon = %v, want ErrNotFound", err)
	}
	if _, err := cal.client.Wait(t.Context(), []job.ID{job.NewID(55, 99)}, nil); !errors.Is(err, ErrNotFound) {
		t.Errorf("Wait for a job of an unknown group = %v, want ErrNotFound", err)
	}
	if jobs, err := cal.client.Wait(t.Context(), nil, nil); err != nil || len(jobs) != 0 {
		t.Errorf("Wait for nothing = %v, %v, want nothing", jobs, err)
	}
}

// A stream of ends sends nothing else, closes after the last end, and leaves its connection to the next request.
func TestStreamOfEndsClosesAfterTheLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben")
		amy, ben := c.daemons[0], c.daemons[1]
		a, b := amy.put(amy.newJob(1)), ben.put(ben.newJob(1))
		if _, err := amy.client.Wait(t.Context(), []job.ID{amy.put(ended(running(amy.newJob(2), ben), job.Exit{State: job.Failed})).ID}, nil); err != nil {
			t.Fatal(err)
		}
		told := make(chan []Event)
		go func() {
			resp, err := amy.client.open(t.Context(), http.MethodGet, "/v1/events", eventsInput{Job: texts([]job.ID{a.ID, b.ID}), Ended: true}.query(), nil, nil)
			if err != nil {
				t.Error(err)
				close(told)
				return
			}
			defer resp.Body.Close()
			var all []Event
			if err := readEvents(resp.Body, func() {}, func(e Event) bool { all = append(all, e); return true }); err != nil {
				t.Error(err)
			}
			told <- all
		}()
		synctest.Wait()
		for _, d := range []*daemon{amy, ben} {
			d.put(running(map[*daemon]job.Job{amy: a, ben: b}[d], ben))
			synctest.Wait()
		}
		ben.put(ended(running(b, ben), job.Exit{State: job.Succeeded}))
		synctest.Wait()
		amy.put(ended(running(a, ben), job.Exit{State: job.Timeout}))
		var jobs []job.State
		for _, e := range <-told {
			if e.Kind == EventJob {
				jobs = append(jobs, e.Job.State)
			}
		}
		if !slices.Equal(jobs, []job.State{job.Succeeded, job.Timeout}) {
			t.Errorf("got %v, want SUCCEEDED and TIMEOUT", jobs)
		}
		if n := amy.front.dialed(); n != 1 {
			t.Errorf("got %d connections for consecutive requests, want 1", n)
		}
		if _, err := amy.client.open(t.Context(), http.MethodGet, "/v1/events", url.Values{"ended": {"true"}}, nil, nil); !errors.Is(err, ErrBad) {
			t.Errorf("the ends of all jobs: got %v, want ErrBad", err)
		}
	})
}

// An event of a daemon about other jobs, or about none, is not mistaken for the end of an awaited job.
func TestWaitIgnoresEventsOfOtherJobs(t *testing.T) {
	a, b := job.NewID(7, 1), job.NewID(7, 2)
	f := follower{out: make(chan outgoing, 8)}
	left := awaitedOf([]job.ID{a})
	for _, e := range []Event{
		{Kind: EventJob, ID: a},
		{Kind: EventJob, ID: a, Job: &Job{ID: b, State: job.Succeeded}},
		{Kind: EventJob, ID: a, Job: &Job{ID: a, State: job.Running}},
		{Kind: EventJob, ID: b, Job: &Job{ID: b, State: job.Succeeded}},
		{Kind: EventGone, ID: b},
	} {
		if !f.tell(t.Context(), left, e) || len(f.out) > 0 {
			t.Errorf("%+v was accepted as an end", e)
		}
	}
	if f.tell(t.Context(), left, Event{Kind: EventJob, ID: a, Job: &Job{ID: a, State: job.Failed}}) || len(f.out) != 1 {
		t.Error("the end was not sent, or more is awaited")
	}
}

// Ends that are known at once are sent in one message with the opening. A longer stream confirms its opening soon,
// because a client retries only a stream that was open.
func TestKnownEndsAreSentInOneMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ends := make(chan outgoing, 1)
		ends <- outgoing{newEvent(EventJob), true}
		w := httptest.NewRecorder()
		writeEvents(t.Context(), w, ends, true)
		if w.Flushed || strings.Count(w.Body.String(), "\n\n") != 2 {
			t.Errorf("got flushed %t: %q, want both events in one message", w.Flushed, w.Body)
		}
		ctx, cancel := context.WithCancel(t.Context())
		w = httptest.NewRecorder()
		go writeEvents(ctx, w, ends, true)
		time.Sleep(openWithin + time.Millisecond)
		synctest.Wait()
		if !w.Flushed {
			t.Error("a wait that lasts did not confirm that it is open")
		}
		cancel()
		synctest.Wait()
	})
}

// The stream of all jobs reports changes at every member, silent members, and members that come back.
func TestEventsReportSilentMembersAndTheirReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben", "cal")
		amy, ben, cal := c.daemons[0], c.daemons[1], c.daemons[2]
		amy.states[cal.peer] = NodeLost
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		events := make(chan Event, 100)
		go func() {
			defer close(events)
			for e, err := range amy.client.Events(ctx, EventFilter{}) {
				if err != nil {
					if !errors.Is(err, context.Canceled) {
						t.Errorf("the stream ended with %v, want context.Canceled", err)
					}
					return
				}
				events <- e
			}
		}()
		expect := func(kind EventKind, who job.Peer) {
			t.Helper()
			for e := range events {
				peer := e.NodeID
				if e.Job != nil {
					peer = e.Job.Owner
				}
				if e.Kind == kind && peer == who {
					return
				}
				if e.Kind == EventJob {
					t.Fatalf("got %+v, want %s of %s", e, kind, who)
				}
			}
		}
		expect(EventOpen, "")
		expect(EventOpen, ben.peer)
		amy.put(amy.newJob(1))
		expect(EventJob, amy.peer)
		ben.put(ben.newJob(1))
		expect(EventJob, ben.peer)
		ben.back.cut()
		expect(EventSilent, ben.peer)
		expect(EventOpen, ben.peer)
		ben.put(ben.newJob(2))
		expect(EventJob, ben.peer)
		amy.mu.Lock()
		delete(amy.states, cal.peer)
		amy.mu.Unlock()
		expect(EventOpen, cal.peer)
		cal.put(cal.newJob(1))
		expect(EventJob, cal.peer)
		cancel()
		for range events {
		}
	})
}

// slowJobs lists jobs only after a while.
type slowJobs struct {
	Jobs

	takes time.Duration
}

func (s slowJobs) List(ctx context.Context, q job.Query) ([]job.Job, error) {
	time.Sleep(s.takes)
	return s.Jobs.List(ctx, q)
}

// A stream opens when changes of the daemon's own jobs are events. If listing its jobs takes long, the stream opens
// without them, and an open event of the daemon follows.
func TestStreamOpensWithTheDaemonsOwnJobs(t *testing.T) {
	for _, c := range []struct {
		takes time.Duration // for each of two lists
		opens []job.Peer
		after time.Duration
	}{{0, []job.Peer{""}, 0}, {ownWithin / 4, []job.Peer{""}, ownWithin / 2}, {ownWithin, []job.Peer{"", "own"}, ownWithin}} {
		synctest.Test(t, func(t *testing.T) {
			amy := newCluster(t, "amy").daemons[0]
			amy.server.viewer.make = func(inner func() *clusterView) func() *clusterView {
				return func() *clusterView {
					v := inner()
					v.source.jobs = slowJobs{amy, c.takes}
					return v
				}
			}(amy.server.viewer.make)
			began, opens := time.Now(), 0
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			for e, err := range amy.client.Events(ctx, EventFilter{}) {
				if err != nil {
					t.Fatalf("lists of %s: got %d of %d open events and no event of the job: %v", c.takes, opens, len(c.opens), err)
				}
				if e.Kind == EventJob && opens == len(c.opens) {
					return
				}
				if e.Kind != EventOpen || opens == len(c.opens) {
					continue
				}
				if want := c.opens[opens]; (e.NodeID == "") != (want == "") || want != "" && e.NodeID != amy.peer {
					t.Errorf("open event %d: got node %q, want %q", opens, e.NodeID, want)
				}
				if took := time.Since(began); opens == 0 && took != c.after {
					t.Errorf("lists of %s: the stream opens after %s, want %s", c.takes, took, c.after)
				}
				if opens++; opens == len(c.opens) {
					amy.put(amy.newJob(1))
				}
			}
		})
	}
}

// A daemon that does not come back ends the stream with an error, after longer than a restart takes.
func TestEventsEndIfTheDaemonStaysAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		amy := newCluster(t, "amy").daemons[0]
		began := time.Now()
		var last error
		for e, err := range amy.client.Events(t.Context(), EventFilter{}) {
			last = err
			if e.Kind == EventOpen {
				amy.front.Close()
				amy.front.cut()
			}
		}
		if took := time.Since(began); !errors.Is(last, ErrUnavailable) || took < time.Minute || took > 5*time.Minute {
			t.Errorf("after %s: got %v, want ErrUnavailable after 1 to 5 min", took, last)
		}
		for _, err := range amy.client.Events(t.Context(), EventFilter{}) {
			if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "muster daemon") {
				t.Errorf("without a daemon from the start: got %v, want ErrUnavailable with the command", err)
			}
		}
	})
}

// A stream on which nothing arrives is given up.
func TestSilentStreamIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben")
		amy, ben := c.daemons[0], c.daemons[1]
		j := ben.put(ben.newJob(1))
		close(ben.silent)
		began := time.Now()
		for e, err := range amy.client.Events(t.Context(), EventFilter{Jobs: []job.ID{j.ID}}) {
			if err != nil {
				t.Fatal(err)
			}
			if e.Kind == EventSilent {
				if e.NodeID != ben.peer || time.Since(began) != eventSilence {
					t.Errorf("after %s: got %+v, want that ben is silent after eventSilence", time.Since(began), e)
				}
				break
			}
		}
	})
}

func TestTooManyWatchedJobsAreRefused(t *testing.T) {
	c, err := NewClient(ClientConfig{Addr: "127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range c.Events(t.Context(), EventFilter{Jobs: make([]job.ID, maxWatched+1)}) {
		if !errors.Is(err, ErrBad) {
			t.Errorf("Events = %v, want ErrBad", err)
		}
	}
}
