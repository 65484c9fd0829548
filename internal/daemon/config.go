package daemon

// The configuration of a daemon.

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/internal/fairshare"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/step"
	"github.com/musterhq/muster/worker"
	"github.com/musterhq/muster/worker/output"
	"github.com/musterhq/muster/worker/resources"
	"github.com/musterhq/muster/worker/runner/docker"
	"github.com/musterhq/muster/worker/runner/spawn"
	"github.com/musterhq/muster/worker/supervisor"
)

// Config is the configuration of a daemon. Package main collects it from flags, environment and config file.
type Config struct {
	DataDir               string
	Socket                string
	Listen                []string // multiaddrs; empty: TCP and QUIC on the default port of all addresses
	Bootstrap             []string // multiaddrs with /p2p/ID
	Token                 string
	HTTP                  string   // host:port, or empty
	HTTPToken             string   // file with the bearer token for HTTP; empty: HTTP must be on loopback
	HTTPMetricsToken      string   // file with a token for HTTP that may only read metrics; empty: there is none
	HTTPUser              string   // account as which requests over HTTP act; empty: the daemon's, or none if that is root
	HTTPCert, HTTPKey     string   // files of the certificate and its key, for TLS on HTTP
	HTTPHosts             []string // further host names that requests over HTTP may use
	Name                  string
	Labels                map[string]string
	GPUs                  string            // auto, none, indexes, or sim:…
	GPULibraries          []string          // directories of the driver's libraries; empty: the usual places
	CPUs                  int               // 0: what the host has
	Memory                job.Size          // 0: what the host has
	Limits                map[string]string // what each user may hold here, as worker.ParseLimits reads it
	Shares                map[string]string // weights of users and projects, as fairshare.Parse reads them
	ClientTimeout         job.Duration      // how long the client of a task with input may be gone before the task ends
	OutputLimit           job.Size          // bytes of one task's output that are kept on disk
	NoWorker, NoScheduler bool
	AllowRoot             bool         // run tasks of root as root
	RunOthersAsMe         bool         // a daemon that is not root runs the tasks of all users, as its own user
	CgroupsOff            bool         // do not use cgroups
	PrivateTmp            bool         // each task has its own /tmp and /dev/shm, if this process may make them
	CPUQuota              bool         // a task gets no more CPU time than it asked for, even if the CPUs are idle
	SetAside              job.Duration // worker.Config.SetAside
	PreemptGrace          job.Duration // worker.Config.PreemptGrace
	LossLimit             int          // a task is held after it has lost this number of different hosts
	GangHold              job.Duration // how long a gang holds places on some hosts while other hosts have none for it
	Order                 string       // how tasks of one priority are ordered; see contract.Orders
	MaxWait               job.Duration // how long tasks wait before they go first; 0: they never go first for that
	TrustedLabels         bool         // constraints of jobs that are accepted here use only signed labels
	DefaultTime           job.Duration // time limit of jobs that are accepted here without one; 0: none
	Visibility            string       // VisibleAll or VisibleOwn
	MetricsTasks          int          // how many running tasks have their own metrics, at most
	JobFiles              string       // directory of files that say which jobs hold each GPU; empty: none
	Policy                string       // placement policy of jobs that name none
	TaskPIDs              int          // processes and threads that one task may have; 0: any number
	Scratch               job.Size     // of one task's scratch directory; 0: only the user's quota
	Ulimits               []string     // NAME=SOFT[:HARD] of each process of a task
	DockerHost            string       // URL of the Docker engine; "none": run no containers
	DockerMounts          []string     // directories that containers may mount
	DockerUser            string       // UID[:GID] inside containers; empty: the user who submitted the task
	Program               string       // path of the muster binary, for the NVML agent and a runner without RunnerProgram
	RunnerProgram         []byte       // the separate program of the runner, packed by gzip; may be empty
	Version               string
	Settings              []api.Setting // text and origin of each setting
}

// DefaultConfig returns the configuration of a daemon without any settings.
func DefaultConfig() Config {
	name, err := os.Hostname()
	if err != nil {
		name = "unnamed"
	}
	return Config{
		DataDir: defaultDataDir(), Socket: DefaultSocket(), Name: name, GPUs: "auto", Program: "/proc/self/exe", Version: "dev",
		SetAside: job.Duration(worker.DefaultSetAside), PreemptGrace: job.Duration(worker.DefaultPreemptGrace), LossLimit: step.DefaultConfig().LossLimit, GangHold: job.Duration(step.DefaultConfig().GangHold), Order: contract.ByAge.String(), Policy: step.DefaultConfig().Policy, TaskPIDs: defaultTaskPIDs, Ulimits: spawn.DefaultUlimits(),
		Visibility:   VisibleAll,
		MetricsTasks: defaultMetricsTasks,
		PrivateTmp:   true,
		DockerHost:   docker.DefaultHost,
		OutputLimit:  supervisor.DefaultOutputLimit, ClientTimeout: job.DefaultClientTimeout,
	}
}

