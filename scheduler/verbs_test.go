package scheduler

// The verbs of the stories.

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
)

type storyVerb = func(s *story, args []string, opts map[string]string)

var storyVerbs map[string]storyVerb

func init() { //nolint:gochecknoinits // the verbs refer to each other's table through the story
	storyVerbs = map[string]storyVerb{
		"journal": verbJournal,
		"commit":  func(s *story, a []string, _ map[string]string) { s.commit(number(a[0], len(s.pending))) },
		"lose":    verbLose,
		"lead":    verbLead,
		"worker":  verbWorker,
		"down":    func(s *story, a []string, _ map[string]string) { s.step(SessionDown{Peer: job.Peer(a[0])}) },
		"free":    verbFree,
		"submit":  verbSubmit,
		"cancel": func(s *story, a []string, _ map[string]string) {
			s.step(Cancel{Token: s.asks("cancel " + a[0]), Job: s.id(a[0]), Reason: "enough"})
		},
		"hold": func(s *story, a []string, _ map[string]string) {
			s.step(Hold{Token: s.asks("hold " + a[0]), Job: s.id(a[0])})
		},
		"release": func(s *story, a []string, _ map[string]string) {
			s.step(Hold{Token: s.asks("release " + a[0]), Job: s.id(a[0]), Release: true})
		},
		"dead": func(s *story, a []string, _ map[string]string) {
			s.step(DeclareDead{Token: s.asks("dead " + a[0]), Peer: job.Peer(a[0]), By: "root"})
		},
		"take":    verbTake,
		"decline": verbDecline,
		"event":   verbEvent,
		"renew":   verbRenew,
		"read":    verbRead,
		"found": func(s *story, a []string, _ map[string]string) {
			s.step(Found{Class: a[0], Peers: []job.Peer{job.Peer(a[1])}})
		},
		"unsent":  verbUnsent,
		"wait":    func(s *story, a []string, _ map[string]string) { s.wait(duration(a[0])) },
		"show":    verbShow,
		"why":     verbWhy,
		"restart": verbRestart,
		"finish":  verbFinish,
	}
}

func number(text string, otherwise int) int {
	if n, err := strconv.Atoi(text); err == nil {
		return n
	}
	return otherwise
}

func duration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		panic(err)
	}
	return d
}

func size(text string) job.Size {
	if text == "" {
		return 0
	}
	n, err := job.ParseSize(text)
	if err != nil {
		panic(err)
	}
	return n
}

func (s *story) id(name string) job.ID {
	if id, ok := s.jobs[name]; ok {
		return id
	}
	return job.NewID(s.cfg.Group, 1)
}

func (s *story) asks(what string) Token {
	s.tokens++
	s.askers[s.tokens] = what
	return s.tokens
}

func (s *story) from(peer string, m lease.ToScheduler) {
	s.step(FromWorker{Peer: job.Peer(peer), Msg: m})
}

// journal auto: proposals are committed at once; journal slow: by "commit N".
func verbJournal(s *story, a []string, _ map[string]string) { s.auto = a[0] == "auto" }

// lose: the journal did not take what was proposed.
func verbLose(s *story, _ []string, _ map[string]string) {
	lost := s.pending
	s.pending = nil
	s.step(NotProposed{Records: lost, Err: errors.New("disk full")})
}

func verbLead(s *story, _ []string, _ map[string]string) {
	s.term++
	s.deliver(job.Committed{Lead: true})
}

func resources(o map[string]string) job.Resources {
	return job.Resources{
		CPUs: number(o["cpus"], 1), Memory: size(o["mem"]), GPUs: number(o["gpus"], 0), GPUModel: o["model"], GPUMemory: size(o["gpumem"]),
	}
}

