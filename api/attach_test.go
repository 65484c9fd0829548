package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/musterhq/muster/job"
)

// testInput is the input of a task that reads while its gate is open.
type testInput struct {
	gate chan struct{}

	mu    sync.Mutex
	got   []byte        // guarded by mu
	ended bool          // guarded by mu
	over  chan struct{} // guarded by mu: closed when another client comes
	sizes [][2]uint16   // guarded by mu
}

// inputsOf gives input to the task of a daemon.
type inputsOf struct{ d *daemon }

func (inputsOf) Exec(context.Context, job.Attempt, ExecRequest) (ExecSession, error) {
	return ExecSession{}, ErrConflict
}

func (x inputsOf) Attach(_ context.Context, a job.Attempt) (InputSession, error) {
	x.d.mu.Lock()
	in := x.d.input
	x.d.mu.Unlock()
	if in == nil {
		return InputSession{}, fmt.Errorf("attempt %s: %w", a, ErrConflict)
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.over != nil {
		close(in.over)
	}
	over, closed := make(chan struct{}), make(chan struct{})
	in.over = over
	return InputSession{
		Taken: int64(len(in.got)),
		Write: func(p []byte) (int, error) {
			select {
			case <-in.gate:
			case <-over:
				return 0, errors.New("another client")
			case <-closed:
				return 0, errors.New("closed")
			}
			in.mu.Lock()
			defer in.mu.Unlock()
			n := (len(p) + 1) / 2 // the rest arrives only after a break
			if len(p) < 100 {
				n = len(p)
			}
			in.got = append(in.got, p[:n]...)
			if n < len(p) {
				return n, errors.New("it broke")
			}
			return n, nil
		},
		End: func() error {
			in.mu.Lock()
			defer in.mu.Unlock()
			in.ended = true
			return nil
		},
		Resize: func(rows, cols uint16) error {
			in.mu.Lock()
			defer in.mu.Unlock()
			in.sizes = append(in.sizes, [2]uint16{rows, cols})
			return nil
		},
		Close: sync.OnceFunc(func() { close(closed) }),
	}, nil
}

// fed returns a job that takes input, and the input of its task at the daemon where.
func (d *daemon) fed(n uint64, where *daemon) (job.Job, *testInput) {
	j := d.newJob(n)
	j.Spec.Stdin, j.Spec.Requeue = true, false
	in := &testInput{gate: make(chan struct{})}
	where.mu.Lock()
	where.input = in
	where.mu.Unlock()
	return d.put(j), in
}

// Input arrives whole and once though every connection breaks, with a client at one daemon, the job at a second, and
// the task at a third, where it starts an hour later.
func TestInputArrivesWholeDespiteBreaks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben", "cat")
		amy, ben, cat := c.daemons[0], c.daemons[1], c.daemons[2]
		j, in := ben.fed(1, cat)
		close(in.gate)
		time.AfterFunc(time.Hour, func() { ben.put(running(j, cat)) })
		all := bytes.Repeat([]byte("some words of input; "), 40_000)
		began := 0
		from := time.Now()
		end, err := amy.client.SendInput(t.Context(), j.ID, 0, Input{From: bytes.NewReader(all), Began: func() { began++ }})
		if err != nil || !end.Whole || end.Read != int64(len(all)) || began != 1 || time.Since(from) < time.Hour {
			t.Errorf("got %+v, %v, %d starts, after %s, want all %d bytes read, 1 start, after at least 1 h", end, err, began, time.Since(from), len(all))
		}
		in.mu.Lock()
		defer in.mu.Unlock()
		if !bytes.Equal(in.got, all) || !in.ended {
			t.Errorf("got %d bytes of %d, want all, unchanged; got ended %v, want true", len(in.got), len(all), in.ended)
		}
	})
}

// A task that reads nothing makes the client wait with its input, of which little is taken. A client that sends more
// than is allowed is disconnected.
func TestInputIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy")
		amy := c.daemons[0]
		j, in := amy.fed(1, amy)
		amy.put(running(j, amy))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		end, err := amy.client.SendInput(ctx, j.ID, 0, Input{From: zeroes{}})
		if !errors.Is(err, context.DeadlineExceeded) || end.Whole || end.Read > InputWindow+execChunk || end.Read < InputWindow/2 {
			t.Errorf("got %+v, %v, want a deadline, with about one window read", end, err)
		}
		conn, err := amy.client.dialTask(t.Context(), j.ID, 0, "/attach")
		if err != nil {
			t.Fatal(err)
		}
		defer conn.CloseNow()
		conn.SetReadLimit(maxExecInput)
		for range 2 * InputWindow / execChunk {
			if conn.Write(t.Context(), websocket.MessageBinary, make([]byte, 1+execChunk)) != nil {
				break
			}
		}
		for err == nil { // until the daemon has ended the connection
			_, _, err = conn.Read(t.Context())
		}
		if len(in.got) != 0 {
			t.Errorf("the task got %d bytes, want 0", len(in.got))
		}
	})
}

type zeroes struct{}

func (zeroes) Read(p []byte) (int, error) { return len(p), nil }

// A user who may not use exec may not attach either, and only tasks that were submitted with input take any.
func TestInputOfOthersIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben")
		amy, ben := c.daemons[0], c.daemons[1]
		foreign, in := ben.fed(1, ben)
		foreign.User = "somebody"
		ben.put(running(foreign, ben))
		plain := ben.put(running(ben.newJob(2), ben))
		over, _ := ben.fed(3, ben)
		ben.put(ended(running(over, ben), job.Exit{State: job.Succeeded}))
		for _, x := range []struct {
			id   job.ID
			want error
		}{{foreign.ID, ErrDenied}, {plain.ID, ErrBad}, {over.ID, nil}, {job.NewID(ben.group, 9), ErrNotFound}} {
			end, err := amy.client.SendInput(t.Context(), x.id, 0, Input{From: strings.NewReader("x")})
			if !errors.Is(err, x.want) || x.want == nil && err != nil || end.Whole {
				t.Errorf("job %s: got %+v, %v, want %v", x.id, end, err, x.want)
			}
		}
		if len(in.got) != 0 || in.ended {
			t.Errorf("the task of another user got %q, want nothing", in.got)
		}
	})
}

// A client that is told to end before anything was read lets the task go on without input.
func TestClientThatEndsEarlyLeavesTheTaskWithoutInput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy")
		amy := c.daemons[0]
		for i, said := range []string{"", "x"} {
			j, in := amy.fed(uint64(i+1), amy)
			close(in.gate)
			amy.put(running(j, amy))
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			r, w := io.Pipe()
			go func() { _, _ = w.Write([]byte(said)) }()
			end, err := amy.client.SendInput(ctx, j.ID, 0, Input{From: r})
			cancel()
			if whole := said == ""; !errors.Is(err, context.DeadlineExceeded) && !whole || end.Whole != whole || in.ended != whole {
				t.Errorf("after %q: got %+v, %v, ended %v, want an end of the input only if nothing was said", said, end, err, in.ended)
			}
			_ = w.Close() // no more input follows
		}
	})
}