// hostSocket is the socket of the daemon that serves all users of the host.
const hostSocket = "/run/muster/muster.sock"

// FindSocket returns the socket of the user's own daemon if there is one, and otherwise of the host's daemon.
func FindSocket() string {
	return findSocket(DefaultSocket(), hostSocket, os.Getuid())
}

// findSocket ignores a socket at the path own that belongs to another user: the path may be in /tmp, where anybody can
// create files.
func findSocket(own, host string, uid int) string {
	info, err := os.Stat(own)
	if err == nil {
		if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) == uid {
			return own
		}
		return host
	}
	if _, err := os.Stat(host); err == nil {
		return host
	}
	return own
}

// DefaultSocket returns the path of the socket of this user's daemon.
func DefaultSocket() string {
	if os.Getuid() == 0 {
		return hostSocket
	}
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		return filepath.Join(dir, "muster", "muster.sock")
	}
	return filepath.Join(fallbackDir(), "muster.sock")
}

func defaultDataDir() string {
	if os.Getuid() == 0 {
		return "/var/lib/muster"
	}
	if home, err := os.UserHomeDir(); err == nil {
		return filepath.Join(home, ".local", "share", "muster")
	}
	return filepath.Join(fallbackDir(), "data")
}

// The values of Config.Visibility.
const (
	VisibleAll = "all" // all users see that a job exists, its user and its state
	VisibleOwn = "own" // users see only their own jobs, and operators see all
)

const (
	maxSocketPath = 104 // bytes; Linux allows 107
	maxNameBytes  = 64
	// defaultTaskPIDs is more than the data loaders of eight GPUs need, and far less than the limit of a host.
	defaultTaskPIDs = 16384
	stopGrace       = 5 * time.Second  // bounds the wait for each part to stop
	endTasksWithin  = 20 * time.Second // bounds the end of the tasks of a daemon that stops because of its twin
	// Each task has about five series, and more for its GPUs.
	defaultMetricsTasks, maxMetricsTasks = 1000, 5000
)

// SettingError is an invalid value of a setting, or values of several settings that do not fit together.
type SettingError struct {
	Settings []string
	Err      error
}

func (e *SettingError) Error() string { return strings.Join(e.Settings, ", ") + ": " + e.Err.Error() }
func (e *SettingError) Unwrap() error { return e.Err }

func badSetting(names, format string, args ...any) error {
	return &SettingError{strings.Fields(names), fmt.Errorf(format, args...)}
}

// CheckLibraries returns an error if a directory of Config.GPULibraries cannot be in LD_LIBRARY_PATH.
func CheckLibraries(dir string) error {
	if !filepath.IsAbs(dir) || strings.ContainsAny(dir, ":;\n\x00") {
		return fmt.Errorf("%.200q: want an absolute path without : and ;", dir)
	}
	return nil
}

// CheckShare returns an error if an entry of Config.Shares is not valid.
func CheckShare(name, text string) error { return fairshare.Check(name, text) }

// Policies returns the names of the placement policies.
func Policies() []string { return step.Policies() }

// Orders returns the names of the orders of tasks with one priority.
func Orders() []string { return contract.Orders() }

// CheckPolicy returns an error if a job names a placement policy that this version does not have.
func CheckPolicy(name string) error { return step.CheckPolicy(name) }

// CheckLimit returns an error if an entry of Config.Limits is not valid.
func CheckLimit(name, text string) error { return resources.CheckLimit(name, text) }

// LimitsShown returns the limits to show, including the default of the highest priority of users.
func LimitsShown(set map[string]string) map[string]string {
	out := map[string]string{"per_user." + string(contract.LimitPriority): strconv.Itoa(contract.UserPriority)}
	maps.Copy(out, set)
	return out
}

// checkUsers checks the settings for users and projects.
func (c Config) checkUsers() error {
	limits, err := resources.ParseLimits(c.Limits)
	if err != nil {
		return badSetting("limits", "%w", err)
	}
	if seconds, set := limits.PerUser[contract.LimitTime]; set && c.DefaultTime.D() > time.Duration(seconds)*time.Second {
		return badSetting("default-time limits", "a default of %s is above per_user.max_time=%s: jobs without a time limit would have more than users may give", c.DefaultTime, job.Duration(time.Duration(seconds)*time.Second))
	}
	if _, err := fairshare.Parse(c.Shares); err != nil {
		return badSetting("shares", "%w", err)
	}
	return nil
}

// checkRights checks the settings that have a different meaning for a daemon of root.
func (c Config) checkRights() error {
	root := os.Geteuid() == 0
	switch {
	case root && c.HTTP != "" && c.HTTPToken == "":
		return badSetting("http http-token", "a daemon of root serves HTTP only to those who have its token: give --http-token FILE")
	case root && c.RunOthersAsMe:
		return badSetting("run-others-as-me", "a daemon of root runs each task as the user who submitted it; this setting is for daemons of other users")
	case (c.HTTPCert == "") != (c.HTTPKey == ""):
		return badSetting("http-cert http-key", "a certificate needs its key, and a key its certificate: give both, or none")
	case c.HTTPCert != "" && c.HTTP == "":
		return badSetting("http-cert", "there is nothing to serve by TLS: give --http HOST:PORT")
	}
	return c.checkHTTPUser()
}

