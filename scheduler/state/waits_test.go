package state_test

import (
	"fmt"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/state"
	"github.com/musterhq/muster/scheduler/state/statetest"
)

// other is a job of another owner.
var other = job.NewID(group+1, 1)

var jobNumber = regexp.MustCompile(`:\d+`)

// family is a table with jobs that depend on each other.
type family struct {
	t     interface{ Fatalf(string, ...any) }
	table *state.Table
	seq   uint64
	at    time.Time
	last  state.Change
}

func newFamily(t interface{ Fatalf(string, ...any) }) *family {
	return &family{t: t, table: state.NewTable(group), at: start}
}

func (f *family) apply(r job.Record) *family {
	f.seq++
	f.last = f.table.Apply(r, f.seq, job.Epoch{Term: 1})
	return f
}

// submit submits job n. The names in the dependencies are the arguments of id, as in afterok:0; x means other.
func (f *family) submit(n int, array string, kill bool, dependencies ...string) *state.Job {
	s := job.DefaultSpec()
	s.Command, s.Array, s.KillOnInvalidDep = []string{"true"}, array, kill
	for _, d := range dependencies {
		d = jobNumber.ReplaceAllStringFunc(d, func(n string) string {
			k, _ := strconv.Atoi(n[1:])
			return ":" + string(id(k))
		})
		s.Dependency = append(s.Dependency, strings.ReplaceAll(d, ":x", ":"+string(other)))
	}
	if err := s.Validate(); err != nil {
		f.t.Fatalf("%v: %v", s.Dependency, err)
	}
	l, err := s.Layout()
	if err != nil {
		f.t.Fatalf("%v", err)
	}
	f.apply(job.SubmitRecord{Job: id(n), User: "amy", Spec: s, At: f.at, Tasks: l.Tasks()})
	return f.table.Job(id(n))
}

// end ends a task of job n.
func (f *family) end(n, task int, s job.State) *family {
	a := job.Attempt{Job: id(n), Task: task, N: f.table.Job(id(n)).Task(task).Attempt + 1}
	f.apply(job.AssignRecord{Attempt: a, Node: "n", Store: "s"})
	return f.apply(job.ResultRecord{Attempt: a, Exit: job.Exit{State: s, Started: true}, At: f.at})
}

func (f *family) cancel(n int) *family { return f.apply(job.CancelRecord{Job: id(n), At: f.at}) }

func (f *family) requeue(n int) *family { return f.apply(job.RequeueRecord{Job: id(n), At: f.at}) }

func waits(j *state.Job) string {
	text := ""
	for i := range j.Len() {
		text += [...]string{"-", "w", "N"}[j.Waits.Of(i)]
	}
	return text
}

// A job waits for another job like in Slurm, whether it was submitted before or after the end of that one.
func TestEachConditionOfADependency(t *testing.T) {
	for _, c := range []struct {
		when, succeeded, failed, cancelled string
	}{
		{"afterok", "-", "N", "N"},
		{"afternotok", "N", "-", "-"},
		{"afterany", "-", "-", "-"},
		{"after", "-", "-", "-"},
	} {
		for how, want := range map[string]string{"succeeded": c.succeeded, "failed": c.failed, "cancelled": c.cancelled} {
			f := newFamily(t)
			f.submit(0, "", false)
			before := f.submit(1, "", false, c.when+":0")
			if waits(before) != "w" {
				t.Errorf(`%s of a job that waits: %s, want "w"`, c.when, waits(before))
			}
			switch how {
			case "succeeded":
				f.end(0, 0, job.Succeeded)
			case "failed":
				f.end(0, 0, job.Failed)
			default:
				f.cancel(0)
			}
			if len(f.last.Others) != 1 || f.last.Others[0].Job != before || !f.last.Others[0].All {
				t.Errorf("%s of a job that %s: changed %+v, want the whole job that waits", c.when, how, f.last.Others)
			}
			after := f.submit(2, "", false, c.when+":0")
			if waits(before) != want || waits(after) != want {
				t.Errorf("%s of a job that %s: %s, and submitted later %s; want %s", c.when, how, waits(before), waits(after), want)
			}
		}
	}
}

