package daemon

// Whether this host fences its tasks: its runner says so, and the profile of the host tells the owners of jobs.
// See docs/adr, ADR 175.

import (
	"context"
	"log/slog"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/worker/runner/spawn"
)

const (
	unfenced       = "tasks may go on when the daemon and the runner are killed, so those with --on-partition fence run elsewhere only when this host is back, was rebooted or is declared dead"
	unfencedAdvice = "run the daemon as root or as a systemd service, on Linux 5.14 or newer"
)

// fencing copies what the runner says about fencing to the profile.
type fencing struct {
	news chan fencedBy
	log  *slog.Logger
}

// fencedBy is what a runner says.
type fencedBy struct {
	fences    bool
	isolation string // for people
}

func newFencing(log *slog.Logger) *fencing { return &fencing{news: make(chan fencedBy, 1), log: log} }

// record records what the newest runner says. Only one goroutine calls it.
func (f *fencing) record(fences bool, isolation string) {
	select {
	case <-f.news: // drop what the previous runner said: run has not read it yet
	default:
	}
	f.news <- fencedBy{fences, isolation}
}

// run updates the profile when a runner says something other than the previous one, until ctx ends.
func (f *fencing) run(ctx context.Context, become func(func(*contract.Profile))) error {
	first, was := true, false
	for {
		select {
		case <-ctx.Done():
			return nil
		case by := <-f.news:
			if by.fences != was {
				become(func(p *contract.Profile) { p.Fencing.Certain = by.fences })
			}
			if !by.fences && (first || was) {
				f.log.WarnContext(ctx, "this host does not fence its tasks", "isolation", by.isolation, "consequence", unfenced, "advice", unfencedAdvice)
			}
			first, was = false, by.fences
		}
	}
}

// fencingFact says whether the present runner fences its tasks. If none runs, it tests whether a runner could.
func fencingFact(cfg Config) api.Fact {
	f := api.Fact{Name: "fencing", State: api.FactOK, Detail: "tasks end with their leases for certain"}
	info, runs := runnerOfProcesses(cfg)
	fences := info.Fences
	if !runs {
		fences = spawn.CanEndAll(cfg.CgroupsOff)
	}
	switch {
	case cfg.NoWorker:
		f.State, f.Detail = api.FactSkip, "this host runs no tasks"
	case !fences:
		f.State, f.Detail, f.Advice = api.FactWarn, unfenced, unfencedAdvice
	}
	return f
}
