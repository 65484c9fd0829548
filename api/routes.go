package api

// The table of routes: the requests, the listeners on which they are allowed, and the daemon that answers them.

import (
	"context"
	"log/slog"
	"net/http"
	"strconv"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/musterhq/muster/internal/dashboard/origin"
	"github.com/musterhq/muster/job"
)

// rules says who may use a route and which daemon answers.
type rules struct {
	peers  callers // the other daemons that may use it, too
	only   bool    // only other daemons may use it
	owner  bool    // it is about the job {id}: the daemon that owns the job answers
	node   bool    // it is about the node {id}: the node's own daemon answers
	stream bool    // the request may be long-lived
	large  bool    // the answer may be large, or the daemon asks all members
	follow bool    // it is the stream by which a daemon follows jobs, which has a bound of its own
}

// callers says which other daemons may use a route, by their roles in the cluster.
type callers int

// The callers. A member that may not change anything still sees the states of nodes and jobs, as its users do.
const (
	nobody     callers = iota
	anyMember          // any member
	workers            // daemons that run tasks or accept jobs: for the routes that fetch the files of a task
	schedulers         // daemons that accept jobs: for routes that change something, or that read data of users such as output
)

// router connects each route with its checks and its handler.
type router struct {
	*daemons

	directory Directory
	admission *admission
	follows   *followRoutes
	feeds     *feedRoutes
	viewer    *viewer
	mux       *http.ServeMux
	api       huma.API
	all       []huma.Operation // in the order in which they were added
	inner     huma.OpenAPI     // the routes between daemons, which the OpenAPI document does not show
}

// newRouter returns a router with all routes.
func newRouter(cfg Config, needs Needs, d *daemons, follows *followRoutes, limits *admission, tickets *origin.Tickets[requester], log *slog.Logger) *router {
	config := huma.DefaultConfig("muster", cfg.Version)
	config.Info.Description = "A peer-to-peer scheduler of GPU jobs. Each daemon of a cluster answers requests about the whole cluster."
	config.OpenAPIPath, config.DocsPath, config.SchemasPath, config.CreateHooks = "", "", "", nil
	config.Transformers = []huma.Transformer{toProblem}
	config.RejectUnknownQueryParameters = true
	mux := http.NewServeMux()
	rt := &router{daemons: d, directory: needs.Directory, admission: limits, follows: follows, mux: mux, api: humago.New(mux, config)}
	rt.view(cfg, needs, log)
	rt.jobs(needs, log)
	rt.cluster(needs, log)
	add(rt, post("make-ticket", "/v1/tickets", "Get a ticket with which a web page opens one WebSocket", http.StatusCreated), rules{}, (&ticketRoutes{tickets}).make)

	rt.scrapes(needs, log)
	rt.hide()
	finishOpenAPI(rt.api.OpenAPI())
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		refuse(w, problemOfStatus(http.StatusNotFound, r.Method+" "+r.URL.Path+": there is no such route; /docs lists them"))
	})
	return rt
}

// scrapes adds the routes of metrics.
func (rt *router) scrapes(needs Needs, log *slog.Logger) {
	s := &scrapes{daemons: rt.daemons, registry: needs.Registry, measured: needs.Metrics, reading: make(chan struct{}, maxReading), log: log}
	if s.registry == nil {
		s.registry = prometheus.NewRegistry()
	}
	rt.mux.Handle("GET /metrics", rt.admission.plain(s))
	add(rt, get("list-targets", "/v1/metrics/targets", "List the nodes for Prometheus to scrape"), rules{}, s.list)
	add(rt, metricsOf(get("get-metrics", "/v1/nodes/{id}/metrics", "Get the metrics of a node")), rules{peers: anyMember}, s.ofNode)
}

// view makes the feed of this daemon and the view of the cluster.
func (rt *router) view(cfg Config, needs Needs, log *slog.Logger) {
	source := &feedSource{node: needs.Node, watch: needs.Watch, jobs: needs.Jobs, directory: needs.Directory, log: log}
	rt.feeds = &feedRoutes{feedSource: source, hello: helloOf(cfg)}
	rt.viewer = &viewer{
		make:  func() *clusterView { return newView(rt.daemons, needs.Directory, source, rt.feeds.hello) },
		until: rt.admission.untilClosing,
	}
}

