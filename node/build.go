package node

// Building the parts of the daemon and connecting them.

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/blob"
	"github.com/musterhq/muster/dht"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/journal"
	"github.com/musterhq/muster/lease"
	"github.com/musterhq/muster/machine"
	"github.com/musterhq/muster/p2p"
	"github.com/musterhq/muster/p2p/gossip"
	"github.com/musterhq/muster/p2p/peerhttp"
	"github.com/musterhq/muster/p2p/session"
	"github.com/musterhq/muster/scheduler"
	"github.com/musterhq/muster/store"
	"github.com/musterhq/muster/worker"
	"github.com/musterhq/muster/worker/files"
	"github.com/musterhq/muster/worker/runner"
	"github.com/musterhq/muster/worker/runner/docker"
	"github.com/musterhq/muster/worker/runner/protocol"
	"github.com/musterhq/muster/worker/supervisor"
)

// Node is one daemon, built and ready to run.
type Node struct {
	cfg        Config
	log        *slog.Logger
	started    time.Time
	ready      chan struct{} // closed when the daemon accepts work
	anySession chan struct{} // holds a token once a session has been opened

	store    *store.Store
	host     *p2p.Host
	table    *dht.Table
	topic    *gossip.Topic
	callers  *callers
	sessions *session.Manager
	gpus     *devices
	profile  lease.Profile // at the start of the daemon
	now      live          // the present settings and profile
	engine   *engine
	boot     string // ID of this boot of the host
	driver   *supervisor.Driver
	blobs    *blob.Store
	files    *files.Driver // brings the files of jobs, then calls driver
	work     *worker.Loop
	drains   *drains
	owners   owners
	router   *router
	departed *departed
	groups   *directory
	server   *api.Server
	toPeers  *http.Transport // requests to other daemons
	fatal    chan error      // why the store cannot go on
}

// New opens the store, joins or founds the cluster, and builds the parts and connects them. Run starts them. If a
// daemon has to join, New waits until a member can be reached, or until ctx ends.
func New(ctx context.Context, cfg Config, log *slog.Logger) (_ *Node, err error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	n := &Node{
		cfg: cfg, log: log, started: time.Now(), ready: make(chan struct{}),
		anySession: make(chan struct{}, 1), fatal: make(chan error, 1), departed: newDeparted(),
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.close())
		}
	}()
	for _, build := range []func(context.Context) error{n.openDisk, n.enterCluster, n.examineHost, n.buildNetwork, n.buildWorker, n.buildScheduler, n.buildAPI} {
		if err := build(ctx); err != nil {
			return nil, err
		}
	}
	return n, nil
}

// part returns the logger of one part.
func (n *Node) part(name string) *slog.Logger { return n.log.With("part", name) }

func (n *Node) openDisk(context.Context) (err error) {
	// A daemon of root runs tasks as other users. They must be able to enter the data directory to reach their own
	// directories. They have no access to anything else in it.
	mode := os.FileMode(0o700)
	if os.Getuid() == 0 {
		mode = 0o711
	}
	if err := os.MkdirAll(filepath.Join(n.cfg.DataDir, "db"), 0o700); err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	if err := os.Chmod(n.cfg.DataDir, mode); err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	cfg := store.DefaultConfig()
	cfg.Dir = n.cfg.DataDir
	cfg.OnFatal = func(err error) {
		select {
		case n.fatal <- err:
		default:
		}
	}
	n.store, err = store.Open(cfg, n.part("store"))
	return err
}

func (n *Node) enterCluster(ctx context.Context) (err error) {
	cfg := p2p.DefaultConfig()
	cfg.DataDir, cfg.Name, cfg.Version = n.cfg.DataDir, n.cfg.Name, n.cfg.Version
	cfg.Listen, cfg.Bootstrap, cfg.Token = n.cfg.Listen, n.cfg.Bootstrap, n.cfg.Token
	if n.host, err = p2p.New(cfg, n.part("p2p")); err != nil {
		return err
	}
	return n.host.Enter(ctx)
}

// examineHost finds out what this host has when it is idle.
func (n *Node) examineHost(ctx context.Context) error {
	facts, err := machine.Read(ctx, n.cfg.DataDir)
	if err != nil {
		return err
	}
	if n.gpus, err = newDevices(ctx, n.cfg, n.part("gpu")); err != nil {
		return err
	}
	n.profile = lease.Profile{
		Peer: n.host.Peer(), Name: n.cfg.Name, Version: n.cfg.Version, Store: n.store.ID(), Labels: n.cfg.Labels,
		CPUs: facts.CPUs, Memory: facts.Memory, Disk: facts.Disk, GPUs: n.gpus.all, Drivers: []string{lease.DriverExec}, Worker: !n.cfg.NoWorker,
	}
	if n.cfg.CPUs > 0 {
		n.profile.CPUs = n.cfg.CPUs
	}
	if n.cfg.Memory > 0 {
		n.profile.Memory = n.cfg.Memory
	}
	n.boot = facts.Incarnation
	n.engine = &engine{host: n.cfg.DockerHost, mounts: n.cfg.DockerMounts, log: n.part("docker")}
	n.engine.first(ctx, &n.profile)
	n.now.set(n.cfg)
	n.now.change(func(p *lease.Profile) { *p = n.profile })
	return nil
}

