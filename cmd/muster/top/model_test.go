package top

// The model: what it requests, and the effect of keys.

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/job"
)

func asked[T any](effects []any) (all []T) {
	for _, e := range effects {
		if x, ok := e.(T); ok {
			all = append(all, x)
		}
	}
	return all
}

// The view says that the daemon is silent, and comes back by itself.
func TestViewSurvivesASilentDaemon(t *testing.T) {
	m := shown(sim(), 80, 24)
	m.update(silenced{"no daemon answers on /run/s: start one with `muster daemon`"}, noon)
	for i := range 30 {
		if e := m.update(ticked{}, noon.Add(time.Duration(i)*time.Second)); len(e) > 0 {
			t.Fatalf("asks a daemon that is gone for %v, want nothing", e)
		}
	}
	m.update(silenced{"still gone"}, noon.Add(40*time.Second))
	if f := m.frame(bare); !strings.Contains(f, "no news for 40s: still gone") || !strings.Contains(f, "sim1") {
		t.Errorf("want the silence of the daemon, got the frame\n%s", f)
	}
	if e := m.update(opened{}, noon.Add(time.Minute)); len(asked[load](e)) != 1 {
		t.Errorf("after the return: asks for %v, want everything", e)
	}
	if f := m.frame(bare); strings.Contains(f, "no news") {
		t.Errorf("want no silence of the daemon, got the frame\n%s", f)
	}
}

// Readings that stop arriving show their age, and no longer count.
func TestOldReadingsShowTheirAge(t *testing.T) {
	m := shown(sim(), 80, 24)
	keys(m, noon, "g")
	m.update(ticked{}, noon.Add(time.Minute))
	if f := m.frame(bare); strings.Count(f, "read 1m00s ago") < 5 || strings.Contains(f, "util") {
		t.Errorf("want the age of each reading, got the frame\n%s", f)
	}
}

// The reports of a member that could not be followed for a while are listed again, but at a rate that falls with the
// size of the listing.
func TestListingIsRepeatedAfterAGap(t *testing.T) {
	m := shown(sim(), 80, 24)
	open := changes{[]api.Event{{Kind: api.EventOpen, NodeID: peer(1)}}}
	loads := 0
	for i := range 100 {
		now := noon.Add(time.Duration(i) * 100 * time.Millisecond)
		for range asked[load](m.update(open, now)) {
			loads++
			l := feed{sim()}.load(context.Background(), func(msg any) { m.update(msg, now) })
			l.bytes = 5 * loadRate
			m.update(l, now)
		}
	}
	if loads < 2 || loads > 4 {
		t.Errorf("got %d listings in 10 s, want 2 to 4, because each counts for 5 s", loads)
	}
}

// An event that arrives during a listing is newer than the listing.
func TestEventDuringAListingIsNewer(t *testing.T) {
	f := sim()
	m := shown(f, 80, 24)
	e := m.update(changes{[]api.Event{{Kind: api.EventGap}}}, noon.Add(time.Minute))
	if len(asked[load](e)) != 1 {
		t.Fatalf("asks for %v, want one listing", e)
	}
	ended := running(1, "train", "amy", 0, 0, 1)
	ended.State, ended.Tasks[0].State = job.Failed, job.Failed
	m.update(changes{[]api.Event{{Kind: api.EventJob, ID: idOf(1), Job: &ended}}}, noon.Add(61*time.Second))
	listAll(m, f, noon.Add(62*time.Second)) // the listing still has the job running
	if s := m.cluster.jobs[idOf(1)].state.is(); s != job.Failed {
		t.Errorf("got the job %s, want job.Failed", s)
	}
	m.update(ticked{}, noon.Add(3*time.Minute))
	if m.cluster.jobs[idOf(1)] != nil {
		t.Error("a job that ended two minutes ago is still shown")
	}
}