// jobs adds the routes of jobs and of the output of their tasks.
func (rt *router) jobs(needs Needs, log *slog.Logger) {
	uploads := &uploadRoutes{uploads: needs.Uploads, parsing: newSlots("uploads that are being stored", maxParsing, 1)}
	access := jobAccess{needs.Jobs}
	jobs := &jobRoutes{daemons: rt.daemons, jobAccess: access, explain: needs.Explain, directory: needs.Directory, hasTree: uploads.hasTree, follows: rt.follows, viewer: rt.viewer}
	anew := &backoffRoutes{daemons: rt.daemons, scheduling: needs.Scheduling}
	logs := &logRoutes{daemons: rt.daemons, jobs: needs.Jobs, watch: needs.Watch, logs: needs.Logs}
	used := &usageRoutes{daemons: rt.daemons, jobAccess: access, usage: needs.Usage}
	files := &fileRoutes{daemons: rt.daemons, jobAccess: access, files: needs.Files}
	exec := &execRoutes{daemons: rt.daemons, jobAccess: access, exec: needs.Exec, log: log}
	attach := &attachRoutes{daemons: rt.daemons, jobAccess: access, watch: needs.Watch, exec: needs.Exec, log: log}

	add(rt, jobFile(post("submit-job", "/v1/jobs", "Submit a job, as a job file in JSON", http.StatusCreated)), rules{}, jobs.submit)
	add(rt, listingOf[Listing[Job]](rt, get("list-jobs", "/v1/jobs", "List jobs, newest first")), rules{peers: anyMember, large: true}, jobs.list)
	add(rt, get("get-job", "/v1/jobs/{id}", "Get one job"), rules{peers: anyMember, owner: true, large: true}, jobs.get)
	add(rt, get("list-tasks", "/v1/jobs/{id}/tasks", "List the tasks of a job, by number"), rules{peers: anyMember, owner: true, large: true}, jobs.tasks)
	add(rt, huma.Operation{OperationID: "forget-job", Method: http.MethodDelete, Path: "/v1/jobs/{id}", Summary: "Forget a job that has ended", DefaultStatus: http.StatusNoContent}, rules{peers: schedulers, owner: true}, jobs.forget)
	add(rt, get("list-job-events", "/v1/jobs/{id}/events", "Tell the story of a job"), rules{peers: anyMember, owner: true, large: true}, jobs.story)
	add(rt, get("why-job", "/v1/jobs/{id}/why", "Explain the state of a job"), rules{peers: anyMember, owner: true, large: true}, jobs.why)
	add(rt, post("cancel-job", "/v1/jobs/{id}/cancel", "Cancel a job, or tasks of it", http.StatusOK), rules{peers: schedulers, owner: true}, jobs.cancel)
	add(rt, post("hold-job", "/v1/jobs/{id}/hold", "Hold a waiting job, or tasks of it", http.StatusOK), rules{peers: schedulers, owner: true}, jobs.hold)
	add(rt, post("release-job", "/v1/jobs/{id}/release", "Release a held job, or tasks of it", http.StatusOK), rules{peers: schedulers, owner: true}, jobs.release)
	add(rt, post("requeue-job", "/v1/jobs/{id}/requeue", "Run a job again, or tasks of it", http.StatusOK), rules{peers: schedulers, owner: true}, jobs.requeue)
	add(rt, post("schedule", "/v1/schedule", "End back-offs and look for nodes anew", http.StatusOK), rules{large: true}, anew.all)
	add(rt, hiddenOp(post("schedule-here", pathPeerSchedule, "End back-offs of this daemon's jobs", http.StatusOK)), rules{peers: schedulers, only: true, large: true}, anew.here)
	add(rt, jobFile(post("offers", "/v1/offers", "List the nodes that would take a job, without submitting it", http.StatusOK)), rules{large: true}, jobs.offers)

	add(rt, hiddenOp(post("follow-jobs", "/peer/v1/groups/{group}/progress", "Follow the progress of jobs of this daemon", http.StatusOK)), rules{peers: schedulers, only: true, stream: true, follow: true}, rt.follows.follow)

	ofTask, ofAttempt := rules{peers: schedulers, owner: true, stream: true}, rules{peers: schedulers, only: true, stream: true}
	ofFiles := rules{peers: workers, only: true, stream: true}
	add(rt, get("get-job-usage", "/v1/jobs/{id}/usage", "Get what the tasks of a job have held and used together"), rules{peers: anyMember, owner: true, large: true}, used.job)
	add(rt, get("get-task-usage", "/v1/jobs/{id}/tasks/{t}/usage", "Get what a task uses, or has used"), rules{peers: anyMember, owner: true, large: true}, used.task)
	add(rt, hiddenOp(get("get-attempt-usage", "/peer/v1/attempts/{attempt}/usage", "Get what an attempt of this host uses")), rules{peers: anyMember, only: true}, used.attempt)
	add(rt, bytesOf(get("get-log", "/v1/jobs/{id}/tasks/{t}/logs", "Read the output of a task")), ofTask, logs.task)
	add(rt, hiddenOp(get("get-attempt-log", "/peer/v1/attempts/{attempt}/logs", "Read the output of an attempt of this host")), ofAttempt, logs.attempt)
	add(rt, tarOf(get("get-files", "/v1/jobs/{id}/tasks/{t}/files", "Read files of a task, as a tar archive")), ofTask, files.task)
	add(rt, hiddenOp(get("get-attempt-files", "/peer/v1/attempts/{attempt}/files", "Read files of an attempt of this host, as a tar archive")), ofAttempt, files.attempt)
	add(rt, get("attach", "/v1/jobs/{id}/tasks/{t}/attach", "Bring input to a task that was submitted with stdin or tty, over a WebSocket"), ofTask, attach.task)
	add(rt, hiddenOp(get("attach-attempt", "/peer/v1/attempts/{attempt}/attach", "Bring input to an attempt of this host")), ofAttempt, attach.attempt)
	add(rt, get("exec", "/v1/jobs/{id}/tasks/{t}/exec", "Run a command in a running task, over a WebSocket"), ofTask, exec.task)
	add(rt, hiddenOp(get("exec-attempt", "/peer/v1/attempts/{attempt}/exec", "Run a command in an attempt of this host")), ofAttempt, exec.attempt)

	put := huma.Operation{OperationID: "put-tree", Method: http.MethodPut, Path: pathTrees + "{hash}", Summary: "Store a tree, after all its chunks", DefaultStatus: http.StatusNoContent}
	add(rt, bodyOf(post("missing-chunks", pathMissing, "Find out which chunks this daemon does not have", http.StatusOK), "Names of chunks: hash and length, 36 bytes each."), rules{stream: true}, uploads.missingChunks)
	add(rt, bodyOf(post("put-chunks", pathChunks, "Store chunks", http.StatusNoContent), "Chunks, each preceded by its length in four bytes."), rules{stream: true}, uploads.putChunks)
	add(rt, bodyOf(put, "The list of the tree's files."), rules{stream: true}, uploads.putTree)
	add(rt, hiddenOp(get("get-tree", pathPeerTrees+"{hash}", "Get the list of a tree's files")), ofFiles, uploads.getTree)
	add(rt, hiddenOp(post("get-chunks", pathPeerChunks, "Get chunks from this daemon", http.StatusOK)), ofFiles, uploads.getChunks)
}

