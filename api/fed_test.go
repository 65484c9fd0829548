package api

// A daemon that is fed as in a large cluster: its real server, and feeds of 499 other members with 8 GPUs each, 10,000
// jobs and 50 changes a second. `bench` also runs it as a separate process.

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/fairshare"
	"github.com/musterhq/muster/internal/waittime"
	"github.com/musterhq/muster/job"
)

const (
	fedNodes   = 500
	fedGPUs    = 8
	fedJobs    = 10_000
	fedChanges = 50 // a second
	fedUsers   = 40
	fedViewing = "all viewers have their streams"
)

var (
	fedSocket = flag.String("fed.socket", "", "BenchmarkFedServer: serve on this socket until the process is ended")
	fedViews  = flag.Int("fed.viewers", 0, "BenchmarkFedViewers: streams of events to open at fed.socket until standard input is closed")
	fedRate   = flag.Int("fed.changes", fedChanges, "BenchmarkFedServer: changes a second, 0 for none")
)

// fed is the transport to the other members.
type fed struct {
	peers     map[string]chan []byte
	snapshots *os.File          // what they send at first; in memory it would count as the reader's
	at        map[string][2]int // offset and length in the file
}

func (f *fed) RoundTrip(r *http.Request) (*http.Response, error) {
	changes := f.peers[r.URL.Host]
	if changes == nil {
		return nil, fmt.Errorf("no route to %s", r.URL)
	}
	ok := &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Request: r}
	if r.URL.Path != pathFeed {
		text, err := json.Marshal(fedAnswer(job.Peer(r.URL.Host), r.URL))
		ok.Body = io.NopCloser(bytes.NewReader(text))
		return ok, err
	}
	ok.Body = &fedFeed{ctx: r.Context(), first: f.snapshot(r.URL.Host), changes: changes}
	return ok, nil
}

// fedFeed is the feed of a member. It has no goroutine, so that only the reader is measured.
type fedFeed struct {
	ctx     context.Context //nolint:containedctx // that of the request, as of any body
	first   io.Reader
	text    []byte // still to be read, after first
	changes <-chan []byte
}

func (f *fedFeed) Read(b []byte) (int, error) {
	if n, err := f.first.Read(b); err == nil {
		return n, nil
	}
	if len(f.text) == 0 {
		f.text = nil
		alive := time.NewTimer(feedAlive)
		defer alive.Stop()
		select {
		case f.text = <-f.changes:
		case <-alive.C:
			f.text = []byte("\n")
		case <-f.ctx.Done():
			return 0, f.ctx.Err()
		}
	}
	n := copy(b, f.text)
	f.text = f.text[n:]
	return n, nil
}

func (*fedFeed) Close() error { return nil }

func (f *fed) snapshot(host string) io.Reader {
	at := f.at[host]
	return io.NewSectionReader(f.snapshots, int64(at[0]), int64(at[1]))
}

// keep writes to the file what a member sends at first.
func (f *fed) keep(b *testing.B, p job.Peer) {
	b.Helper()
	end, err := f.snapshots.Seek(0, io.SeekEnd)
	if err != nil {
		b.Fatal(err)
	}
	n, err := f.snapshots.Write(fedSnapshot(p))
	if err != nil {
		b.Fatal(err)
	}
	f.at[string(p)] = [2]int{int(end), n}
}

// fedAnswer is the answer of a member to a daemon that has no picture yet.
func fedAnswer(p job.Peer, u *url.URL) any {
	switch u.Path {
	case "/v1/nodes":
		return Listing[Node]{Schema: SchemaNodes, Items: []Node{fedNode(p)}}
	case "/v1/stats":
		n := fedNode(p)
		s := nodeStats(&n, map[job.State]int{job.Running: fedJobs / fedNodes})
		s.Queue = fedQueue(p)
		return s
	case "/v1/jobs":
		l := Listing[Job]{Schema: SchemaJobs}
		if state := u.Query().Get("state"); state == "" || strings.Contains(state, string(job.Running)) {
			for i := range fedJobs / fedNodes {
				l.Items = append(l.Items, fedJob(p, i))
			}
		}
		return l
	case "/peer/v1/users":
		var info UsersInfo
		for _, u := range fedQueue(p).Users {
			info.Accounts = append(info.Accounts, AccountInfo{Account: fairshare.Account{User: u.User}, Used: fairshare.Use{GPU: 3600 * u.GPUs, CPU: 7200}, Running: u.Running})
		}
		return info
	}
	return nil
}

