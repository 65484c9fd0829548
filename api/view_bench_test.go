package api

// A daemon that is fed as by a large cluster: its real server, and feeds of 499 other members with 8 GPUs each, 10,000 jobs
// and 50 changes a second.

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/job"
)

const (
	fedNodes   = 500
	fedGPUs    = 8
	fedJobs    = 10_000
	fedChanges = 50 // a second
)

// fed is the transport to the other members.
type fed struct{ peers map[string]chan []byte }

func (f *fed) RoundTrip(r *http.Request) (*http.Response, error) {
	changes := f.peers[r.URL.Host]
	if changes == nil || r.URL.Path != pathFeed {
		return nil, fmt.Errorf("no route to %s", r.URL)
	}
	body, w := io.Pipe()
	go func() {
		alive := time.NewTicker(feedAlive)
		defer alive.Stop()
		text := fedSnapshot(job.Peer(r.URL.Host))
		for {
			if _, err := w.Write(text); err != nil {
				return
			}
			select {
			case text = <-changes:
			case <-alive.C:
				text = []byte("\n")
			case <-r.Context().Done():
				w.CloseWithError(r.Context().Err())
				return
			}
		}
	}()
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: body, Request: r}, nil
}

func fedPeer(i int) job.Peer { return job.Peer(fmt.Sprintf("12D3KooWfed%041d", i)) }

func fedGroup(p job.Peer) job.Group {
	n, _ := strconv.Atoi(strings.TrimPrefix(string(p), "12D3KooWfed"))
	return job.Group(n + 1)
}

func fedJob(p job.Peer, n int, detail string) feedLine {
	id := job.NewID(fedGroup(p), uint64(n))
	began := time.Unix(1_700_000_000, 0).UTC()
	return feedLine{Job: &Job{
		Schema: SchemaJob, ID: id, Name: "train-" + strconv.Itoa(n), User: "ada", State: job.Running, ReasonDetail: detail, Nodes: 1, Owner: p, Copies: 1, SubmittedAt: began, StartedAt: &began,
		TaskCount: 1, Counts: map[job.State]int{job.Running: 1},
		Tasks: []Task{{Schema: SchemaTask, Job: id, State: job.Running, NodeID: p, Node: "node", Attempt: 1, PID: 4711, GPUs: []string{"GPU-0", "GPU-1"}, StartedAt: &began}},
	}}
}

func fedSnapshot(p job.Peer) []byte {
	n := Node{
		Schema: SchemaNode, ID: p, Name: "node-" + string(p[len(p)-4:]), State: NodeReady, Addrs: []string{"/ip4/10.0.0.1/tcp/4980"}, Version: "test", CPUs: 128, Memory: 1 << 40,
		NodeLabels: NodeLabels{Labels: map[string]string{"rack": "r1", "leaf": "l1"}}, TasksRun: TasksRun{Worker: true, Drivers: []string{"exec", "docker"}},
	}
	for i := range fedGPUs {
		n.GPUs = append(n.GPUs, GPU{
			Schema: SchemaGPU, Node: n.Name, NodeID: p, UUID: fmt.Sprintf("GPU-%s-%d", p, i), Index: i, Model: "NVIDIA H100 80GB HBM3", Class: "h100-80gb", Memory: 80 << 30,
			MemoryUsed: 1 << 30, Utilization: 97, GPUReading: GPUReading{Temperature: 60, Power: 512.5}, Health: "healthy", Jobs: []job.ID{job.NewID(fedGroup(p), 1)}, Job: job.NewID(fedGroup(p), 1),
		})
	}
	var b bytes.Buffer
	b.Write(encodeLine(feedLine{Hello: &feedHello{Operators: []string{"root"}}}))
	b.Write(encodeLine(feedLine{Node: &n}))
	for i := range fedJobs / fedNodes {
		b.Write(encodeLine(fedJob(p, i, "")))
	}
	b.Write(encodeLine(feedLine{Totals: &feedTotals{Jobs: map[job.State]int{job.Running: fedJobs / fedNodes}}}))
	b.Write(encodeLine(feedLine{Synced: true}))
	return b.Bytes()
}

// fedServer runs the server and returns its socket.
func fedServer(b *testing.B) (socket string, f *fed) {
	b.Helper()
	dir, err := os.MkdirTemp("", "api") //nolint:usetesting // b.TempDir can be longer than a socket's name may be
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { os.RemoveAll(dir) })
	f = &fed{peers: map[string]chan []byte{}}
	all := &cluster{}
	for i := range fedNodes {
		d := &daemon{name: fmt.Sprintf("node-%04d", i), peer: fedPeer(i), cluster: all, group: fedGroup(fedPeer(i)), jobs: map[job.ID]job.Job{}, watchers: map[chan job.Job][]job.ID{}}
		all.daemons = append(all.daemons, d)
		if i > 0 {
			f.peers[string(d.peer)] = make(chan []byte, 8)
		}
	}
	d := all.daemons[0]
	cfg := DefaultConfig()
	cfg.Self, cfg.Socket = d.peer, filepath.Join(dir, "muster.sock")
	d.server, err = New(cfg, Needs{Jobs: d, Explain: d, Watch: d, Node: d, Logs: d, Peers: d, Directory: d, Self: d, Transport: f}, slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- d.server.Run(ctx) }()
	b.Cleanup(func() { stop(); <-done })
	<-d.server.Ready()
	return cfg.Socket, f
}

