package scheduler

// Neighbours: the search for further hosts of a rack, for policies that go by the cost of paths. A scheduler of a large
// cluster knows a random part of the hosts, and so only some of each rack.
// See docs/adr, ADR 109.

import (
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/scheduler/place"
	"github.com/musterhq/muster/scheduler/policy"
	"github.com/musterhq/muster/scheduler/search"
	"github.com/musterhq/muster/scheduler/step"
)

// neighbours searches for hosts of racks.
type neighbours struct {
	*step.Turn
	hosts     *hosts
	search    *search.Search
	placement *placement
	pending   *pending
	sought    map[string]time.Time // by class: when hosts of the rack were last searched for
}

const (
	// seekAgain is the time between two searches for the hosts of a rack. It is less than idleFor, after which the
	// session with a host that was found may be given up.
	seekAgain = 5 * time.Minute
	// seekWait is how long a gang waits for hosts of a rack that are searched for: a search takes up to a second, and the
	// hosts say what they have a moment later.
	seekWait = 2 * time.Second
	// seekRacks bounds the racks whose hosts are searched for on behalf of a gang. seekAtOnce is how many of them at a
	// time.
	seekRacks  = 4
	seekAtOnce = 2
	// maxSought bounds the racks that are remembered. When it is reached, all are forgotten.
	maxSought = 4096
)

// seek searches for further hosts of a rack, unless it has done so of late. It reports whether a search begins.
func (ns *neighbours) seek(class string) bool {
	if at, before := ns.sought[class]; before && ns.Now.Sub(at) < seekAgain || !contract.IsClass(class) {
		return false
	}
	if len(ns.sought) >= maxSought {
		clear(ns.sought)
	}
	ns.sought[class] = ns.Now
	ns.search.Find(class)
	return true
}

// ofThisRack searches for hosts of this daemon's own rack, if the policy of the task goes by the cost of paths.
func (ns *neighbours) ofThisRack(t *task) {
	own := ns.hosts.fleet.Local()
	if own == nil || own.Profile.Labels[policy.RackLabel] == "" || !ns.placement.near(t) {
		return
	}
	ns.seek(contract.LabelClass(policy.RackLabel, own.Profile.Labels[policy.RackLabel]))
}

// ofRacks searches for further hosts of the racks that would suit the gang best, if no rack is known to have room for
// the whole gang. It reports whether the gang waits for such a search.
func (ns *neighbours) ofRacks(t *task, racks []place.Part, size int) bool {
	if len(racks) == 0 || racks[0].Fits >= size {
		return false
	}
	begun := 0
	for _, x := range racks[:min(len(racks), seekRacks)] {
		if begun < seekAtOnce && ns.seek(contract.LabelClass(x.Label, x.Value)) {
			begun++
		}
	}
	if begun > 0 {
		ns.pending.pause(t, ns.Now.Add(seekWait))
	}
	return begun > 0
}
