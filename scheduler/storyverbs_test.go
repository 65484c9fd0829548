package scheduler

// The verbs of the stories.

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/internal/testkit/stories"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/state/statetest"
	"github.com/musterhq/muster/scheduler/step"
)

type storyVerb = func(s *story, args []string, opts stories.Options)

var storyVerbs map[string]storyVerb

func init() { //nolint:gochecknoinits // the verbs refer to each other's table through the story
	storyVerbs = map[string]storyVerb{
		"journal": verbJournal,
		"commit":  verbCommit,
		"lose":    verbLose,
		"lead":    verbLead,
		"worker":  verbWorker,
		"down":    func(s *story, a []string, _ stories.Options) { s.step(step.SessionDown{Peer: job.Peer(a[0])}) },
		"revoke":  func(s *story, a []string, _ stories.Options) { s.step(step.Revoked{Peer: job.Peer(a[0])}) },
		"free":    verbFree,
		"submit":  verbSubmit,
		"cancel": func(s *story, a []string, _ stories.Options) {
			id, tasks := s.tasks(a[0])
			s.step(step.Cancel{Token: s.asks("cancel " + a[0]), Job: id, Tasks: tasks, Reason: "enough"})
		},
		"hold": func(s *story, a []string, _ stories.Options) {
			id, tasks := s.tasks(a[0])
			s.step(step.Hold{Token: s.asks("hold " + a[0]), Job: id, Tasks: tasks})
		},
		"release": func(s *story, a []string, _ stories.Options) {
			id, tasks := s.tasks(a[0])
			s.step(step.Hold{Token: s.asks("release " + a[0]), Job: id, Tasks: tasks, Release: true})
		},
		"dead": func(s *story, a []string, _ stories.Options) {
			s.step(step.DeclareDead{Token: s.asks("dead " + a[0]), Peer: job.Peer(a[0]), By: "root"})
		},
		"requeue": verbRequeue,
		"forget": func(s *story, a []string, _ stories.Options) {
			s.step(step.Forget{Token: s.asks("forget " + a[0]), Job: s.id(a[0])})
		},
		"anew": func(s *story, a []string, _ stories.Options) {
			s.step(step.Schedule{Token: s.asks("anew"), User: strings.Join(a, "")})
		},
		"damage":  verbDamage,
		"take":    verbTake,
		"decline": verbDecline,
		"event":   verbEvent,
		"renew":   verbRenew,
		"read":    verbRead,
		"found": func(s *story, a []string, _ stories.Options) {
			s.step(step.Found{Class: a[0], Peers: []job.Peer{job.Peer(a[1])}})
		},
		"unsent":   verbUnsent,
		"heldback": verbHeldBack,
		"wait":     verbWait,
		"stand": func(s *story, a []string, _ stories.Options) { // the daemon is stopped meanwhile
			d, err := time.ParseDuration(a[0])
			if err != nil {
				s.t.Fatal(err)
			}
			s.now = s.now.Add(d)
		},
		"show":    verbShow,
		"why":     verbWhy,
		"restart": verbRestart,
		"finish":  verbFinish,
		"other":   verbOther,
		"parent":  verbParent,
		"silent": func(s *story, a []string, _ stories.Options) {
			s.step(step.ParentsSilent{Jobs: []job.ID{s.id(a[0])}, Detail: "its owner " + a[1] + " does not answer"})
		},
		"depends": verbDepends,
	}
}

func (s *story) id(name string) job.ID {
	if id, ok := s.jobs[name]; ok {
		return id
	}
	return job.NewID(s.cfg.Group, 1)
}

// tasks returns the job and the tasks that a name such as a or a.0-2,5 means.
func (s *story) tasks(name string) (job.ID, []job.Range) {
	name, numbers, some := strings.Cut(name, ".")
	if !some {
		return s.id(name), nil
	}
	ranges, err := job.ParseRanges(numbers)
	if err != nil {
		s.t.Fatal(err)
	}
	return s.id(name), s.layouts[name].Select(ranges)
}

// task returns the task that a name such as a or a.5 means.
func (s *story) task(name string) job.Attempt {
	id, tasks := s.tasks(name)
	if len(tasks) == 0 {
		return job.Attempt{Job: id}
	}
	return job.Attempt{Job: id, Task: tasks[0].First}
}

func (s *story) asks(what string) step.Token {
	s.tokens++
	s.askers[s.tokens] = what
	return s.tokens
}

func (s *story) from(peer string, m contract.ToScheduler) {
	s.step(step.FromWorker{Peer: job.Peer(peer), Msg: m})
}