// A listing updates only the rows that changed: equal rows stay, and rows that are not in it are removed, unless an
// event about them has arrived since it began. An incomplete listing reverts nothing.
func TestListingUpdatesChangedRowsOnly(t *testing.T) {
	f := sim()
	m := shown(f, 120, 40)
	old, gpu := m.cluster.jobs[idOf(1)], m.cluster.device(peer(0), "GPU-sim-0-0")
	node := m.cluster.nodes[peer(0)]
	m.update(changes{[]api.Event{{Kind: api.EventGap}}}, noon.Add(time.Minute))
	started := running(3, "later", "amy", 2, 0) // the listing has it waiting
	more := running(9, "new", "dan", 0, 0)
	m.update(changes{[]api.Event{{Kind: api.EventJob, ID: idOf(3), Job: &started}, {Kind: api.EventJob, ID: idOf(9), Job: &more}, {Kind: api.EventGone, ID: idOf(4)}}}, noon.Add(61*time.Second))
	f.nodes, f.gpus, f.jobs = f.nodes[:2], f.gpus[:8], []api.Job{f.jobs[0], f.jobs[2], f.jobs[3]}
	f.gpus[0].Free, f.nodes[0].Detail = 0.25, "slow"
	ids := func() (all []job.ID) {
		for id := range m.cluster.jobs {
			all = append(all, id)
		}
		slices.Sort(all)
		return all
	}
	listAll(m, f, noon.Add(62*time.Second))
	if got := ids(); !slices.Equal(got, []job.ID{idOf(1), idOf(3), idOf(9)}) {
		t.Errorf("got jobs %v, want 1, 3 and 9", got)
	}
	if s := m.cluster.jobs[idOf(3)].state.is(); s != job.Running {
		t.Errorf("the listing reverted an event: got %s, want job.Running", s)
	}
	if m.cluster.jobs[idOf(1)] != old || m.cluster.nodes[peer(0)] != node || m.cluster.device(peer(0), "GPU-sim-0-0") != gpu {
		t.Error("an equal row was replaced")
	}
	if len(m.cluster.nodes) != 2 || m.cluster.gpus != 8 || gpu.free != 0.25 || node.detail != "slow" || len(node.gpus) != 4 {
		t.Errorf("got %d nodes and %d GPUs, want 2 and 8, updated", len(m.cluster.nodes), m.cluster.gpus)
	}
	if n := m.totals.running + m.totals.waiting; n != 1+1+1 {
		t.Errorf("got %d tasks, want %v", n, 1+1+1)
	}

	m = shown(sim(), 120, 40)
	m.update(changes{[]api.Event{{Kind: api.EventGap}}}, noon.Add(time.Minute))
	m.update(changes{[]api.Event{{Kind: api.EventJob, ID: idOf(3), Job: &started}}}, noon.Add(61*time.Second))
	feed{sim()}.load(t.Context(), func(msg any) { m.update(msg, noon.Add(62*time.Second)) })
	m.update(loaded{err: errors.New("cut off")}, noon.Add(62*time.Second))
	if got, s := ids(), m.cluster.jobs[idOf(3)].state.is(); !slices.Equal(got, []job.ID{idOf(1), idOf(2), idOf(3), idOf(4)}) || s != job.Running {
		t.Errorf("after half a listing: got %v, %s, want jobs 1 to 4, RUNNING", got, s)
	}
	if x := asked[load](m.update(ticked{}, noon.Add(10*time.Minute))); len(x) != 1 {
		t.Errorf("got %d requests for the rest, want 1", len(x))
	}
}

// A row with the same tasks is drawn again if the job has changed.
func TestChangedJobIsDrawnAgain(t *testing.T) {
	f := sim()
	m := shown(f, 120, 40)
	j := f.jobs[0]
	j.Name, j.Priority = "trained", 77
	m.update(changes{[]api.Event{{Kind: api.EventJob, ID: j.ID, Job: &j}}}, noon.Add(time.Minute))
	m.update(ticked{}, noon.Add(time.Minute))
	if !strings.Contains(m.frame(bare), "trained") || !strings.Contains(m.frame(bare), " 77 ") {
		t.Errorf("want the new name and priority, got the frame\n%s", m.frame(bare))
	}
}

// After a listing GPUs keep their histories, and jobs that have just ended are still there.
func TestListingKeepsHistoriesAndRecentEnds(t *testing.T) {
	f := sim()
	m := shown(f, 200, 60)
	for i := range 5 {
		at := noon.Add(time.Duration(i) * readEvery)
		g := f.gpus[3]
		g.Utilization, g.ReadAt = 10*i, &at
		m.update(measured{gpus: []api.GPU{g}}, at)
	}
	d := m.cluster.device(peer(0), f.gpus[3].UUID)
	past := slices.Clone(d.past)
	ended := f.jobs[1]
	ended.State, ended.Counts = job.Succeeded, map[job.State]int{job.Succeeded: 1}
	ended.Tasks = slices.Clone(ended.Tasks)
	ended.Tasks[0].State, ended.EndedAt = job.Succeeded, &noon
	now := noon.Add(time.Minute)
	m.update(changes{[]api.Event{{Kind: api.EventJob, ID: ended.ID, Job: &ended}}}, now)
	f.jobs = f.jobs[:1]
	listAll(m, f, now.Add(time.Second))
	if len(past) < 5 || len(d.past) < len(past) || !slices.Equal(d.past[:len(past)], past) {
		t.Errorf("got history %v, want it to begin with %v", d.past, past)
	}
	if m.cluster.jobs[ended.ID] == nil || len(m.cluster.jobs) != 2 {
		t.Errorf("got %d jobs, want 2 with the ended one", len(m.cluster.jobs))
	}
}

