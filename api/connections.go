package api

// Connections: how many a user of the socket, or a host over TCP, may have, and which are closed for new ones. See
// docs/adr, ADR 122.

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
	// maxConnections bounds the connections of one listener, each with 64 KiB of header at most; a user alone has half. A
	// command that follows a job uses two.
	maxConnections = 1024
	// maxRefused bounds those beyond that get an answer before they are closed.
	maxRefused = 64
	// idleBefore is how long a connection of the socket is safe without a request, so that a user who opens more and more
	// costs little. Over TCP there is no such time, because users of one host cannot be told apart.
	idleBefore = time.Second
)

// connections counts the connections of a listener. When a user has too many, the oldest without a request is closed
// for a new one, whether it was used before or has never sent a whole header. If all have requests, the new one is
// refused.
type connections struct {
	net.Listener
	who     func(net.Conn) *caller
	room    *room
	refused *room
	metrics *metrics
	safe    time.Duration // a connection without a request is not closed for another one before

	mu   sync.Mutex
	idle map[account]*list.List // guarded by mu: those without a request, the oldest first
}

// connection is one of them.
type connection struct {
	net.Conn
	*caller

	of      *connections
	in      *room         // whose place it has
	waits   *list.Element // in idle of its account; guarded by the mu of its connections, as over is
	over    bool
	since   time.Time // it has waited, if it waits
	closing sync.Once
	closed  error
}

func newConnections(l net.Listener, who func(net.Conn) *caller, safe time.Duration, m *metrics) *connections {
	return &connections{
		Listener: l, who: who, safe: safe, metrics: m, idle: map[account]*list.List{},
		room: newRoom("connections", maxConnections, maxConnections/operatorPart), refused: newRoom("refusals", maxRefused, 0),
	}
}

// Accept returns the next connection that is counted, or that is to be refused.
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

// set says whether a connection waits for a request.
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

// end takes a connection out for good.
func (cs *connections) end(c *connection) {
	cs.mu.Lock()
	c.over = true
	cs.mu.Unlock()
	cs.set(c, false)
}

// closeOldest closes the connection of the account that has waited longest without a request, if it is not safe. It returns false if there is none.
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

// changed is told by the http.Server of each state of a connection.
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

// Close closes the connection and gives its place back.
func (c *connection) Close() error {
	c.closing.Do(func() {
		c.closed = c.Conn.Close()
		c.of.end(c)
		c.in.give(c.account, 1)
	})
	return c.closed
}

// excessive is the error of the connection of a request that has no place.
func excessive(ctx context.Context) error {
	if c, ok := ctx.Value(connectionKey{}).(*connection); ok && c.in != c.of.room {
		return c.of.room.refusal(c.account)
	}
	return nil
}

// addressOf says from which host a connection over TCP comes. Who has an IPv6 network of 64 bits counts as one host.
func addressOf(conn net.Conn) *caller {
	host, _, err := net.SplitHostPort(conn.RemoteAddr().String())
	if ip := net.ParseIP(host); err == nil && ip != nil && ip.To4() == nil {
		const network, all = 64, 128
		host = ip.Mask(net.CIDRMask(network, all)).String()
	}
	return &caller{account: account{party: party{user: host}}, err: err}
}

type connectionKey struct{}

// connContext remembers the connection of a request.
func connContext(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, below(c))
}

// below returns the connection that carries TLS, if c is that.
func below(c net.Conn) net.Conn {
	if secure, ok := c.(*tls.Conn); ok {
		return secure.NetConn()
	}
	return c
}
