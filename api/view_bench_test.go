package api

// What listings, events and viewers cost a daemon that is fed as by a large cluster.

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

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
		none := memory(b)
		socket, f := fedServer(b)
		b.ReportMetric(memory(b)-none, "MB/server")
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
		go f.change(ctx, fedChanges)
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
		pace(b, keepView+10*time.Second)
		b.ReportMetric(memory(b)-before, "MB/after")
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