// A listing that breaks off says so. It removes no rows, however often it happens, and the number of jobs is bounded.
func TestIncompleteListingRemovesNothing(t *testing.T) {
	f := &broken{fake: sim()}
	l := feed{f}.load(t.Context(), func(any) {})
	if l.err == nil {
		t.Fatal("a listing without its second page counts as complete")
	}
	m := shown(f.fake, 120, 40)
	m.stale.frame = true
	m.update(page{}, noon)
	if m.stale.frame {
		t.Error("each page causes a frame")
	}
	for i := range 2*maxJobs + 10 {
		m.cluster.add(page{jobs: []*work{{facts: facts{id: idOf(1000 + i)}}}})
	}
	if n := len(m.cluster.jobs); n > 2*maxJobs || !m.cluster.left {
		t.Errorf("got %d jobs, more to list: %t, want at most twice the bound, true", n, m.cluster.left)
	}
}

// broken lists one page of jobs, and then fails.
type broken struct{ *fake }

func (b *broken) JobPages(context.Context, api.JobFilter) iter.Seq2[api.Listing[api.Job], error] {
	return func(yield func(api.Listing[api.Job], error) bool) {
		if yield(api.Listing[api.Job]{Items: b.jobs[:2]}, nil) {
			yield(api.Listing[api.Job]{}, errors.New("cut off"))
		}
	}
}

// If there are too many jobs, the first ones are shown, and the user is told.
func TestTooManyJobsAreCutWithAHint(t *testing.T) {
	f := sim()
	for i := range maxJobs {
		f.jobs = append(f.jobs, waiting(100+i, "more", "amy"))
	}
	m := shown(f, 120, 40)
	if n := len(m.cluster.jobs); n != maxJobs || !strings.Contains(m.frame(bare), fmt.Sprintf("only %d jobs are shown", maxJobs)) {
		t.Errorf("got %d jobs, want the bound with a hint, in\n%s", n, m.frame(bare))
	}
}

// Until everything has been listed once nothing is known, and events do not pile up meanwhile.
func TestNothingIsKnownBeforeTheListing(t *testing.T) {
	m := newModel("", time.Second)
	m.update(sized{80, 24}, noon)
	m.update(opened{}, noon)
	for i := range 1000 {
		j := running(1, "t"+fmt.Sprint(i), "amy", 0, 0)
		m.update(changes{[]api.Event{{Kind: api.EventJob, ID: j.ID, Job: &j}}}, noon.Add(time.Duration(i)*time.Second))
		m.update(ticked{}, noon.Add(time.Duration(i)*time.Second))
	}
	if f := m.frame(bare); strings.Contains(f, "util") || strings.Contains(f, "t999") || !strings.Contains(f, "…") {
		t.Errorf("want no values yet, got the frame\n%s", f)
	}
	if n := len(m.cluster.fresh); n > 1 {
		t.Errorf("got %d rows for one job, want at most 1", n)
	}
	listAll(m, sim(), noon.Add(time.Hour))
	if f := m.frame(bare); !strings.Contains(f, "3 nodes") || !strings.Contains(f, "sweep") {
		t.Errorf("want all values, got the frame\n%s", f)
	}
}

