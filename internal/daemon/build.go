package daemon

// Building the parts of the daemon and connecting them.

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/metrics"
	"github.com/musterhq/muster/internal/store"
	"github.com/musterhq/muster/p2p"
	"github.com/musterhq/muster/p2p/peerhttp"
	"github.com/musterhq/muster/worker/runner/docker"
	"github.com/musterhq/muster/worker/supervisor"
)

// base holds what the parts of a daemon are built from.
type base struct {
	cfg   Config
	log   *slog.Logger
	store *store.Store
	audit *audit.Log
	host  *p2p.Host
	homes homes
	data  *dataFiles
	// registry has the metrics that are counted as events happen.
	registry *prometheus.Registry
}

// part returns the logger of one part.
func (b *base) part(name string) *slog.Logger { return b.log.With("part", name) }

// Node is one daemon, built and ready to run.
type Node struct {
	base
	began   time.Time
	hw      *hardware
	net     *overlay
	owners  owners
	exec    *execution
	now     *live
	server  *api.Server
	changes *changes
	clocks  *clocks
	startup *startup
}

// New opens the store, joins or founds the cluster, and builds the parts and connects them. Run starts them. If a
// daemon has to join, New waits until a member can be reached, or until ctx ends.
func New(ctx context.Context, cfg Config, log *slog.Logger) (_ *Node, err error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if err := claimFallback(cfg.Socket, cfg.DataDir); err != nil {
		return nil, err
	}
	b, s, began := base{cfg: cfg, log: log, registry: metrics.NewRegistry(cfg.Version)}, newStartup(), time.Now()
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
		}
	}()
	if err := b.openDisk(s.failed); err != nil {
		return nil, err
	}
	if err := b.openAudit(); err != nil {
		return nil, err
	}
	if err := b.enterCluster(ctx); err != nil {
		return nil, errors.Join(err, b.endTasksOfTwin(ctx, err))
	}
	if b.homes, err = b.store.Homes(b.host.Peer()); err != nil {
		return nil, err
	}
	b.cfg = b.cfg.withRoles(b.host.Credential().Roles)
	n := &Node{base: b, began: began, startup: s}
	if n.hw, err = examineHost(ctx, b); err != nil {
		return nil, err
	}
	if n.net, err = newOverlay(b, n.hw.profile, s.sessionOpened); err != nil {
		return nil, err
	}
	n.clocks = newClocks(n.net.router.sessions, b.part("node"))
	if n.owners, err = newOwners(b, n.net); err != nil {
		return nil, err
	}
	from := holders{b.host, n.net.router.groups, n.net.toPeers}
	if n.exec, err = newExecution(b, n.hw, n.net.router, from); err != nil { //nolint:contextcheck // liveTrees has a context of its own
		return nil, err
	}
	n.now = newLive(cfg, n.hw.profile)
	if n.server, err = n.newServer(); err != nil { //nolint:contextcheck // each request has a context of its own
		return nil, err
	}
	for _, o := range n.owners.by {
		o.parents.source = n.server
	}
	n.changes = &changes{now: n.now, host: b.host, net: n.net, work: n.exec.work, owners: n.owners, server: n.server, gpus: n.hw.gpus, scratch: n.hw.scratch}
	return n, nil
}

func (b *base) openDisk(failed func(error)) (err error) {
	// A daemon of root runs tasks as other users. They must be able to enter the data directory to reach their own
	// directories. They have no access to anything else in it.
	mode := os.FileMode(0o700)
	if os.Getuid() == 0 {
		mode = 0o711
	}
	if err := os.MkdirAll(filepath.Join(b.cfg.DataDir, "db"), 0o700); err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	if err := os.Chmod(b.cfg.DataDir, mode); err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	b.data = newDataFiles(b.cfg.DataDir)
	cfg := store.DefaultConfig()
	cfg.Dir = b.cfg.DataDir
	cfg.OnFatal = failed
	b.store, err = store.Open(cfg, b.part("store"))
	return err
}

func (b *base) enterCluster(ctx context.Context) (err error) {
	cfg := p2p.DefaultConfig()
	cfg.DataDir, cfg.Name, cfg.Version = b.cfg.DataDir, b.cfg.Name, b.cfg.Version
	cfg.Audit, cfg.Metrics = gateAudit{b.audit}, b.registry
	cfg.Listen, cfg.Bootstrap, cfg.Token = b.cfg.Listen, b.cfg.Bootstrap, b.cfg.Token
	if b.host, err = p2p.New(cfg, b.part("p2p")); err != nil {
		return err
	}
	if err := b.host.Enter(ctx); err != nil {
		return err
	}
	return b.host.Twins.Alone(ctx) // before the daemon starts or owns anything
}

// TwinError says that an older daemon with the identity of this one runs. Starting this daemon again does not help.
type TwinError = p2p.TwinError

// endTasksOfTwin ends all tasks of this host if the daemon stops because of its twin. Otherwise they would run on, while
// their owner takes the twin for this host and starts them again.
func (b *base) endTasksOfTwin(ctx context.Context, why error) error {
	if !errors.As(why, new(*TwinError)) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTasksWithin)
	defer cancel()
	b.log.WarnContext(ctx, "ending all tasks of this host: another daemon has its identity")
	return supervisor.EndAll(ctx, b.runDir(), docker.EndOrphans, b.part("exec"))
}

// runDir is the directory of the tasks and their runners.
func (b *base) runDir() string { return filepath.Join(b.cfg.DataDir, "run") }

