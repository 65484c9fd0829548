package api

// The interfaces that the server needs from the rest of the daemon. Their implementations return the errors of this
// package.

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/internal/upload"
	"github.com/musterhq/muster/internal/usage"
	"github.com/musterhq/muster/job"
)

// Jobs stores the jobs that this daemon owns.
type Jobs interface {
	// Submit accepts a job; its record is durable when Submit returns. It returns a NoMatchError if nothing in the
	// cluster could ever run the job and the job is not on hold, and ErrConflict if the user's key belongs to a
	// different job.
	Submit(ctx context.Context, s job.Submission) (job.Job, error)
	// Get returns one job, or ErrNotFound.
	Get(ctx context.Context, id job.ID) (job.Job, error)
	// List returns the jobs that q selects.
	List(ctx context.Context, q job.Query) ([]job.Job, error)
	// Tasks returns the tasks of a job that q selects, or ErrNotFound.
	Tasks(ctx context.Context, id job.ID, q job.TaskQuery) ([]job.Task, error)
	Changes
}

// Changes are the requests of users about jobs that this daemon owns.
type Changes interface {
	// Cancel cancels tasks of a job; no ranges means all. Tasks that have ended are not changed.
	Cancel(ctx context.Context, id job.ID, tasks []job.Range, reason string) (job.Job, error)
	// Hold holds or releases waiting tasks of a job; no ranges means all. It returns ErrConflict if none of them waits.
	Hold(ctx context.Context, id job.ID, tasks []job.Range, release bool, reason string) (job.Job, error)
	// Requeue runs tasks of a job again; no ranges means all. Running tasks are ended first. With failed it requeues only
	// tasks that have ended in another state than SUCCEEDED. It returns ErrConflict if none of them can run again.
	Requeue(ctx context.Context, id job.ID, tasks []job.Range, failed bool, reason string) (job.Job, error)
	// Forget deletes a job that has ended. It returns ErrConflict for a job that has not.
	Forget(ctx context.Context, id job.ID) error
}

// Scheduling places waiting jobs without waiting for their back-offs.
type Scheduling interface {
	// LookAnew ends the back-offs of this daemon's waiting jobs and looks for hosts at once. The jobs are those of one user,
	// or of all users if the name is empty. After some seconds it returns what was placed meanwhile.
	LookAnew(ctx context.Context, user string) (Looked, error)
}

// Deaths gives up the tasks of this daemon's jobs on a host that is gone for good.
type Deaths interface {
	// MayBeDead counts the tasks that DeclareDead would give up. It returns ErrConflict if the host answers. An exception is
	// a host that answers with the data directory whose id is store: then it counts the tasks of earlier data directories.
	MayBeDead(ctx context.Context, node job.Peer, store string) (tasks int, err error)
	// DeclareDead gives up the tasks in the name of the user by, and returns when that is durable. An unknown host has no
	// tasks. The call is safe to repeat.
	DeclareDead(ctx context.Context, node job.Peer, store, by string) (tasks int, err error)
}

// Explain explains placement.
type Explain interface {
	// Why explains a job that this daemon owns, or returns ErrNotFound.
	Why(ctx context.Context, id job.ID) (contract.Explanation, error)
	// Offers explains a job that is not submitted.
	Offers(ctx context.Context, s job.Submission) (contract.Explanation, error)
}

// Watch reports changes to the jobs that this daemon owns.
type Watch interface {
	// Watch sends each job of ids (all if there are none), then every change; rapid changes may be merged. With ended
	// it sends only jobs that have ended. It closes the channel when ctx ends, or when the receiver falls behind.
	Watch(ctx context.Context, ids []job.ID, ended bool) (<-chan job.Job, error)
	// Counts returns the number of jobs in each state.
	Counts(ctx context.Context) (map[job.State]int, error)
	// Queue returns how long this daemon's jobs wait, and what each user's jobs hold.
	Queue(ctx context.Context) (QueueInfo, error)
}