// Only the GPUs on the screen are measured, at a rate that does not depend on the size of the cluster.
func TestOnlyShownGPUsAreMeasured(t *testing.T) {
	f := large(500, 8, 0)
	m := shown(f, 80, 24)
	var bytes int
	var widest int
	for i := range 600 {
		now := noon.Add(time.Duration(i) * time.Second)
		for _, x := range asked[measure](m.update(ticked{}, now)) {
			n := len(x.nodes) * 8
			widest = max(widest, n)
			bytes += n * 230
			m.update(measured{gpus: f.gpus[:n], bytes: n * 230, tag: "t"}, now)
		}
	}
	if rate := bytes / 600; rate == 0 || rate > quietRate || widest > 8*24 {
		t.Errorf("got %d bytes of readings a second, of up to %d GPUs at a time, want at most %d, of at most %d", rate, widest, quietRate, 8*24)
	}
	m.link.measuring = false
	if x := asked[measure](keys(m, noon, "tab", "s", "s", "s", "s", "tab")); len(x) > 0 {
		t.Errorf("asks for %v right after the last answer, want nothing", x)
	}
	if x := asked[measure](m.update(ticked{}, noon.Add(2*time.Hour))); m.wishes[ofNodes].order != "UTIL" || len(x) != 1 || len(x[0].nodes) != 0 {
		t.Errorf("sorted by %s: asks for %v, want one request for all nodes by UTIL", m.wishes[ofNodes].order, x)
	}
}

// large is a cluster of many nodes.
func large(nodes, gpus, jobs int) *fake {
	f := &fake{}
	one := sim().nodes[0]
	for n := range nodes {
		d := one
		d.ID, d.Name = peer(n), fmt.Sprintf("n%03d", n)
		f.nodes = append(f.nodes, d)
		for i := range gpus {
			g := simGPU(0, i)
			g.NodeID, g.UUID = d.ID, fmt.Sprintf("GPU-sim-%d-%d", n, i)
			f.gpus = append(f.gpus, g)
		}
	}
	for n := range jobs {
		f.jobs = append(f.jobs, running(n, "train", "amy", n%max(nodes, 1), 0))
	}
	return f
}

// A row stays selected when others come and go, and the rows are in the order of the column.
func TestSelectionStaysAndRowsAreSorted(t *testing.T) {
	f := sim()
	m := shown(f, 120, 40)
	keys(m, noon, "down")
	at := m.wishes[ofTasks].at
	more := running(9, "new", "dan", 0, 0)
	m.update(changes{[]api.Event{{Kind: api.EventJob, ID: more.ID, Job: &more}}}, noon)
	more.SubmittedAt = noon
	m.update(changes{[]api.Event{{Kind: api.EventJob, ID: more.ID, Job: &more}}}, noon)
	if w := m.wishes[ofTasks]; w.at != at || m.lists.tasks[w.row].label() != at || len(m.lists.tasks) != 5 {
		t.Errorf("selected: got %[2]s, want %[1]s", at, m.lists.tasks[w.row].label())
	}
	users := func() (all []string) {
		for _, x := range m.lists.tasks {
			all = append(all, x.user.is())
		}
		return all
	}
	keys(m, noon, "s", "s")
	if got := users(); m.wishes[ofTasks].order != "USER" || !slices.IsSorted(got) {
		t.Errorf("sorted by %s: got %v, want the order of users", m.wishes[ofTasks].order, got)
	}
	keys(m, noon, "r")
	got := users()
	slices.Reverse(got)
	if !slices.IsSorted(got) {
		t.Errorf("reversed: got %v, want the opposite order", users())
	}
	keys(m, noon, "S", "S")
	if m.wishes[ofTasks].order != "" {
		t.Errorf("sorted by %s, want an empty text", m.wishes[ofTasks].order)
	}
}

func TestFilterAndNodeSelectRows(t *testing.T) {
	m := shown(sim(), 120, 40)
	keys(m, noon, "/", "s", "w", "e", "e", "enter")
	if len(m.lists.tasks) != 1 || m.lists.tasks[0].name != "sweep" {
		t.Errorf("filtered: got %d tasks, want sweep alone", len(m.lists.tasks))
	}
	keys(m, noon, "esc", "tab", "down", "enter") // only sim2
	if m.only != peer(1) || len(m.lists.nodes) != 1 || len(m.lists.tasks) != 2 {
		t.Errorf("only %s: got %d nodes and %d tasks, want 1 and 2", m.only, len(m.lists.nodes), len(m.lists.tasks))
	}
	keys(m, noon, "esc")
	if m.only != "" || len(m.lists.nodes) != 3 {
		t.Errorf("all: got %d nodes, want 3", len(m.lists.nodes))
	}
	fixed := newModel(peer(1), time.Second)
	fixed.update(sized{120, 40}, noon)
	listAll(fixed, sim(), noon)
	keys(fixed, noon, "tab", "enter", "esc")
	if fixed.only != peer(1) || len(fixed.lists.nodes) != 1 {
		t.Error("a key undid --node")
	}
}

