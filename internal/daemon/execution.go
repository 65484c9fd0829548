package daemon

// The parts that run tasks: the runners, the files of tasks, and the worker that decides on offers.

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/musterhq/muster/internal/fairshare"
	"github.com/musterhq/muster/internal/hostinfo"
	"github.com/musterhq/muster/internal/upload"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/p2p"
	"github.com/musterhq/muster/worker"
	"github.com/musterhq/muster/worker/driver"
	"github.com/musterhq/muster/worker/files"
	"github.com/musterhq/muster/worker/health"
	"github.com/musterhq/muster/worker/leaseclock"
	"github.com/musterhq/muster/worker/ledger"
	"github.com/musterhq/muster/worker/loop"
	"github.com/musterhq/muster/worker/meter"
	"github.com/musterhq/muster/worker/resources"
	"github.com/musterhq/muster/worker/runner"
	"github.com/musterhq/muster/worker/runner/docker"
	"github.com/musterhq/muster/worker/runner/protocol"
	"github.com/musterhq/muster/worker/supervisor"
	"github.com/musterhq/muster/worker/useraccounts"
)

// execution runs tasks on this host.
type execution struct {
	driver *supervisor.Driver
	blobs  *upload.Store
	files  *files.Driver // fetches the files of a job, then calls driver
	work   *loop.Loop
	drains *drains
	users  *lookups
	meter  *meter.Meter
	fences *fencing
}

// newExecution builds the parts that run tasks. The owners of the router must be set already.
func newExecution(b base, hw *hardware, r *router, from holders) (*execution, error) {
	x := &execution{drains: &drains{disk: b.store}, users: newLookups(uidOf), fences: newFencing(b.part("node"))}
	tell := func(e driver.Event) { x.files.Driven(e) } // set below, before the driver runs
	var err error
	if x.driver, err = newRunners(b, hw, tell, x.ended, x.fences.record); err != nil {
		return nil, err
	}
	x.newMeter(b, hw)
	if err := x.buildFiles(b, hw, jobsBackend{r.owners, b.host.Credential, b.cfg.TrustedLabels}, from); err != nil {
		return nil, err
	}
	if x.work, err = x.newWorker(b, hw, r); err != nil {
		return nil, err
	}
	if b.host.Credential().Roles.Has(p2p.RoleWorker) { // otherwise the worker must not talk to schedulers
		r.work = x.work
	}
	return x, nil
}

// lookUp looks up the users about whom the worker asks, until ctx ends.
func (x *execution) lookUp(ctx context.Context) error {
	return x.users.run(ctx, func(user string, is useraccounts.Presence) { loop.TellLookedUp(x.work, user, is) })
}

// newRunners builds the driver that runs tasks.
func newRunners(b base, hw *hardware, tell func(driver.Event), used func(job.Attempt, time.Duration, job.Size) string, fences func(bool, string)) (*supervisor.Driver, error) {
	dc := supervisor.Config{Dir: b.runDir(), Version: b.cfg.Version, Node: b.cfg.Name, OutputLimit: b.cfg.OutputLimit, ClientTimeout: b.cfg.ClientTimeout}
	dc.Binary, dc.Args = runnerProgram(b.cfg, dc.Dir, b.log)
	flags := runner.Config{AllowRoot: b.cfg.AllowRoot, Scope: serviceOfSystemd(), NoGroups: b.cfg.CgroupsOff, SharedTmp: !b.cfg.PrivateTmp, Ulimits: b.cfg.Ulimits}
	dc.Args = append(dc.Args, flags.Flags()...)
	dc.HostMounts = flags.Scope && os.Geteuid() == 0
	dc.Engine = protocol.Container{Host: b.cfg.DockerHost, Allowed: b.cfg.DockerMounts, As: b.cfg.DockerUser}
	dc.EndContainers = docker.EndOrphans
	inside := runner.Config{AllowRoot: b.cfg.AllowRoot, Scope: flags.Scope, NoGroups: true, Ulimits: b.cfg.Ulimits} // the engine makes the cgroups
	dc.ContainerBinary, dc.ContainerArgs = b.cfg.Program, append([]string{"container-runner"}, inside.Flags()...)
	dc.Usage, dc.Fences = used, fences
	dc.Limits, dc.Libraries = hw.taskLimits(b.cfg), b.cfg.gpuLibraries
	return supervisor.New(dc, tell, b.part("exec"))
}

// serviceOfSystemd reports whether this process is the main process of a systemd service.
func serviceOfSystemd() bool {
	return os.Getenv("SYSTEMD_EXEC_PID") == strconv.Itoa(os.Getpid())
}

// buildFiles builds the store of uploads, and the driver that fetches files before the supervisor's driver starts a task.
func (x *execution) buildFiles(b base, hw *hardware, jobs jobsBackend, from holders) error {
	dir, err := filepath.Abs(b.cfg.DataDir)
	if err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	live := func() (map[upload.Hash]bool, error) { return liveTrees(x.work, jobs) }
	x.blobs = upload.NewStore(upload.Config{Dir: filepath.Join(dir, "blobs"), Live: live}, b.part("blob"))
	x.files = files.New(files.Config{Dir: filepath.Join(dir, "run"), Boot: hw.boot, AllowRoot: b.cfg.AllowRoot, Most: cmp.Or(b.cfg.Scratch, hw.scratch.half), Inside: b.cfg.DockerUser}, files.Needs{
		Driver: x.driver, Adopter: x.driver, Fetcher: upload.NewFetcher(x.blobs), Store: x.blobs, Holders: from.of,
		Tell: func(e driver.Event) { x.work.Driven(e) }, // set before the driver runs
	}, b.part("files"))
	return nil
}

// newWorker builds the worker.
func (x *execution) newWorker(b base, hw *hardware, r *router) (_ *loop.Loop, err error) {
	wc := worker.DefaultConfig()
	wc.Profile, wc.Boot, wc.Seed, wc.Inherit = offered(hw.profile), hw.boot, draw(), environment()
	wc.Own = b.homes.groups()
	if wc.NotForOthers, err = notForOthers(b.cfg); err != nil {
		return nil, err
	}
	wc.LookUp = os.Geteuid() == 0
	wc.FirstPort, wc.LastPort = hostinfo.Ports()
	if wc.Limits, err = resources.ParseLimits(b.cfg.Limits); err != nil {
		return nil, err
	}
	wc.Priorities = prioritiesOf(b.cfg, wc.Limits)
	wc.SetAside, wc.PreemptGrace = b.cfg.SetAside.D(), b.cfg.PreemptGrace.D()
	if wc.Shares, err = fairshare.Parse(b.cfg.Shares); err != nil {
		return nil, err
	}
	if wc.Usage, err = loadUsage(b.store); err != nil {
		return nil, err
	}
	if wc.Draining, err = x.drains.load(); err != nil {
		return nil, err
	}
	if wc.Quarantine, err = loadQuarantine(b.store); err != nil {
		return nil, err
	}
	return loop.New(wc, loop.Parts{
		Ledger: ledger.New(b.store), Sender: toSchedulers{r}, Driver: x.files, Adopter: x.files, Poll: hw.gpus.ask, Drained: hw.gpus.drain, Clocks: leaseclock.ReadClocks,
		PortFree:  hostinfo.PortFree,
		LookUp:    x.users.ask,
		Keep:      func(q health.Quarantine) error { return saveQuarantine(b.store, q) },
		KeepUsage: func(u resources.Usage) error { return saveUsage(b.store, u) },
	}, b.part("worker"))
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