// journal auto: records are committed at once. journal slow: records are committed by "commit N".
func verbJournal(s *story, a []string, _ stories.Options) { s.auto = a[0] == "auto" }

// commit [N]: the first N proposed records are committed, or all of them.
func verbCommit(s *story, a []string, _ stories.Options) {
	n, err := strconv.Atoi(a[0])
	if err != nil {
		n = len(s.pending)
	}
	s.commit(n)
}

// wait TIME: time passes.
func verbWait(s *story, a []string, _ stories.Options) {
	d, err := time.ParseDuration(a[0])
	if err != nil {
		s.t.Fatal(err)
	}
	s.wait(d)
}

// lose: the journal refuses all proposed records.
func verbLose(s *story, _ []string, _ stories.Options) {
	lost := s.pending
	s.pending = nil
	s.step(step.NotProposed{Records: lost, Err: errors.New("disk full")})
}

func verbLead(s *story, _ []string, _ stories.Options) {
	s.term++
	s.deliver(job.Committed{Lead: true})
}

func resources(o stories.Options) job.Resources {
	return job.Resources{
		CPUs: o.Number("cpus", 1), Memory: o.Size("mem", 0), GPUs: o.Number("gpus", 0), GPUModel: o["model"], GPUMemory: o.Size("gpumem", 0),
	}
}

// worker NAME cpus=4 mem=8GiB gpus=2 model=h100-80gb store=S rack=r1 [relay=1] [format=2] [boot=B] [fences=no|untold]:
// a session and its Hello. By default the host fences its tasks.
func verbWorker(s *story, a []string, o stories.Options) {
	p := contract.Profile{
		Name: a[0], CPUs: o.Number("cpus", 4), Memory: o.Size("mem", 0), Store: a[0] + "-disk", Drivers: []string{"exec"}, Worker: true,
		NoRoot: o["noroot"] != "", Version: o["version"], Format: job.Format(o.Number("format", 0)),
		Fencing: job.Fencing{Certain: o["fences"] == "", Boot: cmp.Or(o["boot"], "boot-1")},
	}
	if o["fences"] == "untold" { // a host of an earlier version
		p.Fencing = job.Fencing{}
	}
	if o["store"] != "" {
		p.Store = o["store"]
	}
	p.Limits = userLimits(s, o["limits"])
	if o["rack"] != "" {
		p.Labels = map[string]string{"rack": o["rack"]}
	}
	free := contract.Free{CPUs: p.CPUs, Memory: p.Memory}
	for i := range o.Number("gpus", 0) {
		d := gpu.Device{UUID: fmt.Sprintf("%s-gpu%d", a[0], i), Class: o["model"], Memory: 80e9}
		p.GPUs = append(p.GPUs, d)
		free.GPUs = append(free.GPUs, contract.FreeGPU{UUID: d.UUID, Memory: d.Memory, Milli: 1000})
	}
	free.CPUs, free.Tasks = o.Number("free", free.CPUs), o.Number("tasks", 0)
	s.stores[a[0]] = p.Store
	if o["again"] == "" { // else the session stays the same
		up := step.SessionUp{Peer: job.Peer(a[0])}
		if o["relay"] == "" && a[0] != string(s.cfg.Self) {
			up.Path = contract.Path{Local: "10.0.0.100", Remote: addressOf(a[0])}
		}
		s.step(up)
	}
	s.from(a[0], contract.Hello{Profile: p, Free: free})
}

// userLimits parses the limits that a host reports for its users: gpus:4,ada/gpus:8.
func userLimits(s *story, text string) *contract.UserLimits {
	if text == "" {
		return nil
	}
	l := &contract.UserLimits{PerUser: contract.Limit{}, Users: map[string]contract.Limit{}}
	for part := range strings.SplitSeq(text, ",") {
		name, most, _ := strings.Cut(part, ":")
		n, err := strconv.ParseInt(most, 10, 64)
		if err != nil {
			s.t.Fatal(err)
		}
		to := l.PerUser
		if user, what, own := strings.Cut(name, "/"); own {
			if l.Users[user] == nil {
				l.Users[user] = contract.Limit{}
			}
			name, to = what, l.Users[user]
		}
		to[contract.Quantity(name)] = n
	}
	return l
}

// addressOf is the address at which sessions reach the host.
func addressOf(host string) string {
	return "10.0.0." + strings.TrimLeft(host, "abcdefghijklmnopqrstuvwxyz")
}

