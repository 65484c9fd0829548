package daemon

// Reloading settings of a running daemon.

import (
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/internal/fairshare"
	"github.com/musterhq/muster/p2p"
	schedulerloop "github.com/musterhq/muster/scheduler/loop"
	"github.com/musterhq/muster/worker/loop"
	"github.com/musterhq/muster/worker/resources"
)

// live holds the present settings and profile. It is safe for concurrent use.
type live struct {
	mu   sync.Mutex
	cfg  Config           // guarded by mu
	host contract.Profile // guarded by mu
}

func newLive(cfg Config, host contract.Profile) *live { return &live{cfg: cfg, host: host} }

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

func (l *live) profile() contract.Profile { return l.change(func(*contract.Profile) {}) }

// change changes the profile and returns the result.
func (l *live) change(change func(*contract.Profile)) contract.Profile {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(&l.host)
	return l.host
}

// changes applies new settings and a changed profile to the parts of a running daemon.
type changes struct {
	now     *live
	host    *p2p.Host
	net     *overlay
	work    *loop.Loop
	owners  owners
	server  *api.Server
	gpus    *devices
	scratch *scratchQuota
}

// reload applies new values of the settings that can change while the daemon runs, reads the token file again, and lists
// the GPUs again. cfg must not differ in any other setting. The error names each value that cannot be applied; the old
// value stays.
func (c *changes) reload(cfg Config) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	old := c.now.config()
	c.gpus.listAgain()
	errToken := c.server.ReadToken()
	var errBootstrap error
	if !slices.Equal(old.Bootstrap, cfg.Bootstrap) {
		if errBootstrap = c.host.SetBootstrap(cfg.Bootstrap); errBootstrap != nil {
			cfg.Bootstrap = old.Bootstrap
		}
	}
	if !maps.Equal(old.Labels, cfg.Labels) {
		c.become(func(p *contract.Profile) {
			p.Labels = cfg.Labels
			p.Sign(p.Signed)
		})
	}
	limits, errLimits := resources.ParseLimits(cfg.Limits)
	if errLimits == nil {
		priorities := prioritiesOf(cfg, limits)
		c.work.SetLimits(limits, priorities)
		c.scratch.set(limits)
		if c.owners.times != nil {
			c.owners.times.set(limits)
		}
		for _, o := range c.owners.by {
			schedulerloop.SetLimits(o.Loop, jobLimits(limits))
			schedulerloop.SetPriorities(o.Loop, priorities)
			schedulerloop.SetBacklog(o.Loop, backlogOf(limits))
		}
	}
	weights, errShares := fairshare.Parse(cfg.Shares)
	if errShares == nil {
		c.work.SetShares(weights)
		for _, o := range c.owners.by {
			o.SetShares(weights)
		}
	}
	c.now.set(cfg)
	return errors.Join(errToken, errBootstrap, errLimits, errShares)
}

// become changes the profile of this host in all parts that use it.
func (c *changes) become(change func(*contract.Profile)) {
	host := c.now.change(change)
	c.work.ChangeProfile(func(p *contract.Profile) {
		change(p)
		*p = offered(*p)
	})
	c.net.become(host)
}

// offered returns the profile with the resources that the worker offers: those of the host, or none if it runs no tasks.
func offered(host contract.Profile) contract.Profile {
	if !host.Worker {
		host.CPUs, host.Memory, host.GPUs = 0, 0, nil
	}
	return host
}
