package docker

// The link to an engine that restarts, and pulls that stall: a minimal engine in memory, with a fake clock.

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/moby/moby/client"

	"github.com/musterhq/muster/worker/runner/protocol"
	"github.com/musterhq/muster/worker/runner/spawn"
)

// pipes listens in memory.
type pipes struct {
	conns chan net.Conn
	ended chan struct{}
	end   sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.ended:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.end.Do(func() { close(p.ended) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "engine", Net: "unix"} }

// fakeEngine answers like an engine. It restarts with other settings.
type fakeEngine struct {
	t      *testing.T
	server *http.Server // guarded by the test, which alone starts and ends it
	at     atomic.Pointer[pipes]
	memory atomic.Int64
	asked  atomic.Int32
	events http.HandlerFunc // nil: like an engine
	pull   http.HandlerFunc
}

func (e *fakeEngine) start() {
	mux := http.NewServeMux()
	mux.HandleFunc("/_ping", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("API-Version", "1.44") })
	mux.HandleFunc("/v1.44/info", func(w http.ResponseWriter, _ *http.Request) {
		e.asked.Add(1)
		fmt.Fprintf(w, `{"MemTotal": %d}`, e.memory.Load())
	})
	mux.HandleFunc("/v1.44/events", func(w http.ResponseWriter, r *http.Request) {
		if e.events != nil {
			e.events(w, r)
			return
		}
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	mux.HandleFunc("/v1.44/images/create", func(w http.ResponseWriter, r *http.Request) { e.pull(w, r) })
	l := &pipes{conns: make(chan net.Conn), ended: make(chan struct{})}
	e.at.Store(l)
	e.server = &http.Server{Handler: mux, ReadHeaderTimeout: time.Hour}
	go e.server.Serve(l)
}

func (e *fakeEngine) link() *link {
	c, err := client.New(client.WithHost("tcp://engine:1"), client.WithDialContext(func(ctx context.Context, _, _ string) (net.Conn, error) {
		here, there := net.Pipe()
		select {
		case e.at.Load().conns <- there:
			return here, nil
		case <-e.at.Load().ended:
			return nil, errors.New("no engine")
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}))
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() {
		e.server.Close()
		c.Close()
		time.Sleep(unwatched) // of the fake clock; then nobody watches any more
	})
	return &link{Client: c}
}

// An engine that was restarted with other settings is queried again, and so is one that has reloaded its settings. One
// without a change is queried once.
func TestSettingsAreQueriedAgainAfterARestart(t *testing.T) {
	reload := make(chan struct{})
	watched := func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		select {
		case <-reload:
			fmt.Fprintln(w, `{"Type": "daemon", "Action": "reload"}`)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		case <-r.Context().Done():
		}
	}
	refused := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }
	restart := func(e *fakeEngine) { e.server.Close(); e.start() }
	for name, c := range map[string]struct {
		events http.HandlerFunc
		change func(e *fakeEngine)
		within time.Duration
	}{
		"restarted":                {watched, restart, 0},
		"settings reloaded":        {watched, func(*fakeEngine) { reload <- struct{}{} }, 0},
		"a proxy hides its events": {refused, restart, unwatched},
	} {
		t.Run(name, func(t *testing.T) {
			reload = make(chan struct{})
			synctest.Test(t, func(t *testing.T) {
				e := &fakeEngine{t: t, events: c.events}
				e.memory.Store(1 << 30)
				e.start()
				l := e.link()
				for range 100 {
					if f, err := l.learn(t.Context()); err != nil || f.memory != 1<<30 {
						t.Fatalf("%+v, %v, want no error and memory %v", f, err, 1<<30)
					}
				}
				if n := e.asked.Load(); n != 1 {
					t.Errorf("asked %d times for 100 containers, want 1", n)
				}
				e.memory.Store(2 << 30)
				c.change(e)
				time.Sleep(c.within)
				synctest.Wait()
				if f, err := l.learn(t.Context()); err != nil || f.memory != 2<<30 {
					t.Errorf("afterwards: %+v, %v, want no error and memory %v", f, err, 2<<30)
				}
				if n := e.asked.Load(); n != 2 {
					t.Errorf("asked %d times, want 2", n)
				}
			})
		})
	}
}

