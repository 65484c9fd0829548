package docker

// The input of a container from its client.

import (
	"sync"
	"time"

	"github.com/moby/moby/client"
)

// inlet is the input of a container, or its terminal. It is a spawn.Sink. After a restart of the engine its connection
// is another.
type inlet struct {
	resize func(rows, cols uint16) error
	mu     sync.Mutex
	to     client.HijackedResponse // guarded by mu
}

func (n *inlet) conn() client.HijackedResponse {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.to
}

func (n *inlet) set(to client.HijackedResponse) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.to = to
}

// Write implements spawn.Sink.
func (n *inlet) Write(p []byte) (int, error) { return n.conn().Conn.Write(p) }

// SetWriteDeadline implements spawn.Sink.
func (n *inlet) SetWriteDeadline(t time.Time) error { return n.conn().Conn.SetWriteDeadline(t) }

// CloseWrite implements spawn.Sink.
func (n *inlet) CloseWrite() error {
	to := n.conn()
	return to.CloseWrite()
}

// Close implements spawn.Sink. The connection also brings the output, so it stays open.
func (n *inlet) Close() error { return n.SetWriteDeadline(time.Unix(1, 0)) }

// Resize implements spawn.Sink.
func (n *inlet) Resize(rows, cols uint16) error { return n.resize(rows, cols) }