// All dependencies must be met, or any of them if they are separated by question marks.
func TestAllOrAnyDependenciesMustBeMet(t *testing.T) {
	f := newFamily(t)
	f.submit(0, "", false)
	f.submit(1, "", false)
	all := f.submit(2, "", false, "afterok:0", "afterok:1")
	some := f.submit(3, "", false, "afterok:0?afterok:1")
	f.end(0, 0, job.Failed)
	if waits(all) != "N" || waits(some) != "w" {
		t.Errorf(`one has failed: all %s, any %s, want "N" and "w"`, waits(all), waits(some))
	}
	f.end(1, 0, job.Succeeded)
	if waits(all) != "N" || waits(some) != "-" {
		t.Errorf(`the other one has succeeded: all %s, any %s, want "N" and "-"`, waits(all), waits(some))
	}
	if n := f.table.Parents.Links(); n != 1 {
		t.Errorf("%d dependencies are waited for, want that of the failed job", n)
	}
	none := f.submit(4, "", false, "afterok:0?afternotok:1")
	if waits(none) != "N" {
		t.Errorf(`none can be met: %s, want "N"`, waits(none))
	}
}

// A requeue of the parent changes nothing for a job whose dependency was met. All others wait again.
func TestRequeueOfTheParentKeepsMetDependencies(t *testing.T) {
	f := newFamily(t)
	f.submit(0, "", false)
	ok, bad := f.submit(1, "", false, "afterok:0"), f.submit(2, "", false, "afternotok:0")
	f.end(0, 0, job.Failed)
	if waits(ok) != "N" || waits(bad) != "-" {
		t.Fatalf(`after the failure: %s, %s, want "N" and "-"`, waits(ok), waits(bad))
	}
	f.requeue(0)
	if waits(ok) != "w" || waits(bad) != "-" {
		t.Errorf(`after the requeue: %s, %s, want "w" and "-"`, waits(ok), waits(bad))
	}
	f.end(0, 0, job.Succeeded)
	if waits(ok) != "-" || waits(bad) != "-" {
		t.Errorf(`after the success: %s, %s, want "-" and "-"`, waits(ok), waits(bad))
	}
	f.requeue(0).apply(job.CancelRecord{Job: id(0), At: start}).apply(job.PurgeRecord{Job: id(0)})
	if waits(ok) != "-" || f.table.Parents.Links() != 0 {
		t.Errorf(`after the purge: %s, %d dependencies are waited for, want "-" and 0`, waits(ok), f.table.Parents.Links())
	}
}

// A task that ended with NODE_FAIL may turn out to have succeeded.
func TestLateSuccessOfTheParentMeetsADependency(t *testing.T) {
	f := newFamily(t)
	s := job.DefaultSpec()
	s.Requeue = false
	f.apply(job.SubmitRecord{Job: id(0), Spec: s, At: f.at})
	j := f.submit(1, "", false, "afterok:0")
	f.apply(job.AssignRecord{Attempt: attempt(0, 1), Node: "n"}).apply(job.UnassignRecord{Attempt: attempt(0, 1), Proof: job.ProofExpired, At: f.at})
	if waits(j) != "N" {
		t.Fatalf(`after NODE_FAIL: %s, want "N"`, waits(j))
	}
	f.apply(ended(0, 1, job.Succeeded))
	if waits(j) != "-" {
		t.Errorf(`after the late success: %s, want "-"`, waits(j))
	}
}

