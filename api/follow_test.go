package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
)

// collectProgress collects the progress of jobs until f returns false.
func (d *daemon) collectProgress(ctx context.Context, g job.Group, jobs []job.Follow, more func(job.Progress) bool) (got []job.Progress, err error) {
	enough := errors.New("enough")
	err = d.server.Follow(ctx, g, jobs, func(p job.Progress) error {
		if got = append(got, p); !more(p) {
			return enough
		}
		return nil
	})
	if errors.Is(err, enough) {
		err = nil
	}
	return got, err
}

// A daemon receives the progress of the jobs of another one, first the present state and then each change.
func TestFollowReportsStateAndChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben")
		amy, ben := c.daemons[0], c.daemons[1]
		j := ben.put(ben.newJob(1))
		array, nobody := ben.put(running(ben.newJob(2), ben)), job.NewID(ben.group, 99)
		jobs := []job.Follow{{Job: j.ID}, {Job: array.ID, Tasks: true}, {Job: nobody}}
		for _, d := range []*daemon{amy, ben} { // at another daemon, and at the owner
			ben.put(j)
			time.AfterFunc(time.Minute, func() { ben.put(ended(running(j, ben), job.Exit{State: job.Failed, Code: 1})) })
			got, err := d.collectProgress(t.Context(), ben.group, jobs, func(p job.Progress) bool { return p.State != job.Failed })
			want := []job.Progress{
				{Job: j.ID, State: job.Pending, Ago: time.Minute},
				{Job: array.ID, State: job.Running, Started: true, Ago: time.Minute, Tasks: testTasks},
				{Job: nobody},
				{Job: j.ID, State: job.Failed, Started: true, Ago: time.Minute},
			}
			byState := map[string]job.Progress{}
			for _, p := range got {
				byState[fmt.Sprint(p.Job, p.State)] = p
			}
			for _, w := range want {
				if p := byState[fmt.Sprint(w.Job, w.State)]; err != nil || !reflect.DeepEqual(p, w) {
					t.Errorf("%s: got %+v, %v; want %+v", d.name, p, err, w)
				}
			}
		}
	})
}

// An owner that cannot be asked is named, and reports nothing about its jobs.
func TestFollowNamesASilentOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben")
		amy, ben := c.daemons[0], c.daemons[1]
		jobs := []job.Follow{{Job: job.NewID(ben.group, 1)}}
		none := func(job.Progress) bool { t.Error("got progress, want none"); return false }

		ben.mu.Lock()
		ben.stuck = fmt.Errorf("%w: another daemon answers for these jobs now", ErrUnavailable)
		ben.mu.Unlock()
		if _, err := amy.collectProgress(t.Context(), ben.group, jobs, none); err == nil || !strings.Contains(err.Error(), "its owner ben does not answer") || !strings.Contains(err.Error(), "another daemon") {
			t.Errorf("a daemon that does not own them: got %v, want an error with the owner", err)
		}
		ben.mu.Lock()
		ben.forwarded = func(job.Group) (job.Peer, bool) { return amy.peer, false }
		ben.mu.Unlock()
		if _, err := amy.collectProgress(t.Context(), ben.group, jobs, none); err == nil || !strings.Contains(err.Error(), "does not own them") {
			t.Errorf("a daemon of another group: got %v, want that it does not own them", err)
		}
		if _, err := amy.collectProgress(t.Context(), 99, jobs, none); err == nil || !strings.Contains(err.Error(), "its owner is not known") {
			t.Errorf("no owner: got %v, want that it is not known", err)
		}
		close(ben.silent)
		began := time.Now()
		if _, err := amy.collectProgress(t.Context(), ben.group, jobs, none); err == nil || time.Since(began) != eventSilence || !strings.Contains(err.Error(), "ben does not answer: no answer in time") {
			t.Errorf("silent for %s: got %v, want an error after eventSilence", time.Since(began), err)
		}
	})
}

