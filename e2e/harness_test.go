//go:build e2e

package e2e

// The harness: daemons that run for one test, and the command line with which tests use them.
//
// Most tests wait more than they compute, so they run beside one another (t.Parallel). Tests that measure times, memory
// or load, or load the machine themselves, run before them, one by one.

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/job"
)

// patience bounds every wait. It is reached only if something is broken.
const patience = 30 * time.Second

// daemon is one `muster daemon` process and its data directory.
type daemon struct {
	t       *testing.T
	name    string
	dir     string
	program string   // the program that start runs
	args    []string // arguments without --bootstrap and --token
	cmd     *exec.Cmd
	socket  string
	mu      sync.Mutex
	lines   []string            // guarded by mu: the lines of its log so far
	grew    chan struct{}       // guarded by mu: closed and replaced when a line arrives
	done    chan struct{}       // closed when the process has ended
	said    chan struct{}       // closed when its whole log is in lines
	as      *syscall.Credential // nil: the user of this process
	extra   []*os.File          // passed to it as descriptors from 3 on
	env     []string            // of the daemon, besides that of this process
	user    *syscall.Credential // of the verbs; nil: the user of this process
	verbDir string              // directory of the verbs; empty: that of this process
}

// tested is the program that the tests run. To see that a test can fail, give an earlier version.
var tested = flag.String("muster", "../bin/muster", "the `program` that the tests run")

func binary(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs(*tested)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("no program to test: run make build (%v)", err)
	}
	return path
}

// atFullSize skips a test that takes minutes, unless MUSTER_E2E_FULL is set.
func atFullSize(t *testing.T) {
	t.Helper()
	if os.Getenv("MUSTER_E2E_FULL") == "" {
		t.Skip("takes minutes; set MUSTER_E2E_FULL=1 to run it")
	}
}

// newDaemon prepares a daemon on loopback; nothing runs yet.
func newDaemon(t *testing.T, name string, args ...string) *daemon {
	t.Helper()
	return newDaemonAt(t, nil, "127.0.0.1", name, args...)
}

// newDaemonAt is newDaemon with another address. within is a command that runs another one, such as in a namespace.
func newDaemonAt(t *testing.T, within []string, address, name string, args ...string) *daemon {
	t.Helper()
	dir, err := os.MkdirTemp("", "muster-e2e-") //nolint:usetesting // short: a socket's path has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	port := freePort(t) // the same after a restart, as on a real host
	d := &daemon{
		t: t, name: name, dir: dir, program: binary(t), socket: filepath.Join(dir, "s"),
		args: append([]string{
			"daemon", "--data-dir", filepath.Join(dir, "data"), "--socket", filepath.Join(dir, "s"), "--name", name,
			"--listen", fmt.Sprintf("/ip4/%s/tcp/%d", address, port), "--listen", fmt.Sprintf("/ip4/%s/udp/%d/quic-v1", address, port), "--allow-root", "--log-level", "debug",
		}, args...),
	}
	if len(within) > 0 {
		d.args = append(append(within[1:len(within):len(within)], d.program), d.args...)
		d.program = within[0]
	}
	t.Cleanup(func() {
		d.kill()
		d.killRunner()
		if t.Failed() {
			t.Logf("log of %s:\n%s", name, d.log())
		}
		os.RemoveAll(dir)
	})
	return d
}

// start runs the daemon and waits until it is ready.
func (d *daemon) start(more ...string) *daemon {
	d.t.Helper()
	from := d.launch(more...)
	d.waitLog(from, "ready")
	return d
}

// launch runs the daemon and returns the line at which its log begins.
func (d *daemon) launch(more ...string) int {
	d.t.Helper()
	d.mu.Lock()
	from := len(d.lines)
	d.grew = make(chan struct{})
	d.mu.Unlock()
	env := d.env
	if i := slices.Index(more, "--token"); i >= 0 { // a daemon takes it there only with another flag, which the version before lacks
		env, more = append(slices.Clone(env), "MUSTER_TOKEN="+more[i+1]), slices.Delete(slices.Clone(more), i, i+2)
	}
	d.cmd = exec.Command(d.program, append(append([]string{}, d.args...), more...)...)
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: d.as}
	out, in, err := os.Pipe()
	if err != nil {
		d.t.Fatal(err)
	}
	d.cmd.Env = append(os.Environ(), env...)
	d.cmd.Stdout, d.cmd.Stderr, d.cmd.ExtraFiles = in, in, d.extra
	if err := d.cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	in.Close()
	said := make(chan struct{})
	d.said = said
	go func() { d.read(out); close(said) }()
	done := make(chan struct{})
	d.done = done
	go func() { _ = d.cmd.Wait(); close(done) }()
	return from
}