// A job with kill_on_invalid_dep is cancelled by the record that ends its parent, and so are those that depend on it.
func TestJobWithAnInvalidDependencyIsCancelled(t *testing.T) {
	f := newFamily(t)
	f.submit(0, "", false)
	f.submit(1, "", true, "afterok:0")
	f.submit(2, "", true, "afterok:1")
	patient := f.submit(3, "", false, "afterok:1")
	anyway := f.submit(4, "", true, "afterany:2", "afternotok:1")
	diamond := f.submit(5, "", true, "afterok:1", "afterok:2")
	f.end(0, 0, job.Failed)
	for n, want := range map[int]job.State{1: job.Cancelled, 2: job.Cancelled, 3: job.Pending, 4: job.Pending, 5: job.Cancelled} {
		if got := f.table.Job(id(n)).State(); got != want {
			t.Errorf("job %d is %s, want %s", n, got, want)
		}
	}
	if waits(patient) != "N" || waits(anyway) != "-" {
		t.Errorf(`the others: %s, %s, want "N" and "-"`, waits(patient), waits(anyway))
	}
	if len(f.last.Others) != 5 {
		t.Errorf("%d jobs have changed, want 5", len(f.last.Others))
	}
	why := f.table.Job(id(2)).Task(0).Reason
	if want := "its dependency can never be met: afterok:" + string(id(1)) + ": it is CANCELLED"; why.Detail != want || why.Word != state.ReasonCancelled {
		t.Errorf("the reason is %q, want Detail %v and Word %v", why, want, state.ReasonCancelled)
	}
	if at := diamond.ClosedAt(); !at.Equal(f.at) {
		t.Errorf("it ended at %s, want the time of the record", at)
	}
	late := f.submit(6, "", true, "afterok:5")
	if late.State() != job.Cancelled {
		t.Errorf("one that is submitted afterwards is %s, want %v", late.State(), job.Cancelled)
	}
	if f.requeue(6); late.State() != job.Cancelled {
		t.Errorf("and requeued, it is %s, want %v", late.State(), job.Cancelled)
	}
	f.requeue(0).end(0, 0, job.Succeeded).requeue(1)
	if j := f.table.Job(id(1)); j.State() != job.Pending || waits(j) != "-" || waits(patient) != "w" {
		t.Errorf(`after requeues: %s %s, and after it %s, want %v, "-" and "w"`, j.State(), waits(j), waits(patient), job.Pending)
	}
}

// A chain of 10,000 jobs ends with its first job.
func TestChainIsCancelledWithItsFirstJob(t *testing.T) {
	f := newFamily(t)
	s := job.DefaultSpec()
	for n := range 10_000 {
		if n > 0 {
			s.Dependency, s.KillOnInvalidDep = []string{"afterok:" + string(id(n-1))}, true
		}
		f.apply(job.SubmitRecord{Job: id(n), Spec: s, At: f.at})
	}
	f.cancel(0)
	if len(f.last.Others) != 9_999 || f.table.Parents.Links() != 0 || len(f.table.Parents.All()) != 0 {
		t.Errorf("%d jobs have changed, %d dependencies are waited for, want 9999 and none", len(f.last.Others), f.table.Parents.Links())
	}
}

// Each element of an array waits for the same element of the other.
func TestElementsWaitForTheSameElement(t *testing.T) {
	f := newFamily(t)
	f.submit(0, "10-14", false)
	j := f.submit(1, "8-14:2", false, "aftercorr:0") // 8 10 12 14
	if waits(j) != "Nwww" {
		t.Fatalf(`at first: %s, want "Nwww"`, waits(j))
	}
	f.end(0, 2, job.Succeeded) // ends 12
	if waits(j) != "Nw-w" || len(f.last.Others) != 1 || !reflect.DeepEqual(f.last.Others[0].Freed, []job.Range{{First: 2, Last: 2}}) {
		t.Errorf(`after 12: %s, changed %+v, want "Nw-w", 1 of them and [0].Freed %v`, waits(j), f.last.Others, []job.Range{{First: 2, Last: 2}})
	}
	f.end(0, 1, job.Succeeded) // ends 11, which has no counterpart
	if len(f.last.Others) != 0 {
		t.Errorf("after 11: %+v, want none", f.last.Others)
	}
	f.end(0, 0, job.Failed) // ends 10
	if waits(j) != "NN-w" {
		t.Errorf(`after 10: %s, want "NN-w"`, waits(j))
	}
	f.apply(job.RequeueRecord{Job: id(0), Failed: true, At: f.at})
	if waits(j) != "Nw-w" {
		t.Errorf(`after the requeue of 10: %s, want "Nw-w"`, waits(j))
	}
	f.end(0, 0, job.Succeeded).end(0, 4, job.Succeeded)
	if waits(j) != "N---" {
		t.Errorf(`after 10 and 14: %s, want "N---"`, waits(j))
	}
	killed := f.submit(2, "8-14:2", true, "aftercorr:0")
	if waits(killed) != "N---" || killed.Task(0).State != job.Cancelled || killed.Task(1).State != job.Pending {
		t.Errorf(`with kill_on_invalid_dep: %s, the first is %s, the second %s, want "N---", %v and %v`, waits(killed), killed.Task(0).State, killed.Task(1).State, job.Cancelled, job.Pending)
	}
	f.end(0, 3, job.Succeeded) // the parent has ended: its tasks may be on disk only
	late := f.submit(3, "10-11", false, "aftercorr:0")
	if waits(late) != "ww" || f.table.Parents.Awaited(id(0)) != (state.Awaited{Ask: true, Tasks: true}) {
		t.Errorf(`after its end: %s, %+v, want "ww" and %v`, waits(late), f.table.Parents.Awaited(id(0)), (state.Awaited{Ask: true, Tasks: true}))
	}
	f.apply(job.ParentRecord{Parent: id(0), State: job.Succeeded, Tasks: state.TaskStatesOf(f.table.Job(id(0))), At: f.at})
	if waits(late) != "--" || f.table.Parents.Awaited(id(0)) != (state.Awaited{}) {
		t.Errorf(`after the answer: %s, %+v, want "--" and %v`, waits(late), f.table.Parents.Awaited(id(0)), (state.Awaited{}))
	}
}

