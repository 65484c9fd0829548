package daemon

// What daemons tell each other about users with limits over the cluster. See docs/adr, ADR 174.

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
	schedulerloop "github.com/musterhq/muster/scheduler/loop"
	"github.com/musterhq/muster/scheduler/step"
)

// Bounds of asking.
const (
	allotWait    = time.Second // bounds the wait for the answer of one daemon
	allotWidth   = 32          // daemons that are asked at once
	allotBatches = 8           // batches under way at once, each to many daemons; meanwhile new asks collect for the next
	maxAllots    = 4096        // asks that wait; the scheduler repeats one that is dropped
)

// allotmentSource asks another daemon.
type allotmentSource interface {
	Allotments(ctx context.Context, p job.Peer, states []contract.Allotment) ([]contract.Allotment, error)
}

// allotter asks other daemons for one owner. All its fields but asks are set before run.
type allotter struct {
	self    job.Peer
	source  allotmentSource
	members func() []job.Peer // returns the members that accept jobs, as far as known, maybe with this one
	others  func() []*owner   // returns the other owners of this daemon
	tell    func(step.AllotmentsHeard)
	log     *slog.Logger

	bell    chan struct{} // holds one token while there may be something to do
	width   chan struct{} // holds a token for each daemon that is being asked
	batches chan struct{} // holds a token for each batch that is under way

	mu   sync.Mutex
	asks []step.AllotmentAsk // guarded by mu
}

var _ schedulerloop.Allotter = (*allotter)(nil)

func newAllotter(self job.Peer, members func() []job.Peer, log *slog.Logger) *allotter {
	return &allotter{
		self: self, members: members, log: log,
		bell: make(chan struct{}, 1), width: make(chan struct{}, allotWidth), batches: make(chan struct{}, allotBatches),
	}
}

// Allot queues asks.
func (a *allotter) Allot(asks []step.AllotmentAsk) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asks = append(a.asks, asks[:min(len(asks), maxAllots-len(a.asks))]...)
	select {
	case a.bell <- struct{}{}:
	default:
	}
}

// take removes the first ask from the queue, and with it all others to the same daemons, up to one message's worth.
func (a *allotter) take() (batch []step.AllotmentAsk) {
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

// ask sends a batch to all daemons, or to one, and passes their answers to the scheduler.
func (a *allotter) ask(ctx context.Context, batch []step.AllotmentAsk) {
	answers := a.swap(ctx, batch)
	for _, ask := range batch {
		if ask.Round != 0 {
			a.tell(step.AllotmentsHeard{User: ask.State.User, Round: ask.Round, Answers: answers})
		}
	}
}

// swap sends a batch to all daemons, or to one, and returns the answers of the daemons that were reached.
func (a *allotter) swap(ctx context.Context, batch []step.AllotmentAsk) []step.AllotmentAnswer {
	states := make([]contract.Allotment, len(batch))
	for i := range batch {
		states[i] = batch[i].State
	}
	var (
		mu      sync.Mutex
		answers []step.AllotmentAnswer // guarded by mu
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
			case errors.Is(err, api.ErrNotFound): // a daemon of an earlier version: it has no allotments
				said = nil
			default:
				a.log.DebugContext(ctx, "not asked what is allotted to users", "peer", string(p), "error", err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			answers = append(answers, step.AllotmentAnswer{Peer: p, States: said})
		})
	}
	own := step.AllotmentAnswer{Peer: a.self}
	for _, o := range a.others() {
		said, err := schedulerloop.SwapAllotments(ctx, o.Loop, a.self, states)
		if err != nil {
			a.log.DebugContext(ctx, "not asked what is allotted to users", "error", err)
			continue
		}
		own.States = append(own.States, said...)
	}
	asked.Wait()
	return append(answers, own)
}

// refresh asks all daemons what they have allotted to a user with limits over the cluster, and waits for the answers, so
// that a dry run knows them.
func (a *allotter) refresh(ctx context.Context, l *schedulerloop.Loop, user string) {
	s, limited, err := schedulerloop.AllotmentOf(ctx, l, user)
	if err != nil || !limited {
		return
	}
	a.tell(step.AllotmentsHeard{User: user, Answers: a.swap(ctx, []step.AllotmentAsk{{State: s}})})
}

// allotments answers other daemons.
type allotments struct{ owners }

var _ api.Allotments = allotments{}

// Allotments records what another daemon says, and returns what all owners of this daemon say.
func (a allotments) Allotments(ctx context.Context, from job.Peer, states []contract.Allotment) (out []contract.Allotment, err error) {
	for _, o := range a.by {
		select {
		case <-o.led:
		default: // this owner does not know its jobs yet, so it counts as not reached
			return nil, fmt.Errorf("allotments: %w: this daemon is starting", api.ErrUnavailable)
		}
		said, err := schedulerloop.SwapAllotments(ctx, o.Loop, from, states)
		if err != nil {
			return nil, apiErrorOf(err)
		}
		out = append(out, said...)
	}
	return out, nil
}
