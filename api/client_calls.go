package api

// The simple requests of the client.

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/musterhq/muster/job"
)

// Submit submits a job and returns its document; the job is durable by then. A second call by the same user with the
// same key (if it is not empty) returns the job of the first call. If nothing in the cluster could ever run the job,
// the error is ErrNoMatch and its Problem has the explanation.
func (c *Client) Submit(ctx context.Context, spec job.Spec, key string) (j Job, err error) {
	header := http.Header{}
	if key != "" {
		header.Set(headerKey, key)
	}
	err = c.callWith(ctx, http.MethodPost, "/v1/jobs", nil, header, spec, &j)
	return j, err
}

// Offers says which nodes would run such a job, and why the others would not. Nothing is submitted.
func (c *Client) Offers(ctx context.Context, spec job.Spec) (e Explanation, err error) {
	err = c.call(ctx, http.MethodPost, "/v1/offers", nil, spec, &e)
	return e, err
}

// JobFilter selects jobs; the zero value selects all.
type JobFilter struct {
	States []job.State
	User   string
	Mine   bool     // the caller's own jobs
	Name   string   // a glob such as train-*
	Prefix string   // of the ID
	Last   bool     // only the caller's newest job
	Limit  int      // 0: the daemon's default
	Cursor string   // Next of the previous page
	Fields []string // only these fields of each job; none: all
	// Fresh makes the daemon ask all others now. Otherwise it may answer with what they have reported within the last seconds.
	Fresh bool
}

// header encodes Fresh as a header, because daemons of earlier versions ignore the header.
func (f JobFilter) header() http.Header {
	if !f.Fresh {
		return nil
	}
	return http.Header{"Cache-Control": {"no-cache"}}
}

func (f JobFilter) query() url.Values {
	q := url.Values{}
	set := func(k, v string) {
		if v != "" {
			q.Set(k, v)
		}
	}
	states := make([]string, 0, len(f.States))
	for _, s := range f.States {
		states = append(states, string(s))
	}
	set("state", strings.Join(states, ","))
	set("user", f.User)
	set("name", f.Name)
	set("prefix", f.Prefix)
	set("cursor", f.Cursor)
	set("fields", strings.Join(f.Fields, ","))
	if f.Mine {
		q.Set("mine", "true")
	}
	if f.Last {
		q.Set("last", "true")
	}
	if f.Limit > 0 {
		q.Set("limit", strconv.Itoa(f.Limit))
	}
	return q
}

// Jobs lists jobs, newest first.
func (c *Client) Jobs(ctx context.Context, f JobFilter) (l Listing[Job], err error) {
	err = c.callWith(ctx, http.MethodGet, "/v1/jobs", f.query(), f.header(), nil, &l)
	return l, err
}

// Job returns one job by its whole ID.
func (c *Client) Job(ctx context.Context, id job.ID) (j Job, err error) {
	err = c.call(ctx, http.MethodGet, jobPath(id), nil, nil, &j)
	return j, err
}

func jobPath(id job.ID, rest ...string) string {
	return "/v1/jobs/" + url.PathEscape(string(id)) + strings.Join(rest, "")
}

// Why explains the state of the job, or of one of these tasks, and which requirements exclude which nodes.
func (c *Client) Why(ctx context.Context, id job.ID, tasks []job.Range) (e Explanation, err error) {
	q := url.Values{}
	if len(tasks) > 0 {
		q.Set("tasks", job.RangesText(tasks))
	}
	err = c.call(ctx, http.MethodGet, jobPath(id, "/why"), q, nil, &e)
	return e, err
}

// TaskFilter selects tasks of a job; the zero value selects all.
type TaskFilter struct {
	States []job.State
	Tasks  []job.Range // numbers of tasks
	Limit  int         // 0: the daemon's default
	Cursor string      // Next of the previous page
}

// Tasks lists tasks of a job, by number.
func (c *Client) Tasks(ctx context.Context, id job.ID, f TaskFilter) (l Listing[Task], err error) {
	q := url.Values{}
	for _, s := range f.States {
		q.Add("state", string(s))
	}
	if q.Has("state") {
		q.Set("state", strings.Join(q["state"], ","))
	}
	if len(f.Tasks) > 0 {
		q.Set("tasks", job.RangesText(f.Tasks))
	}
	if f.Limit > 0 {
		q.Set("limit", strconv.Itoa(f.Limit))
	}
	if f.Cursor != "" {
		q.Set("cursor", f.Cursor)
	}
	err = c.call(ctx, http.MethodGet, jobPath(id, "/tasks"), q, nil, &l)
	return l, err
}

