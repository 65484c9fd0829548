package node

// Messages that the wire refuses: each is a defect of this daemon, and is told
// as one. Its peer, who never sees the message, is not to blame.

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
)

// defectsEvery is how often one kind of message is told: the defect that made
// one makes thousands.
const defectsEvery = time.Minute

// defects is a leaf with a lock; there are as many kinds as package lease has
// messages.
type defects struct {
	log     *slog.Logger
	counter *prometheus.CounterVec

	mu    sync.Mutex
	kinds map[string]*defect // guarded by mu
}

type defect struct {
	untold int // since it was told last
	told   time.Time
}

func newDefects(log *slog.Logger) *defects {
	return &defects{log: log, kinds: map[string]*defect{}, counter: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "muster_messages_refused_total", Help: "Messages of this daemon that were out of the protocol's bounds and not sent: each is a defect of it.",
	}, []string{"message"})}
}

// refused takes a message that was not sent and why. The first of its kind in a
// minute is logged, with how many there were since the one before.
func (d *defects) refused(to job.Peer, msg any, why error) {
	kind := strings.TrimPrefix(fmt.Sprintf("%T", msg), "lease.")
	d.counter.WithLabelValues(kind).Inc()
	since, tell := d.count(kind, time.Now())
	if !tell {
		return
	}
	args := []any{"message", kind, "peer", string(to), "count", since, "error", why}
	if a, ok := attemptOf(msg); ok {
		args = append(args, "job", string(a.Job), "attempt", a.String())
	}
	d.log.Error("message not sent, it is out of bounds: a defect of this daemon", args...)
}

func (d *defects) count(kind string, now time.Time) (since int, tell bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	k := d.kinds[kind]
	if k == nil {
		k = &defect{}
		d.kinds[kind] = k
	}
	k.untold++
	if !k.told.IsZero() && now.Sub(k.told) < defectsEvery {
		return 0, false
	}
	since = k.untold
	k.untold, k.told = 0, now
	return since, true
}

// attemptOf is the attempt that a message is about, if it is about one.
func attemptOf(msg any) (job.Attempt, bool) {
	switch m := msg.(type) {
	case lease.Offer:
		return m.Attempt, true
	case lease.Start:
		return m.Attempt, true
	case lease.Query:
		return m.Attempt, true
	case lease.Signal:
		return m.Attempt, true
	case lease.Cancel:
		return m.Attempt, true
	case lease.Ack:
		return m.Attempt, true
	case lease.Commit:
		return m.Attempt, true
	case lease.Decline:
		return m.Attempt, true
	case lease.Event:
		return m.Attempt, true
	}
	return job.Attempt{}, false
}