func (d *daemon) read(out io.ReadCloser) {
	defer out.Close()
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		d.mu.Lock()
		d.lines = append(d.lines, lines.Text())
		close(d.grew)
		d.grew = make(chan struct{})
		d.mu.Unlock()
	}
}

// waitLog waits for a log line at or after line number from that contains all words.
func (d *daemon) waitLog(from int, words ...string) string {
	d.t.Helper()
	late := time.NewTimer(patience)
	defer late.Stop()
	for {
		d.mu.Lock()
		lines, grew := d.lines[from:], d.grew
		d.mu.Unlock()
		for _, l := range lines {
			if containsAll(l, words) {
				return l
			}
		}
		select {
		case <-grew:
		case <-d.said:
			if d.logged() == from+len(lines) {
				d.t.Fatalf("%s ended without a log line with %q", d.name, words)
			}
		case <-late.C:
			d.t.Fatalf("%s: no log line with %q in %s", d.name, words, patience)
		}
	}
}

func containsAll(s string, words []string) bool {
	for _, w := range words {
		if !strings.Contains(s, w) {
			return false
		}
	}
	return true
}

func (d *daemon) logged() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.lines)
}

func (d *daemon) log() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return strings.Join(d.lines[max(0, len(d.lines)-200):], "\n")
}

// kill kills only the daemon with SIGKILL; its tasks belong to their runner.
func (d *daemon) kill() {
	if d.cmd == nil || d.done == nil {
		return
	}
	_ = d.cmd.Process.Kill()
	<-d.done
}

// killRunner kills the daemon's runner; only at a test's end.
func (d *daemon) killRunner() {
	_ = exec.Command("pkill", "-KILL", "-f", filepath.Join(d.dir, "data")).Run()
}

// result is the result of one command line.
type result struct {
	stdout, stderr string
	code           int
	took           time.Duration
}

// muster runs a verb with this daemon.
func (d *daemon) muster(args ...string) result {
	d.t.Helper()
	return d.musterIn(nil, args...)
}

func (d *daemon) musterIn(stdin io.Reader, args ...string) result {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary(d.t), args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGQUIT) } // so that it logs its stacks
	cmd.WaitDelay = 5 * time.Second
	cmd.Dir = d.verbDir
	cmd.Env = append(os.Environ(), "MUSTER_SOCKET="+d.socket)
	cmd.Stdin = stdin
	if d.user != nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: d.user}
		cmd.Env = append(cmd.Env, "HOME="+d.dir)
		if err := os.Chmod(d.dir, 0o711); err != nil { //nolint:gosec // so that the user reaches the socket
			d.t.Fatal(err)
		}
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	start := time.Now()
	err := cmd.Run()
	r := result{stdout: stdout.String(), stderr: stderr.String(), took: time.Since(start)}
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		d.t.Fatalf("muster %q at %s did not end: %s%s", args, d.name, r.stdout, r.stderr)
	case errors.As(err, &exit):
		r.code = exit.ExitCode()
	case err != nil:
		d.t.Fatal(err)
	}
	return r
}

// ok runs a verb that must succeed, and returns its output without the last newline.
func (d *daemon) ok(args ...string) string {
	d.t.Helper()
	r := d.muster(args...)
	if r.code != 0 {
		d.t.Fatalf("muster %q at %s: exit %d, want 0\n%s%s", args, d.name, r.code, r.stdout, r.stderr)
	}
	return strings.TrimSuffix(r.stdout, "\n")
}

// fails runs a verb that must exit with the code and print all words in one line.
func (d *daemon) fails(code int, words []string, args ...string) result {
	d.t.Helper()
	r := d.muster(args...)
	d.wantFailure(r, code, words, args)
	return r
}