// Progress reports the progress of the jobs that this daemon owns, for daemons whose jobs depend on them.
type Progress interface {
	// Follow calls each with the progress of some jobs of one group, then with each change; rapid changes may be merged.
	// A job that does not exist has an empty state. Follow returns when ctx ends, when each returns an error, or with
	// ErrUnavailable when this daemon does not own the jobs.
	Follow(ctx context.Context, jobs []job.Follow, each func(job.Progress) error) error
}

// NodeSource is the node on which this daemon runs.
type NodeSource interface {
	Node(ctx context.Context) (NodeInfo, error)
	// Drain keeps the node from starting anything new. The drain is durable when Drain returns.
	Drain(ctx context.Context, d Drain) error
	// Resume ends a drain, and the quarantine of all GPUs.
	Resume(ctx context.Context) error
}

// Usage returns what was measured on this host.
type Usage interface {
	// Attempt returns what a running attempt uses. It returns ErrNotFound if the attempt does not run on this host, or has
	// not been measured yet.
	Attempt(ctx context.Context, a job.Attempt) (AttemptUsage, error)
	// Host returns the samples of the last hour: of the host, and of each GPU by its UUID.
	Host(ctx context.Context) (usage.Points, map[string]usage.Points, error)
}

// AttemptUsage is what a running attempt uses.
type AttemptUsage struct {
	Report usage.Report         // as it would be if the attempt ended now
	Recent usage.Points         // the samples of the last hour
	Idle   map[string]time.Time // its GPUs that it hardly uses, by UUID, and since when
}

// Logs opens the output of attempts that this host has started.
type Logs interface {
	// Open opens a stream (stdout, stderr, or both in the order of writing) at an offset; a negative offset counts
	// from the end. start is the offset of the first byte; it is higher than requested if output was removed there.
	// If output was removed further on, Read returns a *GapError, and the next Read goes on after the gap. With
	// follow, Open waits for an attempt that is about to start, and Read waits for more output and returns io.EOF
	// only when the attempt has ended and all was read. Without follow, Read returns io.EOF at the end of the present
	// output. Read returns an error when ctx ends. Open returns ErrNotFound for an attempt that this host does not know.
	Open(ctx context.Context, a job.Attempt, stream string, offset int64, follow bool) (body io.ReadCloser, start int64, err error)
}

// Uploads stores the files that jobs upload. Its errors are those of package upload.
type Uploads interface {
	// MissingOf returns the chunks of refs that the user has not uploaded to this daemon, or that it no longer has.
	MissingOf(user string, refs []upload.Ref) ([]upload.Ref, error)
	// PutAll stores a user's chunks, each preceded by its header. They need not be synced to disk when it returns.
	PutAll(from io.Reader, user string) error
	// PutTree stores a user's tree if the user has uploaded all its chunks; else it returns the missing chunks. The tree
	// and its chunks are durable when it returns.
	PutTree(text []byte, user string) (upload.Hash, []upload.Ref, error)
	TreeText(h upload.Hash) ([]byte, error)
	Reader() *upload.Reader
}

// GapError means that output was removed from the middle of a log to keep it within its size limit. The log goes on
// at offset Next.
type GapError struct{ Next int64 }

// Error says where the log goes on.
func (e *GapError) Error() string { return fmt.Sprintf("output before byte %d was removed", e.Next) }

// Peers is the cluster's membership.
type Peers interface {
	// Members returns the known members, including this daemon.
	Members(ctx context.Context) ([]Member, error)
	Invite(ctx context.Context, ttl time.Duration, uses int, roles []string, labels map[string]string) (Invitation, error)
	// Join joins a cluster and returns its ID. Errors: ErrConflict if this daemon is in another cluster, ErrDenied for an
	// invalid token, ErrUnavailable if no address answers.
	Join(ctx context.Context, bootstrap []string, token string) (cluster string, err error)
	Identities
	Revocations
}

// Identities says who a peer is.
type Identities interface {
	// NameOf returns the name of a member or of this daemon; empty if it is not known.
	NameOf(p job.Peer) string
	// RolesOf returns the present roles of another daemon; none if it is not a member.
	RolesOf(p job.Peer) []string
}

