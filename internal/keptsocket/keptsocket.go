// Package keptsocket keeps the file of a unix socket: a daemon whose socket was removed runs on, but nobody could reach it.
package keptsocket

import (
	"errors"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"
)

// Every is the pause between looks at the file. A look takes a few microseconds.
const Every = 2 * time.Second

// Listener listens on a unix socket, and makes its file again if that is removed. Make one with Listen.
type Listener struct {
	path   string
	listen func() (net.Listener, error)
	log    *slog.Logger
	closed chan struct{}

	mu      sync.Mutex
	current net.Listener // guarded by mu
	over    bool         // guarded by mu; Close was called
}

// Listen calls listen, which opens a socket at path, and calls it again each time that there is no file at path. If another
// file is there, it stays. Close ends that.
func Listen(path string, listen func() (net.Listener, error), log *slog.Logger) (*Listener, error) {
	first, err := listen()
	if err != nil {
		return nil, err
	}
	l := &Listener{path: path, listen: listen, log: log, closed: make(chan struct{}), current: first}
	go l.keep()
	return l, nil
}

// keep looks at the file until the listener is closed. Of several failures in a row only the first is logged.
func (l *Listener) keep() {
	tick := time.NewTicker(Every)
	defer tick.Stop()
	failed := false
	for {
		select {
		case <-l.closed:
			return
		case <-tick.C:
		}
		if _, err := os.Lstat(l.path); !errors.Is(err, os.ErrNotExist) {
			continue
		}
		err := l.again()
		if err == nil {
			l.log.Warn("socket was removed and is there again", "socket", l.path)
		} else if !failed {
			l.log.Error("socket was removed and cannot be made again, still trying", "socket", l.path, "error", err)
		}
		failed = err != nil
	}
}

// again opens the socket once more. Connections of the removed one go on.
func (l *Listener) again() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return nil
	}
	next, err := l.listen()
	if err != nil {
		return err
	}
	if u, ok := l.current.(*net.UnixListener); ok {
		u.SetUnlinkOnClose(false) // its path is that of the new one
	}
	_ = l.current.Close() // nobody can connect to it
	l.current = next
	return nil
}

// Accept waits for the next connection; see net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		l.mu.Lock()
		now := l.current
		l.mu.Unlock()
		conn, err := now.Accept()
		if !errors.Is(err, net.ErrClosed) {
			return conn, err
		}
		l.mu.Lock()
		again := !l.over && l.current != now
		l.mu.Unlock()
		if !again {
			return conn, err
		}
	}
}

// Close ends the listener.
func (l *Listener) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return net.ErrClosed
	}
	l.over = true
	close(l.closed)
	return l.current.Close()
}

// Addr returns the address of the socket.
func (l *Listener) Addr() net.Addr {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.current.Addr()
}
