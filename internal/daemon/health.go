package daemon

// The health of a running daemon.

import (
	"context"
	"errors"
	"fmt"
)

// pinger is a loop of the daemon. Ping returns once the loop has handled the call.
type pinger interface {
	Ping(ctx context.Context) error
}

// Health returns nil if every loop of the daemon answers before ctx ends. Otherwise the error names the loops that do not
// answer, for instance because they wait for a disk or a lock. The watchdog asks Health, because a ticker would only show
// that a ticker lives. The journal answers without a quorum: a daemon that is cut off from its voters is not sick.
func (n *Node) Health(ctx context.Context) error {
	parts := map[string]pinger{"worker": n.exec.work, "driver": n.exec.driver}
	for g, o := range n.owners.by {
		parts["scheduler of "+g.String()], parts["journal of "+g.String()] = o, o.journal
	}
	answers := make(chan error, len(parts))
	for name, part := range parts {
		go func() {
			err := part.Ping(ctx)
			if err != nil {
				err = fmt.Errorf("%s: %w", name, err)
			}
			answers <- err
		}()
	}
	var errs []error
	for range parts {
		errs = append(errs, <-answers)
	}
	return errors.Join(errs...)
}

// Summary describes in one line what the daemon does now.
func (n *Node) Summary(ctx context.Context) (string, error) {
	v, err := n.exec.work.View(ctx)
	if err != nil {
		return "", err
	}
	others := 0
	for _, m := range n.host.Members() {
		if m.Connected {
			others++
		}
	}
	return fmt.Sprintf("cluster %s, daemons connected: %d, tasks running here: %d", n.host.Cluster(), others, v.Running), nil
}
