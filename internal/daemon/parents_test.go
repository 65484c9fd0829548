package daemon

// Following the jobs of other owners: owners that are silent, that flood, and that are too many.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/musterhq/muster/job"
)

// farOwners stands for the owners of all groups, and for the scheduler that receives the states of their jobs.
type farOwners struct {
	mu      sync.Mutex
	streams map[job.Group]int         // guarded by mu: open streams
	opened  []string                  // guarded by mu: the jobs of each stream that was opened
	silent  error                     // guarded by mu: no owner answers
	unknown error                     // guarded by mu: no owner is found
	flood   bool                      // guarded by mu: changes without end
	change  map[job.ID]chan job.State // guarded by mu
	seen    map[job.ID]job.State      // guarded by mu
	told    int                       // guarded by mu: how often ParentSeen was called
	quiet   []string                  // guarded by mu: what ParentsSilent was called with
	busy    int                       // how often the scheduler says that it is busy
}

func newFarOwners() *farOwners {
	return &farOwners{streams: map[job.Group]int{}, change: map[job.ID]chan job.State{}, seen: map[job.ID]job.State{}}
}

func (f *farOwners) knows(job.Group) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.unknown == nil
}

func (f *farOwners) Owner(ctx context.Context, _ job.Group) (job.Peer, bool, error) {
	f.mu.Lock()
	err := f.unknown
	f.mu.Unlock()
	if err != nil {
		<-ctx.Done()
	}
	return "", false, err
}

func (f *farOwners) Follow(ctx context.Context, g job.Group, jobs []job.Follow, each func(job.Progress) error) error {
	var names []string
	for _, x := range jobs {
		if x.Job.Group() != g {
			return errors.New("a job of another group")
		}
		names = append(names, fmt.Sprintf("%d:%v", x.Job.Drawn(), x.Tasks))
	}
	slices.Sort(names)
	f.mu.Lock()
	f.opened = append(f.opened, strings.Join(names, " "))
	if f.silent != nil {
		defer f.mu.Unlock()
		return f.silent
	}
	f.streams[g]++
	flood := f.flood
	changes := make(chan job.State)
	f.change[jobs[0].Job] = changes
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.streams[g]--
	}()
	for _, x := range jobs {
		if err := each(job.Progress{Job: x.Job, State: job.Running}); err != nil {
			return err
		}
	}
	for flood {
		if err := each(job.Progress{Job: jobs[0].Job, State: job.Pending}); err != nil {
			return err
		}
	}
	for {
		select {
		case s := <-changes:
			if err := each(job.Progress{Job: jobs[0].Job, State: s}); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (f *farOwners) ParentSeen(p job.Progress) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.busy > 0 {
		f.busy--
		return errors.New("busy")
	}
	f.seen[p.Job] = p.State
	f.told++
	return nil
}

func (f *farOwners) ParentsSilent(ids []job.ID, detail string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.quiet = append(f.quiet, fmt.Sprintf("%d %s", len(ids), detail))
}

func (f *farOwners) open() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, k := range f.streams {
		n += k
	}
	return n
}

// following runs parents in a bubble of synctest.
func following(t *testing.T, f func(t *testing.T, p *parents, far *farOwners)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		far, p := newFarOwners(), newParents()
		p.source, p.finder, p.tell = far, far, far
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- p.run(ctx) }()
		f(t, p, far)
		stop()
		if err := <-done; err != nil {
			t.Errorf("run = %v, want no error", err)
		}
		if n := far.open(); n != 0 {
			t.Errorf("got %d open streams, want 0", n)
		}
	})
}

func jobOf(g, n int) job.Follow { return job.Follow{Job: job.NewID(job.Group(g), uint64(n))} }