func (d *daemon) wantFailure(r result, code int, words, args []string) {
	d.t.Helper()
	if r.code != code || !containsAll(r.stderr, words) {
		d.t.Errorf("muster %.200q at %s: exit %d, want %d with %q\nstderr: %s", args, d.name, r.code, code, words, r.stderr)
	}
}

func (d *daemon) show(id string) api.Job {
	d.t.Helper()
	var doc api.Job
	text := d.ok("show", id, "--json")
	if err := json.Unmarshal([]byte(text), &doc); err != nil || len(doc.Tasks) != 1 {
		d.t.Fatalf("show %s: got %v, want one task\n%s", id, err, text)
	}
	return doc
}

// until polls a job of one task until as returns true for it.
func (d *daemon) until(id, what string, as func(api.Job) bool) api.Job {
	d.t.Helper()
	return d.untilDoc(id, what, func(j api.Job) bool {
		if len(j.Tasks) != 1 {
			d.t.Fatalf("job %s has %d tasks: %+v", id, len(j.Tasks), j)
		}
		return as(j)
	})
}

// untilDoc polls a job of any number of tasks until as returns true for it.
func (d *daemon) untilDoc(id, what string, as func(api.Job) bool) api.Job {
	d.t.Helper()
	show := func() api.Job { return d.doc(id) }
	if d.user == nil {
		client := d.asker()
		defer client.Close()
		show = func() api.Job {
			j := asked(d, func(ctx context.Context) (api.Job, error) { return client.Job(ctx, job.ID(id)) })
			if j.TaskCount > len(j.Tasks) { // the verb chooses which tasks of a large job it shows
				return d.doc(id)
			}
			return j
		}
	}
	return until(d, "job "+id, what, show, as)
}

// asker returns a client of the daemon, for waits: a verb would need a process for each look, and many processes would take
// more CPU time than the daemons that are waited for. Its requests are those of the user of this process.
func (d *daemon) asker() *api.Client {
	d.t.Helper()
	client, err := api.NewClient(api.ClientConfig{Socket: d.socket})
	if err != nil {
		d.t.Fatal(err)
	}
	return client
}

// asked makes a request of a client, which must succeed in the time that a verb has.
func asked[T any](d *daemon, request func(context.Context) (T, error)) T {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	doc, err := request(ctx)
	if err != nil {
		d.t.Fatalf("%s: %v", d.name, err)
	}
	return doc
}

// until polls a value that a daemon shows until as returns true for it: a hundred times a second, or if a look takes longer,
// for half of the time.
func until[T any](d *daemon, of, what string, look func() T, as func(T) bool) T {
	d.t.Helper()
	late := time.NewTimer(patience)
	defer late.Stop()
	for {
		begin := time.Now()
		doc := look()
		if as(doc) {
			return doc
		}
		select {
		case <-time.NewTimer(max(10*time.Millisecond, time.Since(begin))).C:
		case <-late.C:
			d.t.Fatalf("%s at %s never was %s: got %+v", of, d.name, what, doc)
		}
	}
}

// untilRight polls twice a second until look returns "". look returns what is wrong.
func untilRight(t *testing.T, within time.Duration, look func() string) {
	t.Helper()
	late := time.NewTimer(within)
	defer late.Stop()
	tick := time.NewTicker(time.Second / 2)
	defer tick.Stop()
	for {
		wrong := look()
		if wrong == "" {
			return
		}
		select {
		case <-tick.C:
		case <-late.C:
			t.Fatalf("after %s still: %s", within, wrong)
		}
	}
}

// checkFor polls twice a second for a time. If look returns an error, the test fails.
func checkFor(t *testing.T, span time.Duration, look func() string) {
	t.Helper()
	start := time.Now()
	over := time.NewTimer(span)
	defer over.Stop()
	tick := time.NewTicker(time.Second / 2)
	defer tick.Stop()
	for {
		if wrong := look(); wrong != "" {
			t.Fatalf("after %s: got %s, want an empty text", time.Since(start).Round(time.Second/10), wrong)
		}
		select {
		case <-tick.C:
		case <-over.C:
			return
		}
	}
}

func (d *daemon) untilState(id, state string) api.Job {
	d.t.Helper()
	return d.until(id, state, func(j api.Job) bool { return string(j.State) == state })
}

type invitation struct{ api.Invitation }

