package api

// What the server needs of the rest of the daemon. The parts behind these
// interfaces answer with this package's sentinels.

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/musterhq/muster/blob"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
)

// Jobs keeps the jobs that this daemon owns.
type Jobs interface {
	// Submit accepts a job; its record is durable when Submit returns. It
	// answers NoMatchError for a job that nothing could ever run and that is not
	// on hold, and ErrConflict for another job under the same user's key.
	Submit(ctx context.Context, s Submission) (job.Job, error)
	// Get is one job, or ErrNotFound.
	Get(ctx context.Context, id job.ID) (job.Job, error)
	// List returns the jobs that q chooses.
	List(ctx context.Context, q job.Query) ([]job.Job, error)
	// Cancel ends a job; one that has ended stays as it is.
	Cancel(ctx context.Context, id job.ID, reason string) (job.Job, error)
	// Hold keeps a waiting job back, or releases it; ErrConflict for any other.
	Hold(ctx context.Context, id job.ID, release bool, reason string) (job.Job, error)
}

// Deaths gives up what this daemon's jobs have on a host that is gone for good.
type Deaths interface {
	// MayBeDead counts the tasks that DeclareDead would give up; ErrConflict for
	// a host that answers.
	MayBeDead(ctx context.Context, node job.Peer) (tasks int, err error)
	// DeclareDead gives them up, on the word of the user by, and returns when that
	// is durable. A host that is not known has none. To repeat it does no harm.
	DeclareDead(ctx context.Context, node job.Peer, by string) (tasks int, err error)
}

// Explain answers questions about placement.
type Explain interface {
	// Why explains a job that this daemon owns, or ErrNotFound.
	Why(ctx context.Context, id job.ID) (lease.Explanation, error)
	// Offers is a dry run.
	Offers(ctx context.Context, s Submission) (lease.Explanation, error)
}

// Watch tells of changes to the jobs that this daemon owns.
type Watch interface {
	// Watch sends each job of ids (all if there are none), then every change; rapid changes may be merged. With ended
	// it sends only jobs that have ended. It closes the channel when ctx ends, or when the receiver falls behind.
	Watch(ctx context.Context, ids []job.ID, ended bool) (<-chan job.Job, error)
	// Counts is how many jobs are in each state.
	Counts(ctx context.Context) (map[job.State]int, error)
}

// NodeSource is the node that this daemon runs on.
type NodeSource interface {
	Node(ctx context.Context) (NodeInfo, error)
	// Drain keeps the node from starting anything new. The drain is durable when Drain returns.
	Drain(ctx context.Context, d Drain) error
	// Resume ends a drain, and the quarantine of all GPUs.
	Resume(ctx context.Context) error
}

// Logs opens the output of attempts that this host has started.
type Logs interface {
	// Open reads a stream (stdout, stderr, or both in their order) from the
	// offset, which below 0 counts from the end; start is where the first byte
	// stands, later than asked where output was removed. A *GapError of Read,
	// after which it reads on, says that output was removed there. With follow, Read waits for more, and ends with
	// io.EOF only when the attempt has ended and all was read; Open waits for an attempt that
	// is about to start. Without, it ends at what is there. Reading ends with an
	// error when ctx does. ErrNotFound for an attempt that this host does not
	// know.
	Open(ctx context.Context, a job.Attempt, stream string, offset int64, follow bool) (body io.ReadCloser, start int64, err error)
}

// Uploads keeps what jobs bring along. Its errors are those of package blob.
type Uploads interface {
	// Missing lists those chunks that are not here.
	Missing(refs []blob.Ref) ([]blob.Ref, error)
	// PutAll keeps chunks of a user that come each after its head; they are on
	// their way to the disk.
	PutAll(from io.Reader, user string) error
	// PutTree keeps a tree of a user whose chunks are all here, and gives those
	// that are not; all of it is on disk when it returns.
	PutTree(text []byte, user string) (blob.Hash, []blob.Ref, error)
	TreeText(h blob.Hash) ([]byte, error)
	Reader() *blob.Reader
}

// GapError says that output was removed from the middle of a log to keep it
// within its bound: the next byte is that at Next.
type GapError struct{ Next int64 }

// Error says where the log goes on.
func (e *GapError) Error() string { return fmt.Sprintf("output before byte %d was removed", e.Next) }

// Peers is the cluster's membership.
type Peers interface {
	// Members lists the known members, this daemon among them.
	Members(ctx context.Context) ([]Member, error)
	Invite(ctx context.Context, ttl time.Duration, uses int, roles []string) (Invitation, error)
	// Join returns the cluster's id; ErrConflict in another cluster, ErrDenied
	// for a token that is no good, ErrUnavailable if no address answers.
	Join(ctx context.Context, bootstrap []string, token string) (cluster string, err error)
	Revoke(ctx context.Context, p job.Peer, reason string) error
}

// Directory knows who owns which jobs.
type Directory interface {
	// Owner finds the daemon that owns a group's jobs; self is this one.
	// ErrUnavailable if it cannot be found now, ErrNotFound if there is none.
	Owner(ctx context.Context, g job.Group) (p job.Peer, self bool, err error)
	// Copies is how many daemons keep the records of a group owned here.
	Copies(g job.Group) int
}

// Self tells of this daemon as a whole.
type Self interface {
	// Daemon fills in the document, less its facts.
	Daemon(ctx context.Context) (Daemon, error)
	// Ready is nil once work can be taken, else it says what is missing.
	Ready(ctx context.Context) error
	// Facts examines the host.
	Facts(ctx context.Context) ([]Fact, error)
}

// Needs is what a server is joined to.
type Needs struct {
	Jobs      Jobs
	Deaths    Deaths
	Explain   Explain
	Watch     Watch
	Node      NodeSource
	Logs      Logs
	Peers     Peers
	Directory Directory
	Uploads   Uploads
	Files     Files
	Exec      Exec
	Self      Self
	// Transport carries requests to http://PEER/… of other daemons, where their
	// PeerListener takes them.
	Transport http.RoundTripper
	// PeerListener accepts other daemons, authenticated as members; may be nil.
	PeerListener net.Listener
	// Registry is shown at /metrics; may be nil.
	Registry *prometheus.Registry
}

// Submission is a job that a user submits.
type Submission struct {
	Spec job.Spec
	User string
	Key  string // idempotency key, or empty
}

// Member is a daemon of the cluster as this one knows it.
type Member struct {
	Peer     job.Peer
	Name     string
	State    NodeState
	Self     bool
	Roles    []string
	Addrs    []string
	LastSeen time.Time
	Detail   string        // why it is not ready, if that is known
	Profile  lease.Profile // the last that it showed; may be empty
}

// label is what people call the member.
func (m Member) label() string {
	if m.Name != "" {
		return m.Name
	}
	return m.Peer.Short()
}
