package api

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// counted serves a daemon on pipes. The user of its connections is the one in who.
func counted(t *testing.T, d *daemon, safe time.Duration, who *string) (*pipes, *connections) {
	t.Helper()
	p := newPipes()
	cs := newConnections(p, func(net.Conn) *caller { return &caller{account: of(*who)} }, safe, nil)
	server := d.server.newServer(context.WithoutCancel(t.Context()), fromTCP)
	server.ConnState = cs.changed
	go func() { _ = server.Serve(cs) }()
	t.Cleanup(func() {
		server.Close()
		p.cut()
		synctest.Wait()
		if cs.room.used != 0 || cs.refused.used != 0 || len(cs.idle) > 0 {
			t.Errorf("all connections are closed: got %d and %d counted, of %d users, want 0", cs.room.used, cs.refused.used, len(cs.idle))
		}
	})
	return p, cs
}

func dialed(t *testing.T, p *pipes) net.Conn {
	t.Helper()
	c, err := p.dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	return c
}

func closed(c net.Conn) bool {
	_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
	_, err := c.Read(make([]byte, 1))
	return errors.Is(err, io.EOF)
}

// sendRequest sends a request and returns the status and the problem.
func sendRequest(t *testing.T, c net.Conn) (int, Problem) {
	t.Helper()
	go fmt.Fprint(c, "GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
	_ = c.SetReadDeadline(time.Now().Add(time.Second))
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0, Problem{Detail: err.Error()}
	}
	defer resp.Body.Close()
	var p Problem
	_ = json.NewDecoder(resp.Body).Decode(&p)
	return resp.StatusCode, p
}

// A user gets half of the connections. At first one more is refused with a message, later it replaces the oldest one
// without a request. Other users always get one.
func TestOneUserLeavesConnectionsForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		user := "eve"
		p, _ := counted(t, newCluster(t, "amy").daemons[0], time.Second, &user)
		var all []net.Conn
		for range maxConnections / 2 {
			all = append(all, dialed(t, p))
		}
		if status, why := sendRequest(t, dialed(t, p)); status != http.StatusTooManyRequests || why.Code != "too-many" {
			t.Errorf("one connection more: got %d %+v, want 429 too-many", status, why)
		}
		user = "amy"
		if status, _ := sendRequest(t, dialed(t, p)); status != http.StatusOK {
			t.Errorf("another user: got status %d, want 200", status)
		}
		user = "eve"
		if status, _ := sendRequest(t, all[0]); status != http.StatusOK { // now the second is the oldest
			t.Errorf("a request on the oldest connection: got status %d, want 200", status)
		}
		time.Sleep(2 * time.Second)
		if status, why := sendRequest(t, dialed(t, p)); status != http.StatusOK {
			t.Errorf("after two seconds one connection more: got %d %+v, want 200", status, why)
		}
		// the other user has one too, so this user has one less
		if !closed(all[1]) || !closed(all[2]) || closed(all[0]) || closed(all[3]) {
			t.Error("the two oldest connections were not replaced")
		}
	})
}

// Over TCP the users of one host are not distinguished. Whoever sends a request gets an answer, whatever others hold.
func TestHalfOpenTCPConnectionsKeepNobodyOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := "127.0.0.1"
		p, cs := counted(t, newCluster(t, "amy").daemons[0], 0, &host)
		for range 3 * maxConnections {
			c := dialed(t, p)
			go fmt.Fprint(c, "GET /health HT")
		}
		if status, why := sendRequest(t, dialed(t, p)); status != http.StatusOK {
			t.Errorf("a request between half-open connections: got %d %+v, want 200", status, why)
		}
		if cs.room.used > maxConnections/2 {
			t.Errorf("got %d open connections, want at most %d", cs.room.used, maxConnections/2)
		}
	})
}

// Half-open connections are closed after a while, also if a request was refused before its body arrived.
func TestConnectionOfARefusedRequestIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		amy := newCluster(t, "amy").daemons[0]
		c, err := amy.front.dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		go fmt.Fprint(c, "POST /v1/jobs HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 100\r\n\r\n")
		_ = c.SetReadDeadline(began.Add(time.Hour))
		_, err = io.Copy(io.Discard, c)
		if took := time.Since(began); err != nil || took > 2*bodyTimeout {
			t.Errorf("the connection was closed after %s, %v, want at most %s", took, err, 2*bodyTimeout)
		}
	})
}

func TestIPv6AddressesAreCountedByNetwork(t *testing.T) {
	for text, want := range map[string]string{
		"10.1.2.3:4": "10.1.2.3", "[2001:db8:1:2:3:4:5:6]:7": "2001:db8:1:2::", "[::ffff:10.1.2.3]:4": "10.1.2.3",
	} {
		if got := addressOf(remote{text: text}); got.account != of(want) || got.err != nil {
			t.Errorf("%s counts as %+v, want %s", text, got.account, want)
		}
	}
}

type remote struct {
	net.Conn
	text string
}

func (r remote) RemoteAddr() net.Addr { a, _ := net.ResolveTCPAddr("tcp", r.text); return a }
