package api

// The table of routes: what may be asked, through which doors, and where it is
// answered.

import (
	"context"
	"net/http"
	"strconv"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/musterhq/muster/job"
)

// way says who may use a route and where its answer is.
type way struct {
	peers  bool // other daemons may ask
	only   bool // only other daemons may ask
	owner  bool // about the job {id}: answered by the daemon that owns it
	node   bool // about the node {id}: answered by its own daemon
	stream bool // stays open
}

func (s *Server) routes() {
	config := huma.DefaultConfig("muster", s.cfg.Version)
	config.Info.Description = "A peer-to-peer scheduler of GPU jobs. Any daemon of a cluster answers for all of it."
	config.DocsPath, config.SchemasPath, config.CreateHooks = "", "", nil
	config.Transformers = []huma.Transformer{toProblem}
	config.RejectUnknownQueryParameters = true
	s.api = humago.New(s.mux, config)

	add(s, jobFile(post("submit-job", "/v1/jobs", "Hand in a job: a job file as JSON", http.StatusCreated)), way{}, s.submit)
	add(s, get("list-jobs", "/v1/jobs", "List jobs, newest first"), way{peers: true}, s.listJobs)
	add(s, get("get-job", "/v1/jobs/{id}", "One job"), way{peers: true, owner: true}, s.getJob)
	add(s, get("why-job", "/v1/jobs/{id}/why", "Why a job stands where it does"), way{peers: true, owner: true}, s.why)
	add(s, post("cancel-job", "/v1/jobs/{id}/cancel", "End a job", http.StatusOK), way{peers: true, owner: true}, s.cancel)
	add(s, post("hold-job", "/v1/jobs/{id}/hold", "Keep a waiting job back", http.StatusOK), way{peers: true, owner: true}, s.hold)
	add(s, post("release-job", "/v1/jobs/{id}/release", "Let a held job go", http.StatusOK), way{peers: true, owner: true}, s.release)
	add(s, post("requeue-job", "/v1/jobs/{id}/requeue", "Run a job again: not yet in this version", http.StatusOK), way{peers: true, owner: true}, s.requeue)
	add(s, bytesOf(get("get-log", "/v1/jobs/{id}/tasks/{t}/logs", "The output of a task")), way{peers: true, owner: true, stream: true}, s.taskLog)
	add(s, hiddenOp(get("get-attempt-log", "/peer/v1/attempts/{attempt}/logs", "The output of an attempt of this host")), way{peers: true, only: true, stream: true}, s.attemptLog)
	add(s, tarOf(get("get-files", "/v1/jobs/{id}/tasks/{t}/files", "Files of a task, as tar")), way{peers: true, owner: true, stream: true}, s.taskFiles)
	add(s, hiddenOp(get("get-attempt-files", "/peer/v1/attempts/{attempt}/files", "Files of an attempt of this host, as tar")), way{peers: true, only: true, stream: true}, s.attemptFiles)
	add(s, get("exec", "/v1/jobs/{id}/tasks/{t}/exec", "Run a command in a running task: a WebSocket"), way{peers: true, owner: true, stream: true}, s.taskExec)
	add(s, hiddenOp(get("exec-attempt", "/peer/v1/attempts/{attempt}/exec", "Run a command in an attempt of this host")), way{peers: true, only: true, stream: true}, s.attemptExec)
	add(s, jobFile(post("offers", "/v1/offers", "Which nodes would take a job: a dry run", http.StatusOK)), way{}, s.offers)

	add(s, get("list-nodes", "/v1/nodes", "List nodes"), way{peers: true}, s.listNodes)
	add(s, get("get-node", "/v1/nodes/{id}", "One node, by id or name"), way{peers: true}, s.getNode)
	add(s, post("drain-node", "/v1/nodes/{id}/drain", "Give a node nothing new", http.StatusOK), way{peers: true, node: true}, s.drain)
	add(s, post("resume-node", "/v1/nodes/{id}/resume", "End a drain, and give what was set aside another chance", http.StatusOK), way{peers: true, node: true}, s.resume)
	add(s, post("declare-node-dead", "/v1/nodes/{id}/declare-dead", "Give up what runs on a node that is gone for good", http.StatusOK), way{peers: true}, s.declareDead)
	add(s, get("list-gpus", "/v1/gpus", "List GPUs"), way{}, s.listGPUs)
	add(s, get("get-stats", "/v1/stats", "What the cluster has and does"), way{peers: true}, s.stats)
	add(s, eventsOf(get("get-events", "/v1/events", "Changes as they happen, as server-sent events")), way{peers: true, stream: true}, s.events)

	add(s, get("list-peers", "/v1/peers", "The members that this daemon knows"), way{}, s.listPeers)
	add(s, post("revoke-peer", "/v1/peers/{id}/revoke", "Shut a member out for good", http.StatusOK), way{}, s.revoke)
	add(s, post("invite", "/v1/invitations", "Make a token with which hosts can join", http.StatusCreated), way{}, s.invite)
	add(s, post("join", "/v1/join", "Join a cluster", http.StatusOK), way{}, s.join)
	add(s, get("get-daemon", "/v1/daemon", "This daemon, its settings and their origin"), way{}, s.daemon)
	add(s, get("health", "/health", "The daemon answers"), way{}, s.health)
	add(s, get("ready", "/ready", "The daemon takes work"), way{}, s.isReady)

	s.uploadRoutes()

	s.finishOpenAPI()
	s.mux.HandleFunc("GET /docs", s.docs())
	if s.needs.Registry != nil {
		s.mux.Handle("GET /metrics", promhttp.HandlerFor(s.needs.Registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4}))
	}
	s.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		refuse(w, problemOfStatus(http.StatusNotFound, r.Method+" "+r.URL.Path+": no such path and method; /docs lists them"))
	})
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

