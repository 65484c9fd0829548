package worker

// Ports: rank 0 of each gang gets a port of this host, at which the members of the gang meet.

import (
	"math/rand/v2"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/step"
)

// ports gives each gang a port that no other gang on this host has.
type ports struct {
	cfg  *Config
	turn *step.Turn
	used map[int]job.Attempt
	next int // where the next search begins
}

func newPorts(cfg *Config, t *step.Turn) *ports {
	first := rand.New(rand.NewPCG(cfg.Seed, 0x706f727473)).IntN(cfg.ports()) //nolint:gosec // not a secret
	return &ports{cfg: cfg, turn: t, used: map[int]job.Attempt{}, next: first}
}

// search asks for a port that no other program uses either. The answer is a PortFound.
func (p *ports) search(a job.Attempt) {
	s := step.PortSearch{Attempt: a}
	for range min(p.cfg.ports(), maxTries+len(p.used)) {
		port := p.cfg.FirstPort + p.next
		p.next = (p.next + 1) % p.cfg.ports()
		if _, used := p.used[port]; !used {
			s.Try = append(s.Try, port)
		}
		if len(s.Try) == maxTries {
			break
		}
	}
	p.turn.SearchPort(s)
}

// take gives a port to an attempt. It returns false if another one has it.
func (p *ports) take(a *attempt, port int) bool {
	if _, used := p.used[port]; used || port == 0 {
		return false
	}
	p.used[port] = a.rec.Attempt
	a.port = port
	return true
}

// release takes back the port of an attempt, if it has one.
func (p *ports) release(a *attempt) {
	if a.port != 0 {
		delete(p.used, a.port)
		a.port = 0
	}
}

// restore takes the port of an attempt that an earlier run of the daemon has started.
func (p *ports) restore(a *attempt) {
	if g := a.rec.Gang; g != nil && a.rec.Element.Rank == 0 {
		p.take(a, g.Port)
	}
}
