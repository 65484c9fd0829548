package top

// The cost of the whole program while it runs: a daemon of 500 nodes answers it over a socket.

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/api"
)

// liveDaemon answers with texts that were prepared, so that it costs as little as possible itself.
type liveDaemon struct {
	*fake

	events [][]byte // batches, one of which is sent with each tick
	every  time.Duration
	sent   atomic.Int64 // bytes
}

func (d *liveDaemon) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/v1/events":
		d.stream(w, r)
	case "/v1/nodes":
		d.answer(w, d.nodes)
	case "/v1/gpus":
		d.answer(w, d.readings(r))
	case "/v1/jobs":
		d.answer(w, d.jobs)
	default:
		http.NotFound(w, r)
	}
}

// readings has the GPUs of the requested nodes, each with a reading of this second.
func (d *liveDaemon) readings(r *http.Request) (gpus []api.GPU) {
	var nodes []string
	if text := r.URL.Query().Get("node"); text != "" {
		nodes = strings.Split(text, ",")
	}
	now := time.Now()
	for _, g := range d.gpus {
		if len(nodes) > 0 && !slices.Contains(nodes, string(g.NodeID)) {
			continue
		}
		g.ReadAt, g.Utilization = &now, rand.IntN(100) //nolint:gosec // no secret
		gpus = append(gpus, g)
	}
	return gpus
}

func (d *liveDaemon) answer(w http.ResponseWriter, items any) {
	text, err := json.Marshal(map[string]any{"items": items})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	n, _ := w.Write(text)
	d.sent.Add(int64(n))
}

func (d *liveDaemon) stream(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	text := []byte(`data: {"kind":"open"}` + "\n\n")
	var tick <-chan time.Time
	if d.every > 0 {
		t := time.NewTicker(d.every)
		defer t.Stop()
		tick = t.C
	}
	for i := 0; ; i++ {
		n, err := w.Write(text)
		d.sent.Add(int64(n))
		if err != nil || http.NewResponseController(w).Flush() != nil {
			return
		}
		select {
		case <-tick:
			text = d.events[i%len(d.events)]
		case <-r.Context().Done():
			return
		}
	}
}

func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkLive measures the CPU time of the program, and of the daemon that feeds it, on a screen of 200×60. Daemons
// send 50 changes a second in ten batches; those of earlier versions send them singly.
func BenchmarkLive(b *testing.B) {
	for _, x := range []struct {
		name  string
		every time.Duration // between two batches
		batch int           // events
	}{{"quiet", 0, 0}, {"50-changes", 100 * time.Millisecond, 5}, {"50-changes-singly", 20 * time.Millisecond, 1}} {
		b.Run(x.name, func(b *testing.B) { benchLive(b, x.every, x.batch) })
	}
}

func benchLive(b *testing.B, every time.Duration, batch int) {
	const start, span = 2 * time.Second, 10 * time.Second
	d := &liveDaemon{fake: large(500, 8, 10_000), every: every}
	for i := range 1000 {
		j := running(i*10, fmt.Sprintf("train-%d", i), "amy", i%500, 0)
		text, err := json.Marshal(api.Event{Kind: api.EventJob, ID: j.ID, Job: &j})
		if err != nil {
			b.Fatal(err)
		}
		text = slices.Concat([]byte("data: "), text, []byte("\n\n"))
		if i%max(batch, 1) == 0 {
			d.events = append(d.events, nil)
		}
		d.events[len(d.events)-1] = append(d.events[len(d.events)-1], text...)
	}
	socket := filepath.Join(b.TempDir(), "s")
	listener, err := new(net.ListenConfig).Listen(b.Context(), "unix", socket)
	if err != nil {
		b.Fatal(err)
	}
	server := &http.Server{Handler: d, ReadHeaderTimeout: time.Second}
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(listener) }()
	b.Cleanup(func() { server.Close(); <-served })
	client, err := api.NewClient(api.ClientConfig{Socket: socket})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		ctx, end := context.WithCancel(b.Context())
		done := make(chan error, 1)
		go func() {
			done <- Run(ctx, Config{Daemon: client, Refresh: time.Second, Colours: true, Size: func() (int, int) { return 200, 60 }}, nil, io.Discard)
		}()
		pause(ctx, start)
		began, sent := cpuTime(b), d.sent.Load()
		pause(ctx, span)
		b.ReportMetric(100*float64(cpuTime(b)-began)/float64(span), "%CPU")
		b.ReportMetric(float64(d.sent.Load()-sent)/span.Seconds()/1e3, "kB/s")
		end()
		if err := <-done; err != nil {
			b.Fatal(err)
		}
	}
}
