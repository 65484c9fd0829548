package scheduler

// The safety rules as properties of random histories.

import (
	"encoding/json"
	"errors"
	"flag"
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/state"
	"github.com/musterhq/muster/scheduler/step"
)

// A task never runs as two attempts at once. No Start is sent without a committed Assign, or after an Unassign was
// proposed. No more tasks of an array are active than its limit allows. Each waiting task has a reason. A job is shown
// with the counts of its tasks. Accepted jobs are kept. The journal alone gives the same jobs. Once nothing fails any
// more, each job ends. Type world checks the first two.
func TestHistories(t *testing.T) {
	histories(t, (*world).actions)
}

// The same holds with hosts that do not fence their tasks: these go on without a lease when the daemon and the runner
// are dead. A task runs elsewhere only once such a host is back, was rebooted, or was declared dead.
func TestHistoriesOfHostsThatDoNotFence(t *testing.T) {
	histories(t, func(w *world) map[string]func(*rapid.T) {
		some := w.models[1:]
		for _, m := range some {
			m.unfenced = true
		}
		one := func(t *rapid.T) *model { return rapid.SampledFrom(some).Draw(t, "worker") }
		all := w.actions()
		few := map[string]func(*rapid.T){ // so that hosts die while tasks run, and stay dead for longer than leases
			"die":    func(t *rapid.T) { one(t).die() },
			"reboot": func(t *rapid.T) { one(t).reboot() },
			"wipe":   func(t *rapid.T) { one(t).wipe() },
			"live": func(t *rapid.T) { // the living hosts are connected and renew their leases
				for range rapid.IntRange(1, 12).Draw(t, "times") {
					w.live()
				}
			},
		}
		for _, name := range []string{"submit", "cancel", "connect", "cut", "flush", "pass", "end", "declare dead", "restart", "depose", ""} {
			few[name] = all[name]
		}
		return few
	})
}

// histories checks random histories of these actions.
func histories(t *testing.T, actions func(w *world) map[string]func(*rapid.T)) {
	if f := flag.Lookup("rapid.steps"); f.Value.String() == f.DefValue { // one task alone takes ten steps to its end
		if err := f.Value.Set("120"); err != nil {
			t.Fatal(err)
		}
		defer f.Value.Set(f.DefValue)
	}
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		t.Repeat(actions(w))
		w.settle()
		w.check(t)
		for _, id := range w.ids {
			x, kept := w.core.View().Find(id)
			if !kept {
				continue // purged
			}
			if j := w.whole(x); !j.State().Ended() && j.State() != job.Held && !w.mayWait(id) {
				t.Fatalf("nothing fails any more, but %s is %s: %s, attempt %+v", id, j.State(), j.Tasks[0].Reason, j.Tasks[0])
			}
		}
	})
}

