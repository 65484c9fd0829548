package worker

// The gate: whether the host takes work at all, and what it says about that.

import (
	"fmt"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
)

// gate looks at everything that can keep the whole host from taking work.
type gate struct {
	cfg      *Config
	account  *account
	health   *health
	ledger   *ledger
	attempts *attempts
	drain    *drainage
	reports  *reports
}

// closed is why nothing is given away at all; an empty word if something is.
func (g *gate) closed() job.Reason {
	switch {
	case !g.cfg.Profile.Worker:
		return job.Reason{Word: job.ReasonNoMatch, Detail: "this host runs no tasks"}
	case g.drain.now.On:
		return job.Reason{Word: job.ReasonNodesDraining, Detail: g.drain.now.String()}
	case g.health.host.why != "":
		return job.Reason{Word: job.ReasonNodesDraining, Detail: g.health.host.why}
	case g.ledger.failed != nil:
		return job.Reason{Word: job.ReasonResources, Detail: lease.Clip("ledger: " + g.ledger.failed.Error())}
	case len(g.attempts.by) >= MaxRecords:
		return job.Reason{Word: job.ReasonResources, Detail: fmt.Sprintf("%d attempts are kept, most of them not acknowledged", len(g.attempts.by))}
	}
	return job.Reason{}
}

// news is what is free now, or why nothing is, with the next number.
func (g *gate) news() lease.Availability {
	g.reports.seq++
	why := g.closed()
	return lease.Availability{
		Seq: g.reports.seq, Free: g.account.free(), Draining: why.Word == job.ReasonNodesDraining, Detail: why.Detail,
	}
}

// hello says who this is and what it has, and if need be why none of it is given away: a Hello alone means that it is.
func (g *gate) hello(to job.Peer) {
	g.reports.turn.send(to, lease.Hello{Profile: g.cfg.Profile, Free: g.account.free()})
	if g.closed().Word == job.ReasonNodesDraining {
		g.reports.turn.send(to, g.news())
	}
}
