package nvml

// The daemon's half against scripted children, on a fake clock.

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/gpu/gputest"
)

// life is one child of a script: what it was asked, and how it speaks.
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
	_, _ = l.out.Write(append(line, '\n')) // the driver may have hung up
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

// play starts children one after another, each with the next script; the last
// script is played again and again. It counts the starts.
type play struct {
	t       *testing.T
	scripts []func(life)
	starts  int
	undead  chan struct{} // a killed child ends when this is closed
}

func (p *play) start() (*child, error) {
	script := p.scripts[min(p.starts, len(p.scripts)-1)]
	p.starts++
	in, stdin := io.Pipe()
	stdout, out := io.Pipe()
	requests, killed, done := make(chan request, 100), make(chan struct{}), make(chan struct{})
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
		if p.undead != nil {
			<-p.undead
		}
	}()
	return &child{in: stdin, out: stdout, kill: kill, done: done, last: func() string { return "exit status 127: last words" }}, nil
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

// stage makes a driver whose children follow the scripts, and its log.
func stage(t *testing.T, p *play) (*Driver, *bytes.Buffer) {
	t.Helper()
	p.t = t
	log := &bytes.Buffer{}
	d := newDriver(Config{Command: []string{"agent"}, Timeout: 5 * time.Second, StartTimeout: time.Minute}, slog.New(slog.NewTextHandler(log, nil)), p.start)
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

func TestDriverKeepsTheContract(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &play{}
		p.scripts = []func(life){p.healthy}
		d, log := stage(t, p)
		gputest.TestDriver(t, d)
		if p.starts != 1 || lines(log) != 0 {
			t.Errorf("%d children, log: %s", p.starts, log)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		p := &play{}
		p.scripts = []func(life){p.none}
		d, _ := stage(t, p)
		gputest.TestDriver(t, d)
	})
}

func TestNoDriverIsOneLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &play{}
		p.scripts = []func(life){p.none, p.none, p.healthy}
		d, log := stage(t, p)
		for range 100 {
			mustList(t, d, 0)
			if got := health(t, d); got != "" {
				t.Fatalf("status %q", got)
			}
		}
		if p.starts != 1 || lines(log) != 1 || !strings.Contains(log.String(), "level=INFO") || !strings.Contains(log.String(), "libnvidia-ml.so.1") {
			t.Errorf("%d children; log: %s", p.starts, log)
		}
		if d.agent != nil {
			t.Error("a child is kept without a GPU")
		}
		time.Sleep(noneFor)
		mustList(t, d, 0)
		if p.starts != 2 || lines(log) != 1 {
			t.Errorf("%d children; log: %s", p.starts, log)
		}
		time.Sleep(noneFor)
		mustList(t, d, 2) // a driver was installed
	})
}

func TestHungChildIsKilledAndRestarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &play{}
		p.scripts = []func(life){p.hung, p.healthy}
		d, log := stage(t, p)
		mustList(t, d, 2)
		asked := time.Now()
		if got := health(t, d); got != "unknown unknown" {
			t.Errorf("a hung driver: %s", got)
		}
		if took := time.Since(asked); took != 5*time.Second {
			t.Errorf("gave up after %s", took)
		}
		if got := health(t, d); got != "unknown unknown" || p.starts != 1 {
			t.Errorf("during the pause: %s, %d children", got, p.starts)
		}
		if _, err := d.List(t.Context()); !errors.Is(err, errSlow) {
			t.Errorf("List of a driver that broke: %v", err)
		}
		if lines(log) != 1 || !strings.Contains(log.String(), "level=WARN") {
			t.Errorf("log: %s", log)
		}
		time.Sleep(minPause)
		if got := health(t, d); got != "healthy healthy" || p.starts != 2 {
			t.Errorf("after the pause: %s, %d children", got, p.starts)
		}
		if lines(log) != 2 || !strings.Contains(log.String(), "answers again") {
			t.Errorf("log: %s", log)
		}
	})
}

func TestCrashingChildIsStartedEverMoreRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &play{}
		p.scripts = []func(life){p.crash}
		d, log := stage(t, p)
		_, err := d.List(t.Context())
		if !errors.Is(err, errEnded) || !strings.Contains(err.Error(), "last words") {
			t.Errorf("List: %v", err)
		}
		if _, err := d.Status(t.Context()); err == nil {
			t.Error("Status without any list: no error")
		}
		for range 360 { // an hour of polls
			time.Sleep(10 * time.Second)
			if _, err := d.List(t.Context()); err == nil {
				t.Fatal("List: no error")
			}
		}
		if p.starts < 55 || p.starts > 70 {
			t.Errorf("%d children in an hour", p.starts)
		}
		if lines(log) != 1 {
			t.Errorf("log: %s", log)
		}
	})
}

func TestUndeadChildIsNotJoinedByAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &play{undead: make(chan struct{})}
		p.scripts = []func(life){p.hung, p.healthy}
		d, _ := stage(t, p)
		mustList(t, d, 2)
		for range 10 {
			if got := health(t, d); got != "unknown unknown" || p.starts != 1 {
				t.Fatalf("%s, %d children", got, p.starts)
			}
			time.Sleep(time.Minute)
		}
		close(p.undead)
		synctest.Wait()
		if got := health(t, d); got != "healthy healthy" || p.starts != 2 {
			t.Errorf("%s, %d children", got, p.starts)
		}
	})
}

func TestFaultsSurviveAChild(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &play{}
		xid := func(n uint64) func(life) {
			return func(l life) {
				l.say(p.t, message{Hello: &hello{}})
				l.say(p.t, message{Fault: &gpu.Fault{UUID: "GPU-0", Xid: n}})
				time.Sleep(time.Second) // then it dies
			}
		}
		p.scripts = []func(life){xid(79), xid(48), p.healthy}
		d, _ := stage(t, p)
		ctx, stop := context.WithCancel(t.Context())
		faults, err := d.Faults(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []uint64{79, 48} {
			if f := <-faults; f.Xid != want {
				t.Errorf("fault %v, want Xid %d", f, want)
			}
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if p.starts != 3 {
			t.Errorf("%d children", p.starts)
		}
		stop()
		if f, open := <-faults; open {
			t.Errorf("another fault: %v", f)
		}
	})
}

func TestFaultsNobodyReadsAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &play{}
		p.scripts = []func(life){func(l life) {
			l.say(p.t, message{Hello: &hello{}})
			for range maxFaults + 5 {
				l.say(p.t, message{Fault: &gpu.Fault{Xid: 79}})
			}
			l.answer(p.t, twoGPUs)
		}}
		d, log := stage(t, p)
		if _, err := d.Faults(t.Context()); err != nil {
			t.Fatal(err)
		}
		mustList(t, d, 2) // the child is read on
		synctest.Wait()
		if lines(log) != 5 || !strings.Contains(log.String(), "dropped") {
			t.Errorf("log: %s", log)
		}
	})
}

func TestCallerWhoGivesUpHarmsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &play{}
		p.scripts = []func(life){func(l life) {
			l.say(p.t, message{Hello: &hello{}})
			for r := range l.requests {
				time.Sleep(3 * time.Second)
				l.reply(p.t, r, twoGPUs)
			}
		}}
		d, log := stage(t, p)
		for range 5 {
			ctx, stop := context.WithTimeout(t.Context(), time.Second)
			if _, err := d.List(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("List: %v", err)
			}
			stop()
			time.Sleep(10 * time.Second)
		}
		mustList(t, d, 2)
		if got := health(t, d); got != "healthy healthy" || p.starts != 1 || lines(log) != 0 {
			t.Errorf("%s, %d children, log: %s", got, p.starts, log)
		}
	})
}

// The answer to one who gave up is not taken for that to the next.
func TestLateAnswerIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &play{}
		delay := time.Duration(0)
		p.scripts = []func(life){func(l life) {
			l.say(p.t, message{Hello: &hello{}})
			for r := range l.requests {
				time.Sleep(delay)
				l.reply(p.t, r, twoGPUs)
			}
		}}
		d, _ := stage(t, p)
		mustList(t, d, 2)
		synctest.Wait()
		delay = 2 * time.Second
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		if _, err := d.List(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("List: %v", err)
		}
		if got := health(t, d); got != "healthy healthy" || p.starts != 1 {
			t.Errorf("%s, %d children", got, p.starts)
		}
	})
}

// Callers that all give up early must not keep a hung child alive.
func TestImpatientCallersStillFindAHungChild(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &play{}
		p.scripts = []func(life){p.hung}
		d, _ := stage(t, p)
		mustList(t, d, 2)
		for range 10 {
			ctx, stop := context.WithTimeout(t.Context(), time.Second)
			_, _ = d.Status(ctx)
			stop()
		}
		if d.agent != nil {
			t.Error("the hung child lives")
		}
	})
}

func TestSlowStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &play{}
		p.scripts = []func(life){func(l life) { time.Sleep(20 * time.Second); p.healthy(l) }}
		d, log := stage(t, p)
		ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
		defer stop()
		if _, err := d.List(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("List: %v", err)
		}
		mustList(t, d, 2)
		time.Sleep(time.Hour) // far past the time in which it had to start
		mustList(t, d, 2)
		if p.starts != 1 || lines(log) != 0 {
			t.Errorf("%d children, log: %s", p.starts, log)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		p := &play{}
		p.scripts = []func(life){func(l life) { <-l.killed }}
		d, _ := stage(t, p)
		asked := time.Now()
		if _, err := d.List(t.Context()); !errors.Is(err, errSlow) || time.Since(asked) != time.Minute {
			t.Errorf("List: %v after %s", err, time.Since(asked))
		}
	})
}

func TestDriverThatGoesAwayIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &play{}
		p.scripts = []func(life){func(l life) {
			l.say(p.t, message{Hello: &hello{}})
			l.reply(p.t, <-l.requests, twoGPUs)
		}, p.none}
		d, _ := stage(t, p)
		mustList(t, d, 2)
		time.Sleep(time.Minute)
		_, _ = d.List(t.Context()) // finds the child gone
		time.Sleep(time.Minute)
		if devices, err := d.List(t.Context()); !errors.Is(err, errNone) {
			t.Errorf("List: %v, %v", devices, err)
		}
		if got := health(t, d); got != "unknown unknown" {
			t.Errorf("status %s", got)
		}
	})
}

func TestWrongAnswers(t *testing.T) {
	twice := []gpu.Device{twoGPUs[0], twoGPUs[0]}
	for name, script := range map[string]func(*testing.T, life){
		"no hello":     func(t *testing.T, l life) { l.say(t, message{Reply: &reply{ID: 1}}) },
		"garbage":      func(_ *testing.T, l life) { io.WriteString(l.out, "Segmentation fault\n") },
		"endless line": func(_ *testing.T, l life) { l.out.Write(bytes.Repeat([]byte("x"), maxMessage+1)) },
		"nothing":      func(_ *testing.T, l life) { io.WriteString(l.out, "{}\n") },
		"two hellos": func(t *testing.T, l life) {
			l.say(t, message{Hello: &hello{}})
			l.say(t, message{Hello: &hello{}})
		},
		"library error": func(t *testing.T, l life) { l.say(t, message{Hello: &hello{Error: "version mismatch"}}) },
		"same device twice": func(t *testing.T, l life) {
			l.say(t, message{Hello: &hello{}})
			l.answer(t, twice)
		},
		"request failed": func(t *testing.T, l life) {
			l.say(t, message{Hello: &hello{}})
			for r := range l.requests {
				l.say(t, message{Reply: &reply{ID: r.ID, Error: "count the GPUs: unknown error"}})
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, _ := stage(t, &play{scripts: []func(life){func(l life) { script(t, l) }}})
				if devices, err := d.List(t.Context()); err == nil {
					t.Errorf("took %v", devices)
				}
			})
		})
	}
}

func TestNotesAreLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &play{}
		p.scripts = []func(life){func(l life) {
			l.say(p.t, message{Hello: &hello{}})
			for r := range l.requests {
				l.say(p.t, message{Reply: &reply{ID: r.ID, Devices: twoGPUs, Notes: []string{"GPU 2: lost"}}})
			}
		}}
		d, log := stage(t, p)
		for range 5 {
			mustList(t, d, 2)
		}
		if lines(log) != 1 || !strings.Contains(log.String(), "GPU 2: lost") {
			t.Errorf("log: %s", log)
		}
	})
}

func TestCloseEndsAHungCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &play{}
		p.scripts = []func(life){p.hung}
		d, _ := stage(t, p)
		mustList(t, d, 2)
		faults, err := d.Faults(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		failed := make(chan error)
		go func() {
			_, err := d.Status(t.Context())
			failed <- err
		}()
		synctest.Wait()
		began := time.Now()
		go d.Close()
		if err := <-failed; !errors.Is(err, gpu.ErrClosed) {
			t.Errorf("Status: %v", err)
		}
		if _, open := <-faults; open {
			t.Error("a fault after Close")
		}
		if d.Close(); time.Since(began) != 0 {
			t.Errorf("Close took %s", time.Since(began))
		}
	})
}

func TestConfig(t *testing.T) {
	if _, err := New(DefaultConfig(), slog.New(slog.DiscardHandler)); err == nil {
		t.Error("took a configuration without a command")
	}
	cfg := DefaultConfig()
	cfg.Command = []string{"/nonexistent/muster"}
	d, err := New(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if _, err := d.List(t.Context()); err == nil || !strings.Contains(err.Error(), "/nonexistent/muster") {
		t.Errorf("List: %v", err)
	}
	cfg.Timeout = 0
	if cfg.Validate() == nil {
		t.Error("took a timeout of 0")
	}
}

// Whatever a child writes, the daemon reads on or ends it.
func FuzzRead(f *testing.F) {
	f.Add([]byte("{\"hello\":{}}\n{\"reply\":{\"id\":1,\"devices\":[{\"uuid\":\"GPU-0\"}]}}\n{\"fault\":{\"xid\":79}}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		killed := false
		c := &child{out: io.NopCloser(bytes.NewReader(text)), kill: func() { killed = true }}
		a := startAgent(c, func(gpu.Fault) {})
		<-a.gone
		if a.why == nil || !killed {
			t.Errorf("why %v, killed %v", a.why, killed)
		}
		select {
		case r := <-a.replies:
			_ = checkDevices(r.Devices)
		default:
		}
	})
}