func (n *Node) buildWorker(context.Context) (err error) {
	dc := supervisor.Config{Dir: filepath.Join(n.cfg.DataDir, "run"), Version: n.cfg.Version, Node: n.cfg.Name, OutputLimit: n.cfg.OutputLimit}
	dc.Binary, dc.Args = n.runnerProgram(dc.Dir)
	flags := runner.Config{AllowRoot: n.cfg.AllowRoot, Scope: serviceOfSystemd(), NoGroups: n.cfg.CgroupsOff, Ulimits: n.cfg.Ulimits}
	dc.Args = append(dc.Args, flags.Flags()...)
	dc.Engine = protocol.Container{Host: n.cfg.DockerHost, Allowed: n.cfg.DockerMounts, As: n.cfg.DockerUser}
	dc.EndContainers = docker.EndOrphans
	inside := runner.Config{AllowRoot: n.cfg.AllowRoot, Scope: flags.Scope, NoGroups: true, Ulimits: n.cfg.Ulimits} // the engine makes the cgroups
	dc.ContainerBinary, dc.ContainerArgs = n.cfg.Program, append([]string{"container-runner"}, inside.Flags()...)
	dc.Limits = n.taskLimits()
	tell := func(e worker.DriverEvent) { n.files.Driven(e) } // set below, before the driver runs
	if n.driver, err = supervisor.New(dc, tell, n.part("exec")); err != nil {
		return err
	}
	if err := n.buildFiles(); err != nil {
		return err
	}
	wc := worker.DefaultConfig()
	wc.Profile, wc.Boot, wc.Seed, wc.Inherit = offered(n.profile), n.boot, draw(), environment()
	if wc.Limits, err = worker.ParseLimits(n.cfg.Limits); err != nil {
		return err
	}
	n.drains = &drains{disk: n.store}
	if wc.Draining, err = n.drains.load(); err != nil {
		return err
	}
	if wc.Quarantine, err = loadQuarantine(n.store); err != nil {
		return err
	}
	n.work, err = worker.New(wc, worker.Parts{
		Ledger: n.store.Ledger(), Sender: toSchedulers{n.router}, Driver: n.files, Adopter: n.files, Poll: n.gpus.ask, Clocks: worker.ReadClocks,
		Keep: func(q worker.Quarantine) error { return saveQuarantine(n.store, q) },
	}, n.part("worker"))
	n.router.work = n.work
	return err
}

// serviceOfSystemd reports whether this process is the main process of a systemd service.
func serviceOfSystemd() bool {
	return os.Getenv("SYSTEMD_EXEC_PID") == strconv.Itoa(os.Getpid())
}

// taskLimits returns the limits of every task on this host.
func (n *Node) taskLimits() supervisor.Limits {
	b := supervisor.Limits{
		CPUQuota: n.cfg.CPUQuota, PIDs: n.cfg.TaskPIDs, Scratch: n.scratch(), GPUs: map[string]string{},
	}
	for _, g := range n.profile.GPUs {
		if !g.Simulated {
			b.GPUs[g.UUID] = g.Node
		}
	}
	return b
}

// environment returns the environment variables of the daemon that tasks inherit.
func environment() map[string]string {
	env := map[string]string{}
	for _, k := range []string{"PATH", "HOME", "USER", "LANG"} {
		if v, ok := os.LookupEnv(k); ok {
			env[k] = v
		}
	}
	return env
}

// draw returns a random number that is not 0.
func draw() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails: it ends the program if it has no random bytes
	return max(1, binary.LittleEndian.Uint64(b[:]))
}

func (n *Node) buildScheduler(context.Context) (err error) {
	if n.cfg.NoScheduler {
		return nil
	}
	group := n.store.Group()
	// The journal needs the owner to deliver to. The scheduler in it needs the rows that the journal loads, so it is
	// set afterwards.
	o := &owner{led: make(chan struct{})}
	if o.journal, err = journal.New(journal.DefaultConfig(), n.store, group, o, n.part("journal")); err != nil {
		return err
	}
	var saved scheduler.Saved
	if saved.Applied, err = o.journal.Load(saved.Add); err == nil {
		err = saved.End()
	}
	if err != nil {
		return err
	}
	sc := scheduler.DefaultConfig()
	sc.Self, sc.Group, sc.Seed, sc.LossLimit = n.host.Peer(), group, draw(), n.cfg.LossLimit
	o.Loop, err = scheduler.New(sc, saved, scheduler.Needs{
		Journal: o.journal, Sessions: toWorkers{n.router}, Finder: n.table, Announcer: announcer{n.topic},
	}, n.part("scheduler"))
	n.owners.add(group, o)
	n.router.owners = n.owners
	return err
}

