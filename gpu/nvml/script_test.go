package nvml

// Scripted children.

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/gpu/gputest"
)

// life is one child of a script: the requests to it, and its output.
type life struct {
	requests <-chan request
	killed   <-chan struct{}
	out      io.Writer
}

func (l life) say(t *testing.T, m message) {
	t.Helper()
	line, err := json.Marshal(m)
	if err != nil {
		t.Error(err)
	}
	_, _ = l.out.Write(append(line, '\n')) // the driver may have closed the pipe
}

// answer answers like a healthy child until it is killed.
func (l life) answer(t *testing.T, devices []gpu.Device) {
	for r := range l.requests {
		l.reply(t, r, devices)
	}
}

func (l life) reply(t *testing.T, r request, devices []gpu.Device) {
	out := reply{ID: r.ID}
	switch r.Op {
	case opList:
		out.Devices = devices
	case opStatus:
		for _, d := range devices {
			out.Statuses = append(out.Statuses, gpu.Status{UUID: d.UUID, Health: gpu.Healthy})
		}
	}
	l.say(t, message{Reply: &out})
}

// play starts children one after another, each with the next script. The last script is repeated. It counts the starts.
type play struct {
	t       *testing.T
	scripts []func(life)
	starts  int
	mayEnd  chan struct{} // a killed child ends when this is closed
	steps   []step        // TERM and KILL as the driver sent them
}

type step struct {
	signal string
	at     time.Time
}

func (p *play) start() (*child, error) {
	script := p.scripts[min(p.starts, len(p.scripts)-1)]
	p.starts++
	in, stdin := io.Pipe()
	stdout, out := io.Pipe()
	requests, killed, done := make(chan request, 100), make(chan struct{}), make(chan struct{})
	note := func(signal string) { p.steps = append(p.steps, step{signal, time.Now()}) }
	kill := sync.OnceFunc(func() {
		close(killed)
		in.CloseWithError(io.ErrClosedPipe)
		out.Close()
	})
	go func() {
		defer close(requests)
		for lines := bufio.NewScanner(in); lines.Scan(); {
			var r request
			if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
				p.t.Errorf("request %q: %v", lines.Text(), err)
			}
			requests <- r
		}
	}()
	go func() {
		defer close(done)
		script(life{requests: requests, killed: killed, out: out})
		kill()
		if p.mayEnd != nil {
			<-p.mayEnd
		}
	}()
	term, dead := func() { note("TERM") }, func() { note("KILL"); kill() }
	return &child{in: stdin, out: stdout, term: term, kill: dead, done: done, last: func() string { return "exit status 127: last words" }}, nil
}

var twoGPUs = gputest.Devices(2, "GPU", "NVIDIA H100 80GB HBM3", 80<<30)

func (p *play) healthy(l life) {
	l.say(p.t, message{Hello: &hello{}})
	l.answer(p.t, twoGPUs)
}

func (p *play) hung(l life) {
	l.say(p.t, message{Hello: &hello{}})
	for r := range l.requests {
		if r.Op == opStatus {
			<-l.killed
			return
		}
		l.reply(p.t, r, twoGPUs)
	}
}

func (p *play) none(l life) {
	l.say(p.t, message{Hello: &hello{None: "libnvidia-ml.so.1 is not installed"}})
}

func (p *play) crash(life) {}

// stage returns a driver whose children follow the scripts, and its log.
func stage(t *testing.T, p *play) (*Driver, *bytes.Buffer) {
	t.Helper()
	p.t = t
	log := &bytes.Buffer{}
	d := newDriver(Config{Command: []string{"agent"}, Timeout: 5 * time.Second, WakeTimeout: 30 * time.Second, StartTimeout: time.Minute}, slog.New(slog.NewTextHandler(log, nil)), p.start)
	t.Cleanup(func() { d.Close() })
	return d, log
}

func lines(log *bytes.Buffer) int { return strings.Count(log.String(), "\n") }

func mustList(t *testing.T, d *Driver, n int) {
	t.Helper()
	if devices, err := d.List(t.Context()); err != nil || len(devices) != n {
		t.Fatalf("List: %d devices, %v; want %d", len(devices), err, n)
	}
}

func health(t *testing.T, d *Driver) string {
	t.Helper()
	statuses, err := d.Status(t.Context())
	if err != nil {
		t.Fatalf("Status: %v", err)
	}
	var all []string
	for _, s := range statuses {
		all = append(all, string(s.Health))
	}
	return strings.Join(all, " ")
}
