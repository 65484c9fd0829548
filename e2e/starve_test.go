//go:build e2e

package e2e

// One local user takes everything that a daemon gives, and another user goes on working.

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// greedy is the uid of the user who takes everything.
const greedy = 23456

// dialAs connects to the socket as another user: the kernel takes the user of the thread that connects.
func (d *daemon) dialAs(uid int) (net.Conn, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const same = ^uintptr(0)
	if _, _, e := syscall.RawSyscall(syscall.SYS_SETRESUID, same, uintptr(uid), same); e != 0 {
		return nil, e
	}
	c, err := net.Dial("unix", d.socket)
	if _, _, e := syscall.RawSyscall(syscall.SYS_SETRESUID, same, 0, same); e != 0 {
		panic(e)
	}
	return c, err
}

// clientAs sends requests as another user.
func (d *daemon) clientAs(uid int) *http.Client {
	d.t.Helper()
	if err := os.Chmod(d.dir, 0o711); err != nil { //nolint:gosec // so that the user reaches the socket
		d.t.Fatal(err)
	}
	tr := &http.Transport{
		DialContext:         func(context.Context, string, string) (net.Conn, error) { return d.dialAs(uid) },
		MaxIdleConnsPerHost: 128,
	}
	d.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// runs measures how long n commands of an ordinary user take; each must succeed.
func (d *daemon) runs(n int, what string) []time.Duration {
	d.t.Helper()
	d.user = ordinary
	defer func() { d.user = nil }()
	var took []time.Duration
	for range n {
		r := d.muster("run", "--", "true")
		if r.code != 0 {
			d.t.Errorf("%s: another user's run: exit %d, want 0: %s", what, r.code, r.stderr)
		}
		took = append(took, r.took)
	}
	slices.Sort(took)
	d.t.Logf("%s: another user's run took %s (p50), %s (longest of %d); the daemon has %d MiB",
		what, took[n/2].Round(time.Millisecond), took[n-1].Round(time.Millisecond), n, d.memory()>>20)
	return took
}

// memory returns the bytes of memory that the daemon has now.
func (d *daemon) memory() int64 {
	d.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", d.cmd.Process.Pid))
	if err != nil {
		d.t.Fatal(err)
	}
	pages, err := strconv.ParseInt(strings.Fields(string(text))[1], 10, 64)
	if err != nil {
		d.t.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}

// TestStreamsOfOneUserAreBounded has a user open event streams until no more are given, and then try 10,000 times.
func TestStreamsOfOneUserAreBounded(t *testing.T) {
	asRoot(t)
	d := newDaemon(t, "amy", "--gpus", "none").start()
	d.runs(10, "idle")
	before := d.memory()
	attacker := d.clientAs(greedy)
	open := func() (int, string, io.Closer) {
		resp, err := attacker.Get("http://muster/v1/events")
		if err != nil {
			return 0, err.Error(), nil
		}
		if resp.StatusCode == http.StatusOK {
			return resp.StatusCode, "", resp.Body // not read
		}
		text, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		return resp.StatusCode, resp.Header.Get("Retry-After") + string(text), nil
	}
	held := 0
	for range 1024 {
		status, text, body := open()
		if body == nil {
			if status != http.StatusTooManyRequests || !containsAll(text, []string{"streams", strconv.Itoa(greedy)}) {
				t.Errorf("with %d open streams the next one: got %d %s, want 429 with the user", held, status, text)
			}
			break
		}
		defer body.Close()
		held++
	}
	if held < 256 {
		t.Errorf("got %d streams for one user alone, want at least 256", held)
	}
	d.user = &syscall.Credential{Uid: greedy, Gid: greedy}
	d.fails(125, []string{"too many: user 23456 has 256 of 512 open streams"}, "run", "--", "true")
	d.user = nil
	d.ok("cancel", d.ok("submit", "--hold", "--", "true"))
	d.runs(20, fmt.Sprintf("%d streams", held))
	var tried, more atomic.Int64
	var trying sync.WaitGroup
	for range 16 {
		trying.Go(func() {
			for tried.Add(1) <= 10_000 {
				if _, _, body := open(); body != nil {
					more.Add(1)
					body.Close()
				}
			}
		})
	}
	for tried.Load() < 10_000 {
		d.runs(5, "10,000 attempts")
	}
	trying.Wait()
	if more.Load() > 0 {
		t.Errorf("got %d streams more, want 0", more.Load())
	}
	if grown := d.memory() - before; grown > 128<<20 {
		t.Errorf("the daemon grew by %d MiB, want at most 128", grown>>20)
	}
}

// TestSlowReadersOfOneUserCostLittle has a user open event streams, read none of them, and submit jobs, each of which
// is an event on each stream.
func TestSlowReadersOfOneUserCostLittle(t *testing.T) {
	asRoot(t)
	d := newDaemon(t, "amy", "--gpus", "none").start()
	attacker := d.clientAs(greedy)
	before := d.memory()
	for range 200 {
		resp, err := attacker.Get("http://muster/v1/events")
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("got %+v, %v, want 200", resp, err)
		}
		defer resp.Body.Close()
	}
	for range 2000 {
		if text, err := postTo(attacker, "/v1/jobs", `{"command":["true"],"hold":true}`); err != nil || !strings.Contains(text, `"id":"`) {
			t.Fatalf("submit: got %v, %s, want an id", err, text)
		}
	}
	d.runs(10, "200 slow readers")
	if grown := d.memory() - before; grown > 192<<20 {
		t.Errorf("the daemon grew by %d MiB, want at most 192", grown>>20)
	}
}

// postTo sends a document and returns the answer.
func postTo(c *http.Client, path, body string) (string, error) {
	resp, err := c.Post("http://muster"+path, "application/json", strings.NewReader(body))
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return string(text), err
}

// TestHalfOpenRequestsKeepNobodyOut has a user hold thousands of connections whose requests are never complete.
func TestHalfOpenRequestsKeepNobodyOut(t *testing.T) {
	asRoot(t)
	d := newDaemon(t, "amy", "--gpus", "none")
	d.args, d.program = append([]string{"--nofile=4096:4096", d.program}, d.args...), "prlimit"
	d.start()
	if err := os.Chmod(d.dir, 0o711); err != nil { //nolint:gosec // so that the user reaches the socket
		t.Fatal(err)
	}
	d.runs(5, "idle")
	before := d.memory()
	over := make(chan struct{})
	var holding sync.WaitGroup
	begun := bytes.Repeat([]byte("x"), 16<<10)
	copy(begun, "GET /v1/jobs HTTP/1.1\r\nHost: muster\r\nX: ")
	var open atomic.Int64
	for range 5000 {
		holding.Go(func() {
			for {
				if c, err := d.dialAs(greedy); err == nil {
					open.Add(1)
					_ = c.SetDeadline(time.Now().Add(patience))
					go func() { <-over; c.Close() }()
					_, _ = c.Write(begun)
					_, _ = io.Copy(io.Discard, c) // until the daemon closes it
					c.Close()
					open.Add(-1)
				}
				select {
				case <-over:
					return
				case <-time.After(100 * time.Millisecond):
				}
			}
		})
	}
	defer holding.Wait()
	defer close(over)
	for open.Load() < 400 {
		time.Sleep(10 * time.Millisecond)
	}
	d.runs(10, "half-open connections")
	if grown := d.memory() - before; grown > 128<<20 {
		t.Errorf("the daemon grew by %d MiB, want at most 128", grown>>20)
	}
}

// TestSlowUploadsKeepNobodyOut has a user send lists of files without end.
func TestSlowUploadsKeepNobodyOut(t *testing.T) {
	asRoot(t)
	d := newDaemon(t, "amy", "--gpus", "none").start()
	attacker := d.clientAs(greedy)
	ctx, stop := context.WithCancel(t.Context())
	var sending sync.WaitGroup
	defer sending.Wait()
	defer stop()
	var begun atomic.Int64
	for i := range 64 {
		sending.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				req, err := http.NewRequestWithContext(ctx, http.MethodPut, fmt.Sprintf("http://muster/v1/uploads/trees/%064x", i*1000+n), &trickle{ctx: ctx, begun: &begun})
				if err != nil {
					t.Error(err)
					return
				}
				if resp, err := attacker.Do(req); err == nil {
					resp.Body.Close()
				}
			}
		})
	}
	for begun.Load() < 2 {
		time.Sleep(10 * time.Millisecond)
	}
	dir := t.TempDir()
	for _, path := range []string{filepath.Dir(dir), dir} {
		if err := os.Chmod(path, 0o755); err != nil { //nolint:gosec // so that the user reads it
			t.Fatal(err)
		}
	}
	file := filepath.Join(dir, "data")
	if err := os.WriteFile(file, bytes.Repeat([]byte("data"), 1000), 0o644); err != nil { //nolint:gosec // likewise
		t.Fatal(err)
	}
	d.user = ordinary
	for range 5 {
		r := d.muster("run", "--upload", file, "--", "wc", "-c", "data")
		if r.code != 0 || !strings.HasPrefix(r.stdout, "4000") {
			t.Errorf("another user's upload: exit %d, want 0 and 4000\n%s%s", r.code, r.stdout, r.stderr)
		}
		t.Logf("another user's upload and run took %s", r.took.Round(time.Millisecond))
		if err := os.WriteFile(file, bytes.Repeat([]byte(strconv.FormatInt(time.Now().UnixNano()%9000+1000, 10)), 1000), 0o644); err != nil { //nolint:gosec // likewise
			t.Fatal(err)
		}
	}
}

