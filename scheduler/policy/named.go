package policy

// The policies by name, and those of jobs that name none.

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Named returns the policies by name. Each call makes new ones: a policy may have memory that it uses again, and is for
// one goroutine.
func Named() map[string]Policy {
	return map[string]Policy{
		"balanced": Balanced{},
		"frag":     &Frag{},
		"pack":     Pack{},
		"simple":   Simple{},
		"spread":   Spread{},
		"topology": &Topology{},
	}
}

// The policies of jobs that name none. See docs/adr, ADR 98.
const (
	Default        = "frag"
	DefaultOfGangs = "topology"
)

// Names returns the names of the policies in alphabetical order.
func Names() []string { return slices.Sorted(maps.Keys(Named())) }

// Check returns an error if a job names a policy that does not exist. An empty name stands for the default.
func Check(name string) error {
	if name == "" || Named()[name] != nil {
		return nil
	}
	return fmt.Errorf("policy %.40q: want one of %s", name, strings.Join(Names(), ", "))
}