// worker NAME cpus=4 mem=8GiB gpus=2 model=h100-80gb store=S rack=r1: a session and its Hello.
func verbWorker(s *story, a []string, o map[string]string) {
	p := lease.Profile{
		Name: a[0], CPUs: number(o["cpus"], 4), Memory: size(o["mem"]), Store: a[0] + "-disk", Drivers: []string{"exec"}, Worker: true,
	}
	if o["store"] != "" {
		p.Store = o["store"]
	}
	if o["rack"] != "" {
		p.Labels = map[string]string{"rack": o["rack"]}
	}
	free := lease.Free{CPUs: p.CPUs, Memory: p.Memory}
	for i := range number(o["gpus"], 0) {
		d := gpu.Device{UUID: fmt.Sprintf("%s-gpu%d", a[0], i), Class: o["model"], Memory: 80e9}
		p.GPUs = append(p.GPUs, d)
		free.GPUs = append(free.GPUs, lease.FreeGPU{UUID: d.UUID, Memory: d.Memory, Milli: 1000})
	}
	free.CPUs = number(o["free"], free.CPUs)
	s.stores[a[0]] = p.Store
	if o["again"] == "" { // else in the same session
		s.step(SessionUp{Peer: job.Peer(a[0])})
	}
	s.from(a[0], lease.Hello{Profile: p, Free: free})
}

// free NAME cpus=2 gpus=1 [aside=1] [draining=1] [under=amy,bob]: Availability.
func verbFree(s *story, a []string, o map[string]string) {
	s.seqs[a[0]]++
	free := lease.Free{CPUs: number(o["cpus"], 4), Memory: size(o["mem"])}
	for i := range number(o["gpus"], 0) {
		free.GPUs = append(free.GPUs, lease.FreeGPU{UUID: fmt.Sprintf("%s-gpu%d", a[0], i), Memory: 80e9, Milli: 1000})
	}
	for i := range number(o["aside"], 0) {
		free.Quarantined = append(free.Quarantined, fmt.Sprintf("%s-gpu%d", a[0], len(free.GPUs)+i))
	}
	var under []string
	if o["under"] != "" {
		under = strings.Split(o["under"], ",")
	}
	s.from(a[0], lease.Availability{Free: free, Draining: o["draining"] != "", Detail: o["draining"], UnderQuota: under})
}

func verbSubmit(s *story, a []string, o map[string]string) {
	s.now = s.now.Add(time.Millisecond) // no two jobs are of one age
	spec := job.DefaultSpec()
	spec.Name, spec.Command, spec.Resources = a[0], []string{"true"}, resources(o)
	spec.Priority, spec.Retries = number(o["priority"], 50), number(o["retries"], 0)
	spec.Hold, spec.Requeue, spec.Partition = o["hold"] != "", o["requeue"] != "no", o["partition"]
	spec.Constraint = strings.ReplaceAll(o["constraint"], ":", "=")
	if o["node"] != "" {
		spec.NodeList = strings.Split(o["node"], ",")
	}
	if o["lease"] != "" {
		spec.Lease = job.Duration(duration(o["lease"]))
	}
	s.step(Submit{Token: s.asks("submit " + a[0]), User: cmp.Or(o["user"], "amy"), Key: o["key"], Spec: spec})
}

// take WORKER JOB [session=N]: commits to the newest offer there.
func verbTake(s *story, a []string, o map[string]string) {
	m := s.offer(a)
	s.from(a[0], lease.Commit{Offer: m.ID, Attempt: m.Attempt, Group: m.Group, Session: lease.Session(number(o["session"], 5))})
}

// unsent WORKER JOB: the newest offer there is out of its bounds.
func verbUnsent(s *story, a []string, _ map[string]string) {
	s.step(NotSent{To: job.Peer(a[0]), Msg: s.offer(a), Err: fmt.Errorf("%w: a number is out of range", ErrUnsendable)})
}

func (s *story) offer(a []string) lease.Offer {
	m, ok := s.latest[a[0]+" "+string(s.id(a[1]))]
	if !ok {
		s.t.Fatalf("%s has no offer of %s", a[0], a[1])
	}
	return m
}

func verbDecline(s *story, a []string, o map[string]string) {
	m := s.offer(a)
	word := o["reason"]
	if word == "" {
		word = job.ReasonResources
	}
	s.from(a[0], lease.Decline{
		Offer: m.ID, Attempt: m.Attempt, Reason: job.Reason{Word: word}, Free: lease.Free{CPUs: number(o["free"], 0)}, Never: o["never"] != "",
	})
}

