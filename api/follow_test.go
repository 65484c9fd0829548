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

// followed collects the progress of jobs until f returns false.
func (d *daemon) followed(ctx context.Context, g job.Group, jobs []job.Follow, more func(job.Progress) bool) (got []job.Progress, err error) {
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

// A daemon is told how far the jobs of another one are, first as they are and then each change.
func TestFollowProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben")
		amy, ben := c.daemons[0], c.daemons[1]
		j := ben.put(ben.newJob(1))
		array, nobody := ben.put(running(ben.newJob(2), ben)), job.NewID(ben.group, 99)
		jobs := []job.Follow{{Job: j.ID}, {Job: array.ID, Tasks: true}, {Job: nobody}}
		for _, d := range []*daemon{amy, ben} { // far, and here
			ben.put(j)
			time.AfterFunc(time.Minute, func() { ben.put(ended(running(j, ben), job.Exit{State: job.Failed, Code: 1})) })
			got, err := d.followed(t.Context(), ben.group, jobs, func(p job.Progress) bool { return p.State != job.Failed })
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
					t.Errorf("%s: %+v, %v; want %+v", d.name, p, err, w)
				}
			}
		}
	})
}

// An owner that cannot be asked is named, and says nothing about its jobs.
func TestFollowSilentOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben")
		amy, ben := c.daemons[0], c.daemons[1]
		jobs := []job.Follow{{Job: job.NewID(ben.group, 1)}}
		none := func(job.Progress) bool { t.Error("it was told something"); return false }

		ben.mu.Lock()
		ben.stuck = fmt.Errorf("%w: another daemon answers for these jobs now", ErrUnavailable)
		ben.mu.Unlock()
		if _, err := amy.followed(t.Context(), ben.group, jobs, none); err == nil || !strings.Contains(err.Error(), "its owner ben does not answer") || !strings.Contains(err.Error(), "another daemon") {
			t.Errorf("not the owner: %v", err)
		}
		ben.mu.Lock()
		ben.forwarded = func(job.Group) (job.Peer, bool) { return amy.peer, false }
		ben.mu.Unlock()
		if _, err := amy.followed(t.Context(), ben.group, jobs, none); err == nil || !strings.Contains(err.Error(), "does not own them") {
			t.Errorf("not its group: %v", err)
		}
		if _, err := amy.followed(t.Context(), 99, jobs, none); err == nil || !strings.Contains(err.Error(), "its owner is not known") {
			t.Errorf("no owner: %v", err)
		}
		close(ben.silent)
		began := time.Now()
		if _, err := amy.followed(t.Context(), ben.group, jobs, none); err == nil || time.Since(began) != eventSilence || !strings.Contains(err.Error(), "ben does not answer: no answer in time") {
			t.Errorf("silent for %s: %v", time.Since(began), err)
		}
	})
}

// lies is an http.RoundTripper whose answer is a text.
type lies string

func (l lies) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(string(l)))}, nil
}

// What a bad owner sends ends the stream.
func TestFollowLiars(t *testing.T) {
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
			t.Errorf("%s: told %+v", name, p)
			return nil
		})
		if err == nil {
			t.Errorf("%s: no error", name)
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
			t.Errorf("%s: %v", name, err)
		}
	}
	d := newDaemons("me", nil, lies(line(`{"job":%q,"state":"RUNNING","ago":1e300}`, asked)), nil, slog.New(slog.DiscardHandler))
	err := d.followAt(t.Context(), "liar", 2, []job.Follow{{Job: asked}}, func(p job.Progress) error {
		if p.Ago != 0 {
			t.Errorf("started %s ago", p.Ago)
		}
		return nil
	})
	if !errors.Is(err, errStreamEnded) {
		t.Errorf("the end: %v", err)
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
				t.Errorf("taken: %+v", p)
			}
			return nil
		})
	})
}