// checkMetrics checks the settings for monitoring: what is reported, and who may read it.
func (c Config) checkMetrics() error {
	switch {
	case c.MetricsTasks < 0 || c.MetricsTasks > maxMetricsTasks:
		return badSetting("metrics-tasks", "%d: want 0 to %d", c.MetricsTasks, maxMetricsTasks)
	case c.JobFiles != "" && !filepath.IsAbs(c.JobFiles):
		return badSetting("dcgm-job-mapping", "%.200q: want an absolute path", c.JobFiles)
	case c.HTTPMetricsToken != "" && c.HTTPToken == "":
		return badSetting("http-metrics-token", "without --http-token, HTTP needs no token at all: give --http-token FILE, too")
	}
	return nil
}

// checkTimes checks the settings that say how long something may take.
func (c Config) checkTimes() error {
	switch {
	case c.SetAside.D() < worker.MinSetAside || c.SetAside.D() > worker.MaxSetAside:
		return badSetting("set-aside", "%s: want %s to %s", c.SetAside, job.Duration(worker.MinSetAside), job.Duration(worker.MaxSetAside))
	case c.PreemptGrace < 0 || c.PreemptGrace.D() > job.MaxGrace:
		return badSetting("preempt-grace", "%s: want 0s to %s", c.PreemptGrace, job.Duration(job.MaxGrace))
	case c.MaxWait != 0 && (c.MaxWait.D() < step.MinMaxWait || c.MaxWait.D() > step.MaxMaxWait):
		return badSetting("max-wait", "%s: want 0s, or a time from %s to %s", c.MaxWait, job.Duration(step.MinMaxWait), job.Duration(step.MaxMaxWait))
	case c.DefaultTime < 0 || c.DefaultTime.D() > job.MaxTimeLimit:
		return badSetting("default-time", "%s: want a time from 0s, for no limit, to %s", c.DefaultTime, job.Duration(job.MaxTimeLimit))
	case c.GangHold.D() < step.MinGangHold || c.GangHold.D() > step.MaxGangHold:
		return badSetting("gang-hold", "%s: want a time from %s to %s", c.GangHold, job.Duration(step.MinGangHold), job.Duration(step.MaxGangHold))
	case c.ClientTimeout < job.MinClientTimeout || c.ClientTimeout > job.MaxClientTimeout:
		return badSetting("client-timeout", "%s: want %s to %s", c.ClientTimeout, job.MinClientTimeout, job.MaxClientTimeout)
	}
	return nil
}

// Validate returns an error for the first invalid value. Most of these errors are SettingErrors.
func (c Config) Validate() error {
	switch {
	case c.DataDir == "":
		return badSetting("data-dir", "give a directory")
	case c.Socket == "" || len(c.Socket) > maxSocketPath:
		return badSetting("socket", "%.200q: want a path of at most %d bytes", c.Socket, maxSocketPath)
	case c.Name == "" || len(c.Name) > maxNameBytes || job.CheckLabel("name", c.Name) != nil:
		return badSetting("name", "%.80q: want 1 to %d characters: letters, digits and ._-", c.Name, maxNameBytes)
	case c.Token != "" && len(c.Bootstrap) == 0:
		return badSetting("token", "a token needs --bootstrap with the address that came with it")
	case c.LossLimit < 1 || c.LossLimit > job.MaxLost:
		return badSetting("loss-limit", "want a number from 1 to %d", job.MaxLost)
	case !slices.Contains(contract.Orders(), c.Order):
		return badSetting("order", "%.40q: want %s", c.Order, strings.Join(contract.Orders(), ", "))
	case c.TaskPIDs < 0 || c.Scratch < 0:
		return fmt.Errorf("task-pids, scratch-quota: must be at least 0")
	case c.CPUs < 0 || c.Memory < 0:
		return badSetting("cpus memory", "must be at least 0")
	case c.OutputLimit < output.MinBound:
		return badSetting("output-limit", "%s: at least %s", c.OutputLimit, job.Size(output.MinBound))
	case c.NoWorker && c.NoScheduler:
		return badSetting("no-worker no-scheduler", "set only one of them; a daemon with both does nothing")
	}
	if err := errors.Join(c.checkTimes(), c.checkRights(), c.CheckDocker(), c.checkMetrics()); err != nil {
		return err
	}
	if _, _, err := parseGPUs(c.GPUs, c.Name); err != nil {
		return badSetting("gpus", "%w", err)
	}
	for _, text := range c.Ulimits {
		if _, err := spawn.ParseUlimit(text); err != nil {
			return fmt.Errorf("ulimit: %w", err)
		}
	}
	if err := c.checkUsers(); err != nil {
		return err
	}
	for k, v := range c.Labels {
		if err := job.CheckOwnLabel(k, v); err != nil {
			return badSetting("label", "%w", err)
		}
	}
	return nil
}
