package peerhttp

// The member that sent a request, for tests.

import (
	"context"
	"net"
	"net/http"

	"github.com/musterhq/muster/job"
)

type peerKey struct{}

// ConnContext is for http.Server.ConnContext; PeerFrom needs it.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	if own, ok := c.(*conn); ok {
		return context.WithValue(ctx, peerKey{}, own.peer)
	}
	return ctx
}

// PeerFrom returns the member that sent the request; false if the request came another way, such as over the local
// socket.
func PeerFrom(r *http.Request) (job.Peer, bool) {
	p, ok := r.Context().Value(peerKey{}).(job.Peer)
	return p, ok
}
