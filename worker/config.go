package worker

// The configuration of a worker, given once at its start.

import (
	"errors"
	"fmt"

	"github.com/musterhq/muster/lease"
)

// Config is what a worker knows before the first event.
type Config struct {
	Profile lease.Profile // what this host could ever give
	Boot    string        // this incarnation of the host: another after a reboot
	Seed    uint64        // of session ids and of the jitter of renewals
	// Draining is the drain that was set in an earlier life of the daemon.
	Draining Drain
	// Quarantine is what that life kept for this one.
	Quarantine Quarantine
	Limits     Limits
	// Inherit is what a task sees of the daemon's own environment; only PATH,
	// HOME, USER and LANG are looked at.
	Inherit map[string]string
	// IP is the address that a task of one host finds itself under.
	IP string
}

// DefaultConfig is a worker without a host yet.
func DefaultConfig() Config {
	return Config{IP: "127.0.0.1"}
}

// Validate says what is missing.
func (c Config) Validate() error {
	switch {
	case c.Profile.Peer == "":
		return errors.New("worker: config: profile without a peer id")
	case c.Profile.Store == "":
		return errors.New("worker: config: profile without a store id")
	case c.Boot == "":
		return errors.New("worker: config: no incarnation of the host")
	case c.Profile.CPUs < 0 || c.Profile.Memory < 0 || len(c.Profile.GPUs) > lease.MaxGPUs:
		return fmt.Errorf("worker: config: a profile of %d cpus, %s of memory and %d gpus",
			c.Profile.CPUs, c.Profile.Memory, len(c.Profile.GPUs))
	}
	return nil
}
