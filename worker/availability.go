package worker

// Availability: whether the host accepts tasks at all, and what it tells the schedulers about that.

import (
	"fmt"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/health"
	"github.com/musterhq/muster/worker/resources"
)

// availability knows everything that can keep the whole host from accepting tasks.
type availability struct {
	cfg      *Config
	account  *resources.Account
	health   *health.Health
	ledger   *ledger
	attempts *attempts
	drain    *drainState
	reports  *reports
	noRoom   string // why the data directory has no room for new work; empty: it has
}

// closed returns why the host accepts no tasks. Its Word is empty if the host accepts tasks.
func (g *availability) closed() job.Reason {
	switch {
	case !g.cfg.Profile.Worker:
		return job.Reason{Word: job.ReasonNoMatch, Detail: "this host runs no tasks"}
	case g.drain.now.On:
		return job.Reason{Word: job.ReasonNodesDraining, Detail: g.drain.now.String()}
	case g.health.Paused() != "":
		return job.Reason{Word: job.ReasonNodesDraining, Detail: g.health.Paused()}
	case g.noRoom != "":
		return job.Reason{Word: job.ReasonNodesDraining, Detail: contract.Clip(g.noRoom)}
	case g.ledger.failed != nil:
		return job.Reason{Word: job.ReasonNodesDraining, Detail: contract.Clip("its ledger cannot be written: " + causeOf(g.ledger.failed))}
	case len(g.attempts.by)-g.attempts.refusals.count >= MaxRecords:
		return job.Reason{Word: job.ReasonResources, Detail: fmt.Sprintf("%d attempts are not acknowledged or still run", len(g.attempts.by)-g.attempts.refusals.count)}
	}
	return job.Reason{}
}

// roomChanged notes whether the data directory has room for new work.
func (g *availability) roomChanged(why string) {
	if g.noRoom == why {
		return
	}
	g.noRoom = why
	g.reports.turn.Reopen()
}

// causeOf returns the innermost error of a chain: what went wrong, without what was being done. The log has the whole
// chain.
func causeOf(err error) string {
	for {
		switch x := err.(type) { //nolint:errorlint // it goes through the chain itself
		case interface{ Unwrap() error }:
			if inner := x.Unwrap(); inner != nil {
				err = inner
				continue
			}
		case interface{ Unwrap() []error }:
			if inner := x.Unwrap(); len(inner) > 0 {
				err = inner[0]
				continue
			}
		}
		return err.Error()
	}
}

// message returns the next Availability: what is free, and why the host drains, if it does.
func (g *availability) message() contract.Availability {
	g.reports.seq++
	why, free := g.closed(), g.account.Free()
	return contract.Availability{
		Seq: g.reports.seq, Free: free, Draining: why.Word == job.ReasonNodesDraining, Detail: why.Detail, Kept: g.reports.keeping.Message(&free),
	}
}

// tellUsage tells schedulers what users and projects have used here.
func (g *availability) tellUsage(to []job.Peer) {
	report := g.account.Meter.Report()
	if report == nil || len(to) == 0 {
		return
	}
	msg := g.message()
	msg.Usage = report
	for _, p := range to {
		g.reports.turn.Send(p, msg)
	}
}

// sendHello sends the profile and what is free. To the scheduler a Hello means that the host accepts tasks and keeps
// nothing, so an Availability follows if that is not so.
func (g *availability) sendHello(to job.Peer) {
	p := g.cfg.Profile
	if to != p.Peer {
		most, _ := g.cfg.Priorities.OfMember(to)
		p.Limits = p.Limits.ToMember(most)
	}
	g.reports.turn.Send(to, contract.Hello{Profile: p, Free: g.account.Free()})
	if g.closed().Word == job.ReasonNodesDraining || g.reports.keeping.Any() {
		g.reports.turn.Send(to, g.message())
	}
	g.tellUsage([]job.Peer{to})
}
