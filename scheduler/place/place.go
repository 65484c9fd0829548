// Package place decides where a task goes: to a host where it fits, into the queues of full hosts, or nowhere yet.
//
// A decision is a value. It follows from the arguments alone: the table of hosts, the policy, what the task asks for
// and which hosts it avoids, the time, and the slot of the table where a search begins. Nothing here sends, sets a
// timer, draws a random number or changes a host or a task. The scheduler acts on the decision. A host only keeps what
// it has worked out about its free resources, until they change.
//
// Package fleet finds the hosts where a task fits; a policy chooses one of them.
//
// See docs/adr, ADR 78.
package place

import (
	"time"

	"github.com/musterhq/muster/scheduler/fleet"
	"github.com/musterhq/muster/scheduler/policy"
)

// SampleSize is how many hosts with room a policy gets to choose from by default, and at how many full hosts the queues
// are compared. A search of more hosts should begin at a random slot, so that schedulers do not all choose the same
// ones.
const SampleSize = 64

// Task is what a decision may know of a task.
type Task struct {
	fleet.Request
	Policy policy.Policy
	Avoid  Avoidances
	At     []*fleet.Host // to which it is offered now
	Home   Home          // the task goes to no host outside of it
	// Elsewhere says that open hosts where the task has not failed could ever take it: one, or as many as a gang needs.
	// It is only worked out for a task that waits for such hosts.
	Elsewhere bool
}

// FindElsewhere fills in Elsewhere.
func (p *Placer) FindElsewhere(t *Task, now time.Time) {
	if !t.Avoid.waits(now) {
		return
	}
	n := max(1, t.Shape.Gang)
	for h := range p.fleet.Candidates(t.Shape) {
		if h.Open() && t.Home.Has(h) && !t.Avoid.failedAt(h.Peer) {
			if n--; n == 0 {
				t.Elsewhere = true
				return
			}
		}
	}
}

// Avoids returns how the task avoids the host now, if it does.
func (t *Task) Avoids(now time.Time, h *fleet.Host) (Avoidance, bool) { return t.avoids(now, h) }

// avoids returns the same as Avoids.
func (t *Task) avoids(now time.Time, h *fleet.Host) (Avoidance, bool) {
	if len(t.Avoid) == 0 {
		return Avoidance{}, false
	}
	return t.Avoid.at(now, h.Peer, t.Elsewhere)
}

// Home is a set of hosts: those with this value of a label, such as one rack. The zero value is all hosts.
type Home struct{ Label, Value string }

// Has says whether the host is part of it.
func (x Home) Has(h *fleet.Host) bool { return x.Label == "" || h.Profile.Labels[x.Label] == x.Value }

// Again is a host that waiting tasks are compared with again at a time.
type Again struct {
	Host *fleet.Host
	At   time.Time
}

// Placer decides where tasks go. It keeps nothing from one decision to the next but memory that it uses again. It is
// for one goroutine.
type Placer struct {
	Sample int // how many hosts with room a policy gets to choose from

	fleet   *fleet.Table
	typical *policy.Typical

	search        fleet.Search
	rooms         []fleet.Room // of hosts whose Room the table does not have
	fits, shunned candidates
	shunnedAs     Avoidance // how the task avoids the host in shunned
	chosen        []policy.Choice
	full          []fullHost
	queue         []*fleet.Host
	passed        []*fleet.Host
	again         []Again
}

// New returns a Placer for these hosts. Policies learn from typical what users usually ask for.
func New(t *fleet.Table, typical *policy.Typical) *Placer {
	return &Placer{Sample: SampleSize, fleet: t, typical: typical}
}

// candidates are hosts that meet the preferences of a task equally well, as the policy sees them.
type candidates struct {
	weight int
	seen   []policy.Candidate
}

func (cs *candidates) clear() { cs.weight, cs.seen = 0, cs.seen[:0] }

// wants says whether a host of this weight is to be added: it is preferred to those before, or equal to them and they
// are fewer than the sample.
func (cs *candidates) wants(weight, sample int) bool {
	return weight > cs.weight || weight == cs.weight && len(cs.seen) < sample
}

// add adds a host. Those that are preferred less are dropped.
func (cs *candidates) add(c policy.Candidate, weight int) {
	if weight > cs.weight {
		cs.clear()
		cs.weight = weight
	}
	cs.seen = append(cs.seen, c)
}

// fullHost is a host where a task may queue.
type fullHost struct {
	*fleet.Host
	shunned bool // the task avoids it while there is another
	// before and after are how many tasks of this scheduler queue there: of the priority of the task or a higher one, and of
	// a lower one.
	before, after int
}