// actions are what can happen in a history.
func (w *world) actions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"submit": func(t *rapid.T) {
			spec := job.DefaultSpec()
			spec.Command, spec.Lease = []string{"true"}, job.Duration(worldLease)
			spec.Resources.CPUs = rapid.IntRange(1, 3).Draw(t, "cpus")
			spec.Priority = rapid.IntRange(40, 60).Draw(t, "priority")
			spec.Retries = rapid.IntRange(0, 1).Draw(t, "retries")
			spec.Requeue = rapid.Bool().Draw(t, "requeue")
			spec.CheckpointExitCode = rapid.SampledFrom([]int{0, 85}).Draw(t, "checkpoint")
			spec.Array = rapid.SampledFrom([]string{"", "", "0-4", "0-4%1", "2-8:2%2"}).Draw(t, "array")
			if rapid.IntRange(0, 2).Draw(t, "bulk") == 0 { // its file is on disk
				spec.Params = map[string]string{"p": strings.Repeat(strconv.Itoa(len(w.ids)%10), job.MaxBulk)}
				if spec.Array == "" {
					spec.EachLine = []string{"one", "two"}[:rapid.IntRange(0, 2).Draw(t, "lines")]
				}
			}
			spec.Dependency, spec.KillOnInvalidDep = w.dependencies(t), rapid.Bool().Draw(t, "kill")
			w.step(step.Submit{Token: w.token(), Submission: job.Submission{Spec: spec}})
		},
		"cancel": func(t *rapid.T) { w.step(step.Cancel{Token: w.token(), Job: w.job(t), Tasks: someTasks(t)}) },
		"hold":   func(t *rapid.T) { w.step(step.Hold{Token: w.token(), Job: w.job(t), Tasks: someTasks(t)}) },
		"requeue": func(t *rapid.T) {
			w.step(step.Requeue{Token: w.token(), Job: w.job(t), Tasks: someTasks(t), Failed: rapid.Bool().Draw(t, "failed"), Reason: "again"})
		},
		"release": func(t *rapid.T) {
			w.step(step.Hold{Token: w.token(), Job: w.job(t), Tasks: someTasks(t), Release: true})
		},
		"far": func(t *rapid.T) { // a job of another owner moves on, or is requeued
			w.far[rapid.SampledFrom(farJobs).Draw(t, "far")] = rapid.SampledFrom([]job.State{job.Pending, job.Running, job.Succeeded, job.Failed, ""}).Draw(t, "state")
		},
		"tell": func(t *rapid.T) {
			switch id := rapid.SampledFrom(farJobs).Draw(t, "far"); {
			case rapid.IntRange(0, 3).Draw(t, "silent") == 0:
				w.step(step.ParentsSilent{Jobs: []job.ID{id}, Detail: "its owner does not answer"})
			default:
				w.tell(id) // even if nobody has asked
			}
		},
		"connect": func(t *rapid.T) {
			if m := w.model(t); !m.up {
				m.connect()
			}
		},
		"cut": func(t *rapid.T) { w.model(t).cut() },
		"to worker": func(t *rapid.T) {
			m := w.model(t)
			for n := rapid.IntRange(1, 4).Draw(t, "n"); n > 0 && len(m.toWorker) > 0; n-- {
				x := m.toWorker[0]
				m.toWorker = m.toWorker[1:]
				m.hear(x)
			}
		},
		"to owner": func(t *rapid.T) {
			m := w.model(t)
			for n := rapid.IntRange(1, 4).Draw(t, "n"); n > 0 && len(m.toOwner) > 0; n-- {
				w.deliver(m)
			}
		},
		"commit": func(t *rapid.T) {
			n := rapid.IntRange(0, len(w.pending)).Draw(t, "records")
			records := w.pending[:n:n]
			w.pending = w.pending[n:]
			w.commit(job.Committed{Records: records})
		},
		"lose": func(*rapid.T) {
			lost := w.pending
			w.pending = nil
			w.step(step.NotProposed{Records: lost, Err: errors.New("disk full")})
		},
		"read": func(t *rapid.T) {
			if w.read != 0 {
				var err error
				if rapid.Bool().Draw(t, "fails") {
					err = errors.New("no quorum")
				}
				w.readDone(err)
			}
		},
		"file": func(t *rapid.T) {
			if len(w.files) > 0 {
				var err error
				if rapid.IntRange(0, 3).Draw(t, "broken") == 0 {
					err = errors.New("input/output error")
				}
				w.readFile(err)
			}
		},
		"renew": func(t *rapid.T) {
			m := w.model(t)
			m.lapse()
			m.ask()
		},
		"end": func(t *rapid.T) {
			m := w.model(t)
			m.lapse()
			for _, a := range m.attempts() {
				if m.tries[a].runs {
					m.end(a, rapid.SampledFrom([]job.State{job.Succeeded, job.Failed}).Draw(t, "state"))
					m.tries[a].event.Exit.Code = rapid.SampledFrom([]int{0, 85}).Draw(t, "code")
					return
				}
			}
		},
		"wipe": func(t *rapid.T) { // an empty data directory while tasks run: these run on until the lease ends
			m := w.model(t)
			m.lapse()
			m.cut()
			m.store += "'"
			for a, try := range m.tries {
				if try.runs {
					w.ghosts[a] = m.until
				}
			}
			m.tries, m.live, m.session, m.until = map[job.Attempt]*modelTry{}, false, 0, time.Time{}
		},
		"declare dead": func(t *rapid.T) { // afterwards nothing runs there
			if m := w.model(t); !m.up {
				m.perish()
				w.step(step.DeclareDead{Token: w.token(), Peer: m.peer, By: "root"})
			}
		},
		"pass":    func(t *rapid.T) { w.pass(time.Duration(rapid.IntRange(1, 20_000).Draw(t, "ms")) * time.Millisecond) },
		"flush":   func(*rapid.T) { w.flush() },
		"restart": func(t *rapid.T) { w.restart(rapid.Bool().Draw(t, "from rows")) },
		"depose": func(t *rapid.T) {
			if w.core.turn.Lead {
				w.depose(rapid.IntRange(0, len(w.pending)).Draw(t, "committed"))
			} else {
				w.elect()
			}
		},
		"purge": func(t *rapid.T) { w.purge(w.job(t)) },
		"stall": func(*rapid.T) { w.stalled = !w.stalled },
		"lists": func(t *rapid.T) { w.checkPages(t) },
		"":      func(t *rapid.T) { w.check(t) },
	}
}

