package peerhttp

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/peerstore"
	"github.com/libp2p/go-libp2p/p2p/net/swarm"
	ma "github.com/multiformats/go-multiaddr"
)

func TestUnreachedErrorSaysWhyInOneLine(t *testing.T) {
	refused := fmt.Errorf("dial tcp4 10.0.0.7:4701: connect: %w", syscall.ECONNREFUSED)
	at := func(address string, cause error) swarm.TransportError {
		return swarm.TransportError{Address: ma.StringCast(address), Cause: cause}
	}
	many := &swarm.DialError{Cause: swarm.ErrAllDialsFailed}
	for i := range 5 {
		many.DialErrors = append(many.DialErrors, at(fmt.Sprintf("/ip4/10.0.0.%d/tcp/1", i+1), refused))
	}
	for want, err := range map[string]error{
		"no connection at tcp 10.0.0.7:4701 (connection refused), quic 10.0.0.7:4701 (no answer)": fmt.Errorf("x: %w", &swarm.DialError{
			Cause: swarm.ErrAllDialsFailed,
			DialErrors: []swarm.TransportError{
				at("/ip4/10.0.0.7/tcp/4701", refused), at("/ip4/10.0.0.7/udp/4701/quic-v1", errors.New("timeout: no recent network activity")),
			},
		}),
		"no connection at tcp [fe80::1]:4701 (failed a moment ago)": &swarm.DialError{DialErrors: []swarm.TransportError{at("/ip6/fe80::1/tcp/4701", swarm.ErrDialBackoff)}},
		"no connection at tcp 10.0.0.1:1 (connection refused), tcp 10.0.0.2:1 (connection refused), tcp 10.0.0.3:1 (connection refused) and 2 more addresses": many,
		"no address of it is known":                           &swarm.DialError{Cause: swarm.ErrNoAddresses},
		"no connection: no answer":                            context.DeadlineExceeded,
		"no connection: protocols not supported: [/muster/x]": errors.New("protocols not supported: [/muster/x]\nmore"),
	} {
		got := &UnreachedError{err}
		if got.Error() != want {
			t.Errorf("got %q, want %q", got, want)
		}
		if errors.Unwrap(got) != nil || !errors.Is(got, err) {
			t.Errorf("got %q, want an error that is its cause but does not show its text", got)
		}
	}
}

// A real host dials a port where nobody listens.
func TestDialOfAnAbsentHostSaysWhy(t *testing.T) {
	h, err := libp2p.New(libp2p.NoListenAddrs)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	nobody, err := peer.Decode("12D3KooWBvsHhUtcWcu5EFsQW4id4dyVmJXHrbeQpoEbj18Nu7wS")
	if err != nil {
		t.Fatal(err)
	}
	cfg := DefaultConfig()
	_, err = dial(t.Context(), cfg, h, nobody.String()+":80")
	var unreached *UnreachedError
	if !errors.As(err, &unreached) || unreached.Error() != "no address of it is known" {
		t.Errorf("a peer without an address: got %v, want that no address of it is known", err)
	}
	h.Peerstore().AddAddr(nobody, ma.StringCast("/ip4/127.0.0.1/tcp/1"), peerstore.PermanentAddrTTL)
	want := "no connection at tcp 127.0.0.1:1 (connection refused)"
	if _, err = dial(t.Context(), cfg, h, nobody.String()+":80"); !errors.As(err, &unreached) || unreached.Error() != want {
		t.Errorf("got %v, want %q", err, want)
	}
}
