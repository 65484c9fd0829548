package daemon

// The interfaces of package api that describe this daemon and its host, and that drain the host.

import (
	"cmp"
	"context"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/p2p"
	"github.com/musterhq/muster/worker/loop"
	"github.com/musterhq/muster/worker/meter"
)

// nodeBackend gives the API access to this host.
type nodeBackend struct {
	host   *p2p.Host
	gpus   *devices
	work   *loop.Loop
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

// selfBackend gives the API access to this daemon.
type selfBackend struct {
	*startup
	cfg   Config // at the start of the daemon
	times *clocks
	host  *p2p.Host
	audit *audit.Log
	now   *live
	gpus  *devices
	data  *dataFiles
	began time.Time
}

// Daemon describes this daemon and its settings.
func (b selfBackend) Daemon(context.Context) (api.Daemon, error) {
	d := api.Daemon{
		Version: b.cfg.Version, ID: b.host.Peer(), Name: b.cfg.Name, Cluster: b.host.Cluster(), DataDir: b.cfg.DataDir,
		PID: os.Getpid(), StartedAt: b.began.UTC(), Addrs: b.host.Addrs(), Config: b.now.config().Settings,
	}
	return d, nil
}

// Facts examines the host.
func (b selfBackend) Facts(ctx context.Context) ([]api.Fact, error) {
	own := b.host.Credential()
	return append(doctor(ctx, b.now.config(), b.gpus), dataFact(b.data), b.times.fact(),
		inviterFact(own, b.cfg.Name, b.host.Members()), endFact(own.InvitersEnd(), time.Now()), grantFact(own, b.host.Grants.Endorsable()),
		auditFact(b.audit.Losses()), twinFact(b.host.Twins.Seen())), nil
}