// The jobs of one owner share one stream. It is replaced when other jobs are followed, but not for each of them, and
// closed when none is needed.
func TestJobsOfOneOwnerShareAStream(t *testing.T) {
	following(t, func(t *testing.T, p *parents, far *farOwners) {
		p.Follow([]job.Follow{jobOf(2, 1), jobOf(3, 1)})
		pass(time.Second)
		if n := far.open(); n != 2 || len(far.seen) != 2 {
			t.Fatalf("got %d streams and %d jobs, want 2 and 2", n, len(far.seen))
		}
		for i := range 1000 {
			p.Follow([]job.Follow{jobOf(2, i+2)})
			pass(time.Millisecond)
		}
		pass(10 * time.Second)
		if n := far.open(); n != 2 || len(far.opened) > 10 || len(far.seen) != 1002 {
			t.Errorf("got %d open of %d opened streams and %d jobs, want 2 of at most 10, and 1002", n, len(far.opened), len(far.seen))
		}
		var ids []job.ID
		for i := range 1000 {
			ids = append(ids, jobOf(2, i+1).Job)
		}
		p.Unfollow(ids)
		pass(10 * time.Second)
		opened := len(far.opened)
		p.Follow([]job.Follow{{Job: jobOf(3, 1).Job, Tasks: true}}) // its tasks are needed now
		pass(10 * time.Second)
		if last := far.opened[len(far.opened)-1]; len(far.opened) != opened+1 || last != "1:true" {
			t.Errorf("got %d more streams, the last for %s, want 1 for 1:true", len(far.opened)-opened, last)
		}
		p.Unfollow([]job.ID{jobOf(3, 1).Job, jobOf(2, 1001).Job})
		pass(10 * time.Second)
		if n := far.open(); n != 0 || len(p.groups) != 0 {
			t.Errorf("got %d streams and %d groups, want 0 and 0", n, len(p.groups))
		}
		p.Follow([]job.Follow{jobOf(2, 1)})
		pass(time.Second)
		if n := far.open(); n != 1 {
			t.Errorf("got %d streams when a job is followed again, want 1", n)
		}
	})
}

// A silent owner is asked again with growing pauses, and an owner that is not found is searched for. The scheduler
// learns the reason.
func TestSilentOwnersAreAskedWithPauses(t *testing.T) {
	following(t, func(t *testing.T, p *parents, far *farOwners) {
		far.silent = errors.New("its owner far does not answer")
		p.Follow([]job.Follow{jobOf(2, 1), jobOf(2, 2)})
		pass(time.Hour)
		if n := len(far.opened); n < 600 || n > 1000 {
			t.Errorf("got %d requests in an hour, want 600 to 1000", n)
		}
		if len(far.quiet) != len(far.opened) || far.quiet[0] != "2 its owner far does not answer" || len(far.seen) != 0 {
			t.Errorf("got the reason %q and states %v, want one reason for each request and no states", far.quiet[0], far.seen)
		}
		far.mu.Lock()
		far.silent, far.busy = nil, 3
		far.mu.Unlock()
		pass(time.Minute)
		if far.seen[jobOf(2, 1).Job] != job.Running || far.seen[jobOf(2, 2).Job] != job.Running {
			t.Errorf("after the owner answers: got states %v, want RUNNING", far.seen)
		}
		p.Unfollow([]job.ID{jobOf(2, 1).Job, jobOf(2, 2).Job})
		far.mu.Lock()
		far.unknown = errors.New("nobody knows it")
		far.mu.Unlock()
		p.Follow([]job.Follow{jobOf(9, 1)})
		pass(searchTime + time.Second)
		if last := far.quiet[len(far.quiet)-1]; last != "1 its owner is not known: nobody knows it" {
			t.Errorf("got the reason %q, want that the owner is not known", last)
		}
	})
}

// An owner whose jobs change without end does not fill the scheduler's inbox.
func TestFloodingOwnerDoesNotFillTheInbox(t *testing.T) {
	following(t, func(t *testing.T, p *parents, far *farOwners) {
		far.flood = true
		p.Follow([]job.Follow{jobOf(2, 1)})
		pass(10 * time.Second)
		far.mu.Lock()
		defer far.mu.Unlock()
		if want := int(10*time.Second/seenPause) * seenAtOnce; far.told > want+seenAtOnce || far.told < want/2 {
			t.Errorf("got %d changes in 10 s, want about %d", far.told, want)
		}
	})
}

// If there are more owners than streams, they are followed in turn.
func TestOwnersBeyondTheStreamsAreFollowedInTurn(t *testing.T) {
	following(t, func(t *testing.T, p *parents, far *farOwners) {
		const n = 2*maxOwners + 10
		for g := range n {
			p.Follow([]job.Follow{jobOf(g+1, 1)})
		}
		most := 0
		for range 300 {
			pass(time.Second)
			most = max(most, far.open())
		}
		if most != maxOwners || len(far.seen) != n {
			t.Errorf("got %d streams at a time, and %d of %d owners followed, want maxOwners and all", most, len(far.seen), n)
		}
	})
}
