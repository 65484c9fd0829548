package api

// The examples of the documentation: for each route a curl command, and the verb of muster that does the same.

import (
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

// noVerb marks a route that no verb uses.
const noVerb = ""

// verbs has an example of a verb for each route. A test fails if a route is missing, or if a row names no route.
var verbs = map[string]string{
	"submit-job": "muster submit -- COMMAND", "list-jobs": "muster jobs --all", "get-job": "muster show ID", "list-tasks": "muster show ID.0-99",
	"list-job-events": "muster events ID", "forget-job": noVerb, "why-job": "muster why ID", "cancel-job": "muster cancel ID",
	"hold-job": "muster hold ID", "release-job": "muster release ID", "requeue-job": "muster requeue ID", "offers": "muster offers -G 1",
	"schedule": noVerb, "get-log": "muster logs -f ID", "get-files": "muster cp ID:PATH DIR", "attach": "muster run -it -- COMMAND", "exec": "muster exec ID -- COMMAND",
	"missing-chunks": "muster submit --upload PATH -- COMMAND", "put-chunks": "muster submit --upload PATH -- COMMAND", "put-tree": "muster submit --upload PATH -- COMMAND",
	"list-nodes": "muster nodes", "get-node": "muster node show N", "drain-node": "muster node drain N", "resume-node": "muster node resume N",
	"declare-node-dead": "muster node declare-dead N", "list-users": "muster users", "list-gpus": "muster gpus", "get-stats": noVerb,
	"get-events": "muster events -f", "list-peers": "muster peers", "revoke-peer": "muster peers --revoke MEMBER", "restore-peer": "muster peers --restore MEMBER",
	"make-ticket": noVerb, "invite": "muster invite", "join": "muster join MULTIADDR --token-file FILE", "forget-claim": "muster node forget-claim GROUP",
	"get-job-usage": "muster usage --by job", "get-task-usage": "muster show ID", "get-node-usage": noVerb, "list-targets": noVerb, "get-metrics": noVerb,
	"list-audit": "muster audit", "get-daemon": "muster doctor", "health": noVerb, "ready": noVerb,
}

// bodies has the request bodies of the examples. Routes without a body are left out.
var bodies = map[string]string{
	"submit-job":        `{"command": ["python", "train.py"], "resources": {"cpus": 8, "memory": "64GiB", "gpus": 1}, "time_limit": "4h"}`,
	"offers":            `{"command": ["true"], "resources": {"gpus": 1}}`,
	"cancel-job":        `{"reason": "not needed any more"}`,
	"requeue-job":       `{"failed": true}`,
	"drain-node":        `{"reason": "a fan is broken"}`,
	"declare-node-dead": `{}`,
	"invite":            `{"ttl": 3600, "uses": 1}`,
	"join":              `{"bootstrap": ["/ip4/10.0.0.7/tcp/4701/p2p/ID"], "token": "T"}`,
	"make-ticket":       `{"target": "/v1/jobs/ID/tasks/0/exec"}`,
	"schedule":          `{}`,
}

// linesOf returns the example lines of one route.
func linesOf(op *huma.Operation) string {
	path := strings.NewReplacer("{id}", "ID", "{t}", "0", "{hash}", "HASH", "{group}", "GROUP").Replace(op.Path)
	curl := "curl --unix-socket $MUSTER_SOCKET"
	body := bodies[op.OperationID]
	switch {
	case body != "":
		curl += " -d '" + body + "' -H 'Content-Type: application/json'"
	case op.Method == http.MethodGet:
	case op.RequestBody != nil && !strings.HasPrefix(op.Path, "/v1/jobs/") && !strings.HasPrefix(op.Path, "/v1/nodes/") && !strings.HasPrefix(op.Path, "/v1/peers/"):
		curl += " -X " + op.Method + " --data-binary @FILE"
	default:
		curl += " -X " + op.Method
	}
	if op.OperationID == "get-events" {
		curl = strings.Replace(curl, "curl", "curl -N", 1)
	}
	lines := curl + " localhost" + path
	if verb := verbs[op.OperationID]; verb != noVerb {
		lines += "\n" + verb
	}
	return lines
}
