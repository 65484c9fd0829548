package api

// A cluster in memory: daemons with hand-written fakes behind real servers, connected by pipes, so that tests run under
// a virtual clock.

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/internal/upload"
	"github.com/musterhq/muster/internal/usage"
	"github.com/musterhq/muster/job"
)

// pipes is a listener whose connections are in memory.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once

	mu   sync.Mutex
	open []net.Conn // guarded by mu
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), closed: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "pipe"} }

// namedConn is a connection that a daemon has opened.
type namedConn struct {
	net.Conn
	peer job.Peer
}

func (c namedConn) RemoteAddr() net.Addr { return &net.UnixAddr{Name: string(c.peer), Net: "pipe"} }

func (p *pipes) dial(ctx context.Context) (net.Conn, error) { return p.dialAs(ctx, "") }

// dialAs is dial for a daemon that the other side knows; with an empty peer, it does not know it.
func (p *pipes) dialAs(ctx context.Context, peer job.Peer) (net.Conn, error) {
	near, far := net.Pipe()
	if peer != "" {
		far = namedConn{far, peer}
	}
	select {
	case p.conns <- far:
		p.mu.Lock()
		p.open = append(p.open, near, far)
		p.mu.Unlock()
		return near, nil
	case <-p.closed:
		return nil, &net.OpError{Op: "dial", Net: "pipe", Err: net.ErrClosed}
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// dialed returns the number of connections since the last cut.
func (p *pipes) dialed() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.open) / 2
}

// cut breaks all connections.
func (p *pipes) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.open {
		c.Close()
	}
	p.open = nil
}

// cluster is a set of daemons that know each other.
type cluster struct {
	t       *testing.T
	daemons []*daemon
	fast    map[job.Peer]time.Duration // by how much clocks are ahead; set before anything is asked
}

// Ahead implements Clocks.
func (d *daemon) Ahead(p job.Peer) time.Duration { return d.cluster.fast[p] - d.cluster.fast[d.peer] }

// daemon is one server with the fakes that it uses.
type daemon struct {
	cluster *cluster
	name    string
	peer    job.Peer
	group   job.Group
	server  *Server
	front   *pipes // the listener for clients, as if over TCP
	back    *pipes // the listener for other daemons
	client  *Client
	used    fakeUsage
	silent  chan struct{}  // closed: accepts connections of daemons and does not answer
	lies    map[string]any // guarded by mu: what it answers to other daemons, by path

	mu        sync.Mutex
	jobs      map[job.ID]job.Job        // guarded by mu
	keys      map[string]job.ID         // guarded by mu
	copies    int                       // guarded by mu
	watchers  map[chan job.Job][]job.ID // guarded by mu
	logs      map[string]*testLog       // guarded by mu, by attempt and stream
	uploads   *upload.Store
	audit     *audit.Log
	auditDir  string
	noMatch   *contract.Explanation // guarded by mu
	drained   *Drain                // guarded by mu
	revoked   []RevokedMember
	held      map[job.Peer]int                   // guarded by mu: tasks of its jobs on a node
	meets     job.Peer                           // guarded by mu: a node that answers its scheduler
	stuck     error                              // guarded by mu: why its journal accepts nothing
	roles     []string                           // guarded by mu
	callers   []string                           // guarded by mu: roles of all other daemons; nil: worker and scheduler
	asked     []string                           // guarded by mu: what Cancel, Hold, Revoke, … were called with
	states    map[job.Peer]NodeState             // guarded by mu
	slow      time.Duration                      // guarded by mu: how long Submit takes
	notReady  error                              // guarded by mu
	forwarded func(g job.Group) (job.Peer, bool) // guarded by mu; overrides the owner
	why       []contract.Clause                  // what Why explains
	input     *testInput                         // guarded by mu: of its only task that gets input
	queue     QueueInfo                          // guarded by mu
	now       usage.Sample                       // guarded by mu: what its host uses
}