// Each number is in one of the lists, including numbers that the array does not have.
func TestTaskStatesListEachNumberOnce(t *testing.T) {
	f := newFamily(t)
	j := f.submit(0, "2-6:2,9-11", false) // 2 4 6 9 10 11
	f.end(0, 1, job.Failed).end(0, 3, job.Succeeded).end(0, 4, job.Succeeded)
	want := job.TaskStates{
		Succeeded: []job.Range{{First: 9, Last: 10}},
		Failed:    []job.Range{{First: 0, Last: 1}, {First: 3, Last: 5}, {First: 7, Last: 8}, {First: 12, Last: job.MaxIndex}},
		Open:      []job.Range{{First: 2, Last: 2}, {First: 6, Last: 6}, {First: 11, Last: 11}},
	}
	if got := state.TaskStatesOf(j); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// The delay counts from the start: the last one of all dependencies, or the first one of any.
func TestDelayCountsFromTheStartOfTheParent(t *testing.T) {
	f := newFamily(t)
	f.submit(0, "", false)
	f.submit(1, "", false)
	all, some := f.submit(2, "", false, "after:0+10", "after:1+1"), f.submit(3, "", false, "after:0+10?after:1+1")
	began := func(n int, ago time.Duration) {
		f.apply(job.ParentRecord{Parent: id(n), State: job.Running, Started: true, Since: f.at.Add(-ago), At: f.at})
	}
	if want := (state.Awaited{Start: true}); f.table.Parents.Awaited(id(0)) != want {
		t.Errorf("awaited: %+v, want %v", f.table.Parents.Awaited(id(0)), want)
	}
	began(0, 3*time.Minute)
	if waits(all) != "w" || waits(some) != "-" || !some.Waits.DueAt().Equal(f.at.Add(7*time.Minute)) {
		t.Errorf("one has started: %s, %s at %s, want w, - and 7 minutes after the first start", waits(all), waits(some), some.Waits.DueAt())
	}
	f.at = f.at.Add(time.Hour)
	began(1, -time.Hour) // a clock that is ahead
	if waits(all) != "-" || !all.Waits.DueAt().Equal(f.at.Add(time.Minute)) {
		t.Errorf("both have started: %s at %s, want - a minute after that", waits(all), all.Waits.DueAt())
	}
	for n, d := range all.Waits.List() {
		if due := f.at.Add([]time.Duration{-53 * time.Minute, time.Minute}[n]); d.Outcome != job.DependencyMet || d.Detail != "the delay ends at "+due.UTC().Format(time.RFC3339) {
			t.Errorf("dependency %d: %s, %q, want its delay at %s", n, d.Outcome, d.Detail, due)
		}
	}
	if f.table.Parents.Awaited(id(0)) != (state.Awaited{}) {
		t.Errorf("afterwards: %+v, want %v", f.table.Parents.Awaited(id(0)), (state.Awaited{}))
	}
}

// Of a job of another owner the table knows only what was recorded.
func TestParentOfAnotherOwnerIsAsRecorded(t *testing.T) {
	f := newFamily(t)
	ok, anyhow := f.submit(0, "", false, "afterok:x"), f.submit(1, "", false, "afterany:x")
	told := func(r job.ParentRecord) bool {
		r.Parent, r.At = other, f.at
		learns := f.table.Parents.Learns(r)
		if f.apply(r); f.last.Moved != learns {
			t.Errorf("%+v: Learns is %v, but the record had an effect: %v", r, learns, f.last.Moved)
		}
		return learns
	}
	if !f.table.Parents.Awaited(other).Ask || told(job.ParentRecord{State: job.Running, Started: true}) {
		t.Errorf("while it runs: %s %s, want its owner asked once", waits(ok), waits(anyhow))
	}
	told(job.ParentRecord{State: job.Failed, Started: true})
	if waits(ok) != "N" || waits(anyhow) != "-" {
		t.Errorf(`after the failure: %s %s, want "N" and "-"`, waits(ok), waits(anyhow))
	}
	told(job.ParentRecord{State: job.Pending})
	if waits(ok) != "w" {
		t.Errorf(`after the requeue: %s, want "w"`, waits(ok))
	}
	f.submit(2, "", false, "afternotok:x")
	f.submit(3, "0-3", false, "aftercorr:x")
	told(job.ParentRecord{})
	if waits(ok) != "N" || waits(f.table.Job(id(2))) != "N" || waits(f.table.Job(id(3))) != "NNNN" || f.table.Parents.Awaited(other).Ask {
		t.Errorf("after it was deleted: %s, its owner is asked: %v, want N everywhere and false", waits(ok), f.table.Parents.Awaited(other).Ask)
	}
	for _, j := range []*state.Job{ok, f.table.Job(id(3))} {
		if why := j.Waits.NeverWhy(0); !strings.Contains(why, "deleted") {
			t.Errorf(`the reason is %q, want "deleted" in it`, why)
		}
	}
	if told(job.ParentRecord{State: job.Succeeded}) {
		t.Error("a deleted job has come back")
	}
}

// cpuTime returns the CPU time of this goroutine's thread. Other work of the machine is not in it. The goroutine stays
// on its thread until the end of the test.
func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	runtime.LockOSThread()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Waiting dependencies take little memory, and 10,000 jobs learn of the end of their parent in one step.
func TestManyDependenciesTakeLittleMemory(t *testing.T) {
	const n = 10_000
	f := newFamily(t)
	f.submit(n, "", false)
	s := job.DefaultSpec()
	before := heap()
	list := make([]*state.Job, 0, n)
	for i := range n {
		f.apply(job.SubmitRecord{Job: id(i), Spec: s, At: f.at})
		list = append(list, f.table.Job(id(i)))
	}
	without := heap() - before
	for i := range n {
		f.cancel(i).apply(job.PurgeRecord{Job: id(i)})
	}
	list = list[:0]
	before = heap()
	for i := range n {
		s.Dependency = []string{"afterok:" + string(id(n))}
		f.apply(job.SubmitRecord{Job: id(i), Spec: s, At: f.at})
		list = append(list, f.table.Job(id(i)))
	}
	if each := (heap() - before - without) / n; each > 600 {
		t.Errorf("a dependency takes %.0f bytes, want at most 600", each)
	}
	began := cpuTime(t)
	f.end(n, 0, job.Succeeded)
	took := cpuTime(t) - began
	if len(f.last.Others) != n || f.table.Parents.Links() != 0 {
		t.Errorf("%d jobs have changed, %d dependencies are waited for, want %v and 0", len(f.last.Others), f.table.Parents.Links(), n)
	}
	if took > time.Second {
		t.Errorf("it took %s of a CPU, want at most %v", took, time.Second)
	}
	for _, j := range list {
		if waits(j) != "-" {
			t.Fatalf(`%s waits: %s, want "-"`, j.ID, waits(j))
		}
	}
}

// oracle derives dependencies from the present states of the parents. An outcome that is met stays.
type oracle struct {
	met map[string]bool
	far map[job.ID]job.State // of jobs of other owners
}

func (o *oracle) key(child *state.Job, d job.Dependency) string {
	return fmt.Sprint(child.ID, " ", d)
}

func (o *oracle) judge(table *state.Table, purged map[job.ID]bool, child *state.Job, d job.Dependency) job.DependencyState {
	key := o.key(child, d)
	if o.met[key] {
		return job.DependencyMet
	}
	state := o.far[d.Job]
	if p := table.Job(d.Job); p != nil {
		state = p.State()
	} else if purged[d.Job] {
		state = "GONE"
	}
	out := job.DependencyWaiting
	if state.Ended() || state == "GONE" {
		switch good := state == job.Succeeded; d.When {
		case job.AfterOK:
			out = map[bool]job.DependencyState{true: job.DependencyMet, false: job.DependencyNever}[good]
		case job.AfterNotOK:
			out = map[bool]job.DependencyState{true: job.DependencyMet, false: job.DependencyNever}[!good && state != "GONE"]
		case job.AfterAny, job.After:
			out = job.DependencyMet
		case job.AfterCorr:
		}
	}
	o.met[key] = out == job.DependencyMet
	return out
}

// Whatever happens to the parents, in whatever order, and whenever the owner restarts from its rows: each dependency
// has the outcome that follows from the states of the parents, and both lives have the same jobs.
func TestDependenciesFollowTheirParents(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f, rows, purged := newFamily(t), statetest.Disk{}, map[job.ID]bool{}
		o := &oracle{met: map[string]bool{}, far: map[job.ID]job.State{other: job.Pending}}
		second := state.NewTable(group)
		submitted := 0
		apply := func(r job.Record) {
			f.apply(r)
			if c := second.Apply(r, f.seq, job.Epoch{Term: 1}); c.Moved != f.last.Moved {
				t.Fatalf("%#v changes one of the tables, but not the other", r)
			}
		}
		for range rapid.IntRange(1, 50).Draw(t, "steps") {
			n := rapid.IntRange(0, max(0, submitted-1)).Draw(t, "job")
			j := f.table.Job(id(n))
			switch rapid.IntRange(0, 8).Draw(t, "what") {
			case 0, 1, 2:
				s := anyDependent(t, submitted)
				l, _ := s.Layout()
				apply(job.SubmitRecord{Job: id(submitted), Spec: s, At: start, Tasks: l.Tasks()})
				submitted++
			case 3, 4:
				if j == nil {
					continue
				}
				task := rapid.IntRange(0, j.Len()-1).Draw(t, "task")
				a := job.Attempt{Job: id(n), Task: task, N: j.Task(task).Attempt + 1}
				apply(job.AssignRecord{Attempt: a, Node: "n"})
				apply(job.ResultRecord{Attempt: a, Exit: job.Exit{State: rapid.SampledFrom([]job.State{job.Succeeded, job.Succeeded, job.Failed}).Draw(t, "end")}, At: start})
			case 5:
				apply(job.CancelRecord{Job: id(n), At: start})
			case 6:
				apply(job.RequeueRecord{Job: id(n), At: start, Failed: rapid.Bool().Draw(t, "failed")})
			case 7:
				if j != nil && j.Ended() {
					purged[id(n)] = true
				}
				apply(job.PurgeRecord{Job: id(n)})
			case 8:
				state := rapid.SampledFrom([]job.State{job.Pending, job.Succeeded, job.Failed}).Draw(t, "far")
				o.far[other] = state
				apply(job.ParentRecord{Parent: other, State: state, At: start})
			}
			if submitted > 0 && f.table.Parents.Awaited(other).Ask { // its owner reports each change at once
				apply(job.ParentRecord{Parent: other, State: o.far[other], At: start})
			}
			for _, j := range f.table.Jobs() {
				taken, err := j.TakeRows()
				if err != nil {
					t.Fatal(err)
				}
				rows.Save(taken, nil)
			}
			for id := range rows {
				if f.table.Job(id) == nil {
					delete(rows, id)
				}
			}
			check(t, f.table, o, purged)
			for i, v := range views(f.table) {
				if w := views(second)[i]; !reflect.DeepEqual(v, w) {
					t.Fatalf("one table has %s with\n%+v\n%+v\nwant as the other\n%+v\n%+v", v.ID, v.Counts, v.Depends, w.Counts, w.Depends)
				}
			}
			if rapid.IntRange(0, 3).Draw(t, "restart") == 0 {
				second = load(t, rows)
			}
		}
		for n := range submitted {
			apply(job.CancelRecord{Job: id(n), At: start})
			if j := f.table.Job(id(n)); j != nil {
				for task := range j.Len() {
					apply(job.ResultRecord{Attempt: job.Attempt{Job: id(n), Task: task, N: j.Task(task).Attempt}, Exit: job.Exit{State: job.Failed}, At: start})
				}
			}
		}
		if f.table.Parents.Links() != 0 || second.Parents.Links() != 0 || len(f.table.Parents.All()) != 0 || len(second.Parents.All()) != 0 {
			t.Fatalf("all jobs have ended, but %d dependencies are waited for, and %d after restarts", f.table.Parents.Links(), second.Parents.Links())
		}
	})
}

