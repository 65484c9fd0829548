package api

// The documents of jobs, tasks and events.

import (
	"fmt"
	"slices"
	"time"

	"github.com/musterhq/muster/job"
)

// Listing is the document of a list.
type Listing[T any] struct {
	Schema  string   `json:"schema"`
	Items   []T      `json:"items" nullable:"false"`
	Partial []string `json:"partial" nullable:"false" doc:"Names of the nodes that did not answer."`
	Next    string   `json:"next,omitempty" doc:"Cursor of the next page; empty on the last page."`
	Age     float64  `json:"age,omitempty" doc:"Listings of nodes, GPUs and jobs: the seconds since this daemon was told of the item that it knows for longest; those of nodes that do not answer are left out."`
}

// Job is the document of a job.
type Job struct {
	Schema       string     `json:"schema"`
	ID           job.ID     `json:"id"`
	Name         string     `json:"name"`
	User         string     `json:"user"`
	State        job.State  `json:"state"`
	Reason       string     `json:"reason" doc:"While the job waits: a stable word for the reason. After its end: why it ended."`
	ReasonDetail string     `json:"reason_detail,omitempty"`
	ExitCode     *int       `json:"exit_code" doc:"The highest exit code of its tasks; null until a process has ended."`
	Priority     int        `json:"priority"`
	Nodes        int        `json:"nodes" doc:"The tasks of a gang, each on a node of its own; 1: no gang."`
	Array        string     `json:"array"`
	SubmittedAt  time.Time  `json:"submitted_at"`
	Warnings     []string   `json:"warnings,omitempty" doc:"Only in the answer to a submission: what is most likely not what was meant, such as the name of a node that there is not."`
	Estimated    *time.Time `json:"estimated_start" doc:"While it waits: when its first waiting task should start at the latest; null if that is not known."`
	BeginAt      *time.Time `json:"begin_at,omitempty" doc:"It does not start before this time, which is begin of its job file; absent if it has none."`
	StartedAt    *time.Time `json:"started_at"`
	EndedAt      *time.Time `json:"ended_at"`
	Owner        job.Peer   `json:"owner" doc:"Id of the daemon that owns the job."`
	OwnerName    string     `json:"owner_name,omitempty" doc:"Name of that daemon's node."`
	Copies       int        `json:"copies" doc:"Number of daemons that keep the job's record."`
	TimeLimit    float64    `json:"time_limit" doc:"In seconds; 0: none."`
	DefaultTime  bool       `json:"time_limit_default,omitempty" doc:"time_limit is not of the job file, but the setting default-time of the daemon that accepted the job."`
	Resources    TaskNeed   `json:"resources" doc:"What each task requests."`
	// ExitStatus is nil until the job has ended.
	ExitStatus *int              `json:"exit_status" doc:"Exit code of run and wait for it: the highest of its tasks, and of those that were cancelled only if no other failed; 124 for the time limit, 125 if no process ran to its own end."`
	TaskCount  int               `json:"task_count"`
	Counts     map[job.State]int `json:"counts" nullable:"false" doc:"Number of its tasks in each state."`
	Tasks      []Task            `json:"tasks" nullable:"false" doc:"The first tasks; /v1/jobs/{id}/tasks lists all. Of a job of many tasks only GET /v1/jobs/{id} has some."`
	// Dependencies are not in listings.
	Dependencies []Dependency `json:"dependencies,omitempty" doc:"What the job waits for of other jobs. Not in listings."`
	// Spec is the job file with its units, nil in listings and events. Only the job's user and operators see the
	// values of its env.
	Spec *job.Spec `json:"spec,omitempty" doc:"The job file. Its values have units. Not in listings."`
	// Age is set in listings if the owner does not answer.
	Age float64 `json:"age,omitempty" doc:"In listings, if the owner of the job does not answer: the seconds since it said this."`
	// ClockAhead is not in events.
	ClockAhead float64 `json:"clock_ahead,omitempty" doc:"By how many seconds the clock of its owner is ahead of that of the daemon that was asked; negative: behind; absent: it is about right, or that is not known. All times of the job are by the clock of its owner. Not in events."`
}

// Ahead is ClockAhead as a duration.
func (j Job) Ahead() time.Duration { return time.Duration(j.ClockAhead * float64(time.Second)) }

// Dependency is one dependency of a job.
type Dependency struct {
	Condition job.Condition       `json:"condition"`
	Job       job.ID              `json:"job"`
	Delay     float64             `json:"delay,omitempty" doc:"After the start of that job, in seconds."`
	State     job.DependencyState `json:"state" enum:"waiting,met,never"`
	JobState  job.State           `json:"job_state,omitempty" doc:"State of that job, as far as it is known; for a dependency that is met, the state that met it."`
	Detail    string              `json:"detail,omitempty"`
}

