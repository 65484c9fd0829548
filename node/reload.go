package node

// What a running daemon can be told anew, and whether it is well.

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/musterhq/muster/lease"
	"github.com/musterhq/muster/worker"
)

// live is what a daemon has been told last. A leaf container.
type live struct {
	mu   sync.Mutex
	cfg  Config        // guarded by mu
	host lease.Profile // guarded by mu
}

func (l *live) set(cfg Config) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cfg = cfg
}

func (l *live) config() Config {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cfg
}

func (l *live) profile() lease.Profile { return l.change(func(*lease.Profile) {}) }

// change gives the profile as it is after it.
func (l *live) change(change func(*lease.Profile)) lease.Profile {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(&l.host)
	return l.host
}

// Reload takes new values of the settings that can change while the daemon
// runs, and reads the token file again; cfg differs in no other setting. What
// cannot be taken stays as it was and is named in the error.
func (n *Node) Reload(cfg Config) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	old := n.now.config()
	errToken := n.server.ReadToken()
	var errBootstrap error
	if !slices.Equal(old.Bootstrap, cfg.Bootstrap) {
		if errBootstrap = n.host.SetBootstrap(cfg.Bootstrap); errBootstrap != nil {
			cfg.Bootstrap = old.Bootstrap
		}
	}
	if !maps.Equal(old.Labels, cfg.Labels) {
		n.become(func(p *lease.Profile) { p.Labels = cfg.Labels })
	}
	limits, errLimits := worker.ParseLimits(cfg.Limits)
	if errLimits == nil {
		n.work.SetLimits(limits)
	}
	n.now.set(cfg)
	return errors.Join(errToken, errBootstrap, errLimits)
}

// become changes what this host could ever give, and tells all who go by it.
func (n *Node) become(change func(*lease.Profile)) {
	host := n.now.change(change)
	n.work.ChangeProfile(change)
	n.callers.become(host)
	n.advertise(host)
}

// given is what a worker may give of what its host has.
func given(host lease.Profile) lease.Profile {
	if !host.Worker {
		host.CPUs, host.Memory, host.GPUs = 0, 0, nil
	}
	return host
}

// advertise tells the table what this host could ever run.
func (n *Node) advertise(host lease.Profile) {
	n.table.Advertise(append([]string{groupClass(n.store.Group())}, lease.Classes(host)...))
}

// Started is closed once work can be taken.
func (n *Node) Started() <-chan struct{} { return n.ready }

// pinger is a loop of the daemon that says whether it still turns.
type pinger interface {
	Ping(ctx context.Context) error
}

// Health is nil if every loop of the daemon has come by before ctx ended; else
// it names those that have not. A loop that waits for a disk or for a lock does
// not come by.
func (n *Node) Health(ctx context.Context) error {
	parts := map[string]pinger{"worker": n.work, "driver": n.driver}
	if home := n.owners.home; home != nil {
		parts["scheduler"], parts["journal"] = home, home.journal
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

// Summary says in a line what the daemon does now.
func (n *Node) Summary(ctx context.Context) (string, error) {
	v, err := n.work.View(ctx)
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