// anyDependent draws a job that depends on some of the n jobs before it, and on other.
func anyDependent(t *rapid.T, n int) job.Spec {
	s := job.DefaultSpec()
	s.Command = []string{"true"}
	s.KillOnInvalidDep = rapid.IntRange(0, 3).Draw(t, "kill") == 0
	s.Array = rapid.SampledFrom([]string{"", "0-2", "1-5:2"}).Draw(t, "array")
	words := []string{"afterok", "afternotok", "afterany", "after"}
	if s.Array != "" {
		words = append(words, "aftercorr")
	}
	var terms []string
	for range rapid.IntRange(0, 3).Draw(t, "terms") {
		parent := other
		if k := rapid.IntRange(-1, n-1).Draw(t, "parent"); k >= 0 {
			parent = id(k)
		}
		when := rapid.SampledFrom(words).Draw(t, "when")
		if when == "aftercorr" && parent == other { // its owner would be asked for its tasks
			when = "afterok"
		}
		terms = append(terms, when+":"+string(parent))
	}
	if len(terms) > 0 {
		s.Dependency = []string{strings.Join(terms, rapid.SampledFrom([]string{",", "?"}).Draw(t, "separator"))}
	}
	return s
}

// check compares all dependencies with the oracle.
func check(t *rapid.T, table *state.Table, o *oracle, purged map[job.ID]bool) {
	all := table.Jobs()
	slices.SortFunc(all, func(a, b *state.Job) int { return int(a.Seq) - int(b.Seq) })
	for _, j := range all {
		d, err := job.ParseDependencies(j.Spec.Dependency, false)
		if err != nil {
			t.Fatal(err)
		}
		depends := j.Waits.List()
		if j.Ended() { // it no longer waits for anything
			for i, x := range d.Terms {
				o.met[o.key(j, x)] = depends[i].Outcome == job.DependencyMet
			}
			continue
		}
		outcomes := map[job.DependencyState]int{}
		for i, x := range d.Terms {
			if x.When == job.AfterCorr {
				checkEach(t, table, purged, j, x)
				outcomes["each"]++
				continue
			}
			want := o.judge(table, purged, j, x)
			if d.Any && depends[i].Outcome != want && outcomes[job.DependencyMet] > 0 {
				continue // one was enough
			}
			outcomes[want]++
			if depends[i].Outcome != want && (!d.Any || !metLater(depends)) {
				t.Fatalf("%s: %s is %s, want %s", j.ID, x, depends[i].Outcome, want)
			}
		}
		if outcomes["each"] > 0 {
			continue
		}
		want := state.WaitNone
		switch {
		case len(d.Terms) == 0:
		case d.Any && !metLater(depends):
			want = state.WaitNever
			if outcomes[job.DependencyWaiting] > 0 {
				want = state.WaitOn
			}
		case !d.Any && outcomes[job.DependencyNever] > 0:
			want = state.WaitNever
		case !d.Any && outcomes[job.DependencyWaiting] > 0:
			want = state.WaitOn
		}
		if got := j.Waits.Of(0); got != want {
			t.Fatalf("%s waits: %d, want %d: %+v", j.ID, got, want, depends)
		}
		if j.Spec.KillOnInvalidDep && want == state.WaitNever {
			t.Fatalf("%s was not cancelled", j.ID)
		}
	}
}

