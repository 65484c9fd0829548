package api

// The route of the story of a job: what has happened to it and to its tasks. The story is made from the durable state of
// the job, so it is the same after a restart. See docs/adr, ADR 141.

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/musterhq/muster/job"
)

// The documents of the story of a job.
const (
	SchemaJobEvent  = "muster.job_event/v1"
	SchemaJobEvents = "muster.job_events/v1"
)

// StoryKind is what has happened.
type StoryKind string

// The kinds of events of a story.
const (
	StorySubmitted StoryKind = "submitted"
	StoryPlaced    StoryKind = "placed"  // an attempt was assigned to a node
	StoryStarted   StoryKind = "started" // its process began
	StoryEnded     StoryKind = "ended"   // an attempt has ended; without a task: the job has ended
	StoryHeld      StoryKind = "held"
	StoryReleased  StoryKind = "released"
	StoryCancelled StoryKind = "cancelled"
	StoryRequeued  StoryKind = "requeued"
	StoryOmitted   StoryKind = "omitted" // stands for events that are not known any more
)

// storyKinds lists all kinds.
var storyKinds = []StoryKind{
	StorySubmitted, StoryPlaced, StoryStarted, StoryEnded, StoryHeld, StoryReleased, StoryCancelled, StoryRequeued, StoryOmitted,
}

// actKinds has the kind of event for each kind of act.
var actKinds = map[job.ActKind]StoryKind{
	job.ActHold: StoryHeld, job.ActRelease: StoryReleased, job.ActCancel: StoryCancelled, job.ActRequeue: StoryRequeued,
}

// JobEvent is one event of the story of a job.
type JobEvent struct {
	Schema     string     `json:"schema"`
	Job        job.ID     `json:"job"`
	Kind       StoryKind  `json:"kind" doc:"What happened: placed is the assignment to a node; ended is the end of an attempt, or without a task of the job; held, released, cancelled and requeued are what people asked for, and held with a task also what muster did; omitted stands for events that are not known any more."`
	At         *time.Time `json:"at" doc:"When; null if it is not known. Starts and ends of processes are by the clock of their node, all else by that of the job's owner."`
	Task       *int       `json:"task,omitempty" doc:"Number of the task; absent for an event of the job as a whole."`
	Attempt    int        `json:"attempt,omitempty" doc:"Number of the attempt, from 1 on; absent if it is about none."`
	User       string     `json:"user,omitempty" doc:"Who submitted the job."`
	Tasks      string     `json:"tasks,omitempty" doc:"Numbers of the tasks that were asked for, such as 0-9,12; absent: all. An ellipsis at the end says that there were more."`
	State      job.State  `json:"state,omitempty" doc:"How the attempt or the job has ended. NODE_FAIL: its node was lost. PREEMPTED also if it saved its state and ended with the checkpoint exit code."`
	Reason     string     `json:"reason,omitempty" doc:"Why, for people."`
	NodeID     job.Peer   `json:"node_id,omitempty"`
	Node       string     `json:"node,omitempty"`
	ExitCode   *int       `json:"exit_code,omitempty" doc:"Exit code of the process; absent if none has ended or it is not known."`
	Signal     int        `json:"signal,omitempty" doc:"The signal that ended the process; absent: none."`
	Count      int        `json:"count,omitempty" doc:"Of omitted: how many attempts of the task, or acts of people, are not known any more."`
	StderrTail string     `json:"stderr_tail,omitempty" doc:"The end of its stderr, of the newest attempt of a task that has not succeeded."`
}

const (
	storyTasks = 100 // tasks in a page of a story, unless the request says otherwise
)

type storyInput struct {
	ID     string `path:"id" maxLength:"64"`
	Tasks  string `query:"tasks" maxLength:"24576" doc:"Only events of the tasks with these numbers, such as 3 or 0-9,12."`
	Limit  int    `query:"limit" minimum:"0" maximum:"250" doc:"Tasks in a page; 0 means 100."`
	Cursor string `query:"cursor" maxLength:"16" doc:"The field next of the previous page."`
}

type storyOutput struct{ Body Listing[JobEvent] }

