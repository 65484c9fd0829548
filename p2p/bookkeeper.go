package p2p

// Keeping the peer book: it collects the addresses of connected members and writes the book.

import (
	"context"
	"log/slog"
	"time"

	"github.com/libp2p/go-libp2p/core/peerstore"
)

const (
	// bookEvery is how long the book on disk may be out of date. A new member is written within bookSoon, with its
	// address.
	bookEvery = 2 * time.Second
	bookSoon  = 50 * time.Millisecond
)

// bookKeeper writes the peer book.
type bookKeeper struct {
	book   *book
	roster *roster
	addrs  peerstore.AddrBook
	log    *slog.Logger
}

// run writes the book as it changes, until ctx ends. Newcomers that arrive together share a write.
func (k bookKeeper) run(ctx context.Context) {
	tick := time.NewTicker(bookEvery)
	defer tick.Stop()
	soon := time.NewTimer(bookEvery)
	defer soon.Stop()
	for more := true; more; {
		select {
		case <-k.book.newcomer:
			soon.Reset(bookSoon)
			continue
		case <-soon.C:
			k.noteAddrs()
		case <-tick.C:
			k.noteAddrs()
		case <-ctx.Done():
			more = false // one last time
			k.noteAddrs()
		}
		if err := k.book.save(); err != nil {
			k.log.ErrorContext(ctx, "peer book not written", "error", err)
		}
	}
}

// noteAddrs records the addresses of the members that are connected now.
func (k bookKeeper) noteAddrs() {
	now := time.Now()
	for _, g := range k.roster.present() {
		k.book.seen(g.id, k.addrs.Addrs(g.id), now)
	}
}