// A cancellation asks first, says what it ends, and only y confirms it.
func TestCancelAsksFirst(t *testing.T) {
	gang := running(5, "gang", "amy", 0, 0)
	gang.Nodes, gang.TaskCount, gang.Counts = 2, 2, map[job.State]int{job.Running: 2}
	gang.Tasks = append(gang.Tasks, gang.Tasks[0])
	gang.Tasks[1].Task, gang.Tasks[1].Node = 1, "sim2"
	pair := waiting(6, "pair", "amy")
	pair.TaskCount, pair.Array, pair.Counts = 2, "0-1", map[job.State]int{job.Pending: 2}
	pair.Tasks = append(pair.Tasks, pair.Tasks[0])
	pair.Tasks[1].Task = 1
	for _, c := range []struct {
		of   api.Job
		key  string
		says string
		want []cancel
	}{
		{running(1, "train", "amy", 0, 0, 1), "c", "(train of amy): ends 1 task on sim1?", []cancel{{idOf(1), whole, string(idOf(1))}}},
		{gang, "c", "(gang of amy): ends 2 tasks on sim1, sim2?", []cancel{{idOf(5), whole, string(idOf(5))}}},
		{array(4, "grid", "cat"), "c", "(grid of cat): ends 12 tasks, drops 900 tasks before the start?", []cancel{{idOf(4), whole, string(idOf(4))}}},
		{pair, "c", "(pair of amy), which waits?", []cancel{{idOf(6), 0, string(idOf(6)) + ".0"}}},
		{pair, "C", "(pair of amy): drops 2 tasks before the start?", []cancel{{idOf(6), whole, string(idOf(6))}}},
	} {
		f := sim()
		f.jobs = []api.Job{c.of}
		for _, reply := range []string{"y", "n", "enter", "esc", "q"} {
			m := shown(f, 200, 60)
			keys(m, noon, c.key)
			if frame := m.frame(bare); !strings.Contains(frame, c.says) {
				t.Errorf("%s: want %q, got\n%s", c.of.Name, c.says, frame)
			}
			got, want := asked[cancel](keys(m, noon, reply)), c.want
			if reply != "y" {
				want = nil
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%s, %s: got %v, want %v", c.of.Name, reply, got, want)
			}
		}
		f.ended = nil
		for _, x := range c.want {
			if said := (feed{f}).cancel(context.Background(), x); said.failed || len(f.ended) != 1 || (len(f.ended[0].Tasks) == 0) != (x.task == whole) {
				t.Errorf("%s: got %v, %v, want one request, for the task or the whole job", c.of.Name, said, f.ended)
			}
		}
	}
}

func TestKeysStartVerbs(t *testing.T) {
	id := string(idOf(2))
	f := sim()
	f.jobs = f.jobs[1:2]
	for key, want := range map[string]string{"w": "why " + id, "l": "logs -f " + id, "enter": "show " + id} {
		m := shown(f, 80, 24)
		if got := asked[verb](keys(m, noon, key)); len(got) != 1 || strings.Join(got[0].args, " ") != want {
			t.Errorf("%s: got %v, want %s", key, got, want)
		}
	}
	m := shown(f, 80, 24)
	got := asked[verb](keys(m, noon, "e", "ctrl+u", "l", "s", "space", "enter"))
	if want := []string{"exec", "-it", id, "--", "sh", "-c", "ls"}; len(got) != 1 || !slices.Equal(got[0].args, want) {
		t.Errorf("exec: got %v, want %q", got, want)
	}
	if e := keys(shown(sim(), 80, 24), noon, "down", "down", "down", "e"); len(asked[verb](e)) > 0 {
		t.Errorf("a command in a waiting task: got %v, want nothing", e)
	}
	if e := keys(m, noon, "q"); len(asked[quit](e)) != 1 {
		t.Errorf("q: got %v, want the end", e)
	}
	m.update(pasted{"cyq"}, noon)
	if m.prompt != nil {
		t.Error("pasted text started a command")
	}
}