// lies is an http.RoundTripper that answers with a text.
type lies string

func (l lies) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(string(l)))}, nil
}

// Malformed messages of an owner end the stream.
func TestFollowEndsOnMalformedMessages(t *testing.T) {
	asked := job.NewID(2, 1)
	line := func(format string, args ...any) string { return fmt.Sprintf(format, args...) + "\n" }
	for name, text := range map[string]string{
		"not asked for":      line(`{"job":%q,"state":"SUCCEEDED"}`, job.NewID(2, 2)),
		"not a state":        line(`{"job":%q,"state":"GREAT"}`, asked),
		"not JSON":           line(`SUCCEEDED`),
		"tasks not asked":    line(`{"job":%q,"state":"RUNNING","succeeded":[[0,1]]}`, asked),
		"a long line":        line(`{"job":%q,"state":"%s"}`, asked, strings.Repeat("x", maxProgress)),
		"an end of a stream": "\n\n",
	} {
		d := newDaemons("me", nil, lies(text), nil, slog.New(slog.DiscardHandler))
		err := d.followAt(t.Context(), "liar", 2, []job.Follow{{Job: asked}}, func(p job.Progress) error {
			t.Errorf("%s: got %+v, want nothing", name, p)
			return nil
		})
		if err == nil {
			t.Errorf("%s: got no error, want one", name)
		}
	}
	for name, text := range map[string]string{
		"reversed":  `{"job":%q,"state":"RUNNING","succeeded":[[2,1]]}`,
		"negative":  `{"job":%q,"state":"RUNNING","open":[[-1,1]]}`,
		"too large": `{"job":%q,"state":"RUNNING","failed":[[0,2147483648]]}`,
		"too many":  `{"job":%q,"state":"RUNNING","failed":[` + strings.Repeat("[0,0],", job.MaxRanges) + `[0,0]]}`,
	} {
		d := newDaemons("me", nil, lies(line(text, asked)), nil, slog.New(slog.DiscardHandler))
		if err := d.followAt(t.Context(), "liar", 2, []job.Follow{{Job: asked, Tasks: true}}, func(job.Progress) error { return nil }); !errors.Is(err, errNonsense) {
			t.Errorf("%s: got %v, want errNonsense", name, err)
		}
	}
	d := newDaemons("me", nil, lies(line(`{"job":%q,"state":"RUNNING","ago":1e300}`, asked)), nil, slog.New(slog.DiscardHandler))
	err := d.followAt(t.Context(), "liar", 2, []job.Follow{{Job: asked}}, func(p job.Progress) error {
		if p.Ago != 0 {
			t.Errorf("started: got %s ago, want 0", p.Ago)
		}
		return nil
	})
	if !errors.Is(err, errStreamEnded) {
		t.Errorf("the end: got %v, want errStreamEnded", err)
	}
}

func FuzzProgress(f *testing.F) {
	asked := job.NewID(2, 1)
	f.Add([]byte(fmt.Sprintf(`{"job":%q,"state":"RUNNING","started":true,"ago":3.5,"succeeded":[[0,1]],"open":[[2,2]]}`, asked)))
	f.Add([]byte(fmt.Sprintf(`{"job":%q}`, asked)))
	f.Fuzz(func(t *testing.T, text []byte) {
		d := newDaemons("me", nil, lies(text), nil, slog.New(slog.DiscardHandler))
		_ = d.followAt(t.Context(), "liar", 2, []job.Follow{{Job: asked, Tasks: true}}, func(p job.Progress) error {
			if p.Job != asked || p.Ago < 0 || p.Tasks.Len() > job.MaxRanges {
				t.Errorf("accepted %+v, want the asked job with bounded values", p)
			}
			return nil
		})
	})
}