func metLater(depends []job.Depends) bool {
	return slices.ContainsFunc(depends, func(d job.Depends) bool { return d.Outcome == job.DependencyMet })
}

// checkEach checks that no task with only this dependency is ready before its counterpart has succeeded once, and that
// none waits for one that has.
func checkEach(t *rapid.T, table *state.Table, purged map[job.ID]bool, j *state.Job, d job.Dependency) {
	p := table.Job(d.Job)
	if p == nil || p.Final() || len(j.Spec.Dependency) != 1 || strings.Contains(j.Spec.Dependency[0], ",") || strings.Contains(j.Spec.Dependency[0], "?") {
		return
	}
	l, _ := j.Spec.Layout()
	there, _ := p.Spec.Layout()
	for i := range j.Len() {
		number, k := l.Number(i), -1
		for x := range there.Tasks() {
			if there.Number(x) == number {
				k = x
			}
		}
		switch got := j.Waits.Of(i); {
		case k < 0 && got != state.WaitNever,
			k >= 0 && p.Task(k).State == job.Succeeded && got != state.WaitNone,
			k >= 0 && p.Task(k).State == job.Failed && got == state.WaitOn:
			t.Fatalf("%s.%d waits for %s.%d: %d, which does not follow from its state", j.ID, i, d.Job, k, got)
		}
	}
}