// cluster adds the routes of nodes, members, events and this daemon.
func (rt *router) cluster(needs Needs, log *slog.Logger) {
	nodes := &nodeRoutes{daemons: rt.daemons, node: needs.Node, watch: needs.Watch, viewer: rt.viewer}
	deaths := &deathRoutes{daemons: rt.daemons, deaths: needs.Deaths, log: log}
	users := &userRoutes{daemons: rt.daemons, users: needs.Users, sight: &rt.feeds.hello}
	allotted := &allotmentRoutes{needs.Users}
	members := &memberRoutes{daemons: rt.daemons}
	events := &eventRoutes{daemons: rt.daemons, jobs: needs.Jobs, watch: needs.Watch, directory: needs.Directory, viewer: rt.viewer, log: log}
	used := &usageRoutes{daemons: rt.daemons, usage: needs.Usage}
	daemon := &daemonRoutes{needs.Self}
	claims := &claimRoutes{rt.daemons, needs.Directory}
	entries := &auditRoutes{daemons: rt.daemons, log: needs.Audit}

	add(rt, listingOf[Listing[Node]](rt, get("list-nodes", "/v1/nodes", "List nodes")), rules{peers: anyMember, large: true}, nodes.list)
	add(rt, get("get-node", "/v1/nodes/{id}", "Get one node, by id or name"), rules{peers: anyMember, large: true}, nodes.get)
	add(rt, get("get-node-usage", "/v1/nodes/{id}/usage", "Get what a node and its GPUs used in the last hour"), rules{peers: anyMember, node: true}, used.node)
	add(rt, post("drain-node", "/v1/nodes/{id}/drain", "Drain a node: start nothing new there", http.StatusOK), rules{peers: schedulers, node: true}, nodes.drain)
	add(rt, post("resume-node", "/v1/nodes/{id}/resume", "End a drain, and the quarantine of the node's GPUs", http.StatusOK), rules{peers: schedulers, node: true}, nodes.resume)
	add(rt, post("declare-node-dead", "/v1/nodes/{id}/declare-dead", "Declare a node dead: give up its tasks", http.StatusOK), rules{peers: schedulers}, deaths.declare)
	add(rt, get("list-users", "/v1/users", "List users and projects: what they have used, and their shares"), rules{large: true}, users.list)
	add(rt, jobFile(hiddenOp(post("swap-allotments", pathAllotments, "Tell what is allotted to users, and get what is here", http.StatusOK))), rules{peers: schedulers, only: true}, allotted.swap)
	add(rt, hiddenOp(get("get-host-users", "/peer/v1/users", "Get what users have used of this host")), rules{peers: anyMember, only: true, large: true}, users.here)
	add(rt, listingOf[Listing[GPU]](rt, get("list-gpus", "/v1/gpus", "List GPUs")), rules{large: true}, nodes.listGPUs)
	add(rt, listingOf[Stats](rt, get("get-stats", "/v1/stats", "Get totals of the cluster: nodes, jobs, CPUs, memory and GPUs")), rules{peers: anyMember, large: true}, nodes.stats)
	add(rt, eventsOf(get("get-events", "/v1/events", "Follow changes of jobs, tasks, nodes, GPUs and members, as server-sent events")), rules{peers: anyMember, stream: true}, events.stream)
	add(rt, hiddenOp(get("get-feed", pathFeed, "Follow this daemon's node and jobs")), rules{peers: anyMember, only: true, stream: true}, rt.feeds.feed)

	add(rt, get("list-peers", "/v1/peers", "List the members that this daemon knows"), rules{large: true}, members.list)
	add(rt, post("revoke-peer", "/v1/peers/{id}/revoke", "Revoke a member", http.StatusOK), rules{}, members.revoke)
	add(rt, post("restore-peer", "/v1/peers/{id}/restore", "Take the revocation of a member back", http.StatusNoContent), rules{}, members.restore)
	add(rt, post("invite", "/v1/invitations", "Make a token with which hosts can join", http.StatusCreated), rules{}, members.invite)
	add(rt, post("join", "/v1/join", "Join a cluster", http.StatusOK), rules{}, members.join)
	add(rt, post("forget-claim", "/v1/claims/{group}/forget", "Have this host accept an older epoch of the owner of a group", http.StatusOK), rules{}, claims.forget)
	add(rt, hiddenOp(get("get-founding", pathFoundings+"{group}", "Get the proof that this daemon has founded a group")), rules{peers: anyMember, only: true}, claims.founding)
	add(rt, get("list-audit", "/v1/audit", "List entries of the audit log, newest first"), rules{peers: schedulers, large: true}, entries.list)
	add(rt, get("get-daemon", "/v1/daemon", "Get this daemon's identity, and its settings with their origin"), rules{}, daemon.get)
	add(rt, get("health", "/health", "Check that the daemon answers"), rules{}, daemon.health)
	add(rt, get("ready", "/ready", "Check that the daemon accepts work"), rules{}, daemon.ready)
}

