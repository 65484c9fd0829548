package api

// What listings, events and viewers cost a daemon that is fed as in a large cluster.

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
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

// fedView opens a stream of events, and calls each with its lines.
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

// memory returns the MB that the process holds after it has given back what it can. That is the smallest of some
// readings, because the process goes on with its work.
func memory(b *testing.B) (least float64) {
	b.Helper()
	for n := range 5 {
		debug.FreeOSMemory()
		text, err := os.ReadFile("/proc/self/statm")
		if err != nil {
			b.Fatal(err)
		}
		pages, err := strconv.Atoi(strings.Fields(string(text))[1])
		if err != nil {
			b.Fatal(err)
		}
		if now := float64(pages*os.Getpagesize()) / 1e6; n == 0 || now < least {
			least = now
		}
		pace(b, 100*time.Millisecond)
	}
	return least
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

// BenchmarkFed measures listings, the path of a change to a viewer, and the cost of viewers, in one run.
func BenchmarkFed(b *testing.B) {
	for b.Loop() {
		none := memory(b)
		socket, d, f := fedServer(b)
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
		fedWait(b, d)
		b.ReportMetric(memory(b)-before, "MB/picture")
		changing, still := context.WithCancel(ctx)
		go f.change(changing, fedChanges)
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
		full, filled := context.WithCancel(ctx) // as after some minutes, with a full ring of events
		go f.change(full, 40*fedChanges)
		for d.picture().ring.Last() < maxEvents {
			pace(b, 100*time.Millisecond)
		}
		filled()
		pace(b, 5*time.Second)
		few := memory(b)
		leave := fedViewers(b, socket, 49)
		fifty := fedCPU(b)
		still() // nothing is allocated while memory is given back and read
		pace(b, time.Second)
		b.ReportMetric(memory(b)-few, "MB/50-viewers")
		b.ReportMetric(memory(b)-before, "MB/all-viewers")
		b.ReportMetric(fifty-one, "%/50-viewers")
		leave()
		cancel()
		c.CloseIdleConnections()
		pace(b, keepView+10*time.Second)
		b.ReportMetric(memory(b)-before, "MB/after")
	}
}

// fedViewers opens streams of events from a separate process, until leave is called.
func fedViewers(b *testing.B, socket string, n int) (leave func()) {
	b.Helper()
	cmd := exec.CommandContext(b.Context(), os.Args[0], "-test.run=^$", "-test.bench=^BenchmarkFedViewers$", "-test.benchtime=1x", "-fed.viewers="+strconv.Itoa(n), "-fed.socket="+socket)
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	for lines := bufio.NewScanner(out); ; {
		if !lines.Scan() {
			b.Fatal("the viewers have not begun")
		}
		if strings.HasSuffix(lines.Text(), fedViewing) {
			break
		}
	}
	return func() {
		in.Close()
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait()
	}
}

// BenchmarkFedViewers measures nothing: it is the viewers of BenchmarkFed.
func BenchmarkFedViewers(b *testing.B) {
	if *fedViews == 0 {
		b.Skip("needs the flag fed.viewers")
	}
	c := socketClient(*fedSocket)
	for range *fedViews {
		<-fedView(b.Context(), b, c, func([]byte) {})
	}
	fmt.Println(fedViewing)
	_, _ = io.Copy(io.Discard, os.Stdin) // until it is closed
}

// fedCPU returns the CPU time that the process takes in some seconds, in percent of a core.
func fedCPU(b *testing.B) float64 {
	b.Helper()
	const span = 5 * time.Second
	before := cpu(b)
	pace(b, span)
	return 100 * float64(cpu(b)-before) / float64(span)
}

func pace(b *testing.B, d time.Duration) { sleep(b.Context(), d) }

// fedWait waits until the picture has all data of the other members.
func fedWait(b *testing.B, d *daemon) {
	b.Helper()
	for range 600 {
		told := 0
		if v := d.picture(); v != nil {
			v.mu.Lock()
			for _, m := range v.members {
				if m.synced && m.Peer != v.self {
					told++
				}
			}
			v.mu.Unlock()
		}
		if told == fedNodes-1 {
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