// Revocations revokes members, and restores them. Both methods return ErrDenied for a member that this daemon may not
// revoke. Restore returns ErrConflict for a member that this daemon has not revoked.
type Revocations interface {
	Revoke(ctx context.Context, p job.Peer, reason string, withInvited bool) error
	Restore(ctx context.Context, p job.Peer) error
	// Revoked returns the revoked peers, the newest first. Their number is bounded.
	Revoked(ctx context.Context) []RevokedMember
}

// RevokedMember is a peer that was revoked.
type RevokedMember struct {
	Peer job.Peer
	Name string // empty if this daemon never met it
	PeerRevocation
}

// Directory knows which daemon owns which jobs.
type Directory interface {
	// Owner finds the daemon that owns a group's jobs; self is true for this one. It returns ErrUnavailable if the
	// owner cannot be found now, and ErrNotFound if there is none.
	Owner(ctx context.Context, g job.Group) (p job.Peer, self bool, err error)
	// Copies returns the number of daemons that store the records of a group that this daemon owns.
	Copies(g job.Group) int
	// Foundings returns the proofs that this daemon has founded the groups of its jobs. A proof in the format of the
	// previous version comes first, because daemons of that version read only the first one.
	Foundings() []job.Founding
	// Believes reports whether a daemon owns a group: either this daemon knows it as the owner, or one of the proofs is valid.
	Believes(p job.Peer, g job.Group, proofs []job.Founding) bool
	// ForgetClaim makes this host forget the epoch of the owner of a group's jobs. It returns the owner; "" if none is known.
	ForgetClaim(ctx context.Context, g job.Group) (owner job.Peer, err error)
}

// Self describes this daemon.
type Self interface {
	// Daemon returns the document without its facts.
	Daemon(ctx context.Context) (Daemon, error)
	// Ready returns nil once the daemon accepts work; before that, an error that says what is missing.
	Ready(ctx context.Context) error
	// Facts examines the host.
	Facts(ctx context.Context) ([]Fact, error)
}

// Needs holds the parts of the daemon that a server uses.
type Needs struct {
	Jobs       Jobs
	Deaths     Deaths
	Explain    Explain
	Scheduling Scheduling
	Watch      Watch
	Progress   Progress
	Node       NodeSource
	Users      Users
	Logs       Logs
	Peers      Peers
	Directory  Directory
	Uploads    Uploads
	Files      Files
	Exec       Exec
	Self       Self
	// Clocks may be nil: then the clocks of all daemons are taken to be right.
	Clocks Clocks
	Audit  Audit
	Measured
	// Transport carries requests to http://PEER/… to the PeerListener of another daemon.
	Transport http.RoundTripper
	// PeerListener accepts connections of other daemons, which are authenticated members. It may be nil.
	PeerListener net.Listener
}

// Clocks knows which daemons' clocks are wrong. It is only for the times that people see; no decision depends on it.
type Clocks interface {
	// Ahead returns how far the clock of another daemon is ahead of the clock of this daemon, in whole seconds. 0 means that
	// it is about right, or not known.
	Ahead(p job.Peer) time.Duration
}

// Measured holds what the daemon measures.
type Measured struct {
	Usage Usage
	// Registry has the counters of this daemon. The server adds its own. It may be nil: then the server counts nothing.
	Registry *prometheus.Registry
	// Metrics collects the metrics that are computed at each scrape. It may be nil.
	Metrics Metrics
}

// Member is a daemon of the cluster as this daemon knows it.
type Member struct {
	Peer     job.Peer
	Name     string
	State    NodeState
	Self     bool
	Roles    []string
	Addrs    []string
	LastSeen time.Time
	Detail   string            // why it is not ready, if known
	Signed   map[string]string // labels that an inviter has signed for it, if its credential is known
	Profile  contract.Profile  // the last profile that it sent; may be empty
}

// label returns the member's name for people.
func (m Member) label() string {
	if m.Name != "" {
		return m.Name
	}
	return m.Peer.Short()
}