func get(id, path, summary string) huma.Operation {
	return huma.Operation{OperationID: id, Method: http.MethodGet, Path: path, Summary: summary}
}

func post(id, path, summary string, status int) huma.Operation {
	return huma.Operation{
		OperationID: id, Method: http.MethodPost, Path: path, Summary: summary, DefaultStatus: status,
		MaxBodyBytes: job.MaxSpecBytes + 1, BodyReadTimeout: -1, // see body
	}
}

// jobFile returns an operation whose handler decodes the body itself, by the rules of job files. Their errors name the wrong
// field.
func jobFile(op huma.Operation) huma.Operation {
	op.SkipValidateBody = true
	return op
}

// hide moves the hidden routes from the OpenAPI document to rt.inner.
func (rt *router) hide() {
	doc := rt.api.OpenAPI()
	rt.inner.Paths = map[string]*huma.PathItem{}
	for _, op := range rt.all {
		if op.Hidden {
			rt.inner.Paths[op.Path] = doc.Paths[op.Path]
			delete(doc.Paths, op.Path)
		}
	}
}

func hiddenOp(op huma.Operation) huma.Operation {
	op.Hidden = true
	return op
}

// add registers a route with the checks that its rules require.
func add[I, O any](rt *router, op huma.Operation, w rules, handle func(context.Context, *I) (*O, error)) {
	if op.Responses == nil {
		op.Responses = map[string]*huma.Response{}
	}
	op.Responses["default"] = &huma.Response{
		Description: "An error, as a problem document.",
		Content:     map[string]*huma.MediaType{contentProb: {Schema: rt.api.OpenAPI().Components.Schemas.Schema(problemSchema, true, "Problem")}},
	}
	rt.all = append(rt.all, op)
	op.Hidden = false // huma does not return the schemas of hidden operations, by which it checks requests; see hide
	op.Middlewares = huma.Middlewares{noting(op), rt.admission.admit(w)}
	if w.owner {
		op.Middlewares = append(op.Middlewares, rt.toOwner(w))
	}
	if w.node {
		op.Middlewares = append(op.Middlewares, rt.toNode)
	}
	if w.owner && w.large {
		op.Middlewares = append(op.Middlewares, rt.admission.large)
	}
	huma.Register(rt.api, op, func(ctx context.Context, in *I) (*O, error) {
		out, err := handle(ctx, in)
		if err != nil {
			p := problemOf(err)
			requesterOf(ctx).note.because(p)
			return nil, p
		}
		return out, nil
	})
}