// jobFile is an operation whose handler reads the body by itself: by the rules
// of job files, which name the field that is wrong.
func jobFile(op huma.Operation) huma.Operation {
	op.SkipValidateBody = true
	return op
}

func hiddenOp(op huma.Operation) huma.Operation {
	op.Hidden = true
	return op
}

// add registers a route behind the checks that its way asks for.
func add[I, O any](s *Server, op huma.Operation, w way, handle func(context.Context, *I) (*O, error)) {
	if op.Responses == nil {
		op.Responses = map[string]*huma.Response{}
	}
	op.Responses["default"] = &huma.Response{
		Description: "A problem",
		Content:     map[string]*huma.MediaType{contentProb: {Schema: s.api.OpenAPI().Components.Schemas.Schema(problemSchema, true, "Problem")}},
	}
	op.Middlewares = huma.Middlewares{s.admit(w)}
	if w.owner {
		op.Middlewares = append(op.Middlewares, s.toOwner(w))
	}
	if w.node {
		op.Middlewares = append(op.Middlewares, s.toNode)
	}
	huma.Register(s.api, op, func(ctx context.Context, in *I) (*O, error) {
		out, err := handle(ctx, in)
		if err != nil {
			return nil, problemOf(err)
		}
		return out, nil
	})
}

// admit lets a request through its door while there is room.
func (s *Server) admit(w way) func(huma.Context, func(huma.Context)) {
	return func(ctx huma.Context, next func(huma.Context)) {
		r, out := humago.Unwrap(ctx)
		a := askerOf(r.Context())
		if (a.from == fromPeer && !w.peers) || (a.from != fromPeer && w.only) {
			refuse(out, problemOfStatus(http.StatusNotFound, r.Method+" "+r.URL.Path+": no such path and method here"))
			return
		}
		room := s.gates[a.from].requests
		if w.stream {
			room = s.gates[a.from].streams
		}
		select {
		case room <- struct{}{}:
		default:
			out.Header().Set("Retry-After", "1")
			refuse(out, problemOfStatus(http.StatusServiceUnavailable, "the daemon has all the requests that it takes at once; try again in a second"))
			return
		}
		defer func() { <-room }()
		if w.stream {
			s.metrics.stream(1)
			defer s.metrics.stream(-1)
			end, cancel := s.untilClosing(ctx.Context())
			defer cancel()
			ctx = huma.WithContext(ctx, end)
		}
		next(ctx)
	}
}

// untilClosing is ctx that also ends when the server stops.
func (s *Server) untilClosing(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-s.closing:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// toOwner passes a request about a job on to the daemon that owns it.
func (s *Server) toOwner(w way) func(huma.Context, func(huma.Context)) {
	return func(ctx huma.Context, next func(huma.Context)) {
		r, out := humago.Unwrap(ctx)
		id, err := job.ParseID(ctx.Param("id"))
		if err != nil {
			refuse(out, problemOf(&notFoundError{"job", ctx.Param("id"), "it is no whole job id"}))
			return
		}
		peer, self, err := s.needs.Directory.Owner(ctx.Context(), id.Group())
		switch {
		case err != nil:
			refuse(out, err)
		case self:
			next(ctx)
		case askerOf(ctx.Context()).from == fromPeer:
			refuse(out, problemOfStatus(http.StatusServiceUnavailable, "job "+string(id)+": the daemon that was asked does not own it; its owner may just have changed, try again"))
		default:
			p := patience{limit: forwardRead, whole: !w.stream}
			if r.Method != http.MethodGet {
				p.limit = forwardChange
			}
			if follow, err := strconv.ParseBool(ctx.Query("follow")); err == nil && follow {
				p.limit = 0 // it may wait for the task to start
			}
			to := passing{peer: peer, path: r.URL.Path, who: "owner " + s.nameOf(ctx.Context(), peer) + " of job " + string(id)}
			s.forward(out, r.WithContext(ctx.Context()), to, p)
		}
	}
}

// notFoundError is ErrNotFound with what was looked for.
type notFoundError struct{ kind, name, detail string }

func (e *notFoundError) Error() string {
	text := e.kind + " " + quote(e.name) + ": not found"
	if e.detail != "" {
		text += ": " + e.detail
	}
	return text
}

func (e *notFoundError) Is(target error) bool { return target == ErrNotFound }
