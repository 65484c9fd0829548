package api

// Which requests are written to the audit log: a table of all routes, and what handlers note about a request. See
// docs/adr, ADR 120.

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/job"
)

// Audit is the audit log of this daemon.
type Audit interface {
	// Record adds an entry. It does not block.
	Record(e audit.Entry)
	// Find returns the newest entries that q selects, the newest first.
	Find(ctx context.Context, q audit.Query) ([]audit.Entry, error)
}

// audited has the routes whose requests are written to the audit log, by their operation. Every daemon that a request passes
// writes an entry. Of all other routes only refused requests are written.
var audited = map[string]struct {
	action audit.Action
	others bool // only requests about jobs of other users
}{
	"submit-job":        {action: audit.Submit},
	"cancel-job":        {action: audit.Cancel},
	"hold-job":          {action: audit.Hold},
	"release-job":       {action: audit.Release},
	"requeue-job":       {action: audit.Requeue},
	"forget-job":        {action: audit.Forget},
	"schedule":          {action: audit.Schedule},
	"schedule-here":     {action: audit.Schedule},
	"exec":              {action: audit.Exec},
	"exec-attempt":      {action: audit.Exec},
	"attach":            {action: audit.Input},
	"attach-attempt":    {action: audit.Input},
	"put-tree":          {action: audit.Upload},
	"get-files":         {action: audit.Files},
	"get-attempt-files": {action: audit.Files},
	"get-log":           {action: audit.Logs, others: true},
	"get-attempt-log":   {action: audit.Logs},
	"invite":            {action: audit.Invite},
	"join":              {action: audit.Join},
	"revoke-peer":       {action: audit.Revoke},
	"restore-peer":      {action: audit.Restore},
	"drain-node":        {action: audit.Drain},
	"resume-node":       {action: audit.Resume},
	"declare-node-dead": {action: audit.DeclareDead},
	"forget-claim":      {action: audit.ForgetClaim},
}

// notAudited has all other routes, each with the reason why its requests are not written.
var notAudited = map[string]string{
	"offers":            "it changes nothing: a dry run",
	"follow-jobs":       "it changes nothing: a daemon learns how far jobs are",
	"get-feed":          "it changes nothing: a daemon learns what all users may see, and what it shows to a job's own",
	"missing-chunks":    "it changes nothing",
	"put-chunks":        "put-tree names what was uploaded; chunks without a tree are removed",
	"get-tree":          "hosts fetch the files of tasks that they were given; the names are secret",
	"get-chunks":        "as get-tree",
	"list-jobs":         "it shows what all users may see",
	"get-job":           "it shows what all users may see, and a user's own",
	"list-tasks":        "as get-job",
	"list-job-events":   "as get-job",
	"why-job":           "as get-job",
	"list-nodes":        "it shows what all users may see",
	"get-node":          "it shows what all users may see",
	"list-users":        "it shows what all users may see",
	"get-host-users":    "it shows what all users may see",
	"swap-allotments":   "daemons tell each other what their tasks hold; it changes no job",
	"list-gpus":         "it shows what all users may see",
	"get-stats":         "it shows what all users may see",
	"get-events":        "it shows what all users may see",
	"list-peers":        "it shows what all users may see",
	"make-ticket":       "it changes nothing: the WebSocket that it is for is written",
	"list-audit":        "the log would tell of its readers only",
	"get-founding":      "it shows a proof that is not secret",
	"get-daemon":        "it shows what all users may see",
	"health":            "it shows what all users may see",
	"ready":             "it shows what all users may see",
	"list-targets":      "it shows what all users may see",
	"get-metrics":       "it shows what all users may see",
	"get-job-usage":     "as get-job",
	"get-task-usage":    "as get-job",
	"get-attempt-usage": "as get-job",
	"get-node-usage":    "it shows what all users may see",
}

// note collects what the audit log will say about a request. Handlers add to it until the answer begins. The methods of a
// nil note do nothing.
type note struct {
	op      string
	object  string
	owner   string // the user of the job that the request is about
	details map[string]string
	code    string
	reason  string
	hidden  bool             // refused as if the route did not exist
	own     bool             // the handler calls now or never
	done    bool             // recorded, or must not be recorded
	record  func(status int) // set by the server
}

