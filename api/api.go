// Package api is the HTTP interface of a daemon, with JSON documents: the server, and the Go client that the verbs of
// the command line use.
//
// One handler serves three kinds of listener. The kind determines who makes the request:
//
//   - The unix socket: the kernel reports the uid of the caller.
//   - TCP: on loopback anybody of this host may make requests; on other addresses they need a bearer token. All of them
//     have the same user. Web pages may make requests if this server has served them; see package origin.
//   - libp2p streams from other daemons of the cluster, which are authenticated. The server trusts the header
//     Muster-User that they set. It answers such a request from its own data and never forwards it again.
//
// A request about one job is forwarded to the daemon that owns the job. For a listing the daemon asks every member at once
// and merges the answers; "partial" names the members that did not answer in time. If clients list often, the daemon
// follows the members instead, and answers from its view of the cluster. A log is streamed from the host where the attempt
// ran.
//
// Every object has a "schema". Times are RFC 3339 in UTC, sizes are in bytes, durations in seconds. Fields may be
// added but are never renamed. The "spec" of a job is its job file and so has values with units. Errors are RFC 9457
// problem documents with a stable "code".
package api

// The schemas of the documents.
const (
	SchemaJob         = "muster.job/v1"
	SchemaJobs        = "muster.jobs/v1"
	SchemaTask        = "muster.task/v1"
	SchemaTasks       = "muster.tasks/v1"
	SchemaNode        = "muster.node/v1"
	SchemaNodes       = "muster.nodes/v1"
	SchemaGPU         = "muster.gpu/v1"
	SchemaGPUs        = "muster.gpus/v1"
	SchemaDeath       = "muster.death/v1"
	SchemaPeer        = "muster.peer/v1"
	SchemaPeers       = "muster.peers/v1"
	SchemaInvitation  = "muster.invitation/v1"
	SchemaExplanation = "muster.explanation/v1"
	SchemaStats       = "muster.stats/v1"
	SchemaEvent       = "muster.event/v1"
	SchemaDaemon      = "muster.daemon/v1"
	SchemaJoined      = "muster.joined/v1"
	SchemaHealth      = "muster.health/v1"
	SchemaTaskUsage   = "muster.task-usage/v1"
	SchemaJobUsage    = "muster.job-usage/v1"
	SchemaNodeUsage   = "muster.node-usage/v1"
)
