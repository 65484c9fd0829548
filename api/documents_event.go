package api

// The documents of events.

import (
	"time"

	"github.com/musterhq/muster/job"
)

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