// toOwner forwards a request about a job to the daemon that owns it.
func (rt *router) toOwner(w rules) func(huma.Context, func(huma.Context)) {
	return func(ctx huma.Context, next func(huma.Context)) {
		r, out := humago.Unwrap(ctx)
		id, err := job.ParseID(ctx.Param("id"))
		if err != nil {
			refuse(out, problemOf(&notFoundError{"job", ctx.Param("id"), "want a whole job id"}))
			return
		}
		peer, self, err := rt.directory.Owner(ctx.Context(), id.Group())
		switch {
		case err != nil:
			refuse(out, err)
		case self:
			next(ctx)
		case requesterOf(ctx.Context()).from == fromPeer:
			refuse(out, problemOfStatus(http.StatusServiceUnavailable, "job "+string(id)+": this daemon does not own it; its owner may just have changed; try again"))
		default:
			p := answerLimit{limit: forwardRead, whole: !w.stream}
			if r.Method != http.MethodGet {
				p.limit = forwardChange
			}
			if follow, err := strconv.ParseBool(ctx.Query("follow")); err == nil && follow {
				p.limit = 0 // no limit: the task may have to wait for its start
			}
			to := destination{peer: peer, path: r.URL.Path, who: "owner " + rt.nameOf(peer) + " of job " + string(id)}
			rt.forward(out, r.WithContext(ctx.Context()), to, p)
		}
	}
}

// notFoundError is ErrNotFound with the name that was not found.
type notFoundError struct{ kind, name, detail string }

func (e *notFoundError) Error() string {
	text := e.kind + " " + quote(e.name) + ": not found"
	if e.detail != "" {
		text += ": " + e.detail
	}
	return text
}

func (e *notFoundError) Is(target error) bool { return target == ErrNotFound }