func fedPeer(i int) job.Peer { return job.Peer(fmt.Sprintf("12D3KooWfed%041d", i)) }

func fedGroup(p job.Peer) job.Group {
	n, _ := strconv.Atoi(strings.TrimPrefix(string(p), "12D3KooWfed"))
	return job.Group(n + 1)
}

func fedUser(p job.Peer, n int) string { return fmt.Sprintf("user%02d", (int(fedGroup(p))+n)%fedUsers) } //nolint:gosec // small

func fedJob(p job.Peer, n int) Job {
	id := job.NewID(fedGroup(p), uint64(n))
	began := time.Unix(1_700_000_000, 0).UTC()
	return Job{
		Schema: SchemaJob, ID: id, Name: "train-" + strconv.Itoa(n), User: fedUser(p, n), State: job.Running, Nodes: 1, Owner: p, Copies: 1, SubmittedAt: began, StartedAt: &began,
		TaskCount: 1, Counts: map[job.State]int{job.Running: 1},
		Tasks: []Task{{Schema: SchemaTask, Job: id, State: job.Running, NodeID: p, Node: fedName(p), Attempt: 1, PID: 4711, GPUs: []string{"GPU-0", "GPU-1"}, StartedAt: &began}},
	}
}

// fedChange is a job that has just started again or ended, with the time of that.
func fedChange(p job.Peer, n int) feedLine {
	j, now := fedJob(p, n), time.Now().UTC()
	j.ReasonDetail = "made:" + strconv.FormatInt(now.UnixNano(), 10) + ";"
	t := &j.Tasks[0]
	if rand.IntN(2) == 0 { //nolint:gosec // no secret
		j.StartedAt, t.StartedAt = &now, &now
	} else {
		j.State, j.EndedAt, j.Counts = job.Succeeded, &now, map[job.State]int{job.Succeeded: 1}
		t.State, t.EndedAt = job.Succeeded, &now
	}
	return feedLine{Job: &j}
}

func fedName(p job.Peer) string { return "node-" + string(p[len(p)-4:]) }

func fedNode(p job.Peer) Node {
	group := int(fedGroup(p)) //nolint:gosec // small
	n := Node{
		Schema: SchemaNode, ID: p, Name: fedName(p), State: NodeReady, Addrs: []string{"/ip4/10.0.0.1/tcp/4980"}, Version: "test", CPUs: 128, Memory: 1 << 40,
		NodeLabels: NodeLabels{Labels: map[string]string{"rack": "r" + strconv.Itoa(group/20), "leaf": "l" + strconv.Itoa(group/5)}}, TasksRun: TasksRun{Worker: true, Drivers: []string{"exec", "docker"}},
	}
	n.Running = new(fedJobs / fedNodes)
	for i := range fedGPUs {
		holder := job.NewID(fedGroup(p), uint64(i))
		n.GPUs = append(n.GPUs, GPU{
			Schema: SchemaGPU, Node: n.Name, NodeID: p, UUID: fmt.Sprintf("GPU-%s-%d", p, i), Index: i, Model: "NVIDIA H100 80GB HBM3", Class: "h100-80gb", Memory: 80 << 30,
			MemoryUsed: 1 << 30, Utilization: 97, GPUReading: GPUReading{Temperature: 60, Power: 512.5}, Health: "healthy", Jobs: []job.ID{holder}, Job: holder,
		})
	}
	return n
}

// fedFreed is a node with a GPU that was just given to a job, or is free.
func fedFreed(p job.Peer) feedLine {
	n := fedNode(p)
	if i := rand.IntN(fedGPUs + 1); i < fedGPUs { //nolint:gosec // no secret
		n.GPUs[i].Jobs, n.GPUs[i].Job, n.GPUs[i].Free = []job.ID{}, "", 1
		n.Free.GPUs, n.Running = 1, new(*n.Running-1)
	}
	return feedLine{Node: &n}
}

