package loop

import (
	"sync"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
)

// places are hosts with some places each, for tasks of one CPU. On bad hosts tasks fail at once, on the others they run
// for a while. Offers without a free place wait in the host's queue.
type places struct {
	loopRig loopRig
	runs    time.Duration
	bad     map[job.Peer]bool
	// unstarted says that the bad hosts cannot start a task at all.
	unstarted bool

	mu     sync.Mutex
	free   map[job.Peer]int
	queue  map[job.Peer][]contract.Offer
	failed int // tasks that failed at once
	ran    map[job.Peer]int
}

// badRuns is how long a task runs that fails at once.
const badRuns = 20 * time.Millisecond

func newPlaces(h loopRig, runs time.Duration, bad ...job.Peer) *places {
	p := &places{loopRig: h, runs: runs, bad: map[job.Peer]bool{}, free: map[job.Peer]int{}, queue: map[job.Peer][]contract.Offer{}, ran: map[job.Peer]int{}}
	for _, peer := range bad {
		p.bad[peer] = true
	}
	h.host.send = p.send
	return p
}

func (p *places) connect(peer job.Peer, places int) {
	p.free[peer], p.loopRig.host.cpus = places, places
	p.loopRig.host.connect(peer)
}

func (p *places) send(to job.Peer, m contract.ToWorker) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch m := m.(type) {
	case contract.Offer:
		for _, o := range p.queue[to] {
			if o.ID == m.ID {
				return nil
			}
		}
		p.queue[to] = append(p.queue[to], m)
		return p.commit(to)
	case contract.Release:
		for i, o := range p.queue[to] {
			if o.ID == m.Offer {
				p.queue[to] = append(p.queue[to][:i], p.queue[to][i+1:]...)
				return nil
			}
		}
		p.free[to]++
		return p.commit(to)
	case contract.Start:
		bad, runs := p.bad[to], p.runs
		if bad {
			runs = badRuns
		}
		time.AfterFunc(runs, func() { p.end(to, m, bad, runs) })
		return p.loopRig.loop.FromWorker(to, contract.Event{Attempt: m.Attempt, Group: m.Group, N: 1, State: job.Running})
	}
	return nil
}

// commit accepts the offers of a host for which it has places. The lock is held.
func (p *places) commit(to job.Peer) error {
	for p.free[to] > 0 && len(p.queue[to]) > 0 {
		o := p.queue[to][0]
		p.queue[to] = p.queue[to][1:]
		p.free[to]--
		if err := p.loopRig.loop.FromWorker(to, contract.Commit{Offer: o.ID, Attempt: o.Attempt, Group: o.Group, Session: 1}); err != nil {
			return err
		}
	}
	return nil
}

func (p *places) end(at job.Peer, m contract.Start, bad bool, runs time.Duration) {
	now := time.Now()
	e := contract.Event{Attempt: m.Attempt, Group: m.Group, N: 2, State: job.Succeeded}
	if bad {
		e.State = job.Failed
	}
	e.Exit = &job.Exit{State: e.State, Started: true, Began: now.Add(-runs), Ended: now}
	if bad && p.unstarted {
		e.State, *e.Exit = job.NodeFail, job.Exit{State: job.NodeFail, Code: job.ExitMuster, Reason: "too many open files in system", Ended: now}
	}
	_ = p.loopRig.loop.FromWorker(at, e)
	p.mu.Lock()
	defer p.mu.Unlock()
	if bad {
		p.failed++
	}
	p.ran[at]++
	p.free[at]++
	_ = p.commit(at)
	_ = p.loopRig.loop.FromWorker(at, contract.Availability{Free: contract.Free{CPUs: p.free[at]}})
}

func (p *places) submit(t *testing.T, tasks, user string) {
	t.Helper()
	r := request("array")
	r.User = user
	r.Spec.Array, r.Spec.Resources.CPUs = tasks, 1
	if _, err := p.loopRig.loop.Submit(t.Context(), r); err != nil {
		t.Fatal(err)
	}
}

// An array fails at once on one host, and none of its tasks has ended elsewhere yet. Only few of its tasks fail there.
// Once the host is well again it gets its share of the tasks, including long ones.
func TestBadHostFailsFewTasksOfAnArray(t *testing.T) {
	withLoop(t, nil, func(t *testing.T, h loopRig) {
		p := newPlaces(h, time.Minute, "bad")
		p.connect("bad", 2)
		p.connect("good", 4)
		p.submit(t, "0-59", "amy")
		time.Sleep(5 * time.Minute)
		p.mu.Lock()
		if p.failed > 12 || p.ran["good"] < 12 {
			t.Errorf("%d tasks have failed on the bad host, %d have run on the good one, want at most 12 and at least 12", p.failed, p.ran["good"])
		}
		failed := p.failed
		p.bad["bad"], p.runs = false, time.Hour
		p.mu.Unlock()
		time.Sleep(10 * time.Minute)
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.free["bad"] != 0 || p.failed != failed {
			t.Errorf("%d places are idle on the host that is well again, want 0", p.free["bad"])
		}
	})
}

// A host that cannot start the tasks of an array is left out too. No task has failed because of it.
func TestHostThatCannotStartTasksIsLeftOut(t *testing.T) {
	withLoop(t, nil, func(t *testing.T, h loopRig) {
		p := newPlaces(h, 20*time.Second, "bad")
		p.unstarted = true
		p.connect("bad", 2)
		p.connect("good", 4)
		p.submit(t, "0-59", "amy")
		time.Sleep(6 * time.Minute)
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.failed > 12 || p.ran["good"] != 60 {
			t.Errorf("%d starts have failed on the bad host, %d tasks have run on the good one, want at most 12 and 60", p.failed, p.ran["good"])
		}
	})
}

// The same while the good host is full of other work, so that it is unknown how the job does there.
func TestBadHostFailsFewTasksOfAnArrayWhileTheGoodHostIsFull(t *testing.T) {
	withLoop(t, nil, func(t *testing.T, h loopRig) {
		p := newPlaces(h, 10*time.Minute, "bad")
		p.connect("good", 4)
		p.submit(t, "0-3", "ben")
		time.Sleep(time.Second)
		p.connect("bad", 2)
		p.submit(t, "0-59", "amy")
		time.Sleep(2 * time.Minute)
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.failed > 14 {
			t.Errorf("%d tasks have failed, want at most 14", p.failed)
		}
	})
}

// If there is no other host that could take the tasks, or if they fail on each host, all tasks run at once.
func TestTasksThatFailOnAllHostsAreNotDelayed(t *testing.T) {
	for _, hosts := range [][]job.Peer{{"bad"}, {"bad", "worse", "worst"}} {
		withLoop(t, nil, func(t *testing.T, h loopRig) {
			p := newPlaces(h, time.Minute, hosts...)
			for _, peer := range hosts {
				p.connect(peer, 2)
			}
			p.submit(t, "0-299", "amy")
			time.Sleep(40 * time.Second)
			p.mu.Lock()
			defer p.mu.Unlock()
			if p.failed != 300 {
				t.Errorf("%d of 300 tasks have ended at %v, want 300", p.failed, hosts)
			}
		})
	}
}