// TaskNeed holds the resources that each task of a job requests and holds while it runs.
type TaskNeed struct {
	CPUs      int     `json:"cpus"`
	Memory    int64   `json:"memory"`
	GPUs      int     `json:"gpus"`
	GPUModel  string  `json:"gpu_model"`
	GPUMemory int64   `json:"gpu_memory"`
	GPUShare  float64 `json:"gpu_share"`
}

// Task is the document of a task.
type Task struct {
	Schema       string     `json:"schema"`
	Job          job.ID     `json:"job"`
	Task         int        `json:"task" doc:"Number of the task: its index in the array, or its rank in the gang. In an array of gangs: the index times the number of nodes, plus the rank."`
	Index        int        `json:"index" doc:"Its index in the array; 0 without one."`
	Rank         int        `json:"rank" doc:"Its rank in the gang; 0 without one."`
	State        job.State  `json:"state"`
	Reason       string     `json:"reason"`
	ReasonDetail string     `json:"reason_detail,omitempty"`
	NodeID       job.Peer   `json:"node_id"`
	Node         string     `json:"node"`
	Attempt      int        `json:"attempt" doc:"Number of the newest attempt; 0 before the first."`
	Runs         int        `json:"runs" doc:"Number of attempts that count for retries: a process ran, and did not end with the checkpoint exit code."`
	PID          int        `json:"pid"`
	Isolation    string     `json:"isolation,omitempty" doc:"What confines its processes, such as cgroup v2 (cpu, memory, pids, devices) or process group."`
	Fencing      string     `json:"fencing,omitempty" enum:"yes,no,unknown" doc:"While it is assigned: whether its node ends it with its lease for certain, if its job has one. If not, it runs elsewhere only when that node is back, was rebooted or is declared dead."`
	ExitCode     *int       `json:"exit_code"`
	Signal       int        `json:"signal" doc:"The signal that ended the process, or 0."`
	GPUs         []string   `json:"gpus" nullable:"false" doc:"UUIDs of its GPUs."`
	StartedAt    *time.Time `json:"started_at"`
	EndedAt      *time.Time `json:"ended_at"`
	StderrTail   string     `json:"stderr_tail,omitempty"`
	Used         *Used      `json:"used,omitempty" doc:"What it used, once it has ended. Absent if that is not known, as of tasks of a few seconds. Not in listings and events of jobs."`
	Attempts     []Attempt  `json:"attempts,omitempty" doc:"How its last attempts went, the newest last, without those that no node started. Not in listings and events of jobs."`
	Older        int        `json:"older_attempts,omitempty" doc:"Number of attempts before those."`
}

// Attempt is the document of an attempt of a task.
type Attempt struct {
	Attempt   int        `json:"attempt" doc:"Number of the attempt."`
	State     job.State  `json:"state" doc:"How it ended, or its present state. PREEMPTED also if it saved its state and ended with the checkpoint exit code."`
	Reason    string     `json:"reason,omitempty"`
	NodeID    job.Peer   `json:"node_id"`
	Node      string     `json:"node"`
	ExitCode  *int       `json:"exit_code" doc:"Null while it runs, and if it is not known."`
	Signal    int        `json:"signal" doc:"The signal that ended the process, or 0."`
	PlacedAt  *time.Time `json:"placed_at" doc:"When it was assigned to its node; null if that is not known."`
	StartedAt *time.Time `json:"started_at"`
	EndedAt   *time.Time `json:"ended_at"`
}

// Ended reports whether the state of the job is final.
func (j Job) Ended() bool { return j.State.Ended() }

// Layout returns the numbering of the tasks.
func (j Job) Layout() (job.Layout, error) { return layoutOf(j.Array, j.TaskCount, max(1, j.Nodes)) }

// layoutOf returns the numbering of the tasks of a job with this array. If the array names no index, each element is a line.
func layoutOf(array string, tasks, nodes int) (job.Layout, error) {
	if a, err := job.ParseArray(array); array != "" && err == nil && a.Len() == 0 {
		return job.LayoutOf(array, tasks/nodes, nodes)
	}
	return job.LayoutOf(array, 0, nodes)
}

// JobDocument returns the document of j. Copies is the number of daemons that store the job's record.
func JobDocument(j job.Job, copies int) Job {
	d := plainDocument(&j, copies)
	d.Spec, d.Dependencies = &j.Spec, dependencyDocuments(j.Depends)
	return d
}

