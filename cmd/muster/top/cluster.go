package top

// What is known of the cluster: nodes, their GPUs, and the jobs that have not ended. All text from other hosts and
// users is cleaned here, once.

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unique"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/cmd/muster/table"
	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/job"
)

const (
	maxText   = 160              // letters that are kept of a text from others
	maxJobs   = 50_000           // jobs that are shown at most
	endedFor  = 30 * time.Second // how long an ended job is shown
	history   = 40               // readings of a GPU that are kept
	readEvery = 10 * time.Second // daemons measure GPUs
	staleFor  = 30 * time.Second // a reading that is older says its age
	unknown   = "–"
)

// cluster is what is known of the cluster.
type cluster struct {
	nodes   map[job.Peer]*node
	jobs    map[job.ID]*work
	over    map[job.ID]*work // the jobs in jobs that have ended
	gpus    int              // of all nodes
	active  int              // tasks of all jobs
	waiting int
	fresh   []*task       // rows that are in no list yet
	gone    bool          // some rows in a list are out of date
	anew    bool          // all rows in the lists are out of date
	moved   bool          // nodes or GPUs have changed
	partial string        // names the nodes that did not answer
	age     time.Duration // of the oldest part of the listing of nodes, when it was made
	left    bool          // there are more jobs than maxJobs
	round   uint32        // number of the last listing
	// ahead is, for each group, by how many seconds the clock of its owner is ahead.
	ahead map[job.Group]float64
}

func newCluster() *cluster {
	return &cluster{nodes: map[job.Peer]*node{}, jobs: map[job.ID]*work{}, over: map[job.ID]*work{}, ahead: map[job.Group]float64{}, anew: true, moved: true}
}

// node is one node of the cluster.
type node struct {
	id       job.Peer
	name     string
	state    api.NodeState
	detail   string
	labels   string
	cpus     int
	cpusFree int
	memory   int64
	memFree  int64
	running  int
	seen     time.Time // when the daemon last heard from it; zero: never
	gpus     []*device // sorted by index
}

// answers reports whether what the node has free is known.
func (n *node) answers() bool { return n.state == api.NodeReady || n.state == api.NodeDraining }

// device returns the GPU of the node with this UUID, or nil. If two nodes claim the same UUID, each has its own device.
func (n *node) device(uuid string) *device {
	for _, d := range n.gpus {
		if d.uuid == uuid {
			return d
		}
	}
	return nil
}

// common is a text that many rows have, such as a user or a state: 8 bytes a row, and one copy for all.
type common[T ~string] struct{ handle unique.Handle[T] }

func commonOf[T ~string](s T) (c common[T]) {
	if s != "" {
		c.handle = unique.Make(s)
	}
	return c
}

// is returns the text.
func (c common[T]) is() (s T) {
	if c != (common[T]{}) {
		s = c.handle.Value()
	}
	return s
}

// device is a GPU. There are thousands, so they are small.
type device struct {
	node      *node
	uuid      string
	model     common[string]
	memory    int64
	health    common[gpu.Health]
	detail    string
	free      float64
	jobs      []job.ID
	past      []int8 // utilization at the last readings, -1 where it is not known
	reading   reading
	index     int32
	simulated bool
}

// reading is what was measured of a GPU. An unknown value is -1, or 0 for temperature and power.
type reading struct {
	taken  instant // by the clock of the node
	learnt instant // when it arrived here, by our clock
	used   int64
	power  float32
	heat   int16
	busy   int8
}

// work is a job that has not ended, or ended a moment ago. There may be tens of thousands, so they are small.
type work struct {
	facts

	tasks []task // the tasks that are shown
	gone  bool   // a newer value has replaced it, or the job is gone
	round uint32 // number of the last listing when the job was last reported
}

// facts are what the daemon reports about a job.
type facts struct {
	id        job.ID
	name      string
	user      common[string]
	state     common[job.State]
	submitted instant
	ended     instant
	told      instant // if the owner does not answer: when it last reported this; 0: it answers
	need      need
	count     count
	priority  int8
	gang      bool
}

// instant is a time in nanoseconds since 1970; 0: none.
type instant int64

func instantOf(t time.Time) instant {
	if t.IsZero() {
		return 0
	}
	return instant(t.UnixNano())
}