// AllTasks yields the tasks of a job that the filter selects, page by page.
func (c *Client) AllTasks(ctx context.Context, id job.ID, f TaskFilter) iter.Seq2[Task, error] {
	return func(yield func(Task, error) bool) {
		for {
			l, err := c.Tasks(ctx, id, f)
			if err != nil {
				yield(Task{}, err)
				return
			}
			for _, t := range l.Items {
				if !yield(t, nil) {
					return
				}
			}
			if f.Cursor = l.Next; f.Cursor == "" {
				return
			}
		}
	}
}

// Story returns a page of the story of a job: what has happened to it. The filter's states are ignored.
func (c *Client) Story(ctx context.Context, id job.ID, f TaskFilter) (l Listing[JobEvent], err error) {
	q := url.Values{}
	if len(f.Tasks) > 0 {
		q.Set("tasks", job.RangesText(f.Tasks))
	}
	if f.Limit > 0 {
		q.Set("limit", strconv.Itoa(f.Limit))
	}
	if f.Cursor != "" {
		q.Set("cursor", f.Cursor)
	}
	err = c.call(ctx, http.MethodGet, jobPath(id, "/events"), q, nil, &l)
	return l, err
}

// Forget deletes a job that has ended.
func (c *Client) Forget(ctx context.Context, id job.ID) error {
	return c.call(ctx, http.MethodDelete, jobPath(id, ""), nil, nil, nil)
}

// LookAnew ends back-offs and makes all daemons look for nodes at once: for the jobs of all users if the caller is an
// operator, else for the caller's own.
func (c *Client) LookAnew(ctx context.Context) (d Looked, err error) {
	err = c.call(ctx, http.MethodPost, "/v1/schedule", nil, struct{}{}, &d)
	return d, err
}

// Change selects the tasks that a request changes.
type Change struct {
	Tasks  []job.Range // numbers of tasks; empty: all
	Failed bool        // for Requeue: only tasks that have ended in another state than SUCCEEDED
	Reason string
}

// Cancel cancels tasks of a job.
func (c *Client) Cancel(ctx context.Context, id job.ID, x Change) (Job, error) {
	return c.change(ctx, id, "cancel", x)
}

// Hold keeps waiting tasks of a job from starting.
func (c *Client) Hold(ctx context.Context, id job.ID, x Change) (Job, error) {
	return c.change(ctx, id, "hold", x)
}

// Release releases held tasks of a job.
func (c *Client) Release(ctx context.Context, id job.ID, x Change) (Job, error) {
	return c.change(ctx, id, "release", x)
}

// Requeue runs tasks of a job again. Active ones are ended first.
func (c *Client) Requeue(ctx context.Context, id job.ID, x Change) (Job, error) {
	return c.post(ctx, id, "requeue", requeueRequest{Tasks: job.RangesText(x.Tasks), Reason: x.Reason, Failed: x.Failed})
}

func (c *Client) change(ctx context.Context, id job.ID, verb string, x Change) (Job, error) {
	return c.post(ctx, id, verb, changeRequest{Tasks: job.RangesText(x.Tasks), Reason: x.Reason})
}

func (c *Client) post(ctx context.Context, id job.ID, verb string, in any) (j Job, err error) {
	err = c.call(ctx, http.MethodPost, jobPath(id, "/", verb), nil, in, &j)
	return j, err
}

// Users returns what these users (all if there are none) and their projects have used of the cluster, and their shares.
func (c *Client) Users(ctx context.Context, users ...string) (l Listing[User], err error) {
	q := url.Values{}
	if len(users) > 0 {
		q.Set("user", strings.Join(users, ","))
	}
	err = c.call(ctx, http.MethodGet, "/v1/users", q, nil, &l)
	return l, err
}

// Nodes lists the nodes of the cluster by name.
func (c *Client) Nodes(ctx context.Context) (l Listing[Node], err error) {
	err = c.call(ctx, http.MethodGet, "/v1/nodes", nil, nil, &l)
	return l, err
}

// Node returns one node by ID or name.
func (c *Client) Node(ctx context.Context, node string) (Node, error) {
	return c.nodeCall(ctx, http.MethodGet, node, "", nil)
}

// nodeCall makes a request about one node. It returns ErrBad for a name that cannot be part of a path.
func (c *Client) nodeCall(ctx context.Context, method, node, what string, in any) (n Node, err error) {
	path, err := nodePath(node, what)
	if err == nil {
		err = c.call(ctx, method, path, nil, in, &n)
	}
	return n, err
}

