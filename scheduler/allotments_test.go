package scheduler

// Limits of users over the whole cluster: several owners with hosts of their own, and the messages between them, which
// may take any time, overtake each other, and get lost where the test says so.

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/step"
)

// slowest is the longest time that a message takes, unless the test loses it.
const slowest = 4 * time.Second

// allies are several owners of one cluster.
type allies struct {
	t      interface{ Fatalf(string, ...any) }
	now    time.Time
	owners []*ally
	wires  []wire
	rounds map[[2]uint64]*allyRound // by owner and number
	cut    func(from, to int) bool  // loses what one owner tells the other
	most   int                      // the sum that was held at a time, in GPUs
	renew  time.Time                // when hosts have their leases renewed next
}

// ally is an owner whose hosts commit to every offer.
type ally struct {
	at      int
	cfg     step.Config
	core    *Core
	log     []job.Committed
	running []allyTask
	tokens  step.Token
	free    int // GPUs of its host that are free; offers beyond it queue
	queued  []contract.Offer
}

type allyTask struct {
	attempt job.Attempt
	gpus    int
}

// wire is a message on its way: a question or its answer.
type wire struct {
	at       time.Time // when it was sent
	from, to int
	ask      step.AllotmentAsk
	answer   []contract.Allotment
	answers  bool
}

type allyRound struct {
	user    string
	left    int
	answers []step.AllotmentAnswer
}

// newAllies makes n owners under this limit of GPUs for the user, each with a host that has so many GPUs.
func newAllies(t interface{ Fatalf(string, ...any) }, n, limit, gpus int) *allies {
	as := &allies{t: t, now: storyStart, rounds: map[[2]uint64]*allyRound{}, cut: func(int, int) bool { return false }}
	for i := range n {
		cfg := step.DefaultConfig()
		cfg.Self, cfg.Group, cfg.Seed = job.Peer(fmt.Sprintf("d%d", i)), job.Group(i+1), uint64(i+1)
		cfg.Limits = &contract.UserLimits{PerUser: contract.Limit{contract.LimitClusterGPUs: int64(limit)}, Users: map[string]contract.Limit{"free": {contract.LimitClusterGPUs: 1000}}}
		o := &ally{at: i, cfg: cfg, free: gpus}
		as.owners = append(as.owners, o)
		as.start(o, gpus)
	}
	return as
}

// start starts an owner, for the first time or again. After a restart its tasks run on.
func (as *allies) start(o *ally, gpus int) {
	o.core = NewCore(o.cfg, Saved{}, as.now)
	for _, e := range o.log {
		e.Lead = false
		as.took(o, o.core.Step(as.now, step.Committed{Committed: e}))
	}
	as.commit(o, job.Committed{Lead: true})
	as.hello(o, gpus)
}

func (as *allies) hello(o *ally, gpus int) {
	p := contract.Profile{Name: string(o.cfg.Self), Store: "s", CPUs: 1000, Drivers: []string{"exec"}, Worker: true}
	free := contract.Free{CPUs: 1000}
	for i := range gpus {
		d := gpu.Device{UUID: fmt.Sprintf("%s-%d", o.cfg.Self, i), Class: "h100-80gb", Memory: 80e9}
		p.GPUs = append(p.GPUs, d)
		if i < o.free {
			free.GPUs = append(free.GPUs, contract.FreeGPU{UUID: d.UUID, Memory: d.Memory, Milli: gpu.Whole})
		}
	}
	as.step(o, step.SessionUp{Peer: o.cfg.Self}, step.FromWorker{Peer: o.cfg.Self, Msg: contract.Hello{Profile: p, Free: free}})
	for i, r := range o.running {
		as.step(o, step.FromWorker{Peer: o.cfg.Self, Msg: contract.Event{Attempt: r.attempt, Group: o.cfg.Group, N: uint64(2 + i), State: job.Running, PID: 1}})
	}
}

func (as *allies) commit(o *ally, e job.Committed) {
	e.Index, e.Epoch = uint64(len(o.log)+1), job.Epoch{Term: uint64(1 + len(o.log))}
	if !e.Lead {
		e.Epoch = o.core.turn.Epoch
	}
	o.log = append(o.log, e)
	as.took(o, o.core.Step(as.now, step.Committed{Committed: e}))
}

