package daemon

// What is measured on this host: the meter, the running tasks that it measures, and its answers for the API.

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/internal/usage"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/meter"
)

// newMeter builds the meter of this host.
func (x *execution) newMeter(b base, hw *hardware) {
	x.meter = meter.New(meter.DefaultConfig(), meter.Needs{Running: x.running, GPUs: hw.gpus.latest}, b.part("meter"))
}

// running lists the tasks that have a process, with what the worker knows about them.
func (x *execution) running(ctx context.Context) ([]meter.Task, error) {
	live, err := x.driver.Running(ctx)
	if err != nil || len(live) == 0 {
		return nil, err
	}
	records, err := x.work.Attempts(ctx)
	if err != nil {
		return nil, err
	}
	by := make(map[job.Attempt]*contract.Record, len(records))
	for i := range records {
		by[records[i].Attempt] = &records[i]
	}
	all := make([]meter.Task, 0, len(live))
	for _, l := range live {
		t := meter.Task{Attempt: l.Attempt, PID: l.PID, Began: l.Began, Group: l.Group, Container: l.Container}
		if r := by[l.Attempt]; r != nil {
			t.User, t.Project, t.Need, t.Devices, t.Shared = r.User, r.Project, r.Need, r.Devices, r.Milli > 0 && r.Milli < wholeDevice
		}
		all = append(all, t)
	}
	return all, nil
}

// wholeDevice is a whole GPU in thousandths.
const wholeDevice = 1000

// ended ends the measurement of an attempt, and returns the usage report that is sent with its result.
func (x *execution) ended(a job.Attempt, cpu time.Duration, rss job.Size) string {
	return string(x.meter.End(a, cpu, rss))
}

// usageBackend gives the API access to the measurements.
type usageBackend struct{ meter *meter.Meter }

var _ api.Usage = usageBackend{}

// Attempt returns what a running attempt uses.
func (b usageBackend) Attempt(_ context.Context, a job.Attempt) (u api.AttemptUsage, err error) {
	t, r, hour, ok := b.meter.Running(a)
	if !ok {
		return u, fmt.Errorf("%w: it does not run on this node, or was not measured yet", api.ErrNotFound)
	}
	u = api.AttemptUsage{Report: r, Recent: hour, Idle: b.meter.Idle()}
	maps.DeleteFunc(u.Idle, func(uuid string, _ time.Time) bool { return !slices.Contains(t.Devices, uuid) })
	return u, nil
}

// Host returns what the host used in the last hour.
func (b usageBackend) Host(context.Context) (usage.Points, map[string]usage.Points, error) {
	host, gpus := b.meter.Host()
	return host, gpus, nil
}