// since returns how long ago the instant was.
func (i instant) since(now time.Time) time.Duration { return time.Duration(now.UnixNano() - int64(i)) }

// need is what each task of a job requests.
type need struct {
	memory int64
	gpus   float32 // a share counts as a part
	cpus   int32
}

// count says in which states the tasks of a job are.
type count struct{ all, active, waiting, ended int32 }

// whole is the number of a row that stands for all tasks of a job.
const whole = -1

// task is a row: one task, or a job whose tasks are not listed one by one.
type task struct {
	*work
	taskFacts
}

type taskFacts struct {
	state  common[job.State]
	node   common[job.Peer]
	place  common[string] // the name of its node
	why    common[string] // why it waits, or how it ended
	began  instant
	gpus   float32
	number int32 // whole: the row is about the job
	stage  int8  // of its life: it runs, waits, or has ended
}

// same reports whether all that is shown of the job is equal.
func (w *work) same(o *work) bool {
	return w.facts == o.facts && slices.EqualFunc(w.tasks, o.tasks, func(a, b task) bool { return a.taskFacts == b.taskFacts })
}

// clean makes a text from others safe to show, and cuts it to maxText letters.
func clean[T ~string](s T) T {
	if len(s) > maxText*4 {
		s = s[:maxText*4]
	}
	return T(table.Cut(table.Clean(string(s)), maxText))
}

func nodeOf(d *api.Node, now time.Time) *node {
	n := &node{
		id: d.ID, name: clean(cmp.Or(d.Name, string(d.ID))), state: clean(d.State), detail: clean(d.Detail), cpus: d.CPUs, cpusFree: d.Free.CPUs,
		memory: d.Memory, memFree: d.Free.Memory, running: d.RunningOr(0),
	}
	labels := make([]string, 0, len(d.Labels))
	for k, v := range d.Labels {
		labels = append(labels, k+"="+v)
	}
	slices.Sort(labels)
	n.labels = clean(strings.Join(labels, ","))
	if d.Age != nil {
		n.seen = now.Add(-seconds(*d.Age))
	} else if n.answers() {
		n.seen = now
	}
	return n
}

// seconds converts a number of seconds from another host, within bounds.
func seconds(s float64) time.Duration {
	return time.Duration(min(max(s, 0), (100*365*24*time.Hour).Seconds()) * float64(time.Second))
}

func deviceOf(g *api.GPU) *device {
	d := &device{
		uuid: g.UUID, index: small(g.Index), model: commonOf(clean(cmp.Or(g.Class, g.Model))), memory: g.Memory, health: commonOf(clean(g.Health)), detail: clean(g.Detail),
		simulated: g.Simulated, free: g.Free,
	}
	holders := g.Jobs[:min(len(g.Jobs), 16)]
	if len(holders) == 0 && g.Job != "" {
		holders = []job.ID{g.Job}
	}
	d.jobs = slices.DeleteFunc(slices.Clone(holders), func(id job.ID) bool {
		_, err := job.ParseID(string(id))
		return err != nil
	})
	return d
}

func readingOf(g *api.GPU, now time.Time) reading {
	if g.ReadAt == nil { // nothing was ever measured
		return reading{busy: -1, used: -1}
	}
	r := reading{taken: instantOf(*g.ReadAt), learnt: instantOf(now), used: g.MemoryUsed, power: float32(g.Power)}
	r.busy = int8(min(max(g.Utilization, -1), 100))           //nolint:gosec // it is bounded
	r.heat = int16(min(max(g.Temperature, 0), math.MaxInt16)) //nolint:gosec // it is bounded
	return r
}

// take notes a reading, if it differs from the last one.
func (d *device) take(r reading) {
	last := d.reading
	if last.learnt != 0 && r.taken == last.taken && r.busy == last.busy {
		return
	}
	if last.learnt != 0 { // readings that were missed are unknown
		for missed := time.Duration(r.learnt-last.learnt)/readEvery - 1; missed > 1 && len(d.past) > 0; missed-- {
			d.past = append(d.past, -1)
			if len(d.past) >= 2*history {
				break
			}
		}
	}
	d.reading = r
	d.past = append(d.past, r.busy)
	if n := len(d.past); n > history {
		d.past = append(d.past[:0], d.past[n-history:]...)
	}
}