func (as *allies) step(o *ally, events ...step.Event) {
	as.took(o, o.core.Step(as.now, events...))
	for o.core.plan.again {
		as.took(o, o.core.Step(as.now))
	}
}

// took carries out the effects of a step, and checks how much the tasks of all owners hold together.
func (as *allies) took(o *ally, fx step.Effects) {
	for _, ask := range fx.Allot {
		key := [2]uint64{uint64(o.at), ask.Round}
		if ask.Round != 0 {
			as.rounds[key] = &allyRound{user: ask.State.User}
		}
		for _, to := range as.owners {
			if to == o || ask.To != "" && ask.To != to.cfg.Self {
				continue
			}
			if ask.Round != 0 {
				as.rounds[key].left++
			}
			as.wires = append(as.wires, wire{at: as.now, from: o.at, to: to.at, ask: ask})
		}
	}
	if len(fx.Propose) > 0 {
		as.commit(o, job.Committed{Records: fx.Propose})
	}
	for _, m := range fx.Send {
		as.hears(o, m.Msg)
	}
	if fx.Read != 0 {
		as.step(o, step.ReadDone{Token: fx.Read, Epoch: o.core.turn.Epoch})
	}
	held := 0
	for _, x := range as.owners {
		if x.core != nil {
			held += x.core.plan.allotments.held("amy").Milli
		}
	}
	as.most = max(as.most, held/gpu.Whole)
}

// hears has the host of an owner answer a message.
func (as *allies) hears(o *ally, m contract.ToWorker) {
	say := func(m contract.ToScheduler) { as.step(o, step.FromWorker{Peer: o.cfg.Self, Msg: m}) }
	switch m := m.(type) {
	case contract.Offer:
		if slices.ContainsFunc(o.queued, func(x contract.Offer) bool { return x.ID == m.ID }) {
			return
		}
		if m.Need.GPUs > o.free {
			o.queued = append(o.queued, m)
			return
		}
		o.free -= m.Need.GPUs
		say(contract.Commit{Offer: m.ID, Attempt: m.Attempt, Group: o.cfg.Group, Session: 1})
	case contract.Release:
		o.queued = slices.DeleteFunc(o.queued, func(x contract.Offer) bool { return x.ID == m.Offer })
	case contract.Start:
		o.running = append(o.running, allyTask{m.Attempt, m.File.Spec().Resources.GPUs})
		say(contract.Event{Attempt: m.Attempt, Group: o.cfg.Group, N: 1, State: job.Running, PID: 1})
		as.tellFree(o)
	}
}

// finish ends a task of an owner.
func (as *allies) finish(o *ally, i int) {
	r := o.running[i]
	o.running = slices.Delete(o.running, i, i+1)
	o.free += r.gpus
	as.step(o, step.FromWorker{Peer: o.cfg.Self, Msg: contract.Event{
		Attempt: r.attempt, Group: o.cfg.Group, N: 900, State: job.Succeeded, Exit: &job.Exit{State: job.Succeeded, Started: true, Began: as.now, Ended: as.now},
	}})
	as.grant(o)
}

// grant has the host of an owner commit to the queued offers that fit now, and report its free capacity.
func (as *allies) grant(o *ally) {
	for _, m := range slices.Clone(o.queued) {
		if m.Need.GPUs <= o.free && slices.ContainsFunc(o.queued, func(x contract.Offer) bool { return x.ID == m.ID }) {
			o.queued = slices.DeleteFunc(o.queued, func(x contract.Offer) bool { return x.ID == m.ID })
			o.free -= m.Need.GPUs
			as.step(o, step.FromWorker{Peer: o.cfg.Self, Msg: contract.Commit{Offer: m.ID, Attempt: m.Attempt, Group: o.cfg.Group, Session: 1}})
		}
	}
	as.tellFree(o)
}

// tellFree has the host of an owner report its free capacity.
func (as *allies) tellFree(o *ally) {
	free := contract.Free{CPUs: 1000}
	for i := range o.free {
		free.GPUs = append(free.GPUs, contract.FreeGPU{UUID: fmt.Sprintf("%s-%d", o.cfg.Self, i), Memory: 80e9, Milli: gpu.Whole})
	}
	as.step(o, step.FromWorker{Peer: o.cfg.Self, Msg: contract.Availability{Free: free}})
}

