package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/musterhq/muster/internal/upload"
	"github.com/musterhq/muster/job"
)

// openStream sends a request, does not read the answer, and returns its status and a function that ends it.
func (d *daemon) openStream(t *testing.T, path string) (status int, header http.Header, end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:1"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := d.client.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, func() { cancel(); resp.Body.Close() }
}

// One user opens as many event streams as possible. Others, and operators, still get theirs.
func TestOneUserLeavesStreamsForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		amy := newCluster(t, "amy").daemons[0]
		amy.server.auth.httpUser = "eve"
		var ends []func()
		for {
			status, header, end := amy.openStream(t, "/v1/events")
			ends = append(ends, end)
			if status != http.StatusOK {
				if status != http.StatusTooManyRequests || header.Get("Retry-After") == "" {
					t.Errorf("one stream more: got %d, %v, want status 429 and Retry-After", status, header)
				}
				break
			}
		}
		if n := len(ends) - 1; n != maxStreams/2 {
			t.Errorf("one user has %d streams, want %d", n, maxStreams/2)
		}
		for e, err := range amy.client.Events(t.Context(), EventFilter{}) {
			if !errors.Is(err, ErrTooMany) || !strings.Contains(err.Error(), "user eve has 256 of 512 open streams") {
				t.Errorf("got %+v, %v, want ErrTooMany with the numbers of the user", e, err)
			}
			break
		}
		waits, began := amy.newJob(1), time.Now()
		waits.User = "eve"
		amy.put(waits)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		_, err := amy.client.Logs(ctx, LogRequest{Job: waits.ID, Follow: true}, io.Discard)
		if !errors.Is(err, ErrTooMany) || time.Since(began) > 5*time.Second {
			t.Errorf("the output of a waiting job: got %v after %s, want ErrTooMany within 5 s", err, time.Since(began))
		}
		cancel()
		for _, other := range []string{"amy", "root"} {
			amy.server.auth.httpUser = other
			status, _, end := amy.openStream(t, "/v1/events")
			if ends = append(ends, end); status != http.StatusOK {
				t.Errorf("a stream of %s: got status %d, want 200", other, status)
			}
		}
		for _, end := range ends {
			end()
		}
		synctest.Wait()
		if room := amy.server.admission.rooms[fromTCP].streams; room.used != 0 {
			t.Errorf("got %d streams counted after all have ended, want 0", room.used)
		}
	})
}

// Many requests of one user wait in line. None of them is refused, and those of others do not wait.
func TestRequestsOfOneUserWaitInLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		amy := newCluster(t, "amy").daemons[0]
		amy.slow = time.Second
		spec := job.DefaultSpec()
		spec.Command = []string{"true"}
		amy.server.auth.httpUser = "eve"
		var submitting sync.WaitGroup
		for range 3 * maxRequests / 2 {
			submitting.Go(func() {
				if _, err := amy.client.Submit(t.Context(), spec, ""); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		amy.server.auth.httpUser = "amy"
		began := time.Now()
		_, err := amy.client.Submit(t.Context(), spec, "")
		if took := time.Since(began); err != nil || took > time.Second {
			t.Errorf("another user's request took %s, %v, want at most 1 s", took, err)
		}
		submitting.Wait()
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("the requests of the first user took %s, want three times 1 s", took)
		}
	})
}

// A request that waits too long in line is refused.
func TestRequestThatWaitsTooLongIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		amy := newCluster(t, "amy").daemons[0]
		room := amy.server.admission.rooms[fromTCP].answers
		n := room.fill(of("amy"))
		began := time.Now()
		if _, err := amy.client.Stats(t.Context()); !errors.Is(err, ErrTooMany) || time.Since(began) != placeWait {
			t.Errorf("Stats = %v after %s, want ErrTooMany after placeWait", err, time.Since(began))
		}
		room.give(of("amy"), int64(n))
		if _, err := amy.client.Stats(t.Context()); err != nil {
			t.Errorf("Stats with a free place = %v, want no error", err)
		}
	})
}

// slowly is a body that never ends.
type slowly struct{ ctx context.Context } //nolint:containedctx // of one request