// known returns the newest reading. ok is false if there is none, or the node does not answer.
func (d *device) known() (r reading, ok bool) {
	if d.reading.learnt == 0 || !d.node.answers() {
		return reading{busy: -1, used: -1}, false
	}
	return d.reading, true
}

// stale returns the age of the newest reading if that is too old; 0 if it is new enough.
func (d *device) stale(now time.Time) time.Duration {
	if age := d.reading.learnt.since(now); d.reading.learnt != 0 && age > staleFor {
		return age
	}
	return 0
}

// workOf returns what is shown of a job; nil if the job's ID is not valid.
func workOf(j *api.Job, now time.Time) *work {
	if _, err := job.ParseID(string(j.ID)); err != nil {
		return nil
	}
	w := &work{facts: facts{
		id: j.ID, name: clean(j.Name), user: commonOf(clean(j.User)), state: commonOf(clean(j.State)), submitted: instantOf(j.SubmittedAt.Add(-j.Ahead())), gang: j.Nodes > 1,
		priority: int8(min(max(j.Priority, 0), 100)), //nolint:gosec // it is bounded
		need:     need{j.Resources.Memory, float32(max(float64(j.Resources.GPUs), j.Resources.GPUShare)), small(j.Resources.CPUs)},
	}}
	for state, tasks := range j.Counts {
		n := small(tasks)
		switch {
		case state.Ended():
			w.count.ended += n
		case state.Active():
			w.count.active += n
		default:
			w.count.waiting += n
		}
		w.count.all += n
	}
	if j.EndedAt != nil && j.State.Ended() {
		w.ended = instantOf(now)
	}
	if j.Age > 0 {
		w.told = instantOf(now.Add(-seconds(j.Age)))
	}
	if len(j.Tasks) == 0 || len(j.Tasks) < j.TaskCount {
		w.tasks = []task{wholeJob(w, j)}
		return w
	}
	w.tasks = make([]task, 0, len(j.Tasks))
	for i := range j.Tasks {
		if t := &j.Tasks[i]; !t.State.Ended() || j.State.Ended() {
			w.tasks = append(w.tasks, taskOf(w, t, j.Ahead()))
		}
	}
	return w
}

// small converts a number from another host to 32 bits.
func small(n int) int32 { return int32(min(max(n, math.MinInt32), math.MaxInt32)) } //nolint:gosec // it is bounded

func wholeJob(w *work, j *api.Job) task {
	t := task{w, taskFacts{number: whole, stage: stageOf(j.State), state: w.state, why: commonOf(clean(j.Reason)), gpus: w.need.gpus * float32(max(w.count.active, 1))}}
	if j.StartedAt != nil {
		t.began = instantOf(j.StartedAt.Add(-j.Ahead()))
	}
	if w.count.active > 0 {
		t.place = commonOf(fmt.Sprintf("%d of %d run", w.count.active, w.count.all))
	}
	return t
}

// taskOf returns what is shown of a task. Its times are by a clock that is ahead of ours by this much.
func taskOf(w *work, d *api.Task, ahead time.Duration) task {
	t := task{w, taskFacts{number: small(d.Task), stage: stageOf(d.State), state: commonOf(clean(d.State)), why: commonOf(clean(d.Reason)), gpus: w.need.gpus}}
	if d.State.Active() || d.State.Ended() {
		t.node, t.place = commonOf(d.NodeID), commonOf(clean(cmp.Or(d.Node, string(d.NodeID))))
		if d.StartedAt != nil {
			t.began = instantOf(d.StartedAt.Add(-ahead))
		}
	}
	return t
}

// label returns the task's name, as arguments of verbs have it.
func (t *task) label() string {
	if t.number == whole || t.count.all == 1 {
		return string(t.id)
	}
	return fmt.Sprintf("%s.%d", t.id, t.number)
}

// since returns how long the task has run, or ran; 0 if it has not started.
func (t *task) since(now time.Time) time.Duration {
	switch {
	case t.began == 0:
		return 0
	case t.ended != 0:
		return max(time.Duration(t.ended-t.began), 0)
	}
	return max(t.began.since(now), 0)
}
