package main

// Whether the ports of a daemon are free.

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"

	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"
)

// freePorts returns an error if another process listens on one of the addresses. libp2p shares ports, so a second
// daemon would get some of the first one's connections.
func freePorts(ctx context.Context, listen []string) error {
	for _, text := range listen {
		addr, err := ma.NewMultiaddr(text)
		if err != nil {
			continue // the settings were checked; what is no IP address has no port
		}
		network, host, err := manet.DialArgs(addr)
		if err != nil {
			if network, host, err = manet.DialArgs(lower(addr)); err != nil {
				continue
			}
		}
		if err := free(ctx, network, host); errors.Is(err, syscall.EADDRINUSE) {
			return fmt.Errorf("daemon: listen on %s: another program has this port; --listen names another", text)
		}
	}
	return nil
}

// lower returns the part of an address up to its port.
func lower(addr ma.Multiaddr) ma.Multiaddr {
	const layers = 2 // such as ip4 and udp
	if len(addr) > layers {
		return addr[:layers]
	}
	return addr
}

// free listens for a moment. Its sockets do not share ports.
func free(ctx context.Context, network, host string) error {
	var lc net.ListenConfig
	if network == "udp4" || network == "udp6" || network == "udp" {
		c, err := lc.ListenPacket(ctx, network, host)
		if err != nil {
			return err
		}
		return c.Close()
	}
	l, err := lc.Listen(ctx, network, host)
	if err != nil {
		return err
	}
	return l.Close()
}
