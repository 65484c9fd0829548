package door

// The listeners of the door, on loopback, and the bound on their connections.

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
)

const (
	// maxConnections bounds the connections of all listeners together. A browser opens six, and one for each WebSocket.
	maxConnections = 1024
	// portTries is how many random ports are tried until one is free on both addresses.
	portTries = 20
)

// listen opens a port on 127.0.0.1, and the same port on [::1] if this host has IPv6. Otherwise another user could listen on
// [::1] and receive requests that are meant for the door. Port 0 means any free port.
func listen(ctx context.Context, port int) ([]net.Listener, error) {
	for try := 1; ; try++ {
		four, err := listenAt(ctx, netip.AddrFrom4([4]byte{127, 0, 0, 1}), port)
		if err != nil {
			return nil, err
		}
		six, err := listenAt(ctx, netip.IPv6Loopback(), portOf(four))
		switch {
		case err == nil:
			return []net.Listener{four, six}, nil
		case !errors.Is(err, syscall.EADDRINUSE): // this host has no IPv6
			return []net.Listener{four}, nil
		}
		four.Close()
		if port != 0 || try == portTries {
			return nil, err
		}
	}
}

func listenAt(ctx context.Context, ip netip.Addr, port int) (net.Listener, error) {
	at := netip.AddrPortFrom(ip, uint16(port)).String() //nolint:gosec // New has checked it
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", at)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("listen on %s: another program has that port; choose another --port, or none: %w", at, err)
	}
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", at, err)
	}
	return l, nil
}

func portOf(l net.Listener) int {
	at, err := netip.ParseAddrPort(l.Addr().String())
	if err != nil {
		return 0
	}
	return int(at.Port())
}

// places bounds the connections of all listeners, because other users of the host can also connect. When there are too many
// connections, the oldest one that has not shown the secret is closed for a new one.
type places struct {
	mu        sync.Mutex
	taken     int        // guarded by mu
	strangers *list.List // guarded by mu: of *conn, the oldest first
}

func newPlaces() *places { return &places{strangers: list.New()} }

// bounded is a listener whose connections count in places.
type bounded struct {
	net.Listener
	places *places
}

// conn is a connection that holds a slot.
type conn struct {
	net.Conn
	in       *places
	stranger *list.Element // guarded by in.mu; nil once the connection has shown the secret, or is closed
	closing  sync.Once
}

// Accept returns the next connection that gets a slot. It closes connections that get none.
func (b bounded) Accept() (net.Conn, error) {
	for {
		c, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if in := b.places.take(c); in != nil {
			return in, nil
		}
		c.Close()
	}
}

// take gives a slot to a connection; it returns nil if there is none.
func (p *places) take(c net.Conn) *conn {
	p.mu.Lock()
	full := p.taken >= maxConnections
	var oldest *conn
	if first := p.strangers.Front(); first != nil {
		oldest, _ = first.Value.(*conn)
	}
	p.mu.Unlock()
	switch {
	case full && oldest == nil:
		return nil
	case full:
		_ = oldest.Close() // it is dropped
	}
	in := &conn{Conn: c, in: p}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken++
	in.stranger = p.strangers.PushBack(in)
	return in
}

// known notes that a connection has shown the secret.
func (c *conn) known() {
	c.in.mu.Lock()
	defer c.in.mu.Unlock()
	if c.stranger != nil {
		c.in.strangers.Remove(c.stranger)
		c.stranger = nil
	}
}

// Close closes the connection and gives its slot back.
func (c *conn) Close() error {
	err := net.ErrClosed
	c.closing.Do(func() {
		err = c.Conn.Close()
		c.known()
		c.in.mu.Lock()
		defer c.in.mu.Unlock()
		c.in.taken--
	})
	return err
}

type connKey struct{}

func remember(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// trust keeps the connection of a request from being closed for a new one.
func trust(ctx context.Context) {
	if c, ok := ctx.Value(connKey{}).(*conn); ok {
		c.known()
	}
}
