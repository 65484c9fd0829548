package api

// The route that ends back-offs and looks for hosts at once, at all daemons that own jobs. See docs/adr, ADR 141.

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/musterhq/muster/job"
)

// The schema of the answer, and the path between daemons.
const (
	SchemaSchedule   = "muster.schedule/v1"
	pathPeerSchedule = "/peer/v1/schedule"
)

// Looked is the result of looking for hosts at once.
type Looked struct {
	Schema  string       `json:"schema"`
	Ended   int          `json:"ended_backoffs" doc:"Tasks whose pause was ended."`
	Tasks   int          `json:"placed_count" doc:"Tasks that were assigned to a node within two seconds."`
	Placed  []Placed     `json:"placed" nullable:"false" doc:"The first of these tasks: at most 256 of each daemon."`
	Waiting []WaitingFor `json:"waiting" nullable:"false" doc:"For what the rest waits, by the reason, the most tasks first."`
	More    int          `json:"more_jobs" doc:"Waiting jobs that are not counted in waiting: of each daemon the oldest 1,024 are."`
	Partial []string     `json:"partial" nullable:"false" doc:"Names of the nodes that did not answer; their jobs were not looked at."`
}

// Placed is a task that was assigned to a node.
type Placed struct {
	Job    job.ID   `json:"job"`
	Task   int      `json:"task" doc:"Number of the task."`
	NodeID job.Peer `json:"node_id"`
	Node   string   `json:"node"`
}

// WaitingFor sums up the jobs that wait for the same reason.
type WaitingFor struct {
	Reason string `json:"reason" doc:"A stable word."`
	Detail string `json:"reason_detail,omitempty"`
	Jobs   int    `json:"jobs" doc:"Jobs that wait for it."`
	Tasks  int    `json:"tasks" doc:"Their waiting tasks."`
	Job    job.ID `json:"job" doc:"One of these jobs. The detail is about it."`
}

// anewWait is how long another daemon may take: it looks for hosts for two seconds, perhaps after an earlier search has
// ended.
const anewWait = 8 * time.Second

type (
	backoffInput  struct{}
	backoffOutput struct{ Body Looked }
)

// backoffRoutes serves the routes that end back-offs: here at this daemon, all at every daemon.
type backoffRoutes struct {
	*daemons

	scheduling Scheduling
}

// here ends back-offs and looks for hosts for the jobs of this daemon: of all users if the requester is an operator, else
// only the requester's own.
func (r *backoffRoutes) here(ctx context.Context, _ *backoffInput) (*backoffOutput, error) {
	a := requesterOf(ctx)
	if err := a.maySubmit(); err != nil {
		return nil, err
	}
	user := a.user
	if a.operator {
		user = ""
	}
	d, err := r.scheduling.LookAnew(ctx, user)
	if err != nil {
		return nil, err
	}
	d.Schema, d.Placed, d.Waiting, d.Partial = SchemaSchedule, append([]Placed{}, d.Placed...), append([]WaitingFor{}, d.Waiting...), []string{}
	return &backoffOutput{d}, nil
}

// all does so at all daemons at the same time.
func (r *backoffRoutes) all(ctx context.Context, in *backoffInput) (*backoffOutput, error) {
	others, err := r.others(ctx)
	if err != nil {
		return nil, err
	}
	others = slices.DeleteFunc(others, func(m Member) bool { return !slices.Contains(m.Roles, "scheduler") })
	told := make(chan []answer[Looked], 1)
	go func() {
		told <- askAll(ctx, others, anewWait, func(ctx context.Context, m Member) (v Looked, err error) {
			if m.State == NodeLost {
				return v, ErrUnavailable
			}
			err = r.exchange(ctx, http.MethodPost, m.Peer, pathPeerSchedule, nil, struct{}{}, &v)
			return v, err
		})
	}()
	own, err := r.here(ctx, in)
	answers := <-told
	if err != nil {
		return nil, err
	}
	sum := &own.Body
	for _, x := range answers {
		if x.err == nil {
			sum.add(&x.value)
		}
	}
	sum.Partial = silent(r.daemons, answers)
	slices.SortStableFunc(sum.Waiting, func(a, b WaitingFor) int { return b.Tasks - a.Tasks })
	requesterOf(ctx).note.with("ended_backoffs", strconv.Itoa(sum.Ended))
	requesterOf(ctx).note.with("placed", strconv.Itoa(sum.Tasks))
	return own, nil
}

// mostPlaced and mostReasons bound what is taken from the answer of another daemon.
const (
	mostPlaced  = 256
	mostReasons = 64
)

// add adds the answer of another daemon, which may be malformed.
func (d *Looked) add(o *Looked) {
	d.Ended += max(0, o.Ended)
	d.Tasks += max(0, o.Tasks)
	d.More += max(0, o.More)
	d.Placed = append(d.Placed, o.Placed[:min(len(o.Placed), mostPlaced)]...)
	for _, w := range o.Waiting[:min(len(o.Waiting), mostReasons)] {
		i := slices.IndexFunc(d.Waiting, func(x WaitingFor) bool { return x.Reason == w.Reason })
		if i < 0 {
			w.Reason, w.Detail = strings.ToValidUTF8(w.Reason, ""), strings.ToValidUTF8(w.Detail, "")
			d.Waiting = append(d.Waiting, w)
			continue
		}
		d.Waiting[i].Jobs += max(0, w.Jobs)
		d.Waiting[i].Tasks += max(0, w.Tasks)
	}
}
