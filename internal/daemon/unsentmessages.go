package daemon

// Messages that are not sent because they are out of the protocol's bounds. Each is a defect of this daemon, not of its
// peer. They are counted and logged.

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
)

// defectsEvery is the minimum time between two log lines about the same kind of message, because one defect may cause
// thousands of them.
const defectsEvery = time.Minute

// defects counts and logs refused messages. It is safe for concurrent use.
type defects struct {
	log     *slog.Logger
	counter *prometheus.CounterVec

	mu    sync.Mutex
	kinds map[string]*defect // guarded by mu; by type of message in package contract
}

type defect struct {
	unlogged int       // messages since the last log line
	logged   time.Time // time of the last log line
}

func newDefects(log *slog.Logger) *defects {
	return &defects{log: log, kinds: map[string]*defect{}, counter: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "muster_messages_refused_total", Help: "Messages of this daemon that were not sent because they were out of the protocol's bounds. Each is a defect of this daemon.",
	}, []string{"message"})}
}

// refused records a message that was not sent, and why. For each kind of message it logs at most one line per
// defectsEvery, with the number of messages since the last line.
func (d *defects) refused(to job.Peer, msg any, why error) {
	kind := strings.TrimPrefix(fmt.Sprintf("%T", msg), "contract.")
	d.counter.WithLabelValues(kind).Inc()
	since, due := d.count(kind, time.Now())
	if !due {
		return
	}
	args := []any{"message", kind, "peer", string(to), "count", since, "error", why}
	if a, ok := attemptOf(msg); ok {
		args = append(args, "job", string(a.Job), "attempt", a.String())
	}
	d.log.Error("message not sent, it is out of bounds: a defect of this daemon", args...)
}

// count counts a message. If it has to be logged, since is the number of messages since the last log line.
func (d *defects) count(kind string, now time.Time) (since int, due bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	k := d.kinds[kind]
	if k == nil {
		k = &defect{}
		d.kinds[kind] = k
	}
	k.unlogged++
	if !k.logged.IsZero() && now.Sub(k.logged) < defectsEvery {
		return 0, false
	}
	since = k.unlogged
	k.unlogged, k.logged = 0, now
	return since, true
}

// attemptOf returns the attempt that a message is about, if there is one.
func attemptOf(msg any) (job.Attempt, bool) {
	switch m := msg.(type) {
	case contract.Offer:
		return m.Attempt, true
	case contract.Start:
		return m.Attempt, true
	case contract.Query:
		return m.Attempt, true
	case contract.Signal:
		return m.Attempt, true
	case contract.Cancel:
		return m.Attempt, true
	case contract.Ack:
		return m.Attempt, true
	case contract.Commit:
		return m.Attempt, true
	case contract.Decline:
		return m.Attempt, true
	case contract.Event:
		return m.Attempt, true
	}
	return job.Attempt{}, false
}
