package sim

// The observer of a world: what it sees, and what it may decide. Tests use it.

import (
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/step"
)

// watcher sees what happens in a world, before it has any consequences.
type watcher interface { //nolint:interfacebloat // one method for each thing that can be seen
	offered(o *owner, h *host, m contract.Offer)
	// dropped sees an offer that is withdrawn or declined.
	dropped(h *host, offer uint64)
	starts(o *owner, to job.Peer, m contract.Start)
	foresees(h *host, f contract.Forecast)
	// keeps sees all that a host says that it keeps.
	keeps(h *host, all []contract.Kept)
	asked(o *owner, tok step.Token)
	committed(o *owner, r job.Record, seq uint64, epoch job.Epoch)
	saves(o *owner, id job.ID)
	stepped(fx *step.Effects)
	// reserved sees a host that has reserved what an attempt needs.
	reserved(h *host, a job.Attempt)
	// launched sees a process that is to be started.
	launched(p *proc)
	// fenced sees a process whose lease has run out, and stopped one that is told to end.
	fenced(p *proc)
	stopped(p *proc, reason string)
	// finishes decides how a process ends that has done its work; false: it does not end.
	finishes(p *proc) (state job.State, code int, ends bool)
	// refused sees a job that was refused. It returns whether the user tries again.
	refused(s *submission, err error) bool
}