// noting returns a middleware that notes the operation of a request, and the object that its path names.
func noting(op huma.Operation) func(huma.Context, func(huma.Context)) {
	return func(ctx huma.Context, next func(huma.Context)) {
		n := requesterOf(ctx.Context()).note
		if n != nil {
			n.op = op.OperationID
			for _, part := range []string{"id", "attempt", "group", "hash"} {
				if v := ctx.Param(part); v != "" {
					n.object = v
				}
			}
			if t := ctx.Param("t"); t != "" {
				n.object += "." + t
			}
		}
		next(ctx)
	}
}

func (n *note) about(object string) {
	if n != nil && object != "" {
		n.object = object
	}
}

// with adds a detail.
func (n *note) with(key, value string) {
	if n == nil || value == "" {
		return
	}
	if n.details == nil {
		n.details = map[string]string{}
	}
	n.details[key] = value
}

// ofJob names the job that the request is about.
func (n *note) ofJob(j *job.Job) {
	if n != nil {
		n.owner = j.User
	}
}

// ofCommand notes the program of a command and its number of arguments. It leaves out the arguments, which may be secret.
func (n *note) ofCommand(r ExecRequest) {
	n.with("program", r.Command[0])
	n.with("arguments", strconv.Itoa(len(r.Command)-1))
	if r.TTY {
		n.with("tty", "true")
	}
}

// because notes why the request did not succeed.
func (n *note) because(p *Problem) {
	if n != nil && n.code == "" {
		n.code, n.reason = p.Code, p.Error()
	}
}

// denied notes whether the request was refused because a daemon used a route that is not for daemons.
func (n *note) denied(daemon bool) {
	if n != nil {
		n.hidden = daemon
	}
}

// later delays the entry until the handler calls now.
func (n *note) later() {
	if n != nil {
		n.own = true
	}
}

// now records the request: as a success, or with the error.
func (n *note) now(err error) {
	if n == nil {
		return
	}
	n.own = false
	status := http.StatusOK
	if err != nil {
		p := problemOf(err)
		n.because(p)
		status = p.Status
	}
	n.begin(status)
}

// never keeps the request out of the audit log.
func (n *note) never() {
	if n != nil {
		n.done = true
	}
}

// begin records the request once the status of the answer is known.
func (n *note) begin(status int) {
	informs := status/100 == 1 && status != http.StatusSwitchingProtocols // the answer is still to come
	if informs || n == nil || n.done || n.own || n.record == nil {
		return
	}
	n.done = true
	n.record(status)
}

// audit writes a request to the audit log if its route is in the table, or if it was refused.
func (s *Server) audit(r *http.Request, a requester, n *note, status int) {
	if s.entries == nil {
		return
	}
	row, listed := audited[n.op]
	refused := n.hidden || status == http.StatusUnauthorized || status == http.StatusForbidden
	switch {
	case refused:
	case !listed, row.others && (n.owner == "" || n.owner == a.user):
		return
	}
	e := audit.Entry{Action: row.action, Outcome: audit.OK, User: a.user, Object: n.object, Details: n.details}
	if !listed {
		e.Action, e.Object = audit.Other, r.Method+" "+r.URL.Path
		if n.op == "" {
			e.Action = audit.Authenticate
		}
	}
	switch {
	case refused:
		e.Outcome = audit.Refused
	case status == 0:
		e.Outcome, n.reason = audit.Failed, "the request ended without an answer"
	case status >= http.StatusBadRequest:
		e.Outcome = audit.Failed
	}
	if e.Outcome != audit.OK {
		e.Code, e.Reason = n.code, n.reason
		if e.Code == "" {
			e.Code = problemOfStatus(status, "").Code
		}
	}
	if n.owner != "" && n.owner != a.user {
		n.with("job_user", n.owner)
		e.Details = n.details
	}
	a.origin(r, &e)
	s.entries.Record(e)
}

// origin adds to an entry where the request came from.
func (a requester) origin(r *http.Request, e *audit.Entry) {
	switch a.from {
	case fromSocket:
		e.From, e.PID = audit.Socket, a.pid
		if a.user != "" { // the pid of a process in another PID namespace is 0
			e.UID = &a.uid
		}
	case fromTCP:
		e.From, e.Address = audit.HTTP, r.RemoteAddr
		if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
			e.IP, _ = netip.ParseAddr(host)
		}
	case fromPeer:
		e.From, e.Peer = audit.Peer, job.Peer(r.RemoteAddr)
	}
}