func fedQueue(p job.Peer) *QueueInfo {
	q := &QueueInfo{Waited: waittime.Counts{Of: map[int]int64{40: 5, 90: 3}, Longest: 9 * time.Second}}
	for n := range 5 {
		q.Users = append(q.Users, UserLoad{User: fedUser(p, n), Running: 4, GPUs: 1.5})
	}
	return q
}

func fedSnapshot(p job.Peer) []byte {
	n := fedNode(p)
	var b bytes.Buffer
	b.Write(encodeLine(feedLine{Hello: &feedHello{Operators: []string{"root"}}}))
	b.Write(encodeLine(feedLine{Node: &n}))
	for i := range fedJobs / fedNodes {
		j := fedJob(p, i)
		b.Write(encodeLine(feedLine{Job: &j}))
	}
	b.Write(encodeLine(feedLine{Totals: &feedTotals{Jobs: map[job.State]int{job.Running: fedJobs / fedNodes}}}))
	b.Write(encodeLine(feedLine{Queue: fedQueue(p)}))
	b.Write(encodeLine(feedLine{Synced: true}))
	return b.Bytes()
}

// newFed returns a server on a socket, and its transport.
func newFed(b *testing.B, socket string) (*daemon, *fed) {
	b.Helper()
	file, err := os.CreateTemp(b.TempDir(), "snapshots")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { file.Close() })
	f := &fed{peers: map[string]chan []byte{}, snapshots: file, at: map[string][2]int{}}
	all := &cluster{}
	for i := range fedNodes {
		p := fedPeer(i)
		d := &daemon{name: fedName(p), peer: p, cluster: all, group: fedGroup(p), jobs: map[job.ID]job.Job{}, watchers: map[chan job.Job][]job.ID{}}
		all.daemons = append(all.daemons, d)
		if i > 0 {
			f.peers[string(d.peer)] = make(chan []byte, 8)
			f.keep(b, p)
		}
	}
	d := all.daemons[0]
	cfg := DefaultConfig()
	cfg.Self, cfg.Socket = d.peer, socket
	d.server, err = New(cfg, Needs{Jobs: d, Explain: d, Watch: d, Node: d, Users: d, Logs: d, Peers: d, Directory: d, Self: d, Transport: f}, slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	return d, f
}

// fedServer runs the server. It returns the socket, the daemon, and the transport to the other members.
func fedServer(b *testing.B) (socket string, d *daemon, f *fed) {
	b.Helper()
	dir, err := os.MkdirTemp("", "api") //nolint:usetesting // b.TempDir can be longer than a socket's name may be
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { os.RemoveAll(dir) })
	socket = filepath.Join(dir, "muster.sock")
	d, f = newFed(b, socket)
	ctx, stop := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- d.server.Run(ctx) }()
	b.Cleanup(func() { stop(); <-done })
	<-d.server.Ready()
	return socket, d, f
}

// change makes members send changes until ctx ends: of five, four are about jobs and one is about a node. A change for
// which there is no reader is dropped.
func (f *fed) change(ctx context.Context, rate int) {
	tick := time.NewTicker(time.Second / time.Duration(rate))
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		p := fedPeer(1 + rand.IntN(fedNodes-1))        //nolint:gosec // no secret
		l := fedChange(p, rand.IntN(fedJobs/fedNodes)) //nolint:gosec // no secret
		if n%5 == 4 {
			l = fedFreed(p)
		}
		select {
		case f.peers[string(p)] <- encodeLine(l):
		default:
		}
	}
}

// BenchmarkFedServer measures nothing: other processes measure it.
func BenchmarkFedServer(b *testing.B) {
	if *fedSocket == "" {
		b.Skip("needs the flag fed.socket")
	}
	d, f := newFed(b, *fedSocket)
	if *fedRate > 0 {
		go f.change(b.Context(), *fedRate)
	}
	if err := d.server.Run(b.Context()); err != nil {
		b.Fatal(err)
	}
}