func newCluster(t *testing.T, names ...string) *cluster {
	t.Helper()
	c := &cluster{t: t}
	for i, name := range names {
		d := &daemon{
			cluster: c, name: name, peer: job.Peer("12D3KooW" + strings.Repeat(name, 4)), group: job.Group(i + 1), front: newPipes(), back: newPipes(),
			silent: make(chan struct{}), used: fakeUsage{}, jobs: map[job.ID]job.Job{}, keys: map[string]job.ID{}, copies: 1, watchers: map[chan job.Job][]job.ID{},
			logs: map[string]*testLog{}, held: map[job.Peer]int{}, roles: []string{"worker", "scheduler"}, states: map[job.Peer]NodeState{},
			uploads: upload.NewStore(upload.Config{Dir: t.TempDir(), Most: 1 << 30}, slog.New(slog.DiscardHandler)),
		}
		c.daemons = append(c.daemons, d)
	}
	for _, d := range c.daemons {
		d.start(t)
	}
	return c
}

func (d *daemon) start(t *testing.T) {
	t.Helper()
	cfg := DefaultConfig()
	cfg.Self = d.peer
	cfg.HTTPUser = "amy"
	transport := &http.Transport{DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
		host, _, _ := net.SplitHostPort(addr)
		for _, o := range d.cluster.daemons {
			if string(o.peer) == host && d.cluster.fast != nil {
				return o.back.dialAs(ctx, d.peer)
			}
			if string(o.peer) == host {
				return o.back.dial(ctx)
			}
		}
		return nil, fmt.Errorf("no route to %s", host)
	}}
	var err error
	d.openAudit(t)
	d.server, err = New(cfg, Needs{
		Jobs: d, Deaths: d, Explain: d, Scheduling: d, Watch: d, Progress: d, Node: d, Users: d, Logs: d, Peers: d, Directory: d, Self: d, Clocks: d, Audit: d.audit, Files: d, Exec: inputsOf{d}, Uploads: d.uploads, Transport: transport, Measured: Measured{Usage: d.used, Registry: prometheus.NewRegistry(), Metrics: measured{d}},
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	base := context.WithoutCancel(t.Context())
	back := d.server.newServer(base, fromPeer)
	inner := back.Handler
	back.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-d.silent:
			_, _ = io.Copy(io.Discard, r.Body) // otherwise net/http does not notice that the other side is gone
			<-r.Context().Done()
			return
		default:
		}
		d.mu.Lock()
		lie := d.lies[r.URL.Path]
		d.mu.Unlock()
		if e, ok := lie.([]Event); ok {
			w.Header().Set("Content-Type", "text/event-stream")
			for _, x := range e {
				text, _ := json.Marshal(x)
				fmt.Fprintf(w, "event: %s\ndata: %s\n\n", x.Kind, text)
			}
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			return
		}
		if answer, ok := lie.(http.HandlerFunc); ok {
			answer(w, r)
			return
		}
		if status, ok := lie.(int); ok {
			refuse(w, problemOfStatus(status, "there is no such route"))
			return
		}
		if lines, ok := lie.([]feedLine); ok {
			for _, x := range lines {
				_, _ = w.Write(encodeLine(x))
			}
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			return
		}
		if lie != nil {
			_ = json.NewEncoder(w).Encode(lie)
			return
		}
		inner.ServeHTTP(w, r)
	})
	front := d.server.newServer(base, fromTCP)
	var serving sync.WaitGroup
	serving.Go(func() { _ = front.Serve(d.front) })
	serving.Go(func() { _ = back.Serve(d.back) })
	d.client = d.clientOf(t)
	t.Cleanup(func() {
		close(d.server.admission.closing)
		d.client.Close()
		front.Close()
		back.Close()
		transport.CloseIdleConnections()
		d.front.cut()
		d.back.cut()
		serving.Wait()
		lingering := time.NewTimer(time.Second) // net/http keeps a refused connection open for half of that
		<-lingering.C
	})
}

