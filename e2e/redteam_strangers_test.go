//go:build e2e

package e2e

// Attacks of strangers, who reach the port and have no credential.

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	manet "github.com/multiformats/go-multiaddr/net"

	"github.com/musterhq/muster/p2p"
)

var strangersAttacks = []attack{
	{name: "strangers connect and say nothing", try: (*field).silence},
	{name: "strangers pour bytes without a hello", try: (*field).bytesBeforeHello},
	{name: "strangers guess tokens", try: (*field).guesses},
}

// door is the address at which strangers reach root's daemon over a transport.
func (f *field) door(transport string) *peer.AddrInfo {
	f.t.Helper()
	to, err := peer.AddrInfoFromString(f.root.invite().over(transport).Bootstrap[0])
	if err != nil {
		f.t.Fatal(err)
	}
	return to
}

func (f *field) silence() {
	_, at, err := manet.DialArgs(f.door("tcp").Addrs[0])
	if err != nil {
		f.t.Fatal(err)
	}
	var begun atomic.Int64
	var wg sync.WaitGroup
	for range 1000 {
		wg.Go(func() { sayNothing(f.ctx, at, &begun) })
	}
	wg.Wait()
}

func (f *field) bytesBeforeHello() {
	var wg sync.WaitGroup
	for _, flood := range floods {
		to := f.door(flood.transport)
		for range 10 {
			wg.Go(func() {
				var dialled, sent atomic.Int64
				_ = pour(f.ctx, *to, &dialled, &sent)
			})
		}
	}
	wg.Wait()
}

// guesses has strangers try a token that another cluster gave, each time with a new key.
func (f *field) guesses() {
	inv, foreign := f.root.invite(), f.control.invite()
	f.flood(4, func(int) {
		cfg := p2p.DefaultConfig()
		cfg.Name, cfg.DataDir, cfg.Bootstrap, cfg.Token = "stranger", f.t.TempDir(), inv.Bootstrap, foreign.Token
		cfg.Listen = nil
		h, err := p2p.New(cfg, slog.New(slog.DiscardHandler))
		if err != nil {
			f.t.Error(err)
			return
		}
		ctx, cancel := context.WithTimeout(f.ctx, time.Second)
		defer cancel()
		if err := h.Enter(ctx); err == nil {
			f.t.Error("a stranger has joined with the token of another cluster")
		}
		_ = h.Close()
	})
}
