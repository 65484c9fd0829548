package api

// What the OpenAPI document says about values: the words that a field can have, the bounds of numbers, and how requests
// are authorized and refused.

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/job"
)

// kindsOf has the value of the field "schema" of each type of document.
var kindsOf = map[string]string{
	"Job": SchemaJob, "ListingJob": SchemaJobs, "Task": SchemaTask, "ListingTask": SchemaTasks, "Node": SchemaNode, "ListingNode": SchemaNodes,
	"GPU": SchemaGPU, "ListingGPU": SchemaGPUs, "Death": SchemaDeath, "Peer": SchemaPeer, "ListingPeer": SchemaPeers, "Invitation": SchemaInvitation,
	"Explanation": SchemaExplanation, "Stats": SchemaStats, "Event": SchemaEvent, "Daemon": SchemaDaemon, "Joined": SchemaJoined,
	"Health": SchemaHealth, "User": SchemaUser, "ListingUser": SchemaUsers, "AuditEntry": SchemaAuditEntry, "ListingAuditEntry": SchemaAudit,
	"Looked": SchemaSchedule, "JobEvent": SchemaJobEvent, "ListingJobEvent": SchemaJobEvents,
	"TaskUsage": SchemaTaskUsage, "NodeUsage": SchemaNodeUsage, "JobUsage": SchemaJobUsage,
}

// wordsOf returns the words that a field can have; nil if it can have any text. With open it can have other text too.
func wordsOf(schema, field string) (words []any, open bool) {
	switch schema + "." + field {
	case "JobEvent.kind":
		return anys(storyKinds), false
	case "Job.state", "Task.state", "TaskUsage.state", "JobUsage.state", "Attempt.state", "JobEvent.state", "Explanation.state", "Explanation.task_state", "Dependency.job_state":
		return anys(job.States()), false
	case "Job.reason", "Task.reason", "Explanation.reason":
		for _, r := range job.Reasons() {
			words = append(words, r.Word)
		}
		return words, true
	case "Dependency.condition":
		return anys(job.Conditions()), false
	case "GPU.health":
		return anys([]gpu.Health{gpu.Healthy, gpu.Unhealthy, gpu.Unknown}), false
	case "Link.kind":
		return anys([]gpu.LinkKind{gpu.LinkNVLink, gpu.LinkBoard, gpu.LinkSwitch, gpu.LinkBridge, gpu.LinkNUMA, gpu.LinkSystem}), false
	case "AuditEntry.action":
		return anys(audit.Actions()), false
	case "Problem.code", "AuditEntry.code":
		for _, p := range problems {
			if p.code != "unavailable" || len(words) == 0 || words[len(words)-1] != p.code {
				words = append(words, p.code)
			}
		}
		return append(words, codeInternal), schema != "Problem"
	case schema + ".schema":
		if kind := kindsOf[schema]; kind != "" {
			return []any{kind}, false
		}
	}
	return nil, false
}

func anys[T ~string](all []T) []any {
	out := make([]any, 0, len(all))
	for _, x := range all {
		out = append(out, string(x))
	}
	return out
}

// lowest has the fields whose numbers may be below 0.
var lowest = map[string]float64{"GPU.memory_used": -1, "GPU.utilization": -1, "GPU.temperature": -273}

// highest has upper bounds of numbers that the Go types do not state.
var highest = map[string]float64{
	"Job.exit_code": 255, "Job.exit_status": 255, "Task.exit_code": 255, "Attempt.exit_code": 255, "Job.priority": job.MaxPriority,
	"Task.signal": 64, "Attempt.signal": 64, "GPU.utilization": 100, "GPU.free": 1, "Problem.status": 599,
}

// bound sets the bounds of a number, unless they are set already.
func bound(schema, field string, s *huma.Schema) {
	if s.Type != huma.TypeInteger && s.Type != huma.TypeNumber {
		return
	}
	if s.Minimum == nil {
		least := lowest[schema+"."+field]
		s.Minimum = &least
	}
	if most, has := highest[schema+"."+field]; has && s.Maximum == nil {
		s.Maximum = &most
	}
}

// secure adds to the document how requests are authorized.
func secure(doc *huma.OpenAPI) {
	const port = "4780"
	doc.Servers = []*huma.Server{
		{URL: "/", Description: "The daemon that serves this document."},
		{URL: "http://{host}:{port}", Description: "A daemon with the setting http. On the host itself use its socket: curl --unix-socket PATH http://localhost/v1/jobs", Variables: map[string]*huma.ServerVariable{
			"host": {Default: "127.0.0.1", Description: "Host of the daemon."},
			"port": {Default: port, Description: "Port of its setting http."},
		}},
	}
	doc.Components.SecuritySchemes = map[string]*huma.SecurityScheme{"token": {
		Type: "http", Scheme: "bearer",
		Description: "The token in the file of the setting http-token. Requests over the socket need none: the kernel tells who makes them. Nor do requests over TCP to a daemon without that setting, which listens on loopback only.",
	}}
	doc.Security = []map[string][]string{{"token": {}}, {}}
}

// refusals has the answers that refuse a request, by their status.
var refusals = map[int]struct{ name, text string }{
	http.StatusUnauthorized:          {"Unauthorized", "The request came over TCP without the right token."},
	http.StatusForbidden:             {"Denied", "The user may not do this."},
	http.StatusNotFound:              {"NotFound", "There is no such job, node, task, member or tree, or the user may not see it."},
	http.StatusConflict:              {"Conflict", "The present state does not allow it."},
	http.StatusRequestEntityTooLarge: {"TooLarge", "The body is too large."},
	http.StatusUnprocessableEntity:   {"BadRequest", "The request is invalid. With the code no-match: nothing in the cluster could ever run the job."},
	http.StatusTooManyRequests:       {"TooMany", "The user has too many requests in progress. Try again."},
	http.StatusNotImplemented:        {"NotYet", "This version does not support it."},
	http.StatusServiceUnavailable:    {"Unavailable", "A daemon that is needed does not answer. Try again."},
}

// statusesOf returns the statuses with which an operation refuses requests.
func statusesOf(op *huma.Operation) []int {
	all := []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests, http.StatusServiceUnavailable}
	if strings.Contains(op.Path, "{") {
		all = append(all, http.StatusNotFound)
	}
	if len(op.Parameters) > 0 || op.RequestBody != nil {
		all = append(all, http.StatusUnprocessableEntity)
	}
	if op.RequestBody != nil {
		all = append(all, http.StatusRequestEntityTooLarge)
	}
	if op.Method != http.MethodGet {
		all = append(all, http.StatusConflict)
	}
	if op.OperationID == "submit-job" || op.OperationID == "offers" {
		all = append(all, http.StatusNotImplemented)
	}
	return all
}

// refuseIn adds the answers that refuse a request.
func refuseIn(doc *huma.OpenAPI) {
	doc.Components.Responses = map[string]*huma.Response{}
	problem := doc.Components.Schemas.Schema(problemSchema, true, "Problem")
	for _, r := range refusals {
		doc.Components.Responses[r.name] = &huma.Response{Description: r.text, Content: map[string]*huma.MediaType{contentProb: {Schema: problem}}}
	}
	for op := range operations(doc) {
		for _, status := range statusesOf(op) {
			op.Responses[strconv.Itoa(status)] = &huma.Response{Ref: "#/components/responses/" + refusals[status].name}
		}
	}
}