// Rows that no owner writes are an error.
func TestBadRowsOfDependenciesAreRefused(t *testing.T) {
	f := newFamily(t)
	f.submit(0, "0-9", false, "aftercorr:x", "afterok:x")
	good, err := f.table.Job(id(0)).TakeRows()
	if err != nil {
		t.Fatal(err)
	}
	for name, row := range map[string]job.Row{
		"an outcome that there is not":   {Part: "p\x00\x00\x00\x00", Data: []byte{10, 2, 0, 9, 18, 2, 0, 0}},
		"too few outcomes":               {Part: "p\x00\x00\x00\x00", Data: []byte{10, 1, 0, 18, 1, 0}},
		"a state that there is not":      {Part: "p\x00\x00\x00\x00", Data: []byte{10, 2, 0, 2, 18, 2, 0, 1}},
		"an aftercorr that there is not": {Part: "q\x00\x01\x00\x00", Data: nil},
		"a block that there is not":      {Part: "q\x00\x00\x00\x01", Data: nil},
		"a task that there is not":       {Part: "q\x00\x00\x00\x00", Data: []byte{10, 8, 0, 255, 0, 0, 0, 0, 0, 0}},
		"a task met and never":           {Part: "q\x00\x00\x00\x00", Data: []byte{10, 8, 1, 0, 0, 0, 0, 0, 0, 0, 18, 8, 1, 0, 0, 0, 0, 0, 0, 0}},
	} {
		row.Job = id(0)
		if _, err := state.Decode(append(slices.Clone(good), row)); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

// The owner of a job had deleted it before its start was known here. The job that waits for it is told both, and no
// made-up time.
func TestDelayAfterADeletedParentIsMet(t *testing.T) {
	f := newFamily(t)
	j := f.submit(1, "", false, "after:x+10")
	f.apply(job.ParentRecord{Parent: other, At: f.at})
	d := j.Waits.List()[0]
	if waits(j) != "-" || d.Outcome != job.DependencyMet || !strings.Contains(d.Detail, "deleted") || strings.Contains(d.Detail, "1970") {
		t.Errorf("%s: %s, parent %q, %q, want - met, with \"deleted\" in the detail and no time", waits(j), d.Outcome, d.Parent, d.Detail)
	}
}
