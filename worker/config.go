package worker

// The configuration of a worker.

import (
	"errors"
	"fmt"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/internal/fairshare"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/health"
	"github.com/musterhq/muster/worker/resources"
)

// Config is what a worker knows before the first event.
type Config struct {
	Profile contract.Profile // what this host has for tasks in all
	Boot    string           // this boot of the host; it changes with each reboot
	Own     []job.Group      // of this daemon's own schedulers
	Seed    uint64           // of session ids and of the jitter of renewals
	// Draining is the drain that was set in an earlier run of the daemon.
	Draining Drain
	// Quarantine is what an earlier run of the daemon has saved.
	Quarantine health.Quarantine
	Limits     resources.Limits
	Priorities *contract.Priorities // the highest priorities that offers may have; nil: any
	// SetAside bounds the first turn of setting free resources aside for an offer that cannot be booked. See pace.Turn.
	SetAside time.Duration
	// PreemptGrace bounds the time between TERM and KILL of a task that this host preempts, whatever its job says.
	PreemptGrace time.Duration
	// Shares are the weights of users and projects. The zero value counts no usage.
	Shares fairshare.Weights
	Usage  resources.Usage // what an earlier run of the daemon has saved
	// Inherit is the part of the daemon's environment that tasks inherit. Only PATH, HOME, USER and LANG are used.
	Inherit map[string]string
	// NotForOthers are accounts of this host whose names the jobs of other hosts may not use, each with the reason.
	NotForOthers map[string]string
	// LookUp says that tasks run as their users: offers for users without an account on this host are declined.
	LookUp bool
	// IP is the address of this host as its tasks see it.
	IP string
	// FirstPort and LastPort are the range of the ports that gangs get. It should be outside the ephemeral range.
	FirstPort, LastPort int
}

// The values of Config.SetAside. If the first turn lasts a day, devices may lie idle for days in later turns.
const (
	DefaultSetAside = 10 * time.Minute
	MinSetAside     = time.Second
	MaxSetAside     = 24 * time.Hour
)

// DefaultPreemptGrace is the default of Config.PreemptGrace. It is at most job.MaxGrace.
const DefaultPreemptGrace = 5 * time.Minute

// DefaultConfig returns a configuration without the fields that describe the host.
func DefaultConfig() Config {
	return Config{IP: "127.0.0.1", FirstPort: 20000, LastPort: 29999, SetAside: DefaultSetAside, PreemptGrace: DefaultPreemptGrace}
}

// Validate returns an error if the configuration is not valid.
func (c Config) Validate() error {
	switch {
	case c.Profile.Peer == "":
		return errors.New("worker: config: profile without a peer id")
	case c.Profile.Store == "":
		return errors.New("worker: config: profile without a store id")
	case c.SetAside < MinSetAside || c.SetAside > MaxSetAside:
		return fmt.Errorf("worker: config: set aside for %s: want %s to %s", c.SetAside, MinSetAside, MaxSetAside)
	case c.PreemptGrace < 0 || c.PreemptGrace > job.MaxGrace:
		return fmt.Errorf("worker: config: grace of preempted tasks %s: want 0s to %s", c.PreemptGrace, job.MaxGrace)
	case c.Boot == "":
		return errors.New("worker: config: no boot id")
	case c.Profile.CPUs < 0 || c.Profile.Memory < 0 || len(c.Profile.GPUs) > contract.MaxGPUs:
		return fmt.Errorf("worker: config: a profile of %d cpus, %s of memory and %d gpus",
			c.Profile.CPUs, c.Profile.Memory, len(c.Profile.GPUs))
	case c.FirstPort < 1 || c.LastPort < c.FirstPort || c.LastPort > 65535:
		return fmt.Errorf("worker: config: ports %d to %d for gangs", c.FirstPort, c.LastPort)
	}
	return nil
}

// refuses returns why this host never runs tasks of this user for the scheduler of this peer, or "" if it may.
func (c *Config) refuses(from job.Peer, user string) string {
	switch only := c.Profile.OnlyUser; {
	case only != "" && user != only:
		return "this node runs only tasks of " + only
	case c.Profile.NoRoot && user == contract.Root:
		return "this node runs no tasks of root; its daemon needs --allow-root"
	case from != c.Profile.Peer:
		return c.NotForOthers[user]
	}
	return ""
}

// ports returns the number of ports that gangs can get.
func (c *Config) ports() int { return c.LastPort - c.FirstPort + 1 }
