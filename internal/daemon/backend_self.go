package daemon

// The interface of package api that describes this daemon.

import (
	"context"
	"os"
	"time"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/p2p"
)

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