// free NAME cpus=2 gpus=1 [tasks=1] [alone=1] [yields=PRIORITY:CPUS,...] [aside=1] [draining=1] [under=amy,bob]:
// Availability.
func verbFree(s *story, a []string, o stories.Options) {
	s.seqs[a[0]]++
	free := contract.Free{
		CPUs: o.Number("cpus", 4), Memory: o.Size("mem", 0), Tasks: o.Number("tasks", 0), Exclusive: o["alone"] != "",
	}
	for i := range o.Number("gpus", 0) {
		free.GPUs = append(free.GPUs, contract.FreeGPU{UUID: fmt.Sprintf("%s-gpu%d", a[0], i), Memory: 80e9, Milli: 1000})
	}
	for i := range o.Number("aside", 0) {
		free.Quarantined = append(free.Quarantined, fmt.Sprintf("%s-gpu%d", a[0], len(free.GPUs)+i))
	}
	free.Preemptible = yieldsOf(o)
	var under []string
	if o["under"] != "" {
		under = strings.Split(o["under"], ",")
	}
	s.from(a[0], contract.Availability{Free: free, Draining: o["draining"] != "", Detail: o["draining"], UnderQuota: under})
}

// yieldsOf parses yields=PRIORITY:CPUS,...
func yieldsOf(o stories.Options) (all []contract.Preemptible) {
	for y := range strings.SplitSeq(o["yields"], ",") {
		p, n, _ := strings.Cut(y, ":")
		priority, _ := strconv.Atoi(p)
		if cpus, err := strconv.Atoi(n); err == nil {
			all = append(all, contract.Preemptible{Priority: priority, CPUs: cpus})
		}
	}
	return all
}

func verbSubmit(s *story, a []string, o stories.Options) {
	s.now = s.now.Add(time.Millisecond) // so that no two jobs have the same age
	spec := job.DefaultSpec()
	spec.Name, spec.Command, spec.Resources = a[0], []string{"true"}, resources(o)
	spec.Priority, spec.Retries = o.Number("priority", 50), o.Number("retries", 0)
	spec.Hold, spec.Requeue, spec.Partition = o["hold"] != "", o["requeue"] != "no", o["partition"]
	spec.Constraint = strings.ReplaceAll(o["constraint"], ":", "=")
	for _, code := range strings.FieldsFunc(o["on"], func(r rune) bool { return r == ',' }) {
		n, err := strconv.Atoi(code)
		if err != nil {
			s.t.Fatal(err)
		}
		spec.RetryOn = append(spec.RetryOn, n)
	}
	spec.CheckpointExitCode, spec.MaxFailures = o.Number("checkpoint", 0), o.Number("maxfailures", 0)
	spec.KillOnInvalidDep = o["kill"] != ""
	if o["dep"] != "" {
		spec.Dependency = []string{s.named(o["dep"])}
	}
	if o["node"] != "" {
		spec.NodeList = strings.Split(o["node"], ",")
	}
	spec.Nodes, spec.KeepOnBadExit = o.Number("nodes", 0), o["keep"] != ""
	spec.Lease, spec.Array = job.Duration(o.Duration("lease", time.Duration(spec.Lease))), o["array"]
	spec.TimeLimit = job.Duration(o.Duration("limit", 0))
	spec.Prefer, spec.Exclusive = o["prefer"], o["exclusive"] != ""
	if o["begin"] != "" {
		at := s.now.Add(o.Duration("begin", 0))
		spec.Begin = &at
	}
	var err error
	if s.layouts[a[0]], err = spec.Layout(); err != nil {
		s.t.Fatal(err)
	}
	s.step(step.Submit{Token: s.asks("submit " + a[0]), Submission: job.Submission{User: cmp.Or(o["user"], "amy"), Key: o["key"], Spec: spec}})
}

// named replaces the names of jobs in dependencies by their ids.
func (s *story) named(text string) string {
	return regexp.MustCompile(`:[a-z]+`).ReplaceAllStringFunc(text, func(name string) string { return ":" + string(s.id(name[1:])) })
}

// other NAME: a job of another owner.
func verbOther(s *story, a []string, _ stories.Options) {
	id := job.NewID(s.cfg.Group+1, uint64(len(s.jobs)+1))
	s.jobs[a[0]] = id
	s.ids = append(s.ids, string(id), a[0])
}