func (n *Node) buildAPI(context.Context) (err error) {
	if err := os.MkdirAll(filepath.Dir(n.cfg.Socket), 0o755); err != nil { //nolint:gosec // all users may connect; the socket tells which user it is
		return fmt.Errorf("socket: %w", err)
	}
	host := guarded{n.host.Libp2p(), n.host}
	listener, err := peerhttp.Listen(peerhttp.DefaultConfig(), host, n.part("http"))
	if err != nil {
		return err
	}
	asking := peerhttp.DefaultConfig()
	asking.HeaderTimeout = job.MaxLease // a followed log sends nothing until its task starts; the session detects a silent peer
	if n.toPeers, err = peerhttp.NewTransport(asking, host); err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	if err := registry.Register(n.router.defects.counter); err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	ac := api.DefaultConfig()
	ac.Self, ac.Version, ac.Socket, ac.HTTP, ac.TokenFile = n.host.Peer(), n.cfg.Version, n.cfg.Socket, n.cfg.HTTP, n.cfg.HTTPToken
	n.server, err = api.New(ac, api.Needs{ //nolint:contextcheck // each request has a context of its own
		Jobs: jobsBackend{n.owners}, Deaths: jobsBackend{n.owners}, Explain: jobsBackend{n.owners}, Watch: jobsBackend{n.owners}, Node: n, Logs: logsBackend{n.driver, n.files, n.work},
		Peers: n, Directory: n, Self: n, Uploads: n.blobs, Files: filesBackend{n.files, n.work}, Exec: execBackend{n.driver, n.work, n.cfg.AllowRoot, n.cfg.DockerHost, &openExecs{of: map[string]int{}}},
		Transport: n.toPeers, PeerListener: listener, Registry: registry,
	}, n.part("api"))
	return err
}

// Run runs the daemon until ctx ends. Tasks go on. After ErrRejoin the caller builds a new Node with the same
// configuration.
func (n *Node) Run(ctx context.Context) error {
	parts := []part{
		{"host", n.host.Run},
		{"dht", n.table.Run},
		{"gossip", n.topic.Run},
		{"driver", n.driver.Run},
		{"files", n.files.Run},
		{"worker", n.work.Run},
		{"gpus", func(ctx context.Context) error { return n.gpus.run(ctx, n.work) }},
		{"docker", func(ctx context.Context) error { return n.engine.run(ctx, n.become) }},
	}
	for _, o := range n.owners.by {
		parts = append(parts, part{"scheduler", o.Run}, part{"journal", o.journal.Run})
	}
	parts = append(parts,
		part{"sessions", n.sessions.Run},
		part{"callers", n.callers.run},
		part{"neighbours", n.followMembers},
		part{"api", n.server.Run},
		part{"start", n.start},
	)
	err := runAll(ctx, stopGrace, n.log, parts)
	return errors.Join(err, n.close())
}

// knownPeersWait is how long a daemon that knows other members waits for a session with one of them. Then it reports
// itself as ready without them.
const knownPeersWait = 3 * time.Second

// start reports the daemon as ready once it accepts work. Then it waits for an error of the store.
func (n *Node) start(ctx context.Context) error {
	n.router.openLocal()
	n.advertise(n.profile)
	if home := n.owners.home; home != nil {
		select {
		case <-home.led:
		case err := <-n.fatal:
			return err
		case <-ctx.Done():
			return nil
		}
	}
	select {
	case <-n.server.Ready():
	case <-ctx.Done():
		return nil
	}
	if len(n.host.Members()) > 0 || len(n.cfg.Bootstrap) > 0 {
		late := time.NewTimer(knownPeersWait)
		defer late.Stop()
		select {
		case <-n.anySession:
		case <-late.C:
			n.log.WarnContext(ctx, "no other daemon answers yet; going on alone and trying again")
		case <-ctx.Done():
			return nil
		}
	}
	close(n.ready)
	n.log.InfoContext(
		ctx, "ready", "name", n.cfg.Name, "peer", string(n.host.Peer()), "cluster", n.host.Cluster(), "cpus", n.profile.CPUs,
		"gpus", len(n.profile.GPUs), "socket", n.cfg.Socket,
	)
	select {
	case err := <-n.fatal:
		return err
	case <-ctx.Done():
		return nil
	}
}

// close closes what New opened.
func (n *Node) close() error {
	var errs []error
	if n.host != nil {
		errs = append(errs, n.host.Close())
	}
	if n.store != nil {
		errs = append(errs, n.store.Close())
	}
	return errors.Join(errs...)
}