// event WORKER JOB RUNNING|SUCCEEDED|FAILED|refused [n=ATTEMPT] [code=1] [ran=10s].
func verbEvent(s *story, a []string, o map[string]string) {
	att := job.Attempt{Job: s.id(a[1]), N: 1}
	if j, ok := s.core.Job(att.Job); ok {
		att.N = number(o["n"], j.Tasks[0].Attempt)
	}
	s.events[att]++
	m := lease.Event{Attempt: att, Group: s.cfg.Group, N: s.events[att], State: job.State(a[2])}
	if a[2] == "refused" {
		m.State, m.Refused = "", "not known here"
	}
	if m.State.Ended() {
		ran := time.Minute
		if o["ran"] != "" {
			ran = duration(o["ran"])
		}
		m.Exit = &job.Exit{State: m.State, Code: number(o["code"], 0), Started: true, Began: s.now.Add(-ran), Ended: s.now}
	}
	if m.State == job.Running {
		m.PID = 4711
	}
	s.from(a[0], m)
}

// renew WORKER [clock=N] JOB...: with these jobs' newest attempts alive.
func verbRenew(s *story, a []string, o map[string]string) {
	m := lease.Renew{Group: s.cfg.Group, Store: s.stores[a[0]], Clock: int64(number(o["clock"], 1)), Session: 5}
	for _, name := range a[1:] {
		if j, ok := s.core.Job(s.id(name)); ok && name != "" {
			m.Live = append(m.Live, job.Attempt{Job: j.ID, N: number(o["n"], j.Tasks[0].Attempt)})
		}
	}
	s.from(a[0], m)
}

func verbRead(s *story, a []string, _ map[string]string) {
	e := ReadDone{Token: s.read, Epoch: job.Epoch{Generation: 1, Term: s.term}}
	if a[0] == "fails" {
		e.Err = errors.New("no quorum")
	}
	s.step(e)
}

// finish WORKER JOB: takes the newest offer, runs it and ends it well.
func verbFinish(s *story, a []string, o map[string]string) {
	verbTake(s, a, o)
	verbEvent(s, []string{a[0], a[1], "SUCCEEDED"}, o)
}

func verbShow(s *story, a []string, _ map[string]string) {
	for _, name := range a {
		if name == "" {
			continue
		}
		x, ok := s.core.Find(s.id(name))
		if !ok {
			s.printf("%s: no such job", name)
			continue
		}
		j, _ := s.rows.Job(x.ID)
		if x.Job != nil {
			j = *x.Job
		}
		t := j.Tasks[0]
		text := fmt.Sprintf("%s: %s attempt=%d runs=%d", name, t.State, t.Attempt, t.Runs)
		if t.NodeName != "" {
			text += " node=" + t.NodeName
		}
		if t.PID != 0 {
			text += fmt.Sprintf(" pid=%d", t.PID)
		}
		if t.Reason != (job.Reason{}) {
			text += " (" + t.Reason.String() + ")"
		}
		s.printf("%s", text)
	}
}

func verbWhy(s *story, a []string, _ map[string]string) {
	x, err := s.core.Why(s.id(a[0]))
	if err != nil {
		s.printf("%v", err)
		return
	}
	s.printf("%s %s", x.State, x.Reason)
	for _, c := range x.Clauses {
		s.printf("  %s: %d of %d %v", c.Clause, c.Meets, c.Of, c.Fails)
	}
	for _, c := range x.Now {
		s.printf("  now %s: %s", c.Name, c.Why)
	}
	for _, c := range x.Later {
		s.printf("  later %s: %s", c.Name, c.Why)
	}
}

// restart [rows]: a new core from the journal, or from rows and nothing else.
func verbRestart(s *story, a []string, _ map[string]string) {
	s.pending = nil
	saved := Saved{}
	if a[0] == "rows" {
		saved.Applied = s.core.Applied()
		saved.load(s.t, s.rows)
	}
	s.cfg.Seed++
	s.core = NewCore(s.cfg, saved, s.now)
	for _, m := range slices.Clone(s.log) {
		s.show(s.core.Step(s.now, Committed{job.Committed{Index: m.Index, Epoch: m.Epoch, Records: m.Records}}))
	}
}
