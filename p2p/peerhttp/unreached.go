package peerhttp

// The error of a dial that reached no address, as one line for people.

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/p2p/net/swarm"
	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"
)

// maxNamed bounds the addresses that the text of an UnreachedError names.
const maxNamed = 3

// UnreachedError says that no connection to a daemon could be made. Its text names the addresses that were tried, and why
// each failed. Try again later.
type UnreachedError struct{ cause error }

// Error returns the text, without the daemon's name, which the caller knows better.
func (e *UnreachedError) Error() string {
	dialled, all := &swarm.DialError{}, []string{}
	if errors.As(e.cause, &dialled) {
		all = attempts(dialled)
	}
	switch n := len(all); {
	case n > maxNamed:
		return fmt.Sprintf("no connection at %s and %d more addresses", strings.Join(all[:maxNamed], ", "), n-maxNamed)
	case n > 0:
		return "no connection at " + strings.Join(all, ", ")
	case errors.Is(e.cause, swarm.ErrNoAddresses):
		return "no address of it is known"
	case errors.Is(e.cause, network.ErrNoConn):
		return "no connection"
	}
	return "no connection: " + short(e.cause)
}

// Unwrap returns the cause for errors.Is and errors.As. It returns a slice, so that errors.Unwrap ends here: the text of
// this error is complete.
func (e *UnreachedError) Unwrap() []error { return []error{e.cause} }

// attempts describes each address that was dialled, in one line. The errors of libp2p repeat the address and have several
// lines.
func attempts(e *swarm.DialError) []string {
	var all []string
	for _, x := range e.DialErrors {
		all = append(all, fmt.Sprintf("%s (%s)", place(x.Address), short(x.Cause)))
	}
	return all
}

// place returns an address as people write it: tcp 10.0.0.7:4701.
func place(a ma.Multiaddr) string {
	network, at, err := manet.DialArgs(a)
	if err != nil {
		return a.String()
	}
	if _, err := a.ValueForProtocol(ma.P_QUIC_V1); err == nil {
		network = "quic"
	}
	return strings.TrimRight(network, "46") + " " + at
}

// short returns the reason of a failed dial in a few words.
func short(err error) string {
	number := syscall.Errno(0)
	switch {
	case errors.As(err, &number):
		return number.Error()
	case errors.Is(err, swarm.ErrDialBackoff):
		return "failed a moment ago"
	case errors.Is(err, context.DeadlineExceeded), os.IsTimeout(err), strings.Contains(err.Error(), "no recent network activity"):
		return "no answer"
	}
	text, _, _ := strings.Cut(err.Error(), "\n")
	return text
}
