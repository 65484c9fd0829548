package daemon

// What daemons tell each other of users whose tasks are limited in the cluster. See docs/adr, ADR 174.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler"
)

// Bounds of asking.
const (
	allotWait    = time.Second // for the answer of one daemon
	allotWidth   = 32          // daemons that are asked at once
	allotBatches = 8           // messages that are under way at once, each to many daemons; then what comes in goes together
	maxAllots    = 4096        // questions and messages that wait; a question that is dropped is asked again
)

// allotmentSource asks another daemon.
type allotmentSource interface {
	Allotments(ctx context.Context, p job.Peer, states []contract.Allotment) ([]contract.Allotment, error)
}

// allotter asks for one owner. Its fields but the last ones are set before run.
type allotter struct {
	self    job.Peer
	source  allotmentSource
	members func() []job.Peer // that accept jobs, as far as this daemon knows; it may be one of them
	others  func() []*owner   // of this daemon
	tell    func(scheduler.AllotmentsHeard)
	log     *slog.Logger

	bell    chan struct{} // holds one token while there may be something to do
	width   chan struct{} // a token for each daemon that is asked
	batches chan struct{} // a token for each message that is under way

	mu   sync.Mutex
	asks []scheduler.AllotmentAsk // guarded by mu
}

var _ scheduler.Allotter = (*allotter)(nil)

func newAllotter(self job.Peer, members func() []job.Peer, log *slog.Logger) *allotter {
	return &allotter{
		self: self, members: members, log: log,
		bell: make(chan struct{}, 1), width: make(chan struct{}, allotWidth), batches: make(chan struct{}, allotBatches),
	}
}

// Allot adds questions and messages.
func (a *allotter) Allot(asks []scheduler.AllotmentAsk) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asks = append(a.asks, asks[:min(len(asks), maxAllots-len(a.asks))]...)
	select {
	case a.bell <- struct{}{}:
	default:
	}
}

// take returns questions and messages to the same daemons, for one message: the first that wait.
func (a *allotter) take() (batch []scheduler.AllotmentAsk) {
	a.mu.Lock()
	defer a.mu.Unlock()
	rest := a.asks[:0]
	for _, ask := range a.asks {
		if len(batch) == 0 || len(batch) < api.MaxAllotments && ask.To == batch[0].To {
			batch = append(batch, ask)
		} else {
			rest = append(rest, ask)
		}
	}
	clear(a.asks[len(rest):])
	a.asks = rest
	return batch
}

// run asks until ctx ends. An owner of the same daemon is asked once it knows its jobs.
func (a *allotter) run(ctx context.Context) error {
	var asking sync.WaitGroup
	defer asking.Wait()
	for _, o := range a.others() {
		select {
		case <-ctx.Done():
			return nil
		case <-o.led:
		}
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case a.batches <- struct{}{}:
		}
		batch := a.take()
		for len(batch) == 0 {
			select {
			case <-ctx.Done():
				return nil
			case <-a.bell:
			}
			batch = a.take()
		}
		asking.Go(func() {
			defer func() { <-a.batches }()
			a.ask(ctx, batch)
		})
	}
}

// ask tells all daemons, or one, and hands on what they answer.
func (a *allotter) ask(ctx context.Context, batch []scheduler.AllotmentAsk) {
	answers := a.swap(ctx, batch)
	for _, ask := range batch {
		if ask.Round != 0 {
			a.tell(scheduler.AllotmentsHeard{User: ask.State.User, Round: ask.Round, Answers: answers})
		}
	}
}

// swap tells all daemons, or one, and returns what those say that were reached.
func (a *allotter) swap(ctx context.Context, batch []scheduler.AllotmentAsk) []scheduler.AllotmentAnswer {
	states := make([]contract.Allotment, len(batch))
	for i := range batch {
		states[i] = batch[i].State
	}
	var (
		mu      sync.Mutex
		answers []scheduler.AllotmentAnswer // guarded by mu
		asked   sync.WaitGroup
	)
	for _, p := range a.members() {
		if to := batch[0].To; p == a.self || to != "" && p != to {
			continue
		}
		asked.Go(func() {
			a.width <- struct{}{}
			defer func() { <-a.width }()
			ctx, cancel := context.WithTimeout(ctx, allotWait)
			defer cancel()
			said, err := a.source.Allotments(ctx, p, states)
			switch {
			case err == nil:
			case errors.Is(err, api.ErrNotFound): // a daemon of an earlier version: it counts nothing
				said = nil
			default:
				a.log.DebugContext(ctx, "not asked what is allotted to users", "peer", string(p), "error", err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			answers = append(answers, scheduler.AllotmentAnswer{Peer: p, States: said})
		})
	}
	own := scheduler.AllotmentAnswer{Peer: a.self}
	for _, o := range a.others() {
		said, err := scheduler.SwapAllotments(ctx, o.Loop, a.self, states)
		if err != nil {
			a.log.DebugContext(ctx, "not asked what is allotted to users", "error", err)
			continue
		}
		own.States = append(own.States, said...)
	}
	asked.Wait()
	return append(answers, own)
}

// refresh asks all daemons what they have allotted to a user who has limits over the cluster, and waits for that: so a dry run knows.
func (a *allotter) refresh(ctx context.Context, l *scheduler.Loop, user string) {
	s, limited, err := scheduler.AllotmentOf(ctx, l, user)
	if err != nil || !limited {
		return
	}
	a.tell(scheduler.AllotmentsHeard{User: user, Answers: a.swap(ctx, []scheduler.AllotmentAsk{{State: s}})})
}

// allotments answers other daemons.
type allotments struct{ owners }

var _ api.Allotments = allotments{}

// Allotments takes in what another daemon says, and returns what all owners of this one say.
func (a allotments) Allotments(ctx context.Context, from job.Peer, states []contract.Allotment) (out []contract.Allotment, err error) {
	for _, o := range a.by {
		select {
		case <-o.led:
		default: // it does not know its jobs yet; so it counts as not reached
			return nil, fmt.Errorf("allotments: %w: this daemon is starting", api.ErrUnavailable)
		}
		said, err := scheduler.SwapAllotments(ctx, o.Loop, from, states)
		if err != nil {
			return nil, apiErrorOf(err)
		}
		out = append(out, said...)
	}
	return out, nil
}
