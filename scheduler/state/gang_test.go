package state_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/state"
)

// gangs returns a table with one job of two gangs of three. Its first gang runs on the hosts a, b and c.
func gangs(t *testing.T, change func(*job.Spec)) *gangTable {
	t.Helper()
	s := job.DefaultSpec()
	s.Nodes, s.Array = 3, "0-1"
	change(&s)
	g := &gangTable{t: t, table: state.NewTable(group)}
	g.do(job.SubmitRecord{Job: id(0), User: "amy", Spec: s, At: start, Tasks: 6})
	return g.do(assignGang(0, 1))
}

func assignGang(task, n int) job.AssignGangRecord {
	return job.AssignGangRecord{Attempt: attempt(task, n), Members: []job.Assignee{{Node: "pa", NodeName: "a"}, {Node: "pb", NodeName: "b"}, {Node: "pc", NodeName: "c"}}}
}

type gangTable struct {
	t     *testing.T
	table *state.Table
	seq   uint64
}

func (g *gangTable) do(records ...job.Record) *gangTable {
	g.t.Helper()
	for _, r := range records {
		g.seq++
		if c := g.table.Apply(r, g.seq, job.Epoch{Term: 1}); !c.Moved {
			g.t.Fatalf("%#v has no effect", r)
		}
	}
	return g
}

// states shows all tasks with their endings, reasons and runs.
func (g *gangTable) states() string {
	var out []string
	j := g.table.Job(id(0))
	for i := range j.Len() {
		x := j.Task(i)
		text := x.State.Code()
		if x.Reason.Word != "" {
			text += "(" + x.Reason.Word + ")"
		}
		out = append(out, text+[]string{"", "!cancel", "!requeue", "!gang"}[x.Ending])
	}
	return strings.Join(out, " ")
}

func exits(task, n, code int) job.ResultRecord {
	x := job.Exit{State: job.Failed, Code: code, Started: true}
	if code == 0 {
		x.State = job.Succeeded
	}
	return job.ResultRecord{Attempt: attempt(task, n), Exit: x, At: start}
}

func lost(task, n int) job.UnassignRecord {
	return job.UnassignRecord{Attempt: attempt(task, n), Proof: job.ProofExpired, Detail: "it was silent", At: start}
}

func refused(task, n int) job.UnassignRecord {
	return job.UnassignRecord{Attempt: attempt(task, n), Proof: job.ProofNeverStarted, Detail: "no room", At: start}
}

