package api

import (
	"context"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
)

// asDaemon sends a request as another daemon does, in the name of an operator, and returns the status and the body.
func (d *daemon) asDaemon(t *testing.T, method, path string) (int, string) {
	t.Helper()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return d.back.dial(ctx) }}
	defer transport.CloseIdleConnections()
	body := ""
	if method == http.MethodPost {
		body = "{}"
	}
	r, err := http.NewRequestWithContext(t.Context(), method, "http://daemon"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set(headerUser, "root")
	r.Header.Set(headerOperator, "1")
	resp, err := transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text := make([]byte, 64<<10)
	n, _ := resp.Body.Read(text)
	return resp.StatusCode, string(text[:n])
}

// TestRolesOfDaemonsDecideOnRoutes checks each route that is open to daemons, with each role.
func TestRolesOfDaemonsDecideOnRoutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		amy := newCluster(t, "amy").daemons[0]
		j := amy.put(running(amy.newJob(1), amy))
		id, attempt := "/v1/jobs/"+string(j.ID), "/peer/v1/attempts/"+string(j.ID)+".0.1"
		node := "/v1/nodes/" + string(amy.peer)
		routes := map[string]callers{
			"GET /v1/jobs": anyMember, "GET " + id: anyMember, "GET " + id + "/tasks": anyMember, "GET " + id + "/why": anyMember,
			"GET /v1/nodes": anyMember, "GET " + node: anyMember, "GET /v1/stats": anyMember, "GET /peer/v1/users": anyMember,
			"POST " + pathPeerChunks: workers, "GET " + pathPeerTrees + strings.Repeat("0", 64): workers,
			"POST " + id + "/cancel": schedulers, "POST " + id + "/hold": schedulers, "POST " + id + "/release": schedulers, "POST " + id + "/requeue": schedulers,
			"POST " + node + "/drain": schedulers, "POST " + node + "/resume": schedulers, "POST " + node + "/declare-dead": schedulers,
			"GET " + id + "/tasks/0/logs": schedulers, "GET " + id + "/tasks/0/files": schedulers, "GET " + id + "/tasks/0/attach": schedulers, "GET " + id + "/tasks/0/exec": schedulers,
			"GET " + attempt + "/logs": schedulers, "GET " + attempt + "/files": schedulers, "GET " + attempt + "/attach": schedulers, "GET " + attempt + "/exec": schedulers,
			"POST /peer/v1/groups/" + j.ID.Group().String() + "/progress": schedulers,
			"POST /v1/jobs": nobody, "POST /v1/invitations": nobody, "POST " + node + "/revoke": nobody, "POST /v1/join": nobody, "GET /v1/peers": nobody, "GET /v1/daemon": nobody,
		}
		for _, roles := range [][]string{{}, {"inviter"}, {roleWorker}, {roleWorker, "inviter"}} {
			amy.mu.Lock()
			amy.callers = roles
			amy.mu.Unlock()
			for route, may := range routes {
				method, path, _ := strings.Cut(route, " ")
				status, text := amy.asDaemon(t, method, path)
				worker := len(roles) > 0 && roles[0] == roleWorker
				want := may == schedulers || may == workers && !worker
				if denied := status == http.StatusForbidden && strings.Contains(text, "role "); denied != want {
					t.Errorf("%s by a daemon with %v: got %d %s, want denied %v", route, roles, status, text, want)
				}
				if may == nobody && status != http.StatusNotFound && status != http.StatusMethodNotAllowed {
					t.Errorf("%s by a daemon with %v: got %d %s, want that there is no such route", route, roles, status, text)
				}
			}
			if status, text := amy.asDaemon(t, http.MethodGet, id); status != http.StatusOK || strings.Contains(text, "s3cret") {
				t.Errorf("a daemon with %v asks for a user: got %d %s, want the job without its secret", roles, status, text)
			}
		}
		if len(amy.asked) != 0 {
			t.Errorf("asked %v, want nothing", amy.asked)
		}
		amy.mu.Lock()
		amy.callers = []string{roleScheduler}
		amy.mu.Unlock()
		if status, text := amy.asDaemon(t, http.MethodGet, id); status != http.StatusOK || !strings.Contains(text, "s3cret") {
			t.Errorf("a scheduler asks for its user: got %d %s, want the job with its secret", status, text)
		}
		if status, text := amy.asDaemon(t, http.MethodPost, id+"/cancel"); status != http.StatusOK {
			t.Errorf("a scheduler's cancel: got %d %s, want 200", status, text)
		}
	})
}