// Requests that no daemon makes are refused, and so is one stream too many of the same daemon.
func TestFollowRefusesExcessiveRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben")
		amy, ben := c.daemons[0], c.daemons[1]
		many := make([]job.Follow, maxFollowed+1)
		for i := range many {
			many[i].Job = job.NewID(ben.group, uint64(i))
		}
		none := func(job.Progress) error { return nil }
		for name, jobs := range map[string][]job.Follow{"none": nil, "of another group": {{Job: job.NewID(amy.group, 1)}}, "too many": many} {
			if err := amy.server.daemons.followAt(t.Context(), ben.peer, ben.group, jobs, none); !errors.Is(err, ErrBad) && !errors.Is(err, ErrTooLarge) {
				t.Errorf("%s: got %v, want ErrBad or ErrTooLarge", name, err)
			}
		}
		if code, _, _ := ben.raw(t, "POST", "/peer/v1/groups/"+ben.group.String()+"/progress", `{"jobs":[]}`); code != http.StatusNotFound {
			t.Errorf("a client: got status %d, want 404", code)
		}
		ctx, cancel := context.WithCancel(t.Context())
		for range peerFollowers {
			go func() {
				_ = amy.server.Follow(ctx, ben.group, []job.Follow{{Job: job.NewID(ben.group, 1)}}, none)
			}()
		}
		synctest.Wait()
		one := []job.Follow{{Job: job.NewID(ben.group, 1)}}
		if err := amy.server.Follow(t.Context(), ben.group, one, none); err == nil || !strings.Contains(err.Error(), "too many streams") {
			t.Errorf("one stream more than allowed: got %v, want too many streams", err)
		}
		cancel()
		time.Sleep(time.Minute)
		if _, err := amy.collectProgress(t.Context(), ben.group, one, func(job.Progress) bool { return false }); err != nil {
			t.Errorf("after the others have ended: got %v, want no error", err)
		}
		time.Sleep(time.Minute)
		ben.server.follows.open.mu.Lock()
		defer ben.server.follows.open.mu.Unlock()
		if n := len(ben.server.follows.open.open); n != 0 {
			t.Errorf("got %d streams counted, want 0", n)
		}
	})
}

// A job may not depend on a job whose owner says that it does not exist. A silent owner does not say that.
func TestSubmitRefusesDependenciesThatDoNotExist(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben", "cal")
		amy, ben, cal := c.daemons[0], c.daemons[1], c.daemons[2]
		parent := ben.put(ben.newJob(1))
		submit := func(key string, ids ...job.ID) (Job, error) {
			spec := job.DefaultSpec()
			spec.Command = []string{"true"}
			for _, id := range ids {
				spec.Dependency = append(spec.Dependency, "afterok:"+string(id))
			}
			return amy.client.Submit(t.Context(), spec, key)
		}
		if _, err := submit("k", parent.ID); err != nil {
			t.Errorf("a parent that exists: got %v, want no error", err)
		}
		missing := job.NewID(ben.group, 99)
		if _, err := submit("", parent.ID, missing); !errors.Is(err, ErrBad) || !strings.Contains(err.Error(), string(missing)) {
			t.Errorf("a parent that does not exist: got %v, want ErrBad with its ID", err)
		}
		ben.mu.Lock()
		delete(ben.jobs, parent.ID)
		ben.mu.Unlock()
		if _, err := submit("k", parent.ID); err != nil {
			t.Errorf("a retry after the parent was deleted: got %v, want no error", err)
		}
		close(cal.silent)
		began := time.Now()
		if _, err := submit("", job.NewID(cal.group, 1)); err != nil || time.Since(began) > 2*parentsWithin {
			t.Errorf("a silent owner: got %v after %s, want no error in time", err, time.Since(began))
		}
		if _, err := submit("", job.NewID(77, 1)); err != nil {
			t.Errorf("an unknown owner: got %v, want no error", err)
		}
	})
}