// The state of a gang of three after the ends of its members. The second gang of the job is not affected.
func TestStateOfAGangAfterTheEndsOfItsMembers(t *testing.T) {
	plain := func(*job.Spec) {}
	retry := func(s *job.Spec) { s.Retries = 1 }
	strict := func(s *job.Spec) { s.Requeue = false }
	keep := func(s *job.Spec) { s.KeepOnBadExit = true }
	saves := func(s *job.Spec) { s.CheckpointExitCode = 85 }
	preempted := ended(1, 1, job.Preempted)
	tooMany := lost(1, 1)
	tooMany.Hold = "three hosts"
	for _, c := range []struct {
		name string
		spec func(*job.Spec)
		ends []job.Record
		want string // of the first gang
		runs int
	}{
		{"all succeed", plain, []job.Record{exits(2, 1, 0), exits(0, 1, 0), exits(1, 1, 0)}, "CD CD CD", 1},
		{"one succeeds", plain, []job.Record{exits(2, 1, 0)}, "RS RS CD", 0},
		{"one fails", plain, []job.Record{exits(1, 1, 3)}, "RS(GangEnded)!gang F RS(GangEnded)!gang", 0},
		{"one fails, the others end", plain, []job.Record{exits(1, 1, 3), exits(0, 1, 143), exits(2, 1, 0)}, "CA(GangEnded) F CD", 1},
		{"one fails, and the others go on", keep, []job.Record{exits(1, 1, 3), exits(0, 1, 0)}, "CD F RS", 0},
		{"one fails, and the others went on", keep, []job.Record{exits(1, 1, 3), exits(0, 1, 0), exits(2, 1, 0)}, "CD F CD", 1},
		{"a retry is one of all", retry, []job.Record{exits(1, 1, 3), exits(0, 1, 143), exits(2, 1, 0)}, "PD PD PD", 1},
		{"the retries are used up", retry, []job.Record{exits(1, 1, 3), exits(0, 1, 1), exits(2, 1, 1), assignGang(0, 2), exits(0, 2, 1), exits(1, 2, 1), exits(2, 2, 1)}, "F CA(GangEnded) CA(GangEnded)", 2},
		{"a host is lost", plain, []job.Record{lost(1, 1), exits(0, 1, 143), exits(2, 1, 143)}, "PD PD PD", 0},
		{"the others fail because a host is lost", plain, []job.Record{exits(0, 1, 1), exits(2, 1, 1), lost(1, 1)}, "PD PD PD", 0},
		{"a host is lost after one has succeeded", plain, []job.Record{exits(0, 1, 0), lost(1, 1), exits(2, 1, 143)}, "PD PD PD", 0},
		{"a host is lost without requeue", strict, []job.Record{lost(1, 1), exits(0, 1, 143), exits(2, 1, 143)}, "CA(GangEnded) NF(NodeLost) CA(GangEnded)", 1},
		{"too many hosts are lost", plain, []job.Record{tooMany, exits(0, 1, 143), exits(2, 1, 143)}, "HD(NodeLost) HD(NodeLost) HD(NodeLost)", 0},
		{"too many hosts are lost without requeue", strict, []job.Record{tooMany, exits(0, 1, 143), exits(2, 1, 143)}, "CA(GangEnded) NF(NodeLost) CA(GangEnded)", 1},
		{"one is preempted", plain, []job.Record{preempted, exits(0, 1, 143), exits(2, 1, 143)}, "PD PD PD", 0},
		{"one is preempted and the others fail first", plain, []job.Record{exits(0, 1, 1), exits(2, 1, 1), preempted}, "PD PD PD", 0},
		{"one is preempted without requeue", strict, []job.Record{preempted, exits(0, 1, 143), exits(2, 1, 143)}, "CA(GangEnded) PR CA(GangEnded)", 1},
		{"one saves its state", saves, []job.Record{exits(1, 1, 85)}, "RS PR(Exit) RS", 0},
		{"all save their states", saves, []job.Record{exits(1, 1, 85), exits(0, 1, 85), exits(2, 1, 85)}, "PD PD PD", 0},
		{"rank 0 fails, the others save their states when told to end", saves, []job.Record{exits(0, 1, 1), exits(1, 1, 85), exits(2, 1, 85)}, "F CA(GangEnded) CA(GangEnded)", 1},
		{"one is not started", plain, []job.Record{refused(1, 1), exits(0, 1, 143), exits(2, 1, 143)}, "PD PD PD", 0},
		{"none is started", strict, []job.Record{refused(1, 1), refused(0, 1), refused(2, 1)}, "PD PD PD", 0},
		{"one is not started, without requeue", strict, []job.Record{refused(1, 1), exits(0, 1, 143), exits(2, 1, 143)}, "CA(GangEnded) NF(NotStarted) CA(GangEnded)", 1},
		{"it is taken back", plain, []job.Record{job.UnassignGangRecord{Attempt: attempt(0, 1), Proof: job.ProofDeclined}}, "PD PD PD", 0},
		{"it is taken back after a cancel", plain, []job.Record{job.CancelRecord{Job: id(0), Tasks: []job.Range{{First: 1, Last: 1}}}, job.UnassignGangRecord{Attempt: attempt(0, 1), Proof: job.ProofDeclined, At: start}}, "CA(Cancelled) CA(Cancelled) CA(Cancelled)", 0},
	} {
		g := gangs(t, c.spec).do(c.ends...)
		if got, want := g.states(), c.want+" PD PD PD"; got != want {
			t.Errorf("%s:\ngot  %s\nwant %s", c.name, got, want)
		}
		if runs := g.table.Job(id(0)).Brief(2).Runs; runs != c.runs {
			t.Errorf("%s: %d runs, want %d", c.name, runs, c.runs)
		}
	}
}