// trickle is a body that arrives a little at a time.
type trickle struct {
	ctx   context.Context //nolint:containedctx // of one request
	begun *atomic.Int64
	n     int
}

func (b *trickle) Read(p []byte) (int, error) {
	if b.n++; b.n == 2 {
		b.begun.Add(1)
	}
	select {
	case <-b.ctx.Done():
		return 0, b.ctx.Err()
	case <-time.After(100 * time.Millisecond):
	}
	return copy(p, "slow"), nil
}

// TestRequestsOfOneUserKeepNobodyOut has a user send requests as fast as 64 clients can.
func TestRequestsOfOneUserKeepNobodyOut(t *testing.T) {
	asRoot(t)
	d := newDaemon(t, "amy", "--gpus", "none").start()
	attacker := d.clientAs(greedy)
	id := ""
	for range 300 {
		text, err := postTo(attacker, "/v1/jobs", `{"command":["true"],"hold":true}`)
		if err != nil || !strings.Contains(text, `"id":"`) {
			t.Fatalf("submit: got %v, %s, want an id", err, text)
		}
		_, id, _ = strings.Cut(text, `"id":"`)
		id, _, _ = strings.Cut(id, `"`)
	}
	d.runs(20, "idle")
	ctx, stop := context.WithCancel(t.Context())
	var asking sync.WaitGroup
	var asked atomic.Int64
	for i := range 64 {
		asking.Go(func() {
			for n := i; ctx.Err() == nil; n++ {
				path := []string{"/v1/jobs/" + id, "/v1/jobs?limit=1000", "/v1/jobs/" + id + "/why", ""}[n%4]
				if path == "" {
					_, _ = postTo(attacker, "/v1/jobs", `{"command":["true"],"nodes":0,"comand":1}`)
				} else if resp, err := attacker.Get("http://muster" + path); err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
				asked.Add(1)
			}
		})
	}
	began := time.Now()
	d.runs(60, "64 clients of one user")
	t.Logf("%.0f requests a second", float64(asked.Load())/time.Since(began).Seconds())
	stop()
	asking.Wait()
}