func (s slowly) Read(p []byte) (int, error) {
	select {
	case <-s.ctx.Done():
		return 0, s.ctx.Err()
	case <-time.After(time.Second):
	}
	return copy(p, "slow"), nil
}

// One user sends lists of files and jobs without end. Meanwhile the uploads and jobs of another are stored.
func TestSlowBodiesOfOneUserDelayNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		amy := newCluster(t, "amy").daemons[0]
		ctx, stop := context.WithCancel(t.Context())
		amy.server.auth.httpUser = "eve"
		var sending sync.WaitGroup
		for i := range 100 {
			sending.Go(func() {
				method, path := http.MethodPut, fmt.Sprintf("%s%064x", pathTrees, i)
				if i%2 == 0 {
					method, path = http.MethodPost, "/v1/jobs"
				}
				req, err := http.NewRequestWithContext(ctx, method, "http://127.0.0.1:1"+path, slowly{ctx})
				if err != nil {
					t.Error(err)
					return
				}
				req.Header.Set("Content-Type", "application/json")
				if resp, err := amy.client.http.Do(req); err == nil {
					resp.Body.Close()
				}
			})
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		bodies := amy.server.admission.rooms[fromTCP].bodies
		if held := bodies.has[party{user: "eve"}]; held < maxBodies/4 || held > maxBodies/2 {
			t.Errorf("the bodies of one user have %d bytes, want %d to %d", held, maxBodies/4, maxBodies/2)
		}
		amy.server.auth.httpUser = "amy"
		began := time.Now()
		data := []byte("data")
		ref := upload.Ref{Hash: upload.Sum(data), Size: uint32(len(data))}
		text, h, err := upload.Tree{Entries: []upload.Entry{{Path: "f", Kind: upload.File, Size: int64(len(data)), Mode: 0o644, Chunks: upload.Refs{ref}}}}.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if err := amy.client.PutChunks(t.Context(), append(upload.AppendHead(nil, ref.Size), data...)); err != nil {
			t.Errorf("another user's chunks: %v", err)
		}
		if err := amy.client.PutTree(t.Context(), h, text); err != nil {
			t.Errorf("another user's tree: %v", err)
		}
		spec := job.DefaultSpec()
		spec.Command, spec.Tree = []string{"true"}, h.String()
		if _, err := amy.client.Submit(t.Context(), spec, ""); err != nil {
			t.Errorf("another user's job: %v", err)
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("the other user waited %s, want 0", took)
		}
		stop()
		sending.Wait()
		time.Sleep(time.Minute)
		synctest.Wait()
		if bodies.used != 0 {
			t.Errorf("got %d bytes counted after all requests have ended, want 0", bodies.used)
		}
	})
}

// One user follows all events at another daemon on as many streams as possible. Others still reach that daemon.
func TestStreamsToOneDaemonAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben")
		amy, ben := c.daemons[0], c.daemons[1]
		transport, ok := amy.server.daemons.http.Transport.(*http.Transport)
		if !ok {
			t.Fatal("got another transport than the daemons' own")
		}
		const streams = 60 // the bound that package peerhttp has for the streams to one daemon
		transport.MaxConnsPerHost = streams
		j := ben.put(running(ben.newJob(1), ben))
		amy.server.auth.httpUser = "eve"
		var ends []func()
		for range 200 {
			_, _, end := amy.openStream(t, "/v1/events")
			ends = append(ends, end)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if n := ben.back.dialed(); n > maxOutboundLong {
			t.Errorf("got %d open streams to the other daemon, want at most %d", n, maxOutboundLong)
		}
		amy.server.auth.httpUser = "amy"
		began := time.Now()
		if _, err := amy.client.Job(t.Context(), j.ID); err != nil {
			t.Errorf("another user's show: %v", err)
		}
		status, _, end := amy.openStream(t, "/v1/events?job="+string(j.ID))
		if ends = append(ends, end); status != http.StatusOK {
			t.Errorf("another user's stream: got status %d, want 200", status)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("the other user's requests took %s, want at most 1 s", took)
		}
		for _, end := range ends {
			end()
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := len(amy.server.daemons.out.to); n > 0 {
			t.Errorf("got %d limiters of requests after all ended, want 0", n)
		}
	})
}