// If one member of a gang was preempted, each member of its next attempt is told that it was preempted.
func TestMembersOfAPreemptedGangAreTold(t *testing.T) {
	for name, c := range map[string]struct {
		ends []job.Record
		want bool
	}{
		"one is preempted":          {[]job.Record{ended(1, 1, job.Preempted), exits(0, 1, 143), exits(2, 1, 143)}, true},
		"the others fail first":     {[]job.Record{exits(0, 1, 1), exits(2, 1, 1), ended(1, 1, job.Preempted)}, true},
		"another was not started":   {[]job.Record{ended(1, 1, job.Preempted), refused(0, 1), exits(2, 1, 143)}, true},
		"one fails":                 {[]job.Record{exits(1, 1, 3), exits(0, 1, 143), exits(2, 1, 143)}, false},
		"the attempt before it was": {[]job.Record{ended(1, 1, job.Preempted), exits(0, 1, 143), exits(2, 1, 143), assignGang(0, 2), exits(2, 2, 3), exits(0, 2, 143), exits(1, 2, 143)}, false},
	} {
		g := gangs(t, func(s *job.Spec) { s.Retries = 1 })
		j := g.table.Job(id(0))
		for i := range 3 {
			if state.Preempted(j, i) {
				t.Errorf("%s: member %d of the first attempt is told that it was preempted", name, i)
			}
		}
		n := 2 + len(c.ends)/6
		g.do(c.ends...).do(assignGang(0, n), assignGang(3, 1))
		for i := range 6 {
			if got := state.Preempted(j, i); got != (c.want && i < 3) {
				t.Errorf("%s: task %d: preempted is %v, want %v", name, i, got, (c.want && i < 3))
			}
		}
	}
}