// parent NAME STATE|gone [started=1] [ago=5m] [ok=0-3] [failed=4-9] [open=10-11]: the owner of a job reports its state.
func verbParent(s *story, a []string, o stories.Options) {
	x := job.Progress{Job: s.id(a[0]), State: job.State(a[1]), Started: o["started"] != "" || job.State(a[1]).Ended(), Ago: o.Duration("ago", 0)}
	if a[1] == "gone" {
		x.State = ""
	}
	for name, list := range map[string]*[]job.Range{"ok": &x.Tasks.Succeeded, "failed": &x.Tasks.Failed, "open": &x.Tasks.Open} {
		if o[name] != "" {
			sel, err := job.ParseSelector("last." + o[name])
			if err != nil {
				s.t.Fatal(err)
			}
			*list = sel.Tasks
		}
	}
	s.step(step.ParentSeen{Progress: x})
}

// depends JOB: the state of each of its dependencies, and of its tasks.
func verbDepends(s *story, a []string, _ stories.Options) {
	x, _ := s.core.View().Find(s.id(a[0]))
	j, _ := s.rows.Job(x.ID)
	if x.Job != nil {
		j = *x.Job
	}
	for _, d := range j.Depends {
		s.printf("  %s %s %s %s", d, d.Outcome, d.Parent, d.Detail)
	}
	for _, t := range j.Tasks {
		s.printf("  %d: %s %s", t.Index, t.State, t.Reason)
	}
}

// take WORKER JOB[.TASK] [session=N] [address=A] [port=N] [promise=1] [as=TASK]: the host commits to its newest offer
// of the task.
func verbTake(s *story, a []string, o stories.Options) {
	m := s.offer(a)
	x := contract.Commit{Offer: m.ID, Attempt: m.Attempt, Group: m.Group, Session: contract.Session(o.Number("session", 5)), Conditional: o["promise"] != ""}
	if m.Gang > 0 {
		x.Port = o.Number("port", map[bool]int{true: 29500}[m.Attempt.Task%m.Gang == 0])
		if x.Address = cmp.Or(o["address"], addressOf(a[0])); a[0] == string(s.cfg.Self) {
			x.Address = ""
		}
	}
	x.Attempt.Task = o.Number("as", x.Attempt.Task)
	s.from(a[0], x)
}

// unsent WORKER JOB [start]: the newest offer of the job, or the Start after it, could not be sent, because a number in
// it is out of bounds.
func verbUnsent(s *story, a []string, _ stories.Options) {
	var m contract.ToWorker = s.offer(a)
	if a[2] == "start" {
		m = contract.Start{Attempt: s.offer(a).Attempt}
	}
	s.step(step.NotSent{To: job.Peer(a[0]), Msg: m, Err: fmt.Errorf("%w: a number is out of range", step.ErrUnsendable)})
}

// heldback WORKER JOB[.TASK] WAIT TIMES: the session keeps back the Start after the newest offer of the task.
func verbHeldBack(s *story, a []string, _ stories.Options) {
	wait, err := time.ParseDuration(a[2])
	times, err2 := strconv.Atoi(a[3])
	if err := errors.Join(err, err2); err != nil {
		s.t.Fatal(err)
	}
	s.step(step.NotSent{To: job.Peer(a[0]), Msg: contract.Start{Attempt: s.offer(a).Attempt}, Err: &step.HeldBackError{Wait: wait, Times: times}})
}

func (s *story) offer(a []string) contract.Offer {
	of := s.task(a[1])
	m, ok := s.latest[a[0]+" "+of.String()]
	if !ok {
		s.t.Fatalf("%s has no offer of %s", a[0], a[1])
	}
	return m
}

func verbDecline(s *story, a []string, o stories.Options) {
	m := s.offer(a)
	word := o["reason"]
	if word == "" {
		word = job.ReasonResources
	}
	s.from(a[0], contract.Decline{
		Offer: m.ID, Attempt: m.Attempt, Reason: job.Reason{Word: word}, Free: contract.Free{CPUs: o.Number("free", 0), Preemptible: yieldsOf(o)}, Never: o["never"] != "" || o["nouser"] != "", NoUser: o["nouser"] != "",
	})
}

// event WORKER JOB[.TASK] RUNNING|SUCCEEDED|FAILED|refused [task=INDEX] [n=ATTEMPT] [code=1] [ran=10s].
func verbEvent(s *story, a []string, o stories.Options) {
	att := s.task(a[1])
	att.N = 1
	if o["task"] != "" {
		att.Task = o.Number("task", 0)
	}
	if j, ok := s.core.View().Job(att.Job); ok {
		att.N = o.Number("n", j.Tasks[att.Task].Attempt)
	}
	s.events[att]++
	m := contract.Event{Attempt: att, Group: s.cfg.Group, N: s.events[att], State: job.State(a[2])}
	if a[2] == "refused" {
		m.State, m.Refused = "", "not known here"
	}
	if m.State.Ended() {
		began := s.now.Add(-o.Duration("ran", time.Minute))
		m.Exit = &job.Exit{State: m.State, Code: o.Number("code", 0), Started: o["started"] != "no", Began: began, Ended: s.now}
	}
	if m.State == job.Running {
		m.PID = 4711
	}
	s.from(a[0], m)
}

