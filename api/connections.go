package api

// Bounds of connections: how many each user of the socket and each host over TCP may have, and which idle ones are closed
// to accept new ones. See docs/adr, ADR 122.

import (
	"container/list"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	// maxConnections bounds the connections of one listener, each with 64 KiB of header at most. A single user gets half of
	// them. A command that follows a job uses two.
	maxConnections = 1024
	// maxRefused bounds the further connections that get an answer before they are closed.
	maxRefused = 64
	// idleBefore is how long an idle connection of the socket is protected from being closed for a newer one. So a user who
	// opens ever more connections costs little. Over TCP there is no such time, because users of a host look all the same.
	idleBefore = time.Second
)

// connections counts the connections of a listener. If a user with too many connections opens a new one, the user's oldest
// idle connection is closed. Idle means without a request: it was used before, or has never sent a whole header. If no
// connection is idle, the new one is refused.
type connections struct {
	net.Listener
	who     func(net.Conn) *caller
	room    *slots
	refused *slots
	metrics *metrics
	safe    time.Duration // how long an idle connection is protected from being closed for a new one

	mu   sync.Mutex
	idle map[account]*list.List // guarded by mu: the idle connections, the oldest first
}

// connection is one counted connection.
type connection struct {
	net.Conn
	*caller

	of      *connections
	in      *slots        // the room whose slot it holds
	waits   *list.Element // its element in of.idle; nil if it is not idle. Guarded by of.mu, as over and since are
	over    bool
	since   time.Time // when it became idle
	closing sync.Once
	closed  error
}

func newConnections(l net.Listener, who func(net.Conn) *caller, safe time.Duration, m *metrics) *connections {
	return &connections{
		Listener: l, who: who, safe: safe, metrics: m, idle: map[account]*list.List{},
		room: newSlots("connections", maxConnections, maxConnections/operatorPart), refused: newSlots("refusals", maxRefused, 0),
	}
}

// Accept returns the next connection that got a slot, or that gets a refusal as the answer to its request.
func (cs *connections) Accept() (net.Conn, error) {
	for {
		c, err := cs.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if in := cs.enter(c); in != nil {
			return in, nil
		}
		c.Close()
	}
}

func (cs *connections) enter(c net.Conn) *connection {
	in := &connection{Conn: c, caller: cs.who(c), of: cs, in: cs.room}
	for !cs.room.take(in.account, 1) {
		if cs.closeOldest(in.account) {
			continue
		}
		cs.metrics.full()
		if in.in = cs.refused; !cs.refused.take(in.account, 1) {
			return nil
		}
		break
	}
	cs.set(in, true)
	return in
}

// set notes whether a connection is idle.
func (cs *connections) set(c *connection, idle bool) {
	if c.in != cs.room {
		return
	}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	all := cs.idle[c.account]
	if c.waits != nil {
		all.Remove(c.waits)
		c.waits = nil
	}
	idle = idle && !c.over
	if idle && all == nil {
		all = list.New()
		cs.idle[c.account] = all
	}
	if idle {
		c.waits, c.since = all.PushBack(c), time.Now()
	} else if all != nil && all.Len() == 0 {
		delete(cs.idle, c.account)
	}
}

// end removes a connection from the idle ones for good.
func (cs *connections) end(c *connection) {
	cs.mu.Lock()
	c.over = true
	cs.mu.Unlock()
	cs.set(c, false)
}

// closeOldest closes the account's connection that has been idle longest, unless it is still protected. It returns false if
// it closed none.
func (cs *connections) closeOldest(by account) bool {
	cs.mu.Lock()
	var oldest *connection
	if all := cs.idle[by]; all != nil {
		oldest, _ = all.Front().Value.(*connection)
	}
	if oldest != nil && time.Since(oldest.since) < cs.safe {
		oldest = nil
	}
	cs.mu.Unlock()
	if oldest == nil {
		return false
	}
	_ = oldest.Close() // it is dropped
	return true
}

// changed is the callback ConnState of the http.Server.
func (cs *connections) changed(c net.Conn, state http.ConnState) {
	in, ok := below(c).(*connection)
	if !ok {
		return
	}
	switch state {
	case http.StateActive, http.StateHijacked:
		cs.set(in, false)
	case http.StateIdle:
		cs.set(in, true)
	case http.StateNew, http.StateClosed: // enter and Close have counted it
	}
}

// Close closes the connection and gives its slot back.
func (c *connection) Close() error {
	c.closing.Do(func() {
		c.closed = c.Conn.Close()
		c.of.end(c)
		c.in.give(c.account, 1)
	})
	return c.closed
}

// excessive returns an error if the connection of the request got no slot.
func excessive(ctx context.Context) error {
	if c, ok := ctx.Value(connectionKey{}).(*connection); ok && c.in != c.of.room {
		return c.of.room.refusal(c.account)
	}
	return nil
}

// addressOf returns the host from which a TCP connection comes. All addresses of an IPv6 /64 network count as one host.
func addressOf(conn net.Conn) *caller {
	host, _, err := net.SplitHostPort(conn.RemoteAddr().String())
	if ip := net.ParseIP(host); err == nil && ip != nil && ip.To4() == nil {
		const network, all = 64, 128
		host = ip.Mask(net.CIDRMask(network, all)).String()
	}
	return &caller{account: account{party: party{user: host}}, err: err}
}

type connectionKey struct{}

// connContext stores the connection in the context of its requests.
func connContext(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, below(c))
}

// below returns the connection below TLS if c is a TLS connection, else c.
func below(c net.Conn) net.Conn {
	if secure, ok := c.(*tls.Conn); ok {
		return secure.NetConn()
	}
	return c
}
