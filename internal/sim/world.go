package sim

// The world: hosts, owners, the sessions between them, and time; and its observer, which tests use.

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/internal/sim/record"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/step"
)

// World is a simulated cluster. New makes one, and Run runs it.
type World struct {
	*Clock
	cfg    Config
	net    Network
	lossy  bool       // of the network
	chance *rand.Rand // for all random choices while the world runs
	// durable says that a daemon may die, so that the content of its disk must be kept.
	durable bool

	cluster
	counted
	quiet

	later   []func() // flushes of messages, at the end of a turn
	pids    int
	retries int // for jobs that ask for none

	hooks
}

// cluster is all that there is in a world.
type cluster struct {
	hosts   []*host
	owners  []*owner
	hostOf  map[job.Peer]*host
	ownerOf map[job.Peer]*owner
	classes map[string][]*host

	works []*submission // by the index of their job in the load
	byID  map[job.ID]*submission
	left  int // jobs that have not ended
}

// counted is the counts of a world, and its defects.
type counted struct {
	counts  Result
	kinds   [kinds]KindCount
	defects []string
	found   int   // defects in all
	err     error // error that ends the run
}

// hooks are set by tests.
type hooks struct {
	steady   bool               // nothing fails any more
	refusals float64            // the part of entries that a journal refuses, and of Confirm rounds that fail
	tune     func(*step.Config) // of each owner
	within   Range              // how long a message from one part of a daemon to the other takes; zero: no time
	wall     func(now, offset time.Duration) time.Time
	watch    watcher                    // nil: nobody watches
	lies     func(h *host, b *bulletin) // changes what a host publishes; nil: none lies
	trace    func(format string, args ...any)
}

// standingSessions is the number of hosts with which a daemon always keeps a session: its neighbours, and the hosts
// that chose it.
const standingSessions = 32

// newWorld makes a world without hosts.
func newWorld(cfg Config) *World {
	cfg.Costs = cfg.Costs.orDefault()
	cfg.Schedulers = max(cfg.Schedulers, 1)
	cfg.Standing = cmp.Or(cfg.Standing, standingSessions)
	if cfg.Clock == nil {
		cfg.Clock = &Clock{}
	}
	w := &World{
		Clock: cfg.Clock, cfg: cfg, net: cfg.Network, chance: rand.New(rand.NewPCG(cfg.Seed, 0)),
		cluster: cluster{hostOf: map[job.Peer]*host{}, ownerOf: map[job.Peer]*owner{}, classes: map[string][]*host{}, byID: map[job.ID]*submission{}},
		hooks:   hooks{wall: wallClock},
	}
	if w.net == nil {
		w.net = NewPlain(w.Clock, cfg.Seed)
	}
	if l, ok := w.net.(Lossy); ok {
		w.lossy = l.Lossy()
	}
	return w
}

// firstDay is what all wall clocks read when a world begins, apart from their errors, in seconds since 1970:
// 2026-01-01.
const firstDay = 1_767_225_600

// wallClock returns what a clock reads that is wrong by offset.
func wallClock(now, offset time.Duration) time.Time {
	return time.Unix(firstDay, int64(now+offset)).UTC()
}

// start starts all daemons, and schedules what is to happen.
func (w *World) start() {
	beginNews(w)
	for _, h := range w.hosts {
		if h.power {
			h.boot()
		}
	}
	for _, o := range w.owners {
		if !o.up && (o.local == nil || o.local.power) {
			o.boot(0)
		}
	}
	for _, o := range w.owners {
		openStanding(o)
	}
}

// logf writes into the log of a replay.
func (w *World) logf(format string, args ...any) {
	if w.trace != nil {
		w.trace("%v %s", w.now, fmt.Sprintf(format, args...))
	}
}

// maxDefects bounds the reported defects of one world; the first says most.
const maxDefects = 8

// fail notes a defect: something that must not happen.
func (w *World) fail(format string, args ...any) {
	w.found++
	if len(w.defects) < maxDefects {
		w.defects = append(w.defects, fmt.Sprintf("seed %d at %v: ", w.cfg.Seed, w.now)+fmt.Sprintf(format, args...))
		w.logf("FAILED: "+format, args...)
	}
}

// tell gives a record to the sink.
func (w *World) tell(r record.Record) {
	if w.cfg.Sink != nil {
		r.At = w.Now()
		w.cfg.Sink.Take(r)
	}
}

// flush puts the messages of a core's turn on their way. The messages of one turn to one peer travel together.
func (w *World) flush() {
	for i, send := range w.later {
		send()
		w.later[i] = nil
	}
	w.later = w.later[:0]
}

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