// renew WORKER [clock=N] JOB...: the newest attempts of these jobs are alive.
func verbRenew(s *story, a []string, o stories.Options) {
	m := contract.Renew{Group: s.cfg.Group, Store: s.stores[a[0]], Clock: int64(o.Number("clock", 1)), Session: 5}
	for _, name := range a[1:] {
		att := s.task(name)
		if j, ok := s.core.View().Job(att.Job); ok && name != "" {
			att.N = o.Number("n", j.Tasks[att.Task].Attempt)
			m.Live = append(m.Live, att)
		}
	}
	s.from(a[0], m)
}

func verbRead(s *story, a []string, _ stories.Options) {
	e := step.ReadDone{Token: s.read, Epoch: job.Epoch{Generation: 1, Term: s.term}}
	if a[0] == "fails" {
		e.Err = errors.New("no quorum")
	}
	s.step(e)
}

// finish WORKER JOB: the host commits to its newest offer of the job, and the task succeeds.
func verbFinish(s *story, a []string, o stories.Options) {
	verbTake(s, a, o)
	verbEvent(s, []string{a[0], a[1], "SUCCEEDED"}, o)
}

// requeue JOB [failed=1] [reason=...].
func verbRequeue(s *story, a []string, o stories.Options) {
	s.step(step.Requeue{Token: s.asks("requeue " + a[0]), Job: s.id(a[0]), Failed: o["failed"] != "", Reason: o["reason"]})
}

// damage JOB PART: the rows of the job are damaged: its header is cut short, or all rows are lost.
func verbDamage(s *story, a []string, _ stories.Options) {
	switch id := s.id(a[0]); a[1] {
	case "header":
		s.rows[id][""] = s.rows[id][""][:10]
	case "all":
		delete(s.rows, id)
	default:
		s.t.Fatalf("damage %s: want header or all", a[1])
	}
}

// show JOB|JOB.TASKS...: the job of one task, how many tasks of an array are in each state, or some of these tasks.
func verbShow(s *story, a []string, _ stories.Options) {
	for _, name := range a {
		if name == "" {
			continue
		}
		id, tasks := s.tasks(name)
		x, ok := s.core.View().Find(id)
		if !ok {
			s.printf("%s: no such job", name)
			continue
		}
		j, _ := s.rows.Job(x.ID)
		if x.Job != nil {
			j = *x.Job
		}
		if layout := s.layouts[name]; layout.IsArray() {
			s.printf("%s: %s %s", name, j.State(), countsText(j.Counts))
			continue
		}
		name, _, _ = strings.Cut(name, ".")
		s.showTasks(name, j, tasks)
	}
}

func countsText(c job.Counts) string {
	var parts []string
	for _, state := range job.States() {
		if n := c.Of(state); n > 0 {
			parts = append(parts, fmt.Sprintf("%s=%d", state, n))
		}
	}
	return strings.Join(parts, " ")
}

// showTasks shows tasks of a job; no ranges means its only task.
func (s *story) showTasks(name string, j job.Job, ranges []job.Range) {
	for i, t := range j.Tasks {
		if len(ranges) > 0 && !slices.ContainsFunc(ranges, func(r job.Range) bool { return i >= r.First && i <= r.Last }) {
			continue
		}
		who := name
		if len(ranges) > 0 {
			layout := s.layouts[name]
			who += fmt.Sprintf(".%d", layout.Number(i))
		}
		text := fmt.Sprintf("%s: %s attempt=%d runs=%d", who, t.State, t.Attempt, t.Runs)
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

func verbWhy(s *story, a []string, _ stories.Options) {
	x, err := s.core.View().Why(s.id(a[0]))
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

// restart [rows]: a new core starts from the whole journal, or from the saved rows.
func verbRestart(s *story, a []string, _ stories.Options) {
	s.pending = nil
	saved := Saved{}
	if a[0] == "rows" {
		saved.Applied = s.core.Applied()
		saved.load(s.t, s.rows)
	} else {
		s.rows = statetest.Disk{}
	}
	s.cfg.Seed++
	s.core = NewCore(s.cfg, saved, s.now)
	for _, m := range slices.Clone(s.log) {
		m.Lead = false
		s.show(s.core.Step(s.now, append(s.withRows(m), step.RowsKept{Applied: s.core.Applied()})...))
	}
}
