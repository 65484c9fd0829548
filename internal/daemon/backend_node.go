package daemon

// The interface of package api that describes and drains this host.

import (
	"cmp"
	"context"
	"log/slog"
	"strings"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/p2p"
	"github.com/musterhq/muster/worker"
	"github.com/musterhq/muster/worker/meter"
)

// nodeBackend gives the API access to this host.
type nodeBackend struct {
	host   *p2p.Host
	gpus   *devices
	work   *worker.Loop
	drains *drains
	meter  *meter.Meter
	clocks *clocks
	log    *slog.Logger
}

// Node describes this host.
func (b nodeBackend) Node(ctx context.Context) (api.NodeInfo, error) {
	info := api.NodeInfo{State: api.NodeReady, Addrs: b.host.Addrs(), Released: b.gpus.gone.Load(), Holders: map[string][]job.ID{}}
	info.Status, info.Read = b.gpus.latest()
	info.Idle, info.Usage = b.meter.Idle(), b.meter.Now()
	v, err := b.work.View(ctx)
	if err != nil {
		return info, apiErrorOf(err)
	}
	info.Profile, info.Free, info.Running, info.Quarantined, info.Drain = v.Profile, v.Free, v.Running, v.Quarantined, b.drains.get()
	if v.Profile.Worker && v.Closed.Word != "" {
		info.State, info.Detail = api.NodeDraining, v.Closed.Detail
	}
	info.Detail = cmp.Or(info.Detail, twinDetail(b.host))
	if off := b.clocks.detail(); off != "" {
		info.Detail = strings.TrimPrefix(info.Detail+"; "+off, "; ")
	}
	for uuid, attempts := range v.Holders {
		for _, text := range attempts {
			if a, err := job.ParseAttempt(text); err == nil {
				info.Holders[uuid] = append(info.Holders[uuid], a.Job)
			}
		}
	}
	return info, nil
}

// Drain takes this host out of service.
func (b nodeBackend) Drain(ctx context.Context, d api.Drain) error {
	if err := b.drains.set(&d, b.work, nil); err != nil {
		return apiErrorOf(err)
	}
	b.log.InfoContext(ctx, "host is draining", "reason", d.Reason, "user", d.By, "deadline", d.Deadline)
	return nil
}

// Resume puts this host back into service.
func (b nodeBackend) Resume(ctx context.Context) error {
	if err := b.drains.set(nil, b.work, func() error { return b.gpus.resume(ctx) }); err != nil {
		return apiErrorOf(err)
	}
	b.log.InfoContext(ctx, "host is back in service")
	return nil
}
