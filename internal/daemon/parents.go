package daemon

// Parents: jobs of other daemons that this daemon's jobs depend on. Each of their owners is followed over one stream.
// See docs/adr, ADR 86.

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/musterhq/muster/job"
	schedulerloop "github.com/musterhq/muster/scheduler/loop"
)

// Bounds of following.
const (
	// maxOwners bounds the owners that are followed at a time. If there are more, they take turns of ownerTurn.
	maxOwners = 256
	ownerTurn = time.Minute
	// maxSearches bounds the searches for owners in the DHT.
	maxSearches = 16
	searchTime  = 10 * time.Second
	// A stream is replaced when the jobs to follow change. The change waits for regroupPause, plus regroupEach for each
	// followed job, because a new stream reports the state of all of them again.
	regroupPause = 200 * time.Millisecond
	regroupEach  = time.Millisecond
	// A stream that breaks is opened again after a pause, which doubles from retryFirst to retryMost. If a stream has lasted
	// for steadyFor, the next pause is retryFirst again.
	retryFirst = 200 * time.Millisecond
	retryMost  = 5 * time.Second
	steadyFor  = 10 * time.Second
	// seenAtOnce and seenPause bound how fast one owner reports to the scheduler: 6,400 changes a second.
	seenAtOnce = 64
	seenPause  = 10 * time.Millisecond
)

// progressSource follows jobs of one group, on whichever daemon their owner is.
type progressSource interface {
	Follow(ctx context.Context, g job.Group, jobs []job.Follow, each func(job.Progress) error) error
}

// parentListener is the scheduler whose jobs depend on others.
type parentListener interface {
	ParentSeen(p job.Progress) error
	ParentsSilent(ids []job.ID, detail string)
}

// ownerFinder finds the owners of groups.
type ownerFinder interface {
	knows(g job.Group) bool
	Owner(ctx context.Context, g job.Group) (p job.Peer, self bool, err error)
}

// parents follows jobs for a scheduler. The first three fields are set before run.
type parents struct {
	source progressSource
	finder ownerFinder
	tell   parentListener

	turns    chan struct{} // a token for each owner that is followed
	searches chan struct{} // a token for each search
	bell     chan struct{} // holds one token while there may be a group that nobody follows yet

	mu     sync.Mutex
	groups map[job.Group]*followedGroup // guarded by mu
}

// followedGroup is the jobs of one group that are followed. Its fields are guarded by parents.mu.
type followedGroup struct {
	jobs    map[job.ID]bool // true if the state of each task is wanted
	running bool            // a goroutine follows them
	changed chan struct{}   // closed and replaced when the jobs to follow change
}

var _ schedulerloop.Parents = (*parents)(nil)

func newParents() *parents {
	return &parents{
		turns: make(chan struct{}, maxOwners), searches: make(chan struct{}, maxSearches), bell: make(chan struct{}, 1),
		groups: map[job.Group]*followedGroup{},
	}
}

// Follow adds jobs. The state of a job that is already followed is reported again.
func (p *parents) Follow(jobs []job.Follow) {
	p.mu.Lock()
	defer p.mu.Unlock()
	changed := map[*followedGroup]bool{}
	for _, x := range jobs {
		g := p.groups[x.Job.Group()]
		if g == nil {
			g = &followedGroup{jobs: map[job.ID]bool{}, changed: make(chan struct{})}
			p.groups[x.Job.Group()] = g
		}
		g.jobs[x.Job] = x.Tasks
		changed[g] = true
	}
	for g := range changed {
		g.regroup()
	}
	select {
	case p.bell <- struct{}{}:
	default:
	}
}

// Unfollow removes jobs. Their stream stays open while other jobs need it.
func (p *parents) Unfollow(ids []job.ID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, id := range ids {
		g := p.groups[id.Group()]
		if g == nil {
			continue
		}
		if delete(g.jobs, id); len(g.jobs) == 0 {
			g.regroup()
		}
	}
}

func (g *followedGroup) regroup() {
	close(g.changed)
	g.changed = make(chan struct{})
}

// run follows until ctx ends.
func (p *parents) run(ctx context.Context) error {
	var following sync.WaitGroup
	defer following.Wait()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.bell:
		}
		p.mu.Lock()
		for id, g := range p.groups {
			if !g.running {
				g.running = true
				following.Go(func() { p.follow(ctx, id, g) })
			}
		}
		p.mu.Unlock()
	}
}

// wanted returns the jobs of a group to follow, and a channel that is closed when these change. If there are none, the
// group is removed.
func (p *parents) wanted(id job.Group, g *followedGroup) (jobs []job.Follow, changed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for j, tasks := range g.jobs {
		jobs = append(jobs, job.Follow{Job: j, Tasks: tasks})
	}
	if len(jobs) == 0 {
		delete(p.groups, id)
	}
	return jobs, g.changed
}

var errRegroup = errors.New("other jobs are to be followed")

// follow follows the jobs of a group while there are any.
func (p *parents) follow(ctx context.Context, id job.Group, g *followedGroup) {
	pause := retryFirst
	for {
		jobs, changed := p.wanted(id, g)
		if len(jobs) == 0 {
			return
		}
		began := time.Now()
		err := p.stream(ctx, id, jobs, changed)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, errRegroup):
			continue
		}
		ids := make([]job.ID, 0, len(jobs))
		for _, x := range jobs {
			ids = append(ids, x.Job)
		}
		p.tell.ParentsSilent(ids, err.Error())
		if time.Since(began) >= steadyFor {
			pause = retryFirst
		}
		if sleep(ctx, pause*3/4+rand.N(pause/2)) != nil { //nolint:gosec // it need not be secret
			return
		}
		pause = min(2*pause, retryMost)
	}
}

// stream follows jobs over one stream, until the stream breaks, the jobs to follow change, or the turn of this owner is
// over.
func (p *parents) stream(ctx context.Context, id job.Group, jobs []job.Follow, changed <-chan struct{}) error {
	if err := p.find(ctx, id); err != nil {
		return fmt.Errorf("its owner is not known: %w", err)
	}
	select {
	case p.turns <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-p.turns }()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
		if sleep(ctx, regroupPause+time.Duration(len(jobs))*regroupEach) == nil {
			cancel(errRegroup)
		}
	}()
	turn := time.AfterFunc(ownerTurn, func() {
		if len(p.turns) == cap(p.turns) { // others may be waiting
			cancel(errRegroup)
		}
	})
	defer turn.Stop()
	n := 0
	err := p.source.Follow(ctx, id, jobs, func(x job.Progress) error {
		if n++; n%seenAtOnce == 0 {
			if err := sleep(ctx, seenPause); err != nil {
				return err
			}
		}
		for p.tell.ParentSeen(x) != nil { // the scheduler is busy
			if err := sleep(ctx, 10*seenPause); err != nil {
				return err
			}
		}
		return nil
	})
	if why := context.Cause(ctx); why != nil {
		return why
	}
	if err == nil {
		err = errStreamEnded
	}
	return err
}

var errStreamEnded = errors.New("its owner has ended the stream")

// find looks for the owner of a group that this daemon does not know.
func (p *parents) find(ctx context.Context, id job.Group) error {
	if p.finder.knows(id) {
		return nil
	}
	select {
	case p.searches <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-p.searches }()
	ctx, cancel := context.WithTimeout(ctx, searchTime)
	defer cancel()
	_, _, err := p.finder.Owner(ctx, id)
	return err
}

// sleep waits for d, or returns an error if ctx ends first.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