// submit submits a job of the user at an owner.
func (as *allies) submit(at int, user string, gpus, priority int, change ...func(*job.Spec)) {
	o := as.owners[at]
	o.tokens++
	s := job.DefaultSpec()
	s.Command, s.Priority = []string{"true"}, priority
	s.Resources = job.Resources{CPUs: 1, GPUs: gpus}
	for _, f := range change {
		f(&s)
	}
	as.now = as.now.Add(time.Microsecond)
	as.step(o, step.Submit{Token: o.tokens, Submission: job.Submission{User: user, Spec: s}})
}

// deliver delivers one of the messages that are on their way, or loses it.
func (as *allies) deliver(i int) {
	m := as.wires[i]
	as.wires = slices.Delete(as.wires, i, i+1)
	key := [2]uint64{uint64(m.from), m.ask.Round}
	switch {
	case m.answers:
		key[0] = uint64(m.to)
		if as.cut(m.from, m.to) {
			as.answered(m.to, key, m.ask, nil)
			return
		}
		as.answered(m.to, key, m.ask, &step.AllotmentAnswer{Peer: as.owners[m.from].cfg.Self, States: m.answer})
	case as.cut(m.from, m.to):
		as.answered(m.from, key, m.ask, nil)
	default:
		to := as.owners[m.to]
		said := to.core.plan.allotments.swap(as.owners[m.from].cfg.Self, []contract.Allotment{m.ask.State})
		as.step(to)
		if m.ask.Round != 0 {
			as.wires = append(as.wires, wire{at: as.now, from: m.to, to: m.from, ask: m.ask, answer: said, answers: true})
		}
	}
}

// answered records the answer to a question of an owner, or that none came.
func (as *allies) answered(at int, key [2]uint64, ask step.AllotmentAsk, a *step.AllotmentAnswer) {
	r := as.rounds[key]
	if ask.Round == 0 || r == nil {
		return
	}
	if a != nil {
		r.answers = append(r.answers, *a)
	}
	if r.left--; r.left == 0 {
		delete(as.rounds, key)
		as.step(as.owners[at], step.AllotmentsHeard{User: ask.State.User, Round: ask.Round, Answers: r.answers})
	}
}

// settle delivers all messages in order, while this time passes.
func (as *allies) settle(d time.Duration) {
	end := as.now.Add(d)
	for {
		for len(as.wires) > 0 {
			as.deliver(0)
		}
		for key, r := range as.rounds {
			if r.left == 0 { // there is nobody to ask
				delete(as.rounds, key)
				as.step(as.owners[key[0]], step.AllotmentsHeard{User: r.user, Round: key[1]})
			}
		}
		as.renewAll()
		next := slices.MinFunc([]time.Time{end, as.renew}, time.Time.Compare)
		for _, o := range as.owners {
			if w := o.core.Wake(); !w.IsZero() && w.Before(next) {
				next = w
			}
		}
		if len(as.wires) > 0 {
			continue
		}
		if as.now = as.now.Add(max(0, next.Sub(as.now))); !as.now.Before(end) {
			return
		}
		for _, o := range as.owners {
			as.step(o)
		}
	}
}

// renewAll has the hosts request the renewal of their leases, when it is due.
func (as *allies) renewAll() {
	if as.now.Before(as.renew) {
		return
	}
	as.renew = as.now.Add(contract.RenewEvery)
	for _, o := range as.owners {
		m := contract.Renew{Group: o.cfg.Group, Store: "s", Clock: as.now.UnixNano(), Session: 1}
		for _, r := range o.running {
			m.Live = append(m.Live, r.attempt)
		}
		as.step(o, step.FromWorker{Peer: o.cfg.Self, Msg: m})
	}
}

// held returns how many GPUs the tasks of the owners hold.
func (as *allies) held() (all []int) {
	for _, o := range as.owners {
		all = append(all, o.core.plan.allotments.held("amy").Milli/gpu.Whole)
	}
	return all
}

func (as *allies) want(held ...int) {
	if got := as.held(); !slices.Equal(got, held) {
		as.t.Fatalf("%v GPUs are held, want %v", got, held)
	}
}