// The end of a job is that of the members that ended by themselves.
func TestEndOfAGangIsThatOfMembersThatEndedByThemselves(t *testing.T) {
	kill := exits(1, 1, 137)
	kill.Exit.Signal = 9
	none := job.Ends{Status: job.ExitMuster}
	for name, c := range map[string]struct {
		ends []job.Record
		want job.Ends
	}{
		"one fails":          {[]job.Record{exits(1, 1, 3), exits(0, 1, 143), exits(2, 1, 0)}, job.Ends{Exited: true, Code: 3, Status: 3}},
		"one is killed":      {[]job.Record{kill, exits(0, 1, 143), exits(2, 1, 143)}, job.Ends{Exited: true, Code: 137, Status: 137}},
		"one has no process": {[]job.Record{lost(1, 1), exits(0, 1, 143), lost(2, 1)}, none},
		"the first counts":   {[]job.Record{exits(2, 1, 5), exits(1, 1, 143), exits(0, 1, 143)}, job.Ends{Exited: true, Code: 5, Status: 5}},
	} {
		g := gangs(t, func(s *job.Spec) { s.Requeue = false }).do(c.ends...)
		if got := g.table.Job(id(0)).View(0, 0).Ends; got.Exited != c.want.Exited || got.Code != c.want.Code || got.Status != c.want.Status {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// A command for one rank is for its whole element.
func TestCommandForOneRankIsForTheGang(t *testing.T) {
	plain := func(*job.Spec) {}
	one := []job.Range{{First: 1, Last: 1}}
	for _, c := range []struct {
		name    string
		records []job.Record
		want    string
	}{
		{"hold", []job.Record{job.HoldRecord{Job: id(0), Tasks: []job.Range{{First: 4, Last: 4}}}}, "RS RS RS HD(Held) HD(Held) HD(Held)"},
		{"hold and release", []job.Record{job.HoldRecord{Job: id(0)}, job.HoldRecord{Job: id(0), Release: true, Tasks: []job.Range{{First: 3, Last: 3}, {First: 5, Last: 5}}}}, "RS RS RS PD PD PD"},
		{"cancel", []job.Record{job.CancelRecord{Job: id(0), Tasks: one}}, "RS(Cancelled)!cancel RS(Cancelled)!cancel RS(Cancelled)!cancel PD PD PD"},
		{"cancel of two gangs", []job.Record{job.CancelRecord{Job: id(0), Tasks: []job.Range{{First: 2, Last: 3}}, At: start}}, "RS(Cancelled)!cancel RS(Cancelled)!cancel RS(Cancelled)!cancel CA(Cancelled) CA(Cancelled) CA(Cancelled)"},
		{"cancel after a member has failed", []job.Record{exits(0, 1, 1), job.CancelRecord{Job: id(0), Tasks: one}, exits(1, 1, 143), exits(2, 1, 143)}, "F CA(Cancelled) CA(Cancelled) PD PD PD"},
		{"requeue while it runs", []job.Record{exits(0, 1, 0), job.RequeueRecord{Job: id(0), Tasks: []job.Range{{First: 0, Last: 0}}}}, "CD RS(Requeued)!requeue RS(Requeued)!requeue PD PD PD"},
		{"requeue, and all have ended", []job.Record{exits(0, 1, 0), job.RequeueRecord{Job: id(0), Tasks: []job.Range{{First: 0, Last: 0}}}, exits(1, 1, 143), exits(2, 1, 143)}, "PD PD PD PD PD PD"},
		{"cancel, then requeue", []job.Record{job.CancelRecord{Job: id(0), Tasks: one}, exits(0, 1, 143), job.RequeueRecord{Job: id(0), Tasks: one}, exits(1, 1, 143), exits(2, 1, 143)}, "PD PD PD PD PD PD"},
		{"requeue, then cancel", []job.Record{job.RequeueRecord{Job: id(0), Tasks: one}, exits(0, 1, 143), job.CancelRecord{Job: id(0), Tasks: one}, exits(1, 1, 143), exits(2, 1, 143)}, "CA(Requeued) CA(Cancelled) CA(Cancelled) PD PD PD"},
		{"requeue of what has ended", []job.Record{exits(0, 1, 0), exits(1, 1, 0), exits(2, 1, 0), job.RequeueRecord{Job: id(0), Tasks: []job.Range{{First: 2, Last: 2}}}}, "PD PD PD PD PD PD"},
		{"cancel of the job", []job.Record{job.CancelRecord{Job: id(0), Reason: "x", At: start}, exits(0, 1, 143), exits(1, 1, 143), exits(2, 1, 0)}, "CA(Cancelled) CA(Cancelled) CA(Cancelled) CA(Cancelled) CA(Cancelled) CA(Cancelled)"},
	} {
		if got := gangs(t, plain).do(c.records...).states(); got != c.want {
			t.Errorf("%s:\ngot  %s\nwant %s", c.name, got, c.want)
		}
	}
	g := gangs(t, plain).do(exits(0, 1, 1))
	if c := g.table.Apply(job.RequeueRecord{Job: id(0), Failed: true}, 99, job.Epoch{Term: 1}); c.Moved {
		t.Errorf("a requeue of failed tasks affects a gang with running members: %s", g.states())
	}
}

// The reason of the members that are told to end names the member that caused it.
func TestReasonNamesTheMemberThatEndedTheGang(t *testing.T) {
	plain := func(*job.Spec) {}
	signal := ended(1, 1, job.Failed)
	signal.Exit.Signal = 9
	long := ended(1, 1, job.Failed)
	long.Exit.Reason = strings.Repeat("é", 500)
	for _, c := range []struct {
		end  job.Record
		want string
	}{
		{exits(1, 1, 3), "rank 1 on b: exit code 3"},
		{signal, "rank 1 on b: signal 9"},
		{lost(1, 1), "rank 1 on b: its node was lost"},
		{refused(1, 1), "rank 1 on b: it was not started: no room"},
		{long, "rank 1 on b: " + strings.Repeat("é", 100)},
	} {
		g := gangs(t, plain).do(c.end)
		if got := g.table.Job(id(0)).Task(2).Reason.Detail; got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

// Records that do not fit a gang have no effect.
func TestRecordsThatDoNotFitAGangHaveNoEffect(t *testing.T) {
	two := assignGang(3, 1)
	two.Members = two.Members[:2]
	same := assignGang(3, 1)
	same.Members[2].Node = same.Members[0].Node
	for name, r := range map[string]job.Record{
		"a single assign":               job.AssignRecord{Attempt: attempt(3, 1), Node: "a"},
		"too few members":               two,
		"two members on a host":         same,
		"not from rank 0":               assignGang(4, 1),
		"another attempt":               assignGang(3, 2),
		"a gang that is assigned":       assignGang(0, 2),
		"a task that there is not":      assignGang(6, 1),
		"unassign not from rank 0":      job.UnassignGangRecord{Attempt: attempt(1, 1), Proof: job.ProofDeclined},
		"unassign of another attempt":   job.UnassignGangRecord{Attempt: attempt(0, 2), Proof: job.ProofDeclined},
		"unassign of a gang that waits": job.UnassignGangRecord{Attempt: attempt(3, 0), Proof: job.ProofDeclined},
	} {
		g := gangs(t, func(*job.Spec) {})
		before := views(g.table)
		if c := g.table.Apply(r, 99, job.Epoch{Term: 1}); c.Moved || !reflect.DeepEqual(views(g.table), before) {
			t.Errorf("%s: the record has an effect: %s", name, g.states())
		}
	}
	g := gangs(t, func(*job.Spec) {}).do(exits(0, 1, 0))
	if c := g.table.Apply(job.UnassignGangRecord{Attempt: attempt(0, 1), Proof: job.ProofDeclined}, 99, job.Epoch{Term: 1}); c.Moved {
		t.Errorf("a gang is unassigned though a member has run: %s", g.states())
	}
	g = gangs(t, func(*job.Spec) {}).do(lost(0, 1), exits(1, 1, 1), exits(2, 1, 1))
	if g.table.Job(id(0)).WouldTakeLate(exits(0, 1, 0)) {
		t.Error("a member succeeds alone")
	}
}

// A job may depend on an array of gangs element by element. It gets the end of an element when that is settled, and
// success only if all its members have succeeded.
func TestArrayOfGangsAsParent(t *testing.T) {
	for _, nodes := range []int{1, 2} { // of the child
		g := gangs(t, func(*job.Spec) {})
		s := job.DefaultSpec()
		s.Array, s.Dependency = "0-1", []string{"aftercorr:" + string(id(0))}
		if nodes > 1 {
			s.Nodes = nodes
		}
		g.do(job.SubmitRecord{Job: id(1), User: "amy", Spec: s, At: start, Tasks: 2 * nodes})
		child := g.table.Job(id(1))
		of := func() string { return fmt.Sprint(child.Waits.Of(0), child.Waits.Of(nodes-1), child.Waits.Of(nodes)) }
		want := func(what, want string) {
			t.Helper()
			if got := of(); got != want {
				t.Errorf("%d nodes, %s: %s, want %s", nodes, what, got, want)
			}
		}
		waits := fmt.Sprint(child.Waits.Of(0))
		free, never := fmt.Sprint(state.WaitNone), fmt.Sprint(state.WaitNever)
		g.do(exits(0, 1, 0), exits(1, 1, 0))
		want("two of three have succeeded", waits+" "+waits+" "+waits)
		g.do(exits(2, 1, 0))
		want("all have succeeded", free+" "+free+" "+waits)
		g.do(assignGang(3, 1), exits(3, 1, 0), exits(4, 1, 1))
		want("a member has failed", free+" "+free+" "+waits)
		g.do(exits(5, 1, 143))
		want("the gang has failed", free+" "+free+" "+never)
		if got := fmt.Sprint(state.TaskStatesOf(g.table.Job(id(0)))); got != fmt.Sprintf("{[{0 0}] [{1 %d}] []}", job.MaxIndex) {
			t.Errorf("states %s, want %v", got, fmt.Sprintf("{[{0 0}] [{1 %d}] []}", job.MaxIndex))
		}
	}
}