// draw returns a random number that is not 0.
func draw() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails: it ends the program if it has no random bytes
	return max(1, binary.LittleEndian.Uint64(b[:]))
}

// newServer builds the server of the API.
func (n *Node) newServer() (*api.Server, error) {
	if err := os.MkdirAll(filepath.Dir(n.cfg.Socket), 0o755); err != nil { //nolint:gosec // all users may connect; the socket tells which user it is
		return nil, fmt.Errorf("socket: %w", err)
	}
	listener, err := peerhttp.Listen(peerhttp.DefaultConfig(), guarded{n.host.Libp2p(), n.host}, n.part("http"))
	if err != nil {
		return nil, err
	}
	if err := errors.Join(n.registry.Register(n.net.router.defects.counter), n.registry.Register(deniedCounter(n.net.router.sessions))); err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	ac := api.DefaultConfig()
	httpUser, submits := tcpUser(n.cfg, n.hw.profile.OnlyUser)
	ac.HTTPUser, ac.HTTPReads = httpUser, !submits
	ac.Self, ac.Version, ac.Socket, ac.HTTP, ac.TokenFile = n.host.Peer(), n.cfg.Version, n.cfg.Socket, n.cfg.HTTP, n.cfg.HTTPToken
	ac.MetricsTokenFile = n.cfg.HTTPMetricsToken
	ac.CertFile, ac.KeyFile, ac.Hosts = n.cfg.HTTPCert, n.cfg.HTTPKey, httpHosts(n.cfg)
	ac.OwnOnly = n.cfg.Visibility == VisibleOwn
	x, jobs := n.exec, jobsBackend{n.owners, n.host.Credential, n.cfg.TrustedLabels}
	return api.New(ac, api.Needs{
		Jobs: jobs, Deaths: jobs, Explain: jobs, Scheduling: jobs, Watch: jobs, Progress: jobs,
		Node:      nodeBackend{n.host, n.hw.gpus, x.work, x.drains, x.meter, n.clocks, n.log},
		Users:     usersBackend{x.work, allotments{n.owners}},
		Logs:      logsBackend{x.driver, x.files, x.work},
		Peers:     peersBackend{n.host, n.cfg.Name, n.now, n.owners.home, n.net.router.departed},
		Directory: directoryBackend{n.net.router.groups, x.work},
		Self:      selfBackend{n.startup, n.cfg, n.clocks, n.host, n.audit, n.now, n.hw.gpus, n.data, n.began},
		Clocks:    n.clocks,
		Uploads:   x.blobs, Files: filesBackend{x.files, x.work},
		Exec:      execBackend{x.driver, x.work, n.cfg.AllowRoot, n.cfg.DockerHost, &openExecs{of: map[string]int{}}},
		Audit:     auditBackend{n.audit, n.host},
		Transport: n.net.toPeers, PeerListener: listener,
		Measured: api.Measured{Usage: usageBackend{x.meter}, Registry: n.registry, Metrics: n.measurer()},
	}, n.part("api"))
}

// Run runs the daemon until ctx ends. Tasks run on after that. After ErrRejoin the caller builds a new Node with the same
// configuration.
func (n *Node) Run(ctx context.Context) error {
	parts := []part{
		{"audit", n.audit.Run},
		{"host", n.host.Run},
		{"dht", n.net.table.Run},
		{"gossip", n.net.topic.Run},
		{"driver", n.exec.driver.Run},
		{"files", n.exec.files.Run},
		{"worker", n.exec.work.Run},
		{"room", watchRoom(n.store, n.data, n.exec.work, n.part("node")).run},
		{"users", n.exec.lookUp},
		{"meter", n.exec.meter.Run},
		{"gpus", func(ctx context.Context) error {
			return n.hw.gpus.run(ctx, n.exec.work, n.exec.driver.Whose, n.changes.become)
		}},
		{"docker", func(ctx context.Context) error { return n.hw.engine.run(ctx, n.changes.become) }},
		{"fencing", func(ctx context.Context) error { return n.exec.fences.run(ctx, n.changes.become) }},
	}
	if n.cfg.JobFiles != "" {
		parts = append(parts, part{"job files", (&jobFiles{dir: n.cfg.JobFiles, work: n.exec.work, log: n.part("node")}).run})
	}
	for _, o := range n.owners.by {
		parts = append(parts, part{"scheduler", o.Run}, part{"journal", o.journal.Run}, part{"parents", o.parents.run}, part{"allotter", o.allotter.run})
	}
	parts = append(parts,
		part{"sessions", n.net.router.sessions.Run},
		part{"clocks", n.clocks.run},
		part{"callers", n.net.callers.run},
		part{"neighbours", n.followMembers},
		part{"api", n.server.Run},
		part{"start", n.start},
	)
	err := runAll(ctx, stopGrace, n.log, parts)
	return errors.Join(err, n.endTasksOfTwin(ctx, err), n.close())
}

// Reload applies new values of the settings that can change while the daemon runs, and reads the token file again. cfg
// must not differ in any other setting. A value that cannot be applied is named in the error, and the old one stays.
func (n *Node) Reload(cfg Config) error { return n.changes.reload(cfg) }

// close closes what New opened.
func (b *base) close() error {
	var errs []error
	if b.host != nil {
		errs = append(errs, b.host.Close())
	}
	if b.store != nil {
		errs = append(errs, b.store.Close())
	}
	if b.audit != nil {
		errs = append(errs, b.audit.Close())
	}
	return errors.Join(errs...)
}