// A user who submits at all daemons at once gets the limit and no more, in equal parts. What ends at one daemon goes to
// the daemon where the user holds less.
func TestOwnersShareAClusterLimitEqually(t *testing.T) {
	as := newAllies(t, 3, 12, 100)
	for i := range 3 {
		for range 20 {
			as.submit(i, "amy", 1, 50)
		}
		as.submit(i, "free", 8, 50)
	}
	as.settle(2 * time.Second)
	if sum := as.held(); sum[0]+sum[1]+sum[2] != 12 || as.most > 12 {
		t.Fatalf("%v GPUs are held, %d at most, want 12 in all, and at most 12", sum, as.most)
	}
	for range 30 { // tasks end one by one
		for _, o := range as.owners {
			if i := slices.IndexFunc(o.running, func(r allyTask) bool { return r.gpus == 1 }); i >= 0 {
				as.finish(o, i)
			}
			as.settle(20 * time.Second)
		}
	}
	if as.most > 12 {
		t.Fatalf("%d GPUs were held at a time, want at most 12", as.most)
	}
	for i, o := range as.owners {
		left := o.core.View().Counts()[job.Pending] + o.core.View().Counts()[job.Running]
		if left > 1 { // the job of the other user
			t.Errorf("%d jobs are left at owner %d: %v, want at most 1", left, i, o.core.View().Counts())
		}
	}
}

// The parts become equal as tasks end. A daemon without jobs of the user gives back what it does not use.
func TestUnusedClusterLimitMovesToOtherOwners(t *testing.T) {
	as := newAllies(t, 2, 8, 100)
	for range 8 {
		as.submit(0, "amy", 1, 50)
	}
	as.settle(time.Second)
	as.want(8, 0)
	for range 8 {
		as.submit(0, "amy", 1, 50)
		as.submit(1, "amy", 1, 50)
	}
	as.settle(time.Minute)
	as.want(8, 0)
	for range 4 {
		as.finish(as.owners[0], 0)
		as.settle(20 * time.Second)
	}
	as.want(4, 4)
	for len(as.owners[0].running) > 0 {
		as.finish(as.owners[0], 0)
		as.settle(20 * time.Second)
	}
	as.settle(2 * time.Minute) // nothing waits at the first, and four wait at the second
	as.want(0, 8)
	if as.most > 8 {
		t.Errorf("%d GPUs were held at a time, want at most 8", as.most)
	}
}

// Of jobs at two daemons, the one with the higher priority gets what ends first, even if the other daemon has more
// waiting jobs.
func TestClusterLimitGoesToTheHigherPriorityFirst(t *testing.T) {
	as := newAllies(t, 2, 2, 100)
	for range 6 {
		as.submit(0, "amy", 1, 10)
	}
	as.settle(time.Minute)
	as.want(2, 0)
	as.submit(1, "amy", 2, 90)
	as.settle(time.Minute)
	as.finish(as.owners[0], 0)
	as.settle(time.Minute)
	as.want(1, 0) // the job of priority 90 needs both
	as.finish(as.owners[0], 0)
	as.settle(time.Minute)
	as.want(0, 2)
	as.finish(as.owners[1], 0)
	as.settle(time.Minute)
	as.want(2, 0)
}