func (d *daemon) clientOf(t *testing.T) *Client {
	t.Helper()
	c, err := NewClient(ClientConfig{Addr: "127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	c.http.Transport = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return d.front.dial(ctx) }}
	return c
}

// put stores the present state of a job and notifies the watchers. whole adds to a job what follows from its tasks.
func whole(j job.Job) job.Job {
	j.Counts, j.Ends = job.CountsOf(j.Tasks), job.EndsOf(j.Tasks)
	return j
}

func (d *daemon) put(j job.Job) job.Job {
	j = whole(j)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.jobs[j.ID] = j
	for w, ids := range d.watchers {
		if len(ids) > 0 && !slices.Contains(ids, j.ID) {
			continue
		}
		select {
		case w <- j:
		default:
			close(w)
			delete(d.watchers, w)
		}
	}
	return j
}

// newJob returns a PENDING job of this daemon.
func (d *daemon) newJob(n uint64) job.Job {
	spec := job.DefaultSpec()
	spec.Name, spec.Command, spec.Env = fmt.Sprintf("job-%d", n), []string{"true"}, map[string]string{"SECRET": "s3cret"}
	return job.Job{
		ID: job.NewID(d.group, n), User: "amy", Spec: spec, Owner: d.peer, Submitted: time.Unix(1_700_000_000+int64(n%1000), 0),
		Tasks: []job.Task{{State: job.Pending, Reason: job.Reason{Word: job.ReasonResources, Detail: "2 of 3 nodes are full"}}},
	}
}

// running returns j as running on the daemon where.
func running(j job.Job, where *daemon) job.Job {
	t := j.Tasks[0]
	if t.Exit != nil {
		t.Earlier = &job.Earlier{Outcomes: t.Outcomes()}
	}
	t.State, t.Reason, t.Attempt, t.Node, t.NodeName, t.Started = job.Running, job.Reason{}, t.Attempt+1, where.peer, where.name, j.Submitted.Add(time.Second)
	t.Assigned, t.Exit, t.Ended = true, nil, time.Time{}
	j.Tasks = []job.Task{t}
	return j
}

// waiting returns j as requeued.
func waiting(j job.Job) job.Job {
	t := j.Tasks[0]
	t.State, t.Reason, t.Started, t.Ended = job.Pending, job.Reason{Word: job.ReasonResources}, time.Time{}, time.Time{}
	j.Tasks = []job.Task{t}
	return j
}

// ended returns j as ended by e.
func ended(j job.Job, e job.Exit) job.Job {
	t := j.Tasks[0]
	t.State, t.Exit, t.Ended, t.Reason = e.State, &e, j.Submitted.Add(2*time.Second), job.Reason{Word: "Exit", Detail: e.Reason}
	t.Runs++
	t.Assigned = false
	j.Tasks = []job.Task{t}
	return j
}

func (d *daemon) Submit(ctx context.Context, s job.Submission) (job.Job, error) {
	d.mu.Lock()
	none, known := d.noMatch, d.keys[s.User+"/"+s.Key]
	n := uint64(len(d.jobs) + 1)
	slow := time.NewTimer(d.slow)
	d.mu.Unlock()
	select {
	case <-slow.C:
	case <-ctx.Done():
		return job.Job{}, fmt.Errorf("submit: %w", ctx.Err())
	}
	if none != nil && !s.Spec.Hold {
		return job.Job{}, fmt.Errorf("submit: %w", &NoMatchError{*none})
	}
	if s.Key != "" && known != "" {
		return d.Get(ctx, known)
	}
	if len(s.Unknown) > 0 {
		return job.Job{}, bad("dependency on job %s: there is no such job", s.Unknown[0])
	}
	j := d.newJob(n)
	j.Spec, j.User, j.Key = s.Spec, s.User, s.Key
	if s.Key != "" {
		d.mu.Lock()
		d.keys[s.User+"/"+s.Key] = j.ID
		d.mu.Unlock()
	}
	return d.put(j), nil
}

func (d *daemon) Get(_ context.Context, id job.ID) (job.Job, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	j, ok := d.jobs[id]
	if !ok {
		return j, fmt.Errorf("job %s: %w", id, ErrNotFound)
	}
	return j, nil
}

func (d *daemon) List(_ context.Context, q job.Query) ([]job.Job, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []job.Job
	for _, j := range d.jobs {
		all = append(all, j)
	}
	return q.Pick(all), nil
}

func (d *daemon) note(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked = append(d.asked, fmt.Sprintf(format, args...))
}

func (d *daemon) Tasks(ctx context.Context, id job.ID, q job.TaskQuery) (out []job.Task, err error) {
	j, err := d.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	for _, r := range q.Rest(len(j.Tasks)) {
		for i := r.First; i <= min(r.Last, len(j.Tasks)-1) && len(out) < q.Limit; i++ {
			if q.Begun && j.Tasks[i].Attempt == 0 {
				continue
			}
			if len(q.States) == 0 || slices.Contains(q.States, j.Tasks[i].State) {
				out = append(out, j.Tasks[i])
			}
		}
	}
	return out, nil
}

func (d *daemon) Cancel(ctx context.Context, id job.ID, tasks []job.Range, reason string) (job.Job, error) {
	if len(tasks) > 0 {
		d.note("cancel %s.%s: %s", id, job.RangesText(tasks), reason)
		return d.Get(ctx, id)
	}
	d.note("cancel %s: %s", id, reason)
	j, err := d.Get(ctx, id)
	if err != nil {
		return j, err
	}
	j.Cancelled = reason
	return d.put(ended(j, job.Exit{State: job.Cancelled, Reason: reason})), nil
}

func (d *daemon) Hold(ctx context.Context, id job.ID, tasks []job.Range, release bool, reason string) (job.Job, error) {
	if len(tasks) > 0 {
		d.note("hold %s.%s %v: %s", id, job.RangesText(tasks), release, reason)
		return d.Get(ctx, id)
	}
	d.note("hold %s %v: %s", id, release, reason)
	j, err := d.Get(ctx, id)
	if err == nil && j.State() != job.Pending && !release {
		err = fmt.Errorf("hold job %s: %w: it is %s", id, ErrConflict, j.State())
	}
	return j, err
}

func (d *daemon) Requeue(ctx context.Context, id job.ID, tasks []job.Range, failed bool, reason string) (job.Job, error) {
	if len(tasks) > 0 && failed {
		d.note("requeue %s.%s failed=%v: %s", id, job.RangesText(tasks), failed, reason)
		return d.Get(ctx, id)
	}
	d.note("requeue %s.%s %v: %s", id, job.RangesText(tasks), failed, reason)
	j, err := d.Get(ctx, id)
	if err == nil && !j.State().Ended() {
		err = fmt.Errorf("requeue job %s: %w: it is %s", id, ErrConflict, j.State())
	}
	if err != nil {
		return j, err
	}
	return d.put(waiting(j)), nil
}

func (d *daemon) Forget(ctx context.Context, id job.ID) error {
	d.note("forget %s", id)
	j, err := d.Get(ctx, id)
	if err == nil && !j.State().Ended() {
		err = fmt.Errorf("%w: job %s is %s", ErrConflict, id, j.State())
	}
	if err == nil {
		d.mu.Lock()
		delete(d.jobs, id)
		d.mu.Unlock()
	}
	return err
}

func (d *daemon) LookAnew(_ context.Context, user string) (Looked, error) {
	d.note("look anew for %q", user)
	return Looked{
		Ended: 2, Tasks: 1, Placed: []Placed{{Job: job.NewID(d.group, 1), Node: d.name}},
		Waiting: []WaitingFor{{Reason: job.ReasonResources, Jobs: 1, Tasks: 5}, {Reason: "of " + d.name, Jobs: 1, Tasks: 9}},
	}, nil
}

func (d *daemon) MayBeDead(_ context.Context, node job.Peer, store string) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if store != "" {
		return d.held[job.Peer(string(node)+" before "+store)], nil
	}
	if d.meets == node {
		return 0, fmt.Errorf("%w: node answers", ErrConflict)
	}
	return d.held[node], nil
}

func (d *daemon) DeclareDead(ctx context.Context, node job.Peer, store, by string) (int, error) {
	n, err := d.MayBeDead(ctx, node, store)
	if err != nil {
		return 0, err
	}
	if store != "" {
		d.note("dead %s before %s by %s", node.Short(), store, by)
		return n, nil
	}
	d.note("dead %s by %s", node.Short(), by)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stuck != nil {
		return 0, d.stuck
	}
	delete(d.held, node)
	return n, nil
}

func (d *daemon) Why(ctx context.Context, id job.ID) (contract.Explanation, error) {
	j, err := d.Get(ctx, id)
	return contract.Explanation{Job: id, State: j.State(), Reason: j.Tasks[0].Reason, Clauses: d.why}, err
}

func (d *daemon) Offers(_ context.Context, s job.Submission) (contract.Explanation, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.noMatch != nil {
		return *d.noMatch, nil
	}
	return contract.Explanation{
		Clauses: []contract.Clause{{Clause: fmt.Sprintf("cpus: %d", s.Spec.Resources.CPUs), Meets: 1, Of: 1}},
		Now:     []contract.Candidate{{Node: d.peer, Name: d.name, Why: "least waste", Free: contract.Free{CPUs: 8, Memory: 1 << 30, GPUs: []contract.FreeGPU{{UUID: "GPU-1", Milli: 1000}}}}},
	}, nil
}

func (d *daemon) Watch(ctx context.Context, ids []job.ID, _ bool) (<-chan job.Job, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	w := make(chan job.Job, len(ids)+16)
	for _, id := range ids {
		if j, ok := d.jobs[id]; ok {
			w <- j
		}
	}
	d.watchers[w] = ids
	context.AfterFunc(ctx, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if _, ok := d.watchers[w]; ok {
			close(w)
			delete(d.watchers, w)
		}
	})
	return w, nil
}