func (r *jobRoutes) story(ctx context.Context, in *storyInput) (*storyOutput, error) {
	q := job.TaskQuery{Limit: in.Limit, Begun: true}
	if q.Limit == 0 {
		q.Limit = storyTasks
	}
	p, err := r.taskPage(ctx, in.ID, in.Tasks, in.Cursor, q)
	if err != nil {
		return nil, err
	}
	s := story{job: &p.job, layout: p.layout}
	whole := in.Tasks == "" && in.Cursor == "" // the first page has what happened to the job as a whole
	if whole {
		s.begin()
	}
	for i := range p.tasks {
		s.task(&p.tasks[i])
	}
	if whole {
		s.end()
	}
	return &storyOutput{Listing[JobEvent]{Schema: SchemaJobEvents, Items: s.sorted(), Partial: []string{}, Next: p.next}}, nil
}

// story collects the events of one page.
type story struct {
	job    *job.Job
	layout job.Layout
	events []JobEvent
	order  []time.Time // the time by which each event is sorted
	last   time.Time   // the latest of these times for the present task: its further events are not sorted before it
}

// add adds an event. It is never sorted before the event that caused it, even if the clocks of hosts differ.
func (s *story) add(e JobEvent, when *time.Time) {
	e.Schema, e.Job, e.At = SchemaJobEvent, s.job.ID, when
	if when != nil && when.After(s.last) {
		s.last = *when
	}
	s.events, s.order = append(s.events, e), append(s.order, s.last)
}

// begin adds the submission, and what people have requested since.
func (s *story) begin() {
	s.add(JobEvent{Kind: StorySubmitted, User: s.job.User}, at(s.job.Submitted))
	if n := s.job.OlderActs; n > 0 {
		s.add(JobEvent{Kind: StoryOmitted, Count: n, Reason: "what people asked for before"}, nil)
	}
	for _, a := range s.job.Acts {
		s.add(JobEvent{Kind: actKinds[a.Kind], Reason: a.Reason, Tasks: s.numbers(a)}, at(a.At))
	}
}

// numbers returns the numbers of the tasks of an act; empty for all.
func (s *story) numbers(a job.Act) string {
	var out []job.Range
	for _, r := range a.Tasks {
		out = append(out, job.Range{First: s.layout.Number(r.First), Last: s.layout.Number(r.Last)})
	}
	text := job.RangesText(out)
	if a.More {
		text += ",…"
	}
	return text
}

// task adds the events of the attempts of a task.
func (s *story) task(t *Task) {
	s.last = s.job.Submitted
	number := t.Task
	if t.Older > 0 {
		s.add(JobEvent{Kind: StoryOmitted, Task: &number, Count: t.Older, Reason: "earlier attempts"}, nil)
	}
	var last *JobEvent
	for _, a := range t.Attempts {
		e := JobEvent{Task: &number, Attempt: a.Attempt, NodeID: a.NodeID, Node: a.Node}
		if a.PlacedAt != nil {
			e.Kind = StoryPlaced
			s.add(e, a.PlacedAt)
		}
		if a.StartedAt != nil {
			e.Kind = StoryStarted
			s.add(e, a.StartedAt)
		}
		if !a.State.Ended() {
			continue
		}
		e.Kind, e.State, e.Reason, e.ExitCode, e.Signal = StoryEnded, a.State, a.Reason, a.ExitCode, a.Signal
		if a.Attempt == t.Attempt && t.State != job.Succeeded {
			e.StderrTail = t.StderrTail
		}
		s.add(e, a.EndedAt)
		last = &s.events[len(s.events)-1]
	}
	if t.State == job.Held && t.Reason == reasonNodeLost && last != nil { // held by muster: too many of its nodes were lost
		s.add(JobEvent{Kind: StoryHeld, Task: &number, Reason: fmt.Sprintf("%s: %s", t.Reason, t.ReasonDetail)}, last.At)
	}
}

// reasonNodeLost is the reason of a task that is held because its hosts were lost.
const reasonNodeLost = "NodeLost"

// end adds the end of the job as the last event.
func (s *story) end() {
	d := plainDocument(s.job, 0)
	if !d.State.Ended() {
		return
	}
	for _, at := range s.order {
		if at.After(s.last) {
			s.last = at
		}
	}
	s.add(JobEvent{Kind: StoryEnded, State: d.State, Reason: d.Reason}, d.EndedAt)
}

// sorted returns the events by time.
func (s *story) sorted() []JobEvent {
	by := make([]int, len(s.events))
	for i := range by {
		by[i] = i
	}
	slices.SortStableFunc(by, func(a, b int) int { return s.order[a].Compare(s.order[b]) })
	out := make([]JobEvent, len(by))
	for i, k := range by {
		out[i] = s.events[k]
	}
	return out
}