// someTasks draws ranges of tasks; none means all.
func someTasks(t *rapid.T) []job.Range {
	return rapid.SampledFrom([][]job.Range{nil, {{First: 0, Last: 0}}, {{First: 1, Last: 2}}, {{First: 0, Last: 1}, {First: 3, Last: 4}}}).Draw(t, "tasks")
}

// dependencies draws up to three dependencies, on jobs of this owner, which may be purged, and of another owner.
func (w *world) dependencies(t *rapid.T) (list []string) {
	separator := rapid.SampledFrom([]string{",", "?"}).Draw(t, "separator")
	for range rapid.IntRange(0, 3).Draw(t, "dependencies") {
		id := rapid.SampledFrom(farJobs).Draw(t, "parent")
		if rapid.Bool().Draw(t, "own") {
			id = w.job(t)
		}
		word := rapid.SampledFrom([]string{"afterok", "afternotok", "afterany", "after"}).Draw(t, "when")
		list = append(list, word+":"+string(id))
	}
	if len(list) > 0 {
		list = []string{strings.Join(list, separator)}
	}
	return list
}

// mayWait reports whether a job may wait although nothing fails: for ever, or for a job that does.
func (w *world) mayWait(id job.ID) bool {
	e := w.core.entries.byID[id]
	switch e.job.Waits.Of(0) {
	case state.WaitNever:
		return true
	case state.WaitNone:
		return false
	case state.WaitOn:
	}
	for _, d := range e.job.Waits.List() {
		if far, other := w.far[d.Job]; d.Outcome == job.DependencyWaiting {
			p := w.core.entries.byID[d.Job]
			switch {
			case other && !far.Ended() && far != "" && (d.When != job.After || far == job.Pending):
				return true
			case !other && p != nil && (p.job.State() == job.Held || w.mayWait(d.Job)):
				return true
			}
		}
	}
	return false
}

func (w *world) token() step.Token {
	w.tokens++
	w.open[w.tokens] = true
	return w.tokens
}

func (w *world) model(t *rapid.T) *model { return rapid.SampledFrom(w.models).Draw(t, "worker") }

func (w *world) job(t *rapid.T) job.ID {
	if len(w.ids) == 0 {
		return job.NewID(7, 1)
	}
	return rapid.SampledFrom(w.ids).Draw(t, "job")
}