// Small jobs that fit beside what runs do not wait behind a large one. The reason of a job at the limit says who holds
// what.
func TestReasonOfAJobAtTheClusterLimit(t *testing.T) {
	as := newAllies(t, 2, 4, 100)
	as.submit(0, "amy", 3, 50)
	as.settle(time.Second)
	as.submit(1, "amy", 2, 50)
	as.submit(1, "amy", 1, 50)
	as.settle(time.Minute)
	as.want(3, 1)
	o := as.owners[1]
	var waits job.Job
	for _, j := range o.core.View().Page(job.Query{Limit: 10}) {
		if j.Job.State() == job.Pending {
			waits = *j.Job
		}
	}
	const why = "user amy holds 4 of at most 4 gpus in the cluster (limits.per_user.cluster_gpus)"
	if waits.Reason.Word != job.ReasonQuota || waits.Reason.Detail != why+", some of it for jobs that d0 accepted" {
		t.Errorf("the reason: %s, want Word %v and Detail %v", waits.Reason, job.ReasonQuota, why+", some of it for jobs that d0 accepted")
	}
	x, err := o.core.View().Why(waits.ID)
	if err != nil || len(x.Now) > 0 || len(x.Later) != 1 || !strings.Contains(x.Later[0].Why, why) {
		t.Errorf("why: %+v, %v, want no error, no host now and one later that names the limit", x, err)
	}
	s := job.DefaultSpec()
	s.Command, s.Resources.GPUs = []string{"true"}, 1
	if x, err := o.core.View().Offers("amy", false, s); err != nil || len(x.Now) > 0 || x.Reason.Word != job.ReasonQuota {
		t.Errorf("a dry run: %+v, %v, want no error, no Now and Reason.Word %v", x, err, job.ReasonQuota)
	}
	s.Resources.GPUs, s.Nodes = 2, 3
	const never = "user amy may hold at most 4 gpus in the cluster (limits.per_user.cluster_gpus), 6 wanted"
	if _, err := o.core.View().Offers("amy", false, s); err == nil || !strings.Contains(err.Error(), never) {
		t.Errorf("a gang beyond the limit: %v, want an error and %v in it", err, never)
	}
	o.core.turn.Config.Limits = &contract.UserLimits{PerUser: contract.Limit{contract.LimitClusterGPUs: 1}} // the limit is lowered
	o.core.plan.allotments.reset()
	as.settle(time.Second)
	if j, _ := o.core.View().Job(waits.ID); j.Reason.Word != job.ReasonNoMatch || !strings.Contains(j.Reason.Detail, "at most 1 gpus in the cluster") {
		t.Errorf(`the reason after the limit was lowered: %s, want Word %v and Detail "at most 1 gpus in the cluster" in it`, j.Reason, job.ReasonNoMatch)
	}
}

// A task with a higher priority takes the place of one that only queues at a full host, within the limit of its user.
func TestClusterLimitCausesNoPriorityInversion(t *testing.T) {
	as := newAllies(t, 1, 2, 2)
	as.submit(0, "free", 2, 50)
	as.settle(time.Second)
	as.submit(0, "amy", 2, 10)
	as.settle(time.Second)
	as.want(2) // it queues
	as.submit(0, "amy", 1, 90)
	as.settle(time.Second)
	as.want(1)
	o := as.owners[0]
	if len(o.queued) != 1 || o.queued[0].Priority != 90 {
		t.Fatalf("%+v queues, want 1 of them and [0].Priority 90", o.queued)
	}
	as.finish(o, 0)
	as.settle(time.Second)
	if len(o.running) != 1 || o.running[0].gpus != 1 {
		t.Fatalf("%+v runs, want 1 of them and [0].gpus 1", o.running)
	}
	as.finish(o, 0)
	as.settle(time.Second)
	if len(o.running) != 1 || o.running[0].gpus != 2 {
		t.Fatalf("%+v runs, want 1 of them and [0].gpus 2", o.running)
	}
}

// Arrays and gangs count with all that they hold. After a restart, running tasks count again.
func TestClusterLimitCountsArraysAndGangs(t *testing.T) {
	as := newAllies(t, 2, 6, 100)
	as.submit(0, "amy", 2, 50, func(s *job.Spec) { s.Array = "0-9" })
	as.settle(time.Minute)
	as.want(6, 0)
	as.start(as.owners[0], 100)
	as.submit(1, "amy", 1, 50)
	as.settle(time.Minute)
	as.want(6, 0)
	as.finish(as.owners[0], 0)
	as.settle(time.Minute)
	as.want(4, 1)
	if as.most > 6 {
		t.Errorf("%d GPUs were held at a time, want at most 6", as.most)
	}
}