// Events arrive in batches, and a stream that breaks is opened again.
func TestFeedBatchesEventsAndReconnects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		f := sim()
		f.events = make(chan api.Event)
		var got []any
		done := make(chan struct{})
		go func() { defer close(done); feed{f}.follow(ctx, func(m any) { got = append(got, m) }) }()
		for range 100 {
			f.events <- api.Event{Kind: api.EventGone, ID: idOf(1)}
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if n := len(got); n > 3 {
			t.Errorf("got %d messages for 100 events at once, want at most 3", n)
		}
		if _, ok := got[0].(opened); !ok {
			t.Errorf("first message: got %v, want opened", got[0])
		}
		end()
		<-done

		ctx, end = context.WithCancel(t.Context())
		got, f.broken = nil, errors.New("gone")
		done = make(chan struct{})
		go func() { defer close(done); feed{f}.follow(ctx, func(m any) { got = append(got, m) }) }()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if n := len(got); n < 9 || n > 11 || got[0] != any(silenced{"gone"}) {
			t.Errorf("got %d tries in 10 s, want 9 to 11: %v", n, got[0])
		}
		end()
		<-done
	})
}

// BenchmarkLarge measures the CPU time of one refresh of a large cluster, with changes of jobs and without. It should
// depend only on what is on the screen.
func BenchmarkLarge(b *testing.B) {
	for _, changing := range []bool{true, false} {
		b.Run(fmt.Sprintf("changing=%t", changing), func(b *testing.B) {
			m := shown(large(500, 8, 10_000), 200, 60)
			b.ReportAllocs()
			now, began := noon, cpuTime(b)
			for b.Loop() {
				now = now.Add(time.Second)
				if changing {
					j := running(77, "train", "amy", 3, 0)
					m.update(changes{[]api.Event{{Kind: api.EventJob, ID: j.ID, Job: &j}}}, now)
				}
				m.update(ticked{}, now)
				_ = m.frame(colours)
			}
			b.ReportMetric(float64(cpuTime(b)-began)/float64(time.Microsecond)/float64(b.N), "µs-CPU/op")
		})
	}
}

// In a small cluster a change shows at once. However many follow, they cause one frame in each refresh, besides that of
// the tick, which shows the last.
func TestManyChangesCauseFewFrames(t *testing.T) {
	m := shown(large(2, 2, 10), 200, 60)
	m.refresh = time.Second
	frames, now := 0, noon.Add(time.Minute)
	for i := range 100 { // two seconds
		now = now.Add(20 * time.Millisecond)
		j := running(i, "train", "amy", 3, 0)
		m.update(changes{[]api.Event{{Kind: api.EventJob, ID: j.ID, Job: &j}}}, now)
		if m.stale.frame {
			frames++
		}
		if i == 0 && !m.stale.frame {
			t.Error("the first change does not show at once")
		}
	}
	if frames != 2 {
		t.Errorf("got %d frames in two seconds, want 2", frames)
	}
	last := running(5000, "last", "amy", 3, 0)
	m.update(changes{[]api.Event{{Kind: api.EventJob, ID: last.ID, Job: &last}}}, now)
	m.update(ticked{}, now.Add(time.Second))
	if !m.stale.frame || m.stale.lists || m.cluster.jobs[last.ID] == nil {
		t.Error("the tick does not show the last change")
	}
}

// Ages are by the clock of this host: an owner whose clock is an hour ahead has started nothing in the future. Events
// do not have the difference of the clocks, so it is kept from the listing.
func TestAgesAreByThisHostsClock(t *testing.T) {
	for _, ahead := range []time.Duration{time.Hour, -time.Hour} {
		f := sim()
		fast := func(j api.Job) api.Job {
			at := j.StartedAt.Add(ahead)
			j.SubmittedAt, j.StartedAt, j.Tasks[0].StartedAt = at, &at, &at
			return j
		}
		listed := fast(running(1, "train", "amy", 0, 0, 1))
		listed.ClockAhead = ahead.Seconds()
		f.jobs = []api.Job{listed} // the others have the same owner
		m := shown(f, 120, 40)
		check := func(how string) {
			t.Helper()
			want := instantOf(noon.Add(-67 * time.Minute))
			if w := m.cluster.jobs[idOf(1)]; w == nil || w.submitted != want || len(w.tasks) != 1 || w.tasks[0].began != want {
				t.Errorf("%s, %s ahead: got %+v, want a start at %v", how, ahead, w, want)
			}
		}
		check("listed")
		told := fast(running(1, "train", "amy", 0, 0, 1))
		told.Priority++
		m.update(changes{[]api.Event{{Kind: api.EventJob, ID: idOf(1), Job: &told}}}, noon.Add(time.Second))
		check("told")
	}
}