func (w *world) check(t *rapid.T) {
	durable := replay(w.log)
	for id := range w.kept {
		if durable[id] == nil {
			t.Fatalf("%s was accepted and is not in the journal", id)
		}
	}
	for id, want := range durable {
		x, listed := w.core.View().Find(id)
		got, ok := w.core.View().Durable(id)
		if listed && x.Job == nil {
			got, ok = w.rows.Job(id)
		}
		if !ok || text(t, got) != text(t, *want) {
			t.Fatalf("%s is\n%s\nbut the journal says\n%s", id, text(t, got), text(t, *want))
		}
		j := w.whole(x)
		for _, task := range j.Tasks {
			if task.State == job.Pending && task.Reason.Word == "" {
				t.Fatalf("%s waits without a reason", id)
			}
		}
	}
	for _, e := range w.core.entries.byID {
		for _, x := range e.tasks {
			checkPhase(t, x)
		}
		if e.atOnce > 0 && e.job.Assigned() > e.atOnce {
			t.Fatalf("%d tasks of %s are active, want at most %d", e.job.Assigned(), e.job.ID, e.atOnce)
		}
		if got, want := w.core.views.counts(e), counted(w.core, e.job.ID); got != want {
			t.Fatalf("%s is shown with the counts %v, and its tasks with %v", e.job.ID, got, want)
		}
	}
	for p, tasks := range w.core.assigned.byNode {
		for task := range tasks {
			if d := task.durable(); !d.Assigned || d.Node != p {
				t.Fatalf("%s is counted at %s, but is assigned: %v, at %s", task.attempt(), p, d.Assigned, d.Node)
			}
		}
	}
}

// checkPhase compares the phase of a task with its dispatch and with the journal.
func checkPhase(t *rapid.T, x *task) {
	dispatched := x.phase >= offering && x.phase <= recorded
	assigned := x.phase == recorded || x.phase >= unknown
	if dispatched != (x.dispatch != nil) || assigned != x.durable().Assigned {
		t.Fatalf("%s is %s, but has a dispatch: %v, is assigned: %v", x.attempt(), x.phase, x.dispatch != nil, x.durable().Assigned)
	}
}

func text(t *rapid.T, j job.Job) string {
	b, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// No message makes the core panic, however wrong it is, and each waiting task has a reason.
func TestNoMessageMakesTheCorePanic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		w.liars = true
		for _, m := range w.models {
			m.connect()
		}
		spec := job.DefaultSpec()
		spec.Command = []string{"true"}
		w.flush()
		w.step(step.Submit{Token: w.token(), Submission: job.Submission{Spec: spec}}, step.Submit{Token: w.token(), Submission: job.Submission{Spec: spec}})
		w.flush()
		t.Repeat(map[string]func(*rapid.T){
			"message": func(t *rapid.T) {
				w.step(step.FromWorker{Peer: rapid.SampledFrom([]job.Peer{"w0", "w1", "nobody"}).Draw(t, "peer"), Msg: anyMessage(t, w)})
			},
			"flush": func(*rapid.T) { w.flush() },
			"pass":  func(t *rapid.T) { w.pass(time.Duration(rapid.IntRange(1, 500).Draw(t, "s")) * time.Second) },
			"": func(t *rapid.T) {
				for _, x := range w.core.View().Page(job.Query{}) {
					j := w.whole(x)
					for _, task := range j.Tasks {
						if task.State == job.Pending && task.Reason.Word == "" {
							t.Fatalf("%s waits without a reason", j.ID)
						}
					}
				}
			},
		})
	})
}