// The tasks of all daemons never hold more than the limit, however long messages take, in whatever order they arrive,
// and even if daemons restart. In the end all jobs have run.
func TestClusterLimitHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 6).Draw(t, "limit")
		as := newAllies(t, rapid.IntRange(2, 4).Draw(t, "owners"), limit, rapid.SampledFrom([]int{2, 100}).Draw(t, "gpus"))
		gpus := as.owners[0].free
		owner := func(t *rapid.T) *ally { return as.owners[rapid.IntRange(0, len(as.owners)-1).Draw(t, "owner")] }
		jobs := 0
		t.Repeat(map[string]func(*rapid.T){
			"submit": func(t *rapid.T) {
				if jobs++; jobs < 40 {
					as.submit(owner(t).at, "amy", rapid.IntRange(1, min(limit, gpus)).Draw(t, "gpus"), rapid.SampledFrom([]int{10, 50}).Draw(t, "priority"))
				}
			},
			"message": func(t *rapid.T) {
				if len(as.wires) > 0 {
					as.deliver(rapid.IntRange(0, len(as.wires)-1).Draw(t, "message"))
				}
			},
			"messages": func(t *rapid.T) {
				for n := rapid.IntRange(2, 8).Draw(t, "n"); n > 0 && len(as.wires) > 0; n-- {
					as.deliver(rapid.IntRange(0, len(as.wires)-1).Draw(t, "message"))
				}
			},
			"finish": func(t *rapid.T) {
				if o := owner(t); len(o.running) > 0 {
					as.finish(o, rapid.IntRange(0, len(o.running)-1).Draw(t, "task"))
				}
			},
			"wait": func(t *rapid.T) {
				d := time.Duration(rapid.IntRange(1, 4000).Draw(t, "ms")) * time.Millisecond
				for len(as.wires) > 0 && as.now.Add(d).Sub(as.wires[0].at) > slowest {
					as.deliver(0)
				}
				as.now = as.now.Add(d)
				as.renewAll()
				for _, o := range as.owners {
					as.step(o)
				}
			},
			"": func(t *rapid.T) {
				if as.most > limit {
					t.Fatalf("%d GPUs are held, want at most the limit of %d", as.most, limit)
				}
			},
		})
		for n := 0; ; n++ {
			as.settle(20 * time.Second)
			o := slices.MaxFunc(as.owners, func(a, b *ally) int { return cmp.Compare(len(a.running), len(b.running)) })
			if len(o.running) == 0 {
				break
			}
			as.finish(o, 0)
		}
		as.settle(3 * time.Minute)
		for _, o := range as.owners {
			if c := o.core.View().Counts(); c[job.Pending]+c[job.Running]+len(o.running) > 0 {
				t.Fatalf("jobs are left at %s: %v, %d run, told %+v, want none", o.cfg.Self, c, len(o.running), o.core.plan.allotments.heard.of)
			}
		}
		if as.most > limit {
			t.Fatalf("%d GPUs were held, want at most the limit of %d", as.most, limit)
		}
	})
}

// If the network splits the cluster, each part applies the limit for itself. When the cluster is whole again, nothing
// starts before the sum is below the limit.
func TestEachPartOfASplitClusterHasTheClusterLimit(t *testing.T) {
	as := newAllies(t, 4, 4, 100)
	as.cut = func(from, to int) bool { return from/2 != to/2 }
	for i := range 4 {
		for range 12 {
			as.submit(i, "amy", 1, 50)
		}
	}
	as.settle(5 * time.Minute)
	if sum := as.held(); sum[0]+sum[1] != 4 || sum[2]+sum[3] != 4 || as.most != 8 {
		t.Fatalf("%v GPUs are held, %d at most, want 4 in each part, and at most 8", sum, as.most)
	}
	as.cut = func(int, int) bool { return false }
	as.settle(time.Minute)
	for left := 8; left > 4; left-- {
		o := slices.MaxFunc(as.owners, func(a, b *ally) int { return cmp.Compare(len(a.running), len(b.running)) })
		as.finish(o, 0)
		as.settle(30 * time.Second)
		if sum := as.held(); sum[0]+sum[1]+sum[2]+sum[3] != max(4, left-1) {
			t.Fatalf("%v GPUs are held after one of %d has ended, want the larger of 4 and one less than that", sum, left)
		}
	}
	// What a silent daemon holds counts.
	silent := slices.IndexFunc(as.held(), func(n int) bool { return n > 0 })
	as.cut = func(from, to int) bool { return from == silent || to == silent }
	before := as.held()[silent]
	for i, o := range as.owners {
		if i != silent && len(o.running) > 0 {
			as.finish(o, 0)
			as.settle(30 * time.Second)
		}
	}
	as.settle(30 * time.Minute)
	if sum := as.held(); sum[silent] != before || sum[0]+sum[1]+sum[2]+sum[3] != 4 {
		t.Errorf("%v GPUs are held beside a silent daemon, want as many as before at the silent one, and 4 in all", sum)
	}
}
