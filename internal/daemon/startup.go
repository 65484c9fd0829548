package daemon

// The start of the daemon, until it accepts work.

import (
	"context"
	"fmt"
	"time"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/job"
)

// startup holds what a daemon waits for before it accepts work, and an error of the store that ends the daemon.
type startup struct {
	ready      chan struct{} // closed when the daemon accepts work
	anySession chan struct{} // holds a token once a session has been opened
	fatal      chan error    // why the store cannot go on
}

func newStartup() *startup {
	return &startup{ready: make(chan struct{}), anySession: make(chan struct{}, 1), fatal: make(chan error, 1)}
}

// failed records why the store cannot go on.
func (s *startup) failed(err error) {
	select {
	case s.fatal <- err:
	default:
	}
}

// sessionOpened records that a session has been opened.
func (s *startup) sessionOpened(job.Peer) {
	select {
	case s.anySession <- struct{}{}:
	default:
	}
}

// Ready returns nil once the daemon accepts work.
func (s *startup) Ready(context.Context) error {
	select {
	case <-s.ready:
		return nil
	default:
		return fmt.Errorf("%w: the daemon is starting", api.ErrUnavailable)
	}
}

// Started returns a channel that is closed once the daemon accepts work.
func (n *Node) Started() <-chan struct{} { return n.startup.ready }

// knownPeersWait is how long a starting daemon that knows other members waits for a session with one of them. After that
// it reports itself as ready without one.
const knownPeersWait = 3 * time.Second

// start reports the daemon as ready once it accepts work. Then it waits for an error of the store.
func (n *Node) start(ctx context.Context) error {
	n.net.router.openLocal()
	n.net.advertise(n.hw.profile)
	for _, o := range n.owners.by {
		select {
		case <-o.led:
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
		case <-n.startup.anySession:
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