// A job that no node could ever run is refused in 1.1 s, of which the scheduler takes one, also if the owner of a job
// that it depends on is silent. A job that can run waits longer for that owner.
func TestSubmitOfAnImpossibleJobIsRefusedDespiteASilentOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben", "cal")
		amy, ben, cal := c.daemons[0], c.daemons[1], c.daemons[2]
		spec := job.DefaultSpec()
		spec.Command, spec.Dependency = []string{"true"}, []string{"afterok:" + string(job.NewID(cal.group, 1))}
		close(cal.silent)
		amy.mu.Lock()
		amy.noMatch, amy.slow = &contract.Explanation{Reason: job.Reason{Word: job.ReasonNoMatch}}, time.Second
		amy.mu.Unlock()
		began := time.Now()
		if _, err := amy.client.Submit(t.Context(), spec, ""); !errors.Is(err, ErrNoMatch) || time.Since(began) > 1100*time.Millisecond {
			t.Errorf("a job that no node could run: got %v after %s, want ErrNoMatch within 1.1 s", err, time.Since(began))
		}
		// An owner that answers is heard even so.
		spec.Dependency = []string{"afterok:" + string(job.NewID(ben.group, 99))}
		spec.Hold = true
		if _, err := amy.client.Submit(t.Context(), spec, ""); !errors.Is(err, ErrBad) {
			t.Errorf("a held job that depends on one that does not exist: got %v, want ErrBad", err)
		}
	})
}

// The document of a job has its dependencies; listings leave them out.
func TestDocumentOfAJobHasDependencies(t *testing.T) {
	j := job.Job{Spec: job.DefaultSpec(), Depends: []job.Depends{{
		Dependency: job.Dependency{When: job.After, Job: job.NewID(1, 1), Delay: 5 * time.Minute},
		Outcome:    job.DependencyWaiting, Parent: job.Running, Detail: "d",
	}}}
	d := JobDocument(j, 1)
	want := []Dependency{{Condition: job.After, Job: job.NewID(1, 1), Delay: 300, State: job.DependencyWaiting, JobState: job.Running, Detail: "d"}}
	if !reflect.DeepEqual(d.Dependencies, want) || briefDocument(&j, 1).Dependencies != nil {
		t.Errorf("got %+v, want %+v; in listings got %+v, want none", d.Dependencies, want, briefDocument(&j, 1).Dependencies)
	}
}

// With visibility own a job cannot wait for a job that its user may not list, wherever it is: for the user it does not
// exist. Otherwise the dependency would show whether that job exists, and how it ends.
func TestHiddenJobCannotBeAParent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben")
		amy, ben := c.daemons[0], c.daemons[1]
		put := func(d *daemon, user string) job.ID {
			j := d.newJob(uint64(len(user)))
			j.User = user
			return d.put(j).ID
		}
		own, hers, theirs := put(ben, "amy"), put(amy, "mallory"), put(ben, "mallory")
		try := func(id job.ID) error {
			spec := job.DefaultSpec()
			spec.Command, spec.Dependency = []string{"true"}, []string{"afterok:" + string(id)}
			_, err := amy.client.Submit(t.Context(), spec, "")
			return err
		}
		for _, id := range []job.ID{own, hers, theirs} {
			if err := try(id); err != nil {
				t.Errorf("with visibility all, after job %s: got %v, want no error", id, err)
			}
		}
		for _, d := range c.daemons {
			d.server.auth.ownOnly = true
		}
		if err := try(own); err != nil {
			t.Errorf("after an own job: got %v, want no error", err)
		}
		unknown := try(job.NewID(ben.group, 99))
		for _, id := range []job.ID{hers, theirs} {
			if err := try(id); !errors.Is(err, ErrBad) || strings.ReplaceAll(err.Error(), string(id), "") != strings.ReplaceAll(unknown.Error(), string(job.NewID(ben.group, 99)), "") {
				t.Errorf("after job %s: got %v, want the same as after a job that does not exist, %v", id, err, unknown)
			}
		}
	})
}
