package scheduler

// Hosts with a session that renew no lease: their daemon answers, but it is stuck, for instance in a disk that hangs.
// Their tasks have ended for certain once their leases have run out (R4).

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/step"
)

// unrenewedEvery is how often such hosts are looked for.
const unrenewedEvery = time.Minute

// unrenewed gives up the attempts whose lease has run out for certain though their host has a session.
type unrenewed struct {
	*step.Turn
	assigned   *assigned
	attempts   *attempts
	dispatches *dispatches
}

// look looks at each host with tasks of this scheduler. It arms its own timer again.
func (u *unrenewed) look() {
	u.After(unrenewedEvery, u.look)
	if !u.Lead {
		return
	}
	for _, p := range slices.Sorted(maps.Keys(u.assigned.byNode)) {
		if slices.ContainsFunc(u.attempts.renewed[p], func(x answered) bool { return u.Now.Sub(x.at) < unrenewedEvery }) {
			continue
		}
		for _, t := range u.assigned.at(p) {
			u.check(t)
		}
	}
}

func (u *unrenewed) check(t *task) {
	d := t.durable()
	if !d.Assigned || !t.phase.watched() || !u.attempts.lapses(t) || u.attempts.reached(t) == nil || u.Now.Before(u.attempts.writeOffAt(t)) {
		return
	}
	u.dispatches.takeBack(t)
	u.attempts.writeOff(t, job.ProofExpired, fmt.Sprintf("%s answers, but renewed no lease until this one had run out", d.NodeName))
}