func (d *daemon) invite(args ...string) invitation {
	d.t.Helper()
	var inv invitation
	text := d.ok(append([]string{"invite", "--json"}, args...)...)
	if err := json.Unmarshal([]byte(text), &inv); err != nil || inv.Token == "" || len(inv.Bootstrap) == 0 {
		d.t.Fatalf("invite: got %v, want a token and an address\n%s", err, text)
	}
	return inv
}

// flags returns the arguments with which another daemon uses the invitation. launch puts the token into the
// environment.
func (i invitation) flags() []string {
	var f []string
	for _, b := range i.Bootstrap {
		f = append(f, "--bootstrap", b)
	}
	return append(f, "--token", i.Token)
}

// over keeps only the addresses of one transport: tcp or quic.
func (i invitation) over(transport string) invitation {
	var keep []string
	for _, b := range i.Bootstrap {
		if strings.Contains(b, "/quic") == (transport == "quic") {
			keep = append(keep, b)
		}
	}
	i.Bootstrap = keep
	return i
}

// three starts the cluster that most tests use: amy and ben have no GPUs, cat has eight simulated ones.
func three(t *testing.T) (amy, ben, cat *daemon) {
	t.Helper()
	amy = newDaemon(t, "amy", "--gpus", "none", "--cpus", "4").start()
	inv := amy.invite("--uses", "2")
	ben = newDaemon(t, "ben", "--gpus", "none", "--cpus", "4").start(inv.flags()...)
	cat = newDaemon(t, "cat", "--gpus", "sim:8xH100-80GB", "--cpus", "16").start(inv.flags()...)
	for _, d := range []*daemon{amy, ben, cat} {
		d.untilNodes(3)
	}
	return amy, ben, cat
}

func (d *daemon) nodes() api.Listing[api.Node] {
	d.t.Helper()
	var doc api.Listing[api.Node]
	if err := json.Unmarshal([]byte(d.ok("nodes", "--json")), &doc); err != nil {
		d.t.Fatal(err)
	}
	return doc
}

// untilNodes waits until the daemon shows n nodes that are ready.
func (d *daemon) untilNodes(n int) {
	d.t.Helper()
	client := d.asker()
	defer client.Close()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	late := time.NewTimer(patience)
	defer late.Stop()
	for {
		ready := 0
		for _, item := range asked(d, client.Nodes).Items {
			if item.State == "ready" {
				ready++
			}
		}
		if ready == n {
			return
		}
		select {
		case <-tick.C:
		case <-late.C:
			d.t.Fatalf("%s shows %d ready nodes, want %d", d.name, ready, n)
		}
	}
}

// gate is a task that prints the pid that it sees and runs until open is called. It waits by reading a named pipe.
type gate struct {
	t    *testing.T
	path string
}

func newGate(t *testing.T) gate {
	t.Helper()
	g := gate{t, filepath.Join(t.TempDir(), "gate")}
	if err := syscall.Mkfifo(g.path, 0o666); err != nil {
		t.Fatal(err)
	}
	return g
}

// script returns a command that waits at the gate and then runs the rest.
func (g gate) script(rest string) []string {
	return []string{"sh", "-c", fmt.Sprintf("echo before $$; read line < %s; %s", g.path, rest)}
}

// open lets the task that waits at the gate continue.
func (g gate) open() {
	g.t.Helper()
	f, err := os.OpenFile(g.path, os.O_WRONLY, 0)
	if err != nil {
		g.t.Fatal(err)
	}
	fmt.Fprintln(f, "go")
	f.Close()
}

// These ports are outside the range from which systems choose ports, so that no other program gets a daemon's port by
// chance while the daemon is away.
const lowestPort, endOfPorts = 10_000, 32_768

// taken has the ports that this run has used. Among 100 random ports, two are the same in every fifth run.
var taken sync.Map

// freePort returns a random port that is free for TCP and UDP, and that no other daemon of this run has.
func freePort(t *testing.T) int {
	t.Helper()
	for range 1000 {
		port := lowestPort + rand.IntN(endOfPorts-lowestPort) //nolint:gosec // any port is fine
		if _, used := taken.LoadOrStore(port, true); used {
			continue
		}
		l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
		if err != nil {
			continue
		}
		u, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
		l.Close()
		if err == nil {
			u.Close()
			return port
		}
	}
	t.Fatal("no port is free")
	return 0
}