func anyMessage(t *rapid.T, w *world) contract.ToScheduler {
	att := job.Attempt{Job: w.job(t), Task: rapid.IntRange(-1, 2).Draw(t, "task"), N: rapid.IntRange(0, 4).Draw(t, "attempt")}
	offer := rapid.Uint64().Draw(t, "offer")
	for id := range w.core.offers.byID {
		if rapid.Bool().Draw(t, "real") {
			offer = id
		}
		break
	}
	group := rapid.SampledFrom([]job.Group{7, 8}).Draw(t, "group")
	switch rapid.IntRange(0, 6).Draw(t, "kind") {
	case 0:
		return contract.Hello{Profile: contract.Profile{Worker: rapid.Bool().Draw(t, "worker"), CPUs: rapid.IntRange(-1, 9).Draw(t, "cpus"), Drivers: []string{"exec"}}}
	case 1:
		return contract.Availability{Seq: rapid.Uint64().Draw(t, "seq"), Free: contract.Free{CPUs: rapid.IntRange(-9, 9).Draw(t, "cpus"), GPUs: []contract.FreeGPU{{UUID: "x"}}}}
	case 2:
		return contract.Commit{Offer: offer, Attempt: att, Group: group, Session: contract.Session(rapid.Uint64Range(0, 2).Draw(t, "session")), Devices: []string{"x"}}
	case 3:
		return contract.Decline{Offer: offer, Attempt: att, Never: rapid.Bool().Draw(t, "never")}
	case 4:
		e := contract.Event{Attempt: att, Group: group, N: rapid.Uint64().Draw(t, "n"), State: rapid.SampledFrom(append(job.States(), "", "NONSENSE")).Draw(t, "state")}
		if rapid.Bool().Draw(t, "exit") {
			e.Exit = &job.Exit{State: rapid.SampledFrom(job.States()).Draw(t, "exit state"), Started: true}
		}
		if rapid.Bool().Draw(t, "refuse") {
			e.Refused = "no"
		}
		return e
	case 5:
		return contract.Renew{Group: group, Store: "w0", Live: []job.Attempt{att, att}}
	}
	return contract.Stale{Group: group, Epoch: job.Epoch{Term: 99}}
}

// A queue keeps its tasks in the order of their ranks, whatever is added and removed.
func TestQueueKeepsTheOrderOfRanks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := queue[*task]{order: rank}
		in := map[*task]bool{}
		var all []*task
		for i := range 40 {
			e := &entry{job: &state.Job{ID: job.NewID(7, uint64(i))}, priority: i % 3}
			all = append(all, &task{e: e})
		}
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			x := rapid.SampledFrom(all).Draw(t, "task")
			if in[x] {
				l.remove(x)
			} else {
				l.add(x)
			}
			in[x] = !in[x]
			n := 0
			for _, there := range in {
				if there {
					n++
				}
			}
			if l.len() != n {
				t.Fatalf("%d in the queue, want %d", l.len(), n)
			}
			for i, a := range l.items() {
				if !in[a] || i > 0 && rank(l.items()[i-1], a) >= 0 {
					t.Fatalf("place %d is out of order", i)
				}
			}
		}
	})
}

// checkPages compares listings in pages of any size with the jobs in the journal.
func (w *world) checkPages(t *rapid.T) {
	f := job.Query{Limit: rapid.IntRange(1, 4).Draw(t, "limit")}
	if rapid.Bool().Draw(t, "by state") {
		f.States = []job.State{rapid.SampledFrom([]job.State{job.Succeeded, job.Failed, job.Pending}).Draw(t, "state")}
	}
	if rapid.Bool().Draw(t, "by prefix") {
		f.Prefix = string(w.job(t))[:rapid.IntRange(0, 24).Draw(t, "letters")]
	}
	counts, want := map[job.State]int{}, map[job.ID]bool{}
	for id := range replay(w.log) {
		x, _ := w.core.View().Find(id)
		j := w.whole(x)
		counts[j.State()]++
		if f.Match(&j) {
			want[id] = true
		}
	}
	if got := w.core.View().Counts(); !maps.Equal(got, counts) {
		t.Fatalf("counted %v, want %v", got, counts)
	}
	for last := (job.Position{}); ; {
		page := w.core.View().Page(f)
		for _, x := range page {
			at := job.Position{Submitted: x.Submitted, ID: x.ID}
			if !want[x.ID] || last.ID != "" && last.Compare(at) >= 0 {
				t.Fatalf("%s is listed after %s, wanted %v", x.ID, last.ID, want[x.ID])
			}
			delete(want, x.ID)
			last, f.After = at, at
		}
		if len(page) < f.Limit {
			break
		}
	}
	if len(want) > 0 {
		t.Fatalf("not listed: %v", want)
	}
}