// plainDocument is the document without the job file and the dependencies. It refers to j.
func plainDocument(j *job.Job, copies int) Job {
	d := Job{
		Schema: SchemaJob, ID: j.ID, Name: j.Spec.Name, User: j.User, State: j.State(), Priority: j.Spec.Priority,
		Nodes: max(j.Spec.Nodes, 1), Array: j.Spec.Array, SubmittedAt: j.Submitted.UTC(), Owner: j.Owner, Copies: copies,
		TimeLimit: j.Spec.TimeLimit.D().Seconds(), DefaultTime: j.Spec.DefaultTime, Resources: needDocument(j.Spec.Resources), Tasks: make([]Task, 0, len(j.Tasks)),
		Counts: map[job.State]int{}, TaskCount: j.Counts.Total(), Estimated: at(j.Starts), BeginAt: beginOf(&j.Spec), StartedAt: at(j.Ends.Began),
	}
	if d.Array == "" && len(j.Spec.EachLine) > 0 {
		d.Array = fmt.Sprintf("0-%d", len(j.Spec.EachLine)-1)
	}
	addCounts(d.Counts, j.Counts)
	if j.Ends.Exited {
		d.ExitCode = &j.Ends.Code
	}
	d.Reason, d.ReasonDetail = reason(d.State, j.Reason)
	var layout job.Layout
	if len(j.Tasks) > 0 {
		layout, _ = j.Spec.Layout() // the spec is valid
	}
	for _, t := range j.Tasks {
		task := taskDocument(j.ID, layout, t)
		d.Tasks = append(d.Tasks, task)
		if d.Reason == "" && t.State == d.State {
			d.Reason, d.ReasonDetail = task.Reason, task.ReasonDetail
		}
		if task.StartedAt != nil && (d.StartedAt == nil || task.StartedAt.Before(*d.StartedAt)) {
			d.StartedAt = task.StartedAt
		}
	}
	d.nameCause()
	if d.State.Ended() {
		d.ExitStatus, d.EndedAt = &j.Ends.Status, at(j.Ends.Last)
		for _, t := range d.Tasks { // a task that ended without a process
			if t.EndedAt != nil && (d.EndedAt == nil || t.EndedAt.After(*d.EndedAt)) {
				d.EndedAt = t.EndedAt
			}
		}
	}
	return d
}

// nameCause sets the reason of a failed gang to the first of its members that failed.
func (j *Job) nameCause() {
	if j.Nodes == 1 || j.Array != "" || !j.State.Ended() || j.State == job.Succeeded || j.State == job.Cancelled {
		return
	}
	i := slices.IndexFunc(j.Tasks, func(t Task) bool { return t.State == j.State })
	if i < 0 {
		return // listings do not have the tasks of large gangs
	}
	t := &j.Tasks[i]
	how := t.Reason
	switch {
	case how != "":
	case t.Signal > 0:
		how = fmt.Sprintf("signal %d", t.Signal)
	case t.ExitCode != nil:
		how = fmt.Sprintf("exit code %d", *t.ExitCode)
	default:
		how = string(t.State)
	}
	if j.Reason, j.ReasonDetail = fmt.Sprintf("rank %d: %s", t.Rank, how), ""; t.Node != "" {
		j.Reason = fmt.Sprintf("rank %d on %s: %s", t.Rank, t.Node, how)
	}
}

// addCounts adds the states that tasks are in.
func addCounts(to map[job.State]int, counts job.Counts) {
	for _, s := range job.States() {
		if n := counts.Of(s); n > 0 {
			to[s] = n
		}
	}
}

// dependencyDocuments returns the documents of dependencies; nil if there are none.
func dependencyDocuments(list []job.Depends) (out []Dependency) {
	for _, x := range list {
		out = append(out, Dependency{
			Condition: x.When, Job: x.Job, Delay: x.Delay.Seconds(), State: x.Outcome, JobState: x.Parent, Detail: x.Detail,
		})
	}
	return out
}

func taskDocument(id job.ID, l job.Layout, t job.Task) Task {
	d := Task{
		Schema: SchemaTask, Job: id, Task: l.Number(t.Index), Rank: l.Rank(t.Index), State: t.State, NodeID: t.Node, Node: t.NodeName, Attempt: t.Attempt,
		Runs: t.Runs, PID: t.PID, Isolation: t.Isolation, GPUs: append([]string{}, t.Devices...), StartedAt: at(t.Started), EndedAt: at(t.Ended),
	}
	if l.IsArray() {
		d.Index = l.Index(t.Index)
	}
	d.Reason, d.ReasonDetail = reason(t.State, t.Reason)
	if t.Assigned {
		d.Fencing = t.Fencing.String()
	}
	if t.Exit != nil && t.State.Ended() {
		code := t.Exit.Code
		d.ExitCode, d.Signal, d.StderrTail, d.Isolation = &code, t.Exit.Signal, t.Exit.Tail, t.Exit.Isolation
		d.Used, _ = usedOf(t.Exit.Usage)
	}
	for _, o := range t.Outcomes() {
		d.Attempts = append(d.Attempts, attemptDocument(o))
	}
	if t.Earlier != nil {
		d.Older = t.Earlier.Older
	}
	return d
}

