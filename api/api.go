// Package api is how people and programs talk to a daemon: HTTP with JSON
// documents, the server that answers it and the Go client that the verbs use.
//
// One handler serves three kinds of listener, and who asks is known by which:
//
//   - the unix socket: the kernel tells the uid of the caller;
//   - TCP: loopback only, or anywhere with a bearer token;
//   - other daemons of the cluster over libp2p streams, already authenticated:
//     their word on who the user is (header Muster-User) is taken, and what
//     they ask is answered from what this daemon has itself, never forwarded
//     again.
//
// A request about one job is forwarded to the daemon that owns it; a listing
// is asked of every member at once, merged, and names in "partial" those that
// did not answer in time. A log is streamed from the host where the attempt
// ran.
//
// Every object carries its "schema"; times are RFC 3339 UTC, sizes are bytes,
// durations are seconds. Fields may be added, never renamed. A job's "spec" is
// its job file and so keeps the units of one. Errors are RFC 9457 problem
// documents with a stable "code".
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