// What an engine lacks is remembered for the next container while the engine is up. A container whose engine went away
// in between still knows it.
func TestWhatAnEngineLacksIsRemembered(t *testing.T) {
	l := &link{facts: &facts{}}
	with := facts{}
	if lost := errors.New("exec: docker-init: not found"); !l.lacks(&with, lost) || !with.noInit || !l.facts.noInit || l.lacks(&with, lost) {
		t.Errorf("%+v, %+v, want the missing init known to both, once", with, l.facts)
	}
	l.facts = nil
	if !l.lacks(&with, errors.New("error setting rlimit")) || !with.noLimits || l.facts != nil {
		t.Errorf("%+v, %+v, want the missing limits known to the container alone", with, l.facts)
	}
}

// A stalled pull ends with its reason. A slow one goes on, and one that waits for others has more time.
func TestStalledPullEnds(t *testing.T) {
	for _, c := range []struct {
		name    string
		line    string // %d: a number that grows
		every   time.Duration
		lines   int // 0: it never ends
		silent  bool
		after   time.Duration // 0: it succeeds
		because string
	}{
		{"slow", `{"status":"Downloading","id":"aa","progressDetail":{"current":%d,"total":2000}}`, stalledAfter - 2*time.Second, 100, false, 0, ""},
		{"unpacking slowly", `{"status":"Extracting","id":"aa","progressDetail":{"current":%d,"units":"s"}}`, time.Second, 3600, false, 0, ""},
		{"nothing at all", "", 0, 0, true, stalledAfter, "no progress for 5 minutes"},
		{"an answer and no more", `{"status":"Pulling fs layer","id":"aa"}`, 2 * stalledAfter, 0, false, stalledAfter, "no progress for 5 minutes"},
		{"the same again and again", `{"status":"Downloading","id":"aa","progressDetail":{"current":7,"total":2000}}`, time.Second, 0, false, stalledAfter, "no progress for 5 minutes"},
		{"waits for others", `{"status":"Waiting","id":"aa"}`, time.Minute, 40, false, 0, ""},
		{"waits for ever", `{"status":"Waiting","id":"aa"}`, time.Minute, 0, false, queuedAfter, "no progress for 60 minutes: its layers wait"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := &fakeEngine{t: t, pull: func(w http.ResponseWriter, r *http.Request) {
					if c.silent {
						<-r.Context().Done()
						return
					}
					fmt.Fprintln(w, `{"status":"Pulling fs layer","id":"aa"}`)
					for i := 1; (c.lines == 0 || i <= c.lines) && r.Context().Err() == nil; i++ {
						fmt.Fprintln(w, strings.Replace(c.line, "%d", strconv.Itoa(i), 1))
						_ = http.NewResponseController(w).Flush()
						pause(r.Context(), c.every)
					}
				}}
				e.start()
				began := time.Now()
				err := e.link().pull(t.Context(), spawn.Container{Container: protocol.Container{Image: "a:1"}, Progress: func(string) {}})
				took := time.Since(began)
				if c.after == 0 {
					if err != nil {
						t.Errorf("after %s: %v, want no error", took, err)
					}
					return
				}
				// It is checked every second.
				if err == nil || !strings.HasPrefix(err.Error(), c.because) || took < c.after || took > c.after+2*time.Second || !mayPass(err) {
					t.Errorf("after %s: %v, want after %s: %s", took, err, c.after, c.because)
				}
				if got := notPulled("a:1", err).Error(); !strings.Contains(got, "try docker pull on the node") {
					t.Errorf(`got %v, want "try docker pull on the node" in it`, got)
				}
			})
		})
	}
}
