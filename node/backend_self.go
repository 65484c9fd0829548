package node

// What the API asks of this daemon.

import (
	"context"
	"os"
	"time"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/p2p"
)

// selfBackend is this daemon as the API wants it.
type selfBackend struct {
	*startup
	cfg   Config // as it was at the start
	host  *p2p.Host
	now   *live
	gpus  []gpu.Device
	began time.Time
}

// Daemon is how this daemon was told to run.
func (b selfBackend) Daemon(context.Context) (api.Daemon, error) {
	d := api.Daemon{
		Version: b.cfg.Version, ID: b.host.Peer(), Name: b.cfg.Name, Cluster: b.host.Cluster(), DataDir: b.cfg.DataDir,
		PID: os.Getpid(), StartedAt: b.began.UTC(), Addrs: b.host.Addrs(), Config: b.now.config().Settings,
	}
	return d, nil
}

// Facts examines the host.
func (b selfBackend) Facts(ctx context.Context) ([]api.Fact, error) {
	return Doctor(ctx, b.now.config(), b.gpus), nil
}
