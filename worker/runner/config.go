package runner

// What a runner is told when it starts.

import (
	"errors"
	"fmt"
	"time"

	"github.com/musterhq/muster/worker/runner/spawn"
)

// Config is the configuration of a runner, most of it from its command line.
type Config struct {
	Dir        string // of the daemon's runners and tasks
	Generation int    // from 1; a newer runner of the directory has a higher one
	Version    string // of the binary
	AllowRoot  bool   // run tasks of user root, if the runner is root
	// Scope asks systemd to move the runner into a scope unit of its own.
	Scope bool
	// Idle is how long the runner stays up without tasks and without a daemon.
	Idle time.Duration
	// Answer is how long a task's start may wait for the files that its user named, for example on a hung file
	// server.
	Answer time.Duration
	// Containers runs the tasks that have an image. Nil: such tasks are refused.
	Containers Containers
	// Guard is the command line of the guard of this runner; see GuardCommand. Nil: it has none.
	Guard []string
	// NoGroups turns control groups off.
	NoGroups bool
	// NoUnified turns control groups of version 2 off, as on a host that has only version 1.
	NoUnified bool
	// NoSpaces turns PID namespaces off, as on a host that does not permit them.
	NoSpaces bool
	// SharedTmp leaves tasks the /tmp and the /dev/shm of the host.
	SharedTmp bool
	// Ulimits are the resource limits of each process of a task, as NAME=SOFT[:HARD].
	Ulimits []string
}

// DefaultConfig returns the configuration of a runner of the first generation, without a directory.
func DefaultConfig() Config {
	return Config{Generation: 1, Idle: time.Minute, Answer: time.Minute, Ulimits: spawn.DefaultUlimits()}
}

// Validate returns an error for the first field that is not valid.
func (c Config) Validate() error {
	switch {
	case c.Dir == "":
		return errors.New("runner: dir: not given")
	case c.Generation < 1:
		return fmt.Errorf("runner: generation %d: from 1", c.Generation)
	case c.Idle <= 0:
		return fmt.Errorf("runner: idle %s: above 0s", c.Idle)
	case c.Answer <= spawn.SlowStart:
		return fmt.Errorf("runner: answer %s: above %s", c.Answer, spawn.SlowStart)
	}
	return nil
}
