// Package api is the HTTP interface of a daemon, with JSON documents: the server, and the Go client that the verbs of
// the command line use.
//
// One handler serves three kinds of listener. The kind tells who makes the request:
//
//   - the unix socket: the kernel tells the uid of the caller;
//   - TCP: loopback only, or anywhere with a bearer token;
//   - libp2p streams from other daemons of the cluster, which are authenticated:
//     the server trusts the header Muster-User that they set. It answers such a
//     request from its own data and never forwards it again.
//
// A request about one job is forwarded to the daemon that owns the job. A listing is requested from every member at
// once and merged; "partial" names the members that did not answer in time. A log is streamed from the host where the
// attempt ran.
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
)
