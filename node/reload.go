package node

// Reloading settings of a running daemon, and its health.

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

// live holds the present settings and profile. It is safe for concurrent use.
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

// change changes the profile and returns the result.
func (l *live) change(change func(*lease.Profile)) lease.Profile {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(&l.host)
	return l.host
}

// Reload applies new values of the settings that can change while the daemon runs, and reads the token file again. cfg
// must not differ in any other setting. A value that cannot be applied is named in the error, and the old one stays.
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

// become changes the profile of this host in all parts that use it.
func (n *Node) become(change func(*lease.Profile)) {
	host := n.now.change(change)
	n.work.ChangeProfile(change)
	n.callers.become(host)
	n.advertise(host)
}

// offered returns the resources that the worker offers: those of the host, or none if it runs no tasks.
func offered(host lease.Profile) lease.Profile {
	if !host.Worker {
		host.CPUs, host.Memory, host.GPUs = 0, 0, nil
	}
	return host
}

// advertise advertises this host's resource classes, and the group that it owns, in the DHT.
func (n *Node) advertise(host lease.Profile) {
	n.table.Advertise(append([]string{groupClass(n.store.Group())}, lease.Classes(host)...))
}

// Started returns a channel that is closed once the daemon accepts work.
func (n *Node) Started() <-chan struct{} { return n.ready }

// pinger is a loop of the daemon. Ping returns once the loop has handled it.
type pinger interface {
	Ping(ctx context.Context) error
}

// Health returns nil if every loop of the daemon answers before ctx ends. Otherwise the error names those that do not,
// for instance because they wait for a disk or a lock.
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

// Summary describes in one line what the daemon does now.
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