// Requests that no daemon makes are refused, and so is one stream too many of the same daemon.
func TestFollowRefuses(t *testing.T) {
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
				t.Errorf("%s: %v", name, err)
			}
		}
		if code, _, _ := ben.raw(t, "POST", "/peer/v1/groups/"+ben.group.String()+"/progress", `{"jobs":[]}`); code != http.StatusNotFound {
			t.Errorf("a client gets status %d", code)
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
			t.Errorf("one stream too many: %v", err)
		}
		cancel()
		time.Sleep(time.Minute)
		if _, err := amy.followed(t.Context(), ben.group, one, func(job.Progress) bool { return false }); err != nil {
			t.Errorf("after the others have ended: %v", err)
		}
		time.Sleep(time.Minute)
		ben.server.follows.open.mu.Lock()
		defer ben.server.follows.open.mu.Unlock()
		if n := len(ben.server.follows.open.open); n != 0 {
			t.Errorf("%d streams are counted", n)
		}
	})
}

// A job may not depend on one of which its owner says that it is not there. A silent owner has not said so.
func TestSubmitWithDependencies(t *testing.T) {
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
			t.Errorf("there: %v", err)
		}
		missing := job.NewID(ben.group, 99)
		if _, err := submit("", parent.ID, missing); !errors.Is(err, ErrBad) || !strings.Contains(err.Error(), string(missing)) {
			t.Errorf("not there: %v", err)
		}
		ben.mu.Lock()
		delete(ben.jobs, parent.ID)
		ben.mu.Unlock()
		if _, err := submit("k", parent.ID); err != nil {
			t.Errorf("a retry after the parent was deleted: %v", err)
		}
		close(cal.silent)
		began := time.Now()
		if _, err := submit("", job.NewID(cal.group, 1)); err != nil || time.Since(began) > 2*parentsWithin {
			t.Errorf("a silent owner: %v after %s", err, time.Since(began))
		}
		if _, err := submit("", job.NewID(77, 1)); err != nil {
			t.Errorf("an owner that nobody knows: %v", err)
		}
	})
}

// What nothing could ever run is refused in 1.1 s, of which the scheduler takes one, also if the owner of a job that it
// depends on is silent. A job that can run waits longer for that owner.
func TestSubmitOfTheImpossibleWithDependencies(t *testing.T) {
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
			t.Errorf("the impossible: %v after %s", err, time.Since(began))
		}
		// An owner that answers is heard even so.
		spec.Dependency = []string{"afterok:" + string(job.NewID(ben.group, 99))}
		spec.Hold = true
		if _, err := amy.client.Submit(t.Context(), spec, ""); !errors.Is(err, ErrBad) {
			t.Errorf("held, on a job that is not there: %v", err)
		}
	})
}

// The document of a job tells its dependencies; listings leave them out.
func TestDependenciesInDocuments(t *testing.T) {
	j := job.Job{Spec: job.DefaultSpec(), Depends: []job.Depends{{
		Dependency: job.Dependency{When: job.After, Job: job.NewID(1, 1), Delay: 5 * time.Minute},
		Outcome:    job.DependencyWaiting, Parent: job.Running, Detail: "d",
	}}}
	d := JobDocument(j, 1)
	want := []Dependency{{Condition: job.After, Job: job.NewID(1, 1), Delay: 300, State: job.DependencyWaiting, JobState: job.Running, Detail: "d"}}
	if !reflect.DeepEqual(d.Dependencies, want) || briefDocument(&j, 1).Dependencies != nil {
		t.Errorf("%+v, in listings %+v", d.Dependencies, briefDocument(&j, 1).Dependencies)
	}
}

// With visibility own a job cannot wait for a job that its user may not list, wherever that is: for the user there is none.
// Otherwise it would tell whether that job is there, and how it ends.
func TestHiddenParents(t *testing.T) {
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
				t.Errorf("with visibility all, after job %s: %v", id, err)
			}
		}
		for _, d := range c.daemons {
			d.server.auth.ownOnly = true
		}
		if err := try(own); err != nil {
			t.Errorf("after an own job: %v", err)
		}
		unknown := try(job.NewID(ben.group, 99))
		for _, id := range []job.ID{hers, theirs} {
			if err := try(id); !errors.Is(err, ErrBad) || strings.ReplaceAll(err.Error(), string(id), "") != strings.ReplaceAll(unknown.Error(), string(job.NewID(ben.group, 99)), "") {
				t.Errorf("after job %s: %v, and after one that is not there: %v", id, err, unknown)
			}
		}
	})
}