func nodePath(node, what string) (string, error) {
	if node == "" || node == "." || node == ".." {
		return "", bad("node %q: want its name or id; `muster nodes` lists them", node)
	}
	return "/v1/nodes/" + url.PathEscape(node) + what, nil
}

// Drain keeps new tasks from starting on a node. Running tasks go on, until the deadline if there is one.
func (c *Client) Drain(ctx context.Context, node string, r DrainRequest) (Node, error) {
	return c.nodeCall(ctx, http.MethodPost, node, "/drain", r)
}

// Resume ends the drain of a node and the quarantine of its GPUs.
func (c *Client) Resume(ctx context.Context, node string) (Node, error) {
	return c.nodeCall(ctx, http.MethodPost, node, "/resume", changeRequest{})
}

// DeclareDead gives up the tasks of a node that will not come back. With dryRun it only counts them. It returns
// ErrConflict if the node answers. If Partial names daemons, declare the node dead again when they are back.
func (c *Client) DeclareDead(ctx context.Context, node string, dryRun bool) (d Death, err error) {
	path, err := nodePath(node, "/declare-dead")
	if err == nil {
		err = c.call(ctx, http.MethodPost, path, nil, DeclareDeadRequest{DryRun: dryRun}, &d)
	}
	return d, err
}

// GPUs lists the GPUs of the cluster; with free only those that are wholly free.
func (c *Client) GPUs(ctx context.Context, free bool) (l Listing[GPU], err error) {
	q := url.Values{}
	if free {
		q.Set("free", "true")
	}
	err = c.call(ctx, http.MethodGet, "/v1/gpus", q, nil, &l)
	return l, err
}

// Stats returns totals of the cluster.
func (c *Client) Stats(ctx context.Context) (s Stats, err error) {
	err = c.call(ctx, http.MethodGet, "/v1/stats", nil, nil, &s)
	return s, err
}

// Peers lists the members of the cluster that the daemon knows.
func (c *Client) Peers(ctx context.Context) (l Listing[Peer], err error) {
	err = c.call(ctx, http.MethodGet, "/v1/peers", nil, nil, &l)
	return l, err
}

// Revoke revokes a member, and with withInvited also those that it has invited.
func (c *Client) Revoke(ctx context.Context, peer job.Peer, reason string, withInvited bool) error {
	return c.call(ctx, http.MethodPost, "/v1/peers/"+url.PathEscape(string(peer))+"/revoke", nil, revokeRequest{Reason: reason, WithInvited: withInvited}, nil)
}

// Restore undoes the revocation of a member.
func (c *Client) Restore(ctx context.Context, peer job.Peer) error {
	return c.call(ctx, http.MethodPost, "/v1/peers/"+url.PathEscape(string(peer))+"/restore", nil, nil, nil)
}

// Invite creates a token with which hosts can join.
func (c *Client) Invite(ctx context.Context, r InviteRequest) (i Invitation, err error) {
	err = c.call(ctx, http.MethodPost, "/v1/invitations", nil, r, &i)
	return i, err
}

// Join makes the daemon join a cluster, and writes this to its configuration.
func (c *Client) Join(ctx context.Context, bootstrap []string, token string) (j Joined, err error) {
	err = c.call(ctx, http.MethodPost, "/v1/join", nil, JoinRequest{Bootstrap: bootstrap, Token: token}, &j)
	return j, err
}

// Daemon describes the daemon that answers; with facts it also examines its host.
func (c *Client) Daemon(ctx context.Context, facts bool) (d Daemon, err error) {
	q := url.Values{}
	if facts {
		q.Set("facts", "true")
	}
	err = c.call(ctx, http.MethodGet, "/v1/daemon", q, nil, &d)
	return d, err
}

// Ready returns nil once the daemon accepts work; before that, an error that says what it waits for.
func (c *Client) Ready(ctx context.Context) error {
	return c.call(ctx, http.MethodGet, "/ready", nil, nil, nil)
}

// TaskUsage returns what a task uses, or has used.
func (c *Client) TaskUsage(ctx context.Context, id job.ID, task int) (u TaskUsage, err error) {
	err = c.call(ctx, http.MethodGet, jobPath(id, "/tasks/", strconv.Itoa(task), "/usage"), nil, nil, &u)
	return u, err
}

// JobUsage returns what the tasks of a job have held and used together.
func (c *Client) JobUsage(ctx context.Context, id job.ID) (u JobUsage, err error) {
	err = c.call(ctx, http.MethodGet, jobPath(id, "/usage"), nil, nil, &u)
	return u, err
}