// Follow sends the progress of jobs, which is that of their first task, and asks for the tasks of arrays in testTasks.
func (d *daemon) Follow(ctx context.Context, jobs []job.Follow, each func(job.Progress) error) error {
	d.mu.Lock()
	stuck := d.stuck
	d.mu.Unlock()
	if stuck != nil {
		return stuck
	}
	told := map[job.ID]job.State{}
	for {
		for _, x := range jobs {
			j, err := d.Get(ctx, x.Job)
			p := job.Progress{Job: x.Job}
			if err == nil {
				p.State = j.State()
				p.Started, p.Ago = p.State.Ended() || p.State == job.Running, time.Minute
			}
			if last, there := told[x.Job]; there && last == p.State {
				continue
			}
			told[x.Job] = p.State
			if x.Tasks {
				p.Tasks = testTasks
			}
			if err := each(p); err != nil {
				return err
			}
		}
		t := time.NewTimer(100 * time.Millisecond)
		select {
		case <-t.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

var testTasks = job.TaskStates{Succeeded: []job.Range{{First: 0, Last: 3}, {First: 5, Last: 5}}, Failed: []job.Range{{First: 4, Last: 4}, {First: 7, Last: job.MaxIndex}}, Open: []job.Range{{First: 6, Last: 6}}}

func (d *daemon) Counts(context.Context) (map[job.State]int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	counts := map[job.State]int{}
	for _, j := range d.jobs {
		counts[j.State()]++
	}
	return counts, nil
}

func (d *daemon) Queue(context.Context) (QueueInfo, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	q := d.queue
	q.Users = slices.Clone(q.Users)
	return q, nil
}

func (d *daemon) profile() contract.Profile {
	return contract.Profile{
		Peer: d.peer, Name: d.name, Version: "test", Store: "store-" + d.name, CPUs: 16, Memory: 64 << 30, Worker: true, Drivers: []string{"exec"},
		GPUs: []gpu.Device{{UUID: "GPU-" + d.name, Model: "NVIDIA H100 80GB HBM3", Class: "h100-80gb", Memory: 80 << 30}},
	}
}

func (d *daemon) Node(context.Context) (NodeInfo, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return NodeInfo{
		Drain:   d.drained,
		Usage:   d.now,
		Profile: d.profile(), State: NodeReady, Addrs: []string{"/ip4/127.0.0.1/tcp/4980"},
		Free:   contract.Free{CPUs: 8, Memory: 32 << 30, GPUs: []contract.FreeGPU{{UUID: "GPU-" + d.name, Memory: 80 << 30, Milli: 1000}}},
		Status: []gpu.Status{{UUID: "GPU-" + d.name, MemoryUsed: 1 << 20, Utilization: 7, Health: gpu.Healthy}},
	}, nil
}

func (d *daemon) Members(context.Context) ([]Member, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var list []Member
	for _, o := range d.cluster.daemons {
		m := Member{Peer: o.peer, Name: o.name, State: NodeReady, Self: o == d, Roles: o.roles, Profile: o.profile()}
		if s, ok := d.states[o.peer]; ok {
			m.State = s
		}
		list = append(list, m)
	}
	return list, nil
}

func (d *daemon) Invite(_ context.Context, ttl time.Duration, uses int, roles []string, labels map[string]string) (Invitation, error) {
	d.note("invite %s %d %v", ttl, uses, roles)
	return Invitation{ID: "inv1", Bootstrap: []string{"/ip4/127.0.0.1/tcp/1/p2p/" + string(d.peer)}, Token: "tok", Cluster: "c1", Uses: uses, Roles: roles, Labels: labels, ExpiresAt: time.Unix(2_000_000_000, 0)}, nil
}

func (d *daemon) Join(_ context.Context, bootstrap []string, token string) (string, error) {
	if token != "good" {
		return "", fmt.Errorf("join: %w: the token is used up", ErrDenied)
	}
	d.note("join %v", bootstrap)
	return "c1", nil
}

func (d *daemon) NameOf(p job.Peer) string {
	members, err := d.Members(context.Background())
	if err != nil {
		return ""
	}
	for _, m := range members {
		if m.Peer == p {
			return m.Name
		}
	}
	return ""
}

func (d *daemon) RolesOf(job.Peer) []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.callers != nil {
		return d.callers
	}
	return []string{roleWorker, roleScheduler}
}

func (d *daemon) Revoke(_ context.Context, p job.Peer, reason string, withInvited bool) error {
	d.note("revoke %s: %s %t", p, reason, withInvited)
	return nil
}

func (d *daemon) Restore(_ context.Context, p job.Peer) error {
	d.note("restore %s", p)
	return nil
}

func (d *daemon) Revoked(context.Context) []RevokedMember { return d.revoked }

func (d *daemon) Drain(_ context.Context, to Drain) error {
	d.mu.Lock()
	d.drained = &to
	d.mu.Unlock()
	d.note("drain %s by %s", to.Reason, to.By)
	return nil
}

func (d *daemon) Resume(context.Context) error {
	d.mu.Lock()
	d.drained = nil
	d.mu.Unlock()
	d.note("resume")
	return nil
}

func (d *daemon) Owner(_ context.Context, g job.Group) (job.Peer, bool, error) {
	d.mu.Lock()
	override := d.forwarded
	d.mu.Unlock()
	if override != nil {
		p, self := override(g)
		return p, self, nil
	}
	for _, o := range d.cluster.daemons {
		if o.group == g {
			return o.peer, o == d, nil
		}
	}
	return "", false, fmt.Errorf("journal group %s: %w", g, ErrNotFound)
}

func (d *daemon) Foundings() []job.Founding { return nil }

func (d *daemon) Believes(p job.Peer, g job.Group, _ []job.Founding) bool {
	owner, _, err := d.Owner(context.Background(), g)
	return err != nil || owner == p
}

func (d *daemon) ForgetClaim(context.Context, job.Group) (job.Peer, error) { return "", nil }

func (d *daemon) Copies(job.Group) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.copies
}

func (d *daemon) Daemon(context.Context) (Daemon, error) {
	return Daemon{Version: "test", ID: d.peer, Name: d.name, Cluster: "c1", Config: []Setting{{"name", d.name, "flag"}}}, nil
}

func (d *daemon) Ready(context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.notReady
}

func (d *daemon) Facts(context.Context) ([]Fact, error) {
	return []Fact{{Name: "driver", State: FactOK, Detail: "580.1"}}, nil
}

// Pack answers with the requested globs as text instead of an archive.
func (d *daemon) Pack(_ context.Context, a job.Attempt, globs []string, base bool, w io.Writer) error {
	if globs[0] == "nothing" {
		return fmt.Errorf("pack: %w", ErrNotFound)
	}
	if _, err := w.Write(nil); err != nil { // writers of archives do this too
		return err
	}
	_, err := fmt.Fprintf(w, "%s at %s %v %v", a, d.name, globs, base)
	if globs[0] == "broken" {
		return fmt.Errorf("pack: %w", io.ErrUnexpectedEOF)
	}
	return err
}
