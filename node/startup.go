package node

// From built to ready.

import (
	"context"
	"fmt"
	"time"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/job"
)

// startup is what a daemon waits for before it takes work.
type startup struct {
	ready  chan struct{} // closed when work can be taken
	metAny chan struct{} // holds a token once a session came up
	fatal  chan error    // the store can go on no longer
}

func newStartup() *startup {
	return &startup{ready: make(chan struct{}), metAny: make(chan struct{}, 1), fatal: make(chan error, 1)}
}

// failed notes that the store can go on no longer.
func (s *startup) failed(err error) {
	select {
	case s.fatal <- err:
	default:
	}
}

// met notes that a session came up.
func (s *startup) met(job.Peer) {
	select {
	case s.metAny <- struct{}{}:
	default:
	}
}

// Ready is nil once work can be taken.
func (s *startup) Ready(context.Context) error {
	select {
	case <-s.ready:
		return nil
	default:
		return fmt.Errorf("%w: the daemon is starting", api.ErrUnavailable)
	}
}

// Started is closed once work can be taken.
func (n *Node) Started() <-chan struct{} { return n.startup.ready }

// knownPeersWait is how long a daemon that knows others waits for one before it
// says that it is ready: alone is a legal way to be.
const knownPeersWait = 3 * time.Second

// start brings the daemon from running to ready, then watches for the end of
// its disk.
func (n *Node) start(ctx context.Context) error {
	n.net.board.local()
	n.net.advertise(n.hw.profile)
	if home := n.owners.home; home != nil {
		select {
		case <-home.led:
		case err := <-n.startup.fatal:
			return err
		case <-ctx.Done():
			return nil
		}
	}
	select {
	case <-n.server.Ready():
	case <-ctx.Done():
		return nil
	}
	if len(n.host.Members()) > 0 || len(n.cfg.Bootstrap) > 0 {
		late := time.NewTimer(knownPeersWait)
		defer late.Stop()
		select {
		case <-n.startup.metAny:
		case <-late.C:
			n.log.WarnContext(ctx, "no other daemon answers yet; going on alone and trying again")
		case <-ctx.Done():
			return nil
		}
	}
	close(n.startup.ready)
	n.log.InfoContext(
		ctx, "ready", "name", n.cfg.Name, "peer", string(n.host.Peer()), "cluster", n.host.Cluster(), "cpus", n.hw.profile.CPUs,
		"gpus", len(n.hw.profile.GPUs), "socket", n.cfg.Socket,
	)
	select {
	case err := <-n.startup.fatal:
		return err
	case <-ctx.Done():
		return nil
	}
}