func attemptDocument(o job.Outcome) Attempt {
	x := o.Exit
	d := Attempt{
		Attempt: o.N, State: x.State, Reason: x.Reason, NodeID: o.Node, Node: o.NodeName, Signal: x.Signal,
		PlacedAt: at(o.Placed), StartedAt: at(x.Began), EndedAt: at(x.Ended),
	}
	if x.State.Ended() && (x.State != job.NodeFail || x.Code != 0) {
		d.ExitCode = &x.Code
	}
	return d
}

// reason splits the reason of a task into its stable word and its sentence. For a task that has ended it returns only the
// sentence, which is more useful. It keeps the word of a task that ended because another member of its gang had failed.
func reason(s job.State, r job.Reason) (word, detail string) {
	if s.Ended() && r.Detail != "" && r.Word != job.ReasonGangEnded {
		return r.Detail, ""
	}
	return r.Word, r.Detail
}

func needDocument(r job.Resources) TaskNeed {
	return TaskNeed{
		CPUs: r.CPUs, Memory: int64(r.Memory), GPUs: r.GPUs, GPUModel: r.GPUModel, GPUMemory: int64(r.GPUMemory), GPUShare: r.GPUShare,
	}
}

// beginOf returns the time of --begin in UTC, or nil if there is none.
func beginOf(s *job.Spec) *time.Time {
	if s.Begin == nil {
		return nil
	}
	return at(*s.Begin)
}

// at returns t in UTC, or nil for the zero time.
func at(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// briefTasks is the largest number of tasks that a job in listings and events includes; it includes none if it has more.
const briefTasks = 8

// briefDocument returns the document for listings and events, without fields that may be large. It refers to j.
func briefDocument(j *job.Job, copies int) Job {
	d := plainDocument(j, copies)
	if d.TaskCount > briefTasks {
		d.Tasks = []Task{}
	}
	for i := range d.Tasks {
		d.Tasks[i].StderrTail, d.Tasks[i].Attempts, d.Tasks[i].Older, d.Tasks[i].Used = "", nil, 0, nil
	}
	return d
}

// EventKind is the kind of an Event.
type EventKind string

// The kinds of events.
const (
	EventOpen   EventKind = "open"   // the stream is open; with a node: changes of its daemon follow from here on
	EventJob    EventKind = "job"    // the present state of a job
	EventSilent EventKind = "silent" // a daemon does not answer; the stream goes on trying
	EventGone   EventKind = "gone"   // there is no such job
	EventTask   EventKind = "task"   // the present state of a task; only of jobs with few tasks
	EventNode   EventKind = "node"   // the present state of a node, without its GPUs
	EventGPU    EventKind = "gpu"    // the present state of a GPU
	EventMember EventKind = "member" // a member is new, gone, or in another state
	EventGap    EventKind = "gap"    // events are missing here: request the present states again
)

// Event is one event of a stream.
type Event struct {
	Schema  string    `json:"schema"`
	Kind    EventKind `json:"kind" enum:"open,job,silent,gone,task,node,gpu,member,gap" doc:"What the event tells of. After gap, load again what you show: events are missing."`
	At      time.Time `json:"at" doc:"When the daemon that sends the stream was told."`
	EventID string    `json:"event_id,omitempty" doc:"The id of the event in the stream, for the header Last-Event-ID. Streams of named jobs have none: they begin with the present states."`
	ID      job.ID    `json:"id,omitempty" doc:"Id of the job."`
	NodeID  job.Peer  `json:"node_id,omitempty" doc:"Id of the node, or of the daemon that is silent or can be followed."`
	Detail  string    `json:"detail,omitempty" doc:"What happened, for people."`
	Job     *Job      `json:"job,omitempty" doc:"The job, as listings have it."`
	Task    *Task     `json:"task,omitempty" doc:"The task, of a job of at most 8."`
	Node    *Node     `json:"node,omitempty" doc:"Without its GPUs."`
	GPU     *GPU      `json:"gpu,omitempty" doc:"A change of measured values alone, such as utilization, is no event."`
	Member  *Peer     `json:"member,omitempty" doc:"The member; lost if it is none any more."`
}
