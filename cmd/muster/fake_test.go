package main

// A fake daemon that serves hand-written documents, and the program that runs against it.

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/job"
)

const (
	idA = "1268ezjnc8-mdxchras0wg7e"
	idB = "r0db0hqz9r-mdxchras0wg7e"
)

func TestMain(m *testing.M) {
	time.Local = time.UTC                                 // tables show the same times everywhere
	signal.Notify(make(chan os.Signal, 1), unix.SIGWINCH) // starts the goroutine of the package, outside any bubble of synctest
	m.Run()
}

// fake is a daemon on its own socket.
type fake struct {
	t      *testing.T
	socket string
}

// newFake serves the routes, each "METHOD /path", until the test ends.
func newFake(t *testing.T, routes map[string]http.HandlerFunc) *fake {
	t.Helper()
	clearEnvironment(t)
	dir, err := os.MkdirTemp("", "m") //nolint:usetesting // short: a socket's path has 107 letters
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	for route, handler := range routes {
		mux.HandleFunc(route, handler)
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("got a request %s %s, want one of the routes", r.Method, r.URL)
		w.WriteHeader(http.StatusNotFound)
	})
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: mux}
	go server.Serve(l)
	t.Cleanup(func() { server.Close(); os.RemoveAll(dir) })
	return &fake{t, l.Addr().String()}
}

// clearEnvironment unsets the environment variables of the program.
func clearEnvironment(t *testing.T) {
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "MUSTER_") {
			t.Setenv(name, "") // so that the test framework restores it
			os.Unsetenv(name)
		}
	}
}

type result struct {
	code        int
	stdout, err string
}

func (f *fake) muster(args ...string) result {
	f.t.Helper()
	return f.musterIn(f.t.Context(), "", args...)
}

func (f *fake) musterIn(ctx context.Context, in string, args ...string) result {
	f.t.Helper()
	return program(ctx, in, append([]string{"--socket", f.socket}, args...)...)
}

func program(ctx context.Context, in string, args ...string) result {
	var out, errs bytes.Buffer
	code := run(ctx, append([]string{"muster"}, args...), streams{strings.NewReader(in), &out, &errs})
	return result{code, out.String(), errs.String()}
}

func answer(status int, doc string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		io.WriteString(w, doc)
	}
}

func problem(status int, code, more string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"code": %q, "status": %d, %s}`, code, status, more)
	}
}

// jobDoc returns a job of one task; more holds further fields of the task.
func jobDoc(id, state, more string) string {
	return fmt.Sprintf(`{"schema":"muster.job/v1","id":%q,"name":"train","user":"amy","state":%q,"reason":"","priority":50,"nodes":1,
		"submitted_at":"2026-01-02T03:04:05Z","started_at":"2026-01-02T03:04:06Z","ended_at":"2026-01-02T03:05:07Z","owner":"12D3KooWOwner","owner_name":"n1","copies":1,
		"resources":{"cpus":4,"gpus":2,"gpu_model":"H100","memory":8589934592},
		"spec":{"command":["python","train.py"]},
		"task_count":1,"counts":{%q:1},"exit_status":%s,
		"tasks":[{"task":0,"state":%q,"attempt":1,"node":"n1","node_id":"12D3KooWNode","gpus":["GPU-1","GPU-2"]%s}]}`,
		id, state, state, statusOf(state, more), state, more)
}

// statusOf returns the exit status of a job of one task, as a daemon sends it.
func statusOf(state, more string) string {
	code, signal := 0, 0
	fmt.Sscanf(more, `,"exit_code":%d`, &code)
	fmt.Sscanf(more, `,"signal":%d`, &signal)
	switch {
	case !job.State(state).Ended():
		return "null"
	case state == "SUCCEEDED":
		return "0"
	case state == "TIMEOUT":
		return "124"
	case signal > 0:
		return strconv.Itoa(128 + signal)
	case code > 0:
		return strconv.Itoa(code)
	}
	return "125"
}

func jobsDoc(jobs ...string) string {
	return `{"schema":"muster.jobs/v1","partial":[],"items":[` + strings.Join(jobs, ",") + `]}`
}

// events sends events of the jobs, and goes on until the client ends the stream.
func events(jobs ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, "data: {\"kind\":\"open\"}\n\n")
		for _, j := range jobs {
			fmt.Fprintf(w, "data: {\"kind\":\"job\",\"job\":%s}\n\n", strings.ReplaceAll(j, "\n", " "))
		}
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}
}

// logOf serves the two streams of attempt 1. It sends later only to clients that follow.
func logOf(stdout, stderr, later string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		text := stdout
		switch {
		case r.URL.Query().Get("stream") == "stderr":
			text = stderr
		case r.URL.Query().Get("follow") == "true":
			text += later
		}
		offset, _ := strconv.Atoi(r.URL.Query().Get("offset"))
		if offset < 0 {
			offset = max(0, len(text)+offset)
		}
		w.Header().Set("Muster-Attempt", "1")
		w.Header().Set("Muster-Offset", strconv.Itoa(offset))
		w.Header().Set("Trailer", "Muster-End")
		io.WriteString(w, text[offset:])
		w.Header().Set("Muster-End", strconv.Itoa(len(text)))
	}
}