// change has members tell of changes until ctx ends. Each says when it was made.
func (f *fed) change(ctx context.Context) {
	tick := time.NewTicker(time.Second / fedChanges)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			p := fedPeer(1 + rand.IntN(fedNodes-1)) //nolint:gosec // no secret
			f.peers[string(p)] <- encodeLine(fedJob(p, rand.IntN(fedJobs/fedNodes), "made:"+strconv.FormatInt(time.Now().UnixNano(), 10)+";"))
		}
	}
}

func socketClient(socket string) *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
}

// view opens a stream of events, and calls each with its lines.
func fedView(ctx context.Context, b *testing.B, c *http.Client, each func(line []byte)) (opened chan struct{}) {
	opened = make(chan struct{})
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://muster/v1/events", http.NoBody)
	if err != nil {
		b.Fatal(err)
	}
	go func() {
		resp, err := c.Do(req)
		if err != nil {
			return
		}
		defer resp.Body.Close()
		close(opened)
		lines := bufio.NewReader(resp.Body)
		for {
			line, err := lines.ReadSlice('\n')
			if err != nil {
				return
			}
			each(line)
		}
	}()
	return opened
}

func memory(b *testing.B) float64 {
	b.Helper()
	debug.FreeOSMemory()
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		b.Fatal(err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(text))[1])
	if err != nil {
		b.Fatal(err)
	}
	return float64(pages*os.Getpagesize()) / 1e6
}

func cpu(b *testing.B) time.Duration {
	b.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func quantile(all []time.Duration, q float64) float64 {
	slices.Sort(all)
	return float64(all[int(q*float64(len(all)-1))]) / float64(time.Millisecond)
}

// BenchmarkFed measures listings, the way of a change to a viewer, and what viewers cost, in one run.
func BenchmarkFed(b *testing.B) {
	for b.Loop() {
		socket, f := fedServer(b)
		ctx, cancel := context.WithCancel(b.Context())
		before := memory(b)
		c := socketClient(socket)
		var late []time.Duration
		counting := make(chan bool, 1)
		<-fedView(ctx, b, c, func(line []byte) {
			_, text, ok := bytes.Cut(line, []byte("made:"))
			if !ok || !bytes.Contains(line, []byte(`"kind":"job"`)) || len(counting) == 0 {
				return
			}
			text, _, _ = bytes.Cut(text, []byte(";"))
			if ns, err := strconv.ParseInt(string(text), 10, 64); err == nil {
				late = append(late, time.Since(time.Unix(0, ns)))
			}
		})
		fedWait(b, c)
		b.ReportMetric(memory(b)-before, "MB/picture")
		go f.change(ctx)
		one := fedCPU(b)
		var took []time.Duration
		counting <- true
		for range 50 {
			began := time.Now()
			fedGet(b, c, "/v1/nodes")
			took = append(took, time.Since(began))
			pace(b, 100*time.Millisecond)
		}
		b.ReportMetric(quantile(took, 0.5), "ms/nodes-p50")
		b.ReportMetric(quantile(took, 0.99), "ms/nodes-p99")
		<-counting
		b.ReportMetric(quantile(slices.Clone(late), 0.5), "ms/event-p50")
		b.ReportMetric(quantile(slices.Clone(late), 0.99), "ms/event-p99")
		few := memory(b)
		for range 49 {
			<-fedView(ctx, b, c, func([]byte) {})
		}
		fifty := fedCPU(b)
		b.ReportMetric(memory(b)-few, "MB/50-viewers")
		b.ReportMetric(fifty-one, "%/50-viewers")
		cancel()
		c.CloseIdleConnections()
	}
}

// fedCPU returns the CPU that the process takes in some seconds, in percent of a core.
func fedCPU(b *testing.B) float64 {
	b.Helper()
	const span = 5 * time.Second
	before := cpu(b)
	pace(b, span)
	return 100 * float64(cpu(b)-before) / float64(span)
}

func pace(b *testing.B, d time.Duration) { sleep(b.Context(), d) }

// fedWait waits until the picture has all.
func fedWait(b *testing.B, c *http.Client) {
	b.Helper()
	for range 600 {
		if text := fedGet(b, c, "/v1/stats"); bytes.Contains(text, []byte(`"ready":`+strconv.Itoa(fedNodes))) {
			return
		}
		pace(b, 100*time.Millisecond)
	}
	b.Fatal("the picture is not complete")
}

func fedGet(b *testing.B, c *http.Client, path string) []byte {
	b.Helper()
	req, err := http.NewRequestWithContext(b.Context(), http.MethodGet, "http://muster"+path, http.NoBody)
	if err != nil {
		b.Fatal(err)
	}
	resp, err := c.Do(req)
	if err != nil {
		b.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		b.Fatal(err)
	}
	return text
}
