package main

// The daemon's settings. The value is that of the flag, else of MUSTER_* in the environment, else of the config file,
// else the default.

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"
	"github.com/urfave/cli/v2"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/internal/daemon"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/runner/spawn"
)

// daemonConfig is the configuration of a daemon, including its logging.
type daemonConfig struct {
	daemon.Config
	LogLevel  string
	LogFormat string
	TokenFile string // holds Token, if that is empty
	File      string // the file that was read; empty if there was none
}

// settings returns the settings in the order of help. A new setting needs an entry here and a field of daemon.Config;
// with reloads also an entry in internal/daemon/reload.go.
func settings() []setting {
	return []setting{
		text("data-dir", "`DIR` with the daemon's key, its journal and the output of tasks", func(c *daemonConfig) *string { return &c.DataDir }),
		text("socket", "`PATH` of the socket on which the daemon serves the verbs", func(c *daemonConfig) *string { return &c.Socket }),
		texts("listen", "`MULTIADDR` on which the daemon listens for other daemons", func(c *daemonConfig) *[]string { return &c.Listen }, checkListen),
		texts("bootstrap", "`MULTIADDR` of a daemon of the cluster to join", func(c *daemonConfig) *[]string { return &c.Bootstrap }, checkBootstrap).reloads(),
		text("token", "`TOKEN` that muster invite printed; needed only to join. As a flag it is refused without --insecure-token, because all users of the host can see it in the list of processes: give it in MUSTER_TOKEN or with --token-file", func(c *daemonConfig) *string { return &c.Token }),
		text("token-file", "`FILE` with that token; only its owner may be able to read it", func(c *daemonConfig) *string { return &c.TokenFile }),
		text("http", "also serve the API on `HOST:PORT`", func(c *daemonConfig) *string { return &c.HTTP }),
		text("http-token", "`FILE` with the token for HTTP; without one HTTP must be on loopback, and the daemon not that of root", func(c *daemonConfig) *string { return &c.HTTPToken }),
		text("http-metrics-token", "`FILE` with a token for HTTP that reads metrics and nothing else", func(c *daemonConfig) *string { return &c.HTTPMetricsToken }),
		text("http-user", "`USER` that requests over HTTP act as: an account of this host. Without it a daemon of root accepts no jobs over HTTP", func(c *daemonConfig) *string { return &c.HTTPUser }),
		text("http-cert", "`FILE` with the certificate for TLS on HTTP, and those that lead to its authority; it is read again when it changes", func(c *daemonConfig) *string { return &c.HTTPCert }),
		text("http-key", "`FILE` with the key of that certificate", func(c *daemonConfig) *string { return &c.HTTPKey }),
		texts("http-host", "further host `NAME` by which HTTP may be asked, such as that of a proxy", func(c *daemonConfig) *[]string { return &c.HTTPHosts }, daemon.CheckHost),
		text("name", "`NAME` of this node", func(c *daemonConfig) *string { return &c.Name }),
		pairs("label", "label `K=V` of this node, for constraints", func(c *daemonConfig) *map[string]string { return &c.Labels }, job.CheckOwnLabel).reloads(),
		text("gpus", "`GPUS` to offer: auto, none, indexes such as 0,1, UUIDs or their beginnings, or simulated ones such as sim:8xH100-80GB", func(c *daemonConfig) *string { return &c.GPUs }),
		texts("gpu-libraries", "`DIR` with the libraries of the GPUs' driver, where the linker does not find them; tasks get it at the end of LD_LIBRARY_PATH. Default: the usual places that have them", func(c *daemonConfig) *[]string { return &c.GPULibraries }, daemon.CheckLibraries),
		count("cpus", "`N` CPUs to offer; 0: all", func(c *daemonConfig) *int { return &c.CPUs }),
		sized("memory", "`SIZE` of the memory to offer; 0B: all", func(c *daemonConfig) *job.Size { return &c.Memory }),
		pairs(limitsSetting, "limit `K=V` on what each user may hold here: per_user.gpus=4, users.ada.memory=64GiB; also cpus, tasks, scratch (what a user's tasks may hold on the disk of the data directory; default: half of it), on all hosts together cluster_gpus, cluster_cpus, cluster_memory, cluster_tasks, the longest time limit max_time, pending_jobs and pending_bytes, the last two for all users too: all.pending_jobs=200000; and the highest priority of jobs that are submitted here and of tasks that run here: per_user.priority (default: 50; operators: 100), users.ada.priority=80, and for what another daemon offers per_member.priority=60, members.PEER.priority=80", func(c *daemonConfig) *map[string]string { return &c.Limits }, daemon.CheckLimit).shows(func(c daemonConfig) string { return labels(daemon.LimitsShown(c.Limits), " ") }).reloads(),
		pairs(sharesSetting, "weight `K=V` of users and projects: users.ada=3, projects.vision=2, others=1; half_life=1d: how fast usage is forgotten", func(c *daemonConfig) *map[string]string { return &c.Shares }, daemon.CheckShare).reloads(),
		sized("output-limit", "keep at most `SIZE` of one task's output on disk: the beginning and the end of longer output", func(c *daemonConfig) *job.Size { return &c.OutputLimit }),
		lasting("client-timeout", "end a task with input or a terminal after its client was gone for `D`", func(c *daemonConfig) *job.Duration { return &c.ClientTimeout }),
		toggle("no-worker", "run no tasks here", func(c *daemonConfig) *bool { return &c.NoWorker }),
		toggle("no-scheduler", "accept no jobs here", func(c *daemonConfig) *bool { return &c.NoScheduler }),
		toggle("allow-root", "run root's tasks, as root", func(c *daemonConfig) *bool { return &c.AllowRoot }),
		toggle("run-others-as-me", "without root: run the tasks of all users, as the daemon's own user. Each of them can then read the daemon's key and act as this host", func(c *daemonConfig) *bool { return &c.RunOthersAsMe }),
		toggle("cgroups-off", "do not use cgroups; track processes by parentage. CPUs, memory and devices are then not limited", func(c *daemonConfig) *bool { return &c.CgroupsOff }),
		toggle("private-tmp", "give each task a /tmp and a /dev/shm of its own, which end with it, as a daemon of root can; set to false, tasks share those of the host", func(c *daemonConfig) *bool { return &c.PrivateTmp }),
		toggle("cpu-quota", "give no task more CPU time than it asked for, even if CPUs are idle", func(c *daemonConfig) *bool { return &c.CPUQuota }),
		lasting("set-aside", "`TIME` for which free resources are first set aside for a task if no time limits show when it can start; less where tasks are shorter", func(c *daemonConfig) *job.Duration { return &c.SetAside }),
		lasting("preempt-grace", "a preempted task has its --grace to end, but at most `TIME`", func(c *daemonConfig) *job.Duration { return &c.PreemptGrace }),
		count("loss-limit", "hold a task, instead of running it again, after it has lost `N` different hosts", func(c *daemonConfig) *int { return &c.LossLimit }),
		choice("policy", "placement policy `NAME` of jobs that name none: "+strings.Join(daemon.Policies(), ", "), func(c *daemonConfig) *string { return &c.Policy }, daemon.Policies()...),
		choice("order", "order tasks of one priority by `NAME`: "+strings.Join(daemon.Orders(), ", ")+"; by the last two, preemptible tasks may end for others of their priority", func(c *daemonConfig) *string { return &c.Order }, daemon.Orders()...),
		lasting("max-wait", "a task that has waited for `TIME` goes first, whatever its priority, and nothing ends it once it runs; of each user one after the other; 0s: never", func(c *daemonConfig) *job.Duration { return &c.MaxWait }),
		toggle("trusted-labels", "in constraints of jobs that this daemon accepts, count only labels that an inviter has signed", func(c *daemonConfig) *bool { return &c.TrustedLabels }),
		choice("visibility", "`WHICH` jobs of this daemon a user sees: all or own. Operators see all", func(c *daemonConfig) *string { return &c.Visibility }, daemon.VisibleAll, daemon.VisibleOwn),
		lasting("default-time", "time limit `D` of jobs that this daemon accepts and that give none, so that forgotten jobs end; 0s: no limit", func(c *daemonConfig) *job.Duration { return &c.DefaultTime }),
		count("metrics-tasks", "at most `N` tasks that run here have metrics of their own", func(c *daemonConfig) *int { return &c.MetricsTasks }),
		text("dcgm-job-mapping", "keep files in `DIR` that say which jobs hold each GPU, for dcgm-exporter", func(c *daemonConfig) *string { return &c.JobFiles }),
		lasting("gang-hold", "let a gang hold places at some nodes for `TIME` while others have none for it; then it gives them back for a while", func(c *daemonConfig) *job.Duration { return &c.GangHold }),
		count("task-pids", "`N` processes and threads that one task may have; 0: any number", func(c *daemonConfig) *int { return &c.TaskPIDs }),
		sized("scratch-quota", "`SIZE` of one task's scratch directory, with its private /tmp; 0B: only what all tasks of its user may hold, by --limits per_user.scratch, bounds it", func(c *daemonConfig) *job.Size { return &c.Scratch }),
		texts("ulimit", "limit `NAME=SOFT[:HARD]` of each process of a task; NAME is one of as, core, fsize, memlock, nofile, nproc, stack", func(c *daemonConfig) *[]string { return &c.Ulimits }, checkUlimit),
		text("docker-host", "`URL` of the Docker engine for containers, or none", func(c *daemonConfig) *string { return &c.DockerHost }),
		texts("docker-mount", "`DIR` that containers may mount, with everything below it", func(c *daemonConfig) *[]string { return &c.DockerMounts }, daemon.CheckMount),
		text("docker-user", "`UID[:GID]` inside containers; default: the user who submitted the task", func(c *daemonConfig) *string { return &c.DockerUser }),
		choice("log-level", "lowest `LEVEL` that is logged: debug, info, warn or error", func(c *daemonConfig) *string { return &c.LogLevel }, "debug", "info", "warn", "error").reloads(),
		choice("log-format", "`FORMAT` of the log: text or json", func(c *daemonConfig) *string { return &c.LogFormat }, "text", "json"),
	}
}

func checkUlimit(text string) error {
	_, err := spawn.ParseUlimit(text)
	return err
}

func checkListen(text string) error {
	if _, err := ma.NewMultiaddr(text); err != nil {
		return fmt.Errorf("%.200q: want a multiaddr such as /ip4/0.0.0.0/tcp/4701", text)
	}
	return nil
}

func checkBootstrap(text string) error {
	if _, err := peer.AddrInfoFromString(text); err != nil {
		return fmt.Errorf("%.200q: want a multiaddr with /p2p/ID, as `muster invite` prints it", text)
	}
	return nil
}

// level returns the log level of a configuration.
func (c daemonConfig) level() slog.Level {
	var l slog.Level
	if err := l.UnmarshalText([]byte(c.LogLevel)); err != nil {
		return slog.LevelInfo // the setting has no other values
	}
	return l
}

// settingFlags returns the settings as flags of the daemon.
func settingFlags() []cli.Flag {
	flags := []cli.Flag{&cli.StringFlag{Name: "config", Usage: "config `FILE`; default: " + defaultConfigFile() + " if it is there", EnvVars: []string{"MUSTER_CONFIG"}}}
	for _, s := range settings() {
		switch {
		case s.toggle():
			flags = append(flags, &cli.BoolFlag{Name: s.name, Usage: s.usage, DisableDefaultText: true})
		case s.many:
			flags = append(flags, &cli.StringSliceFlag{Name: s.name, Usage: s.usage})
		default:
			flags = append(flags, &cli.StringFlag{Name: s.name, Usage: s.usage})
		}
	}
	return flags
}

// defaultConfig returns the configuration of a daemon without any settings.
func defaultConfig() daemonConfig {
	return daemonConfig{Config: daemon.DefaultConfig(), LogLevel: "info", LogFormat: "text"}
}

// configOf collects the settings from all sources and records the origin of each.
func configOf(c *cli.Context) (daemonConfig, error) {
	return configFrom(c, c.String("config"))
}

// configFrom is configOf with the path of a file. An empty path means the default file, which may be missing.
func configFrom(c *cli.Context, path string) (daemonConfig, error) {
	cfg := defaultConfig()
	cfg.Version, cfg.RunnerProgram = version, runnerProgram
	file, err := readConfigFile(cmp.Or(path, defaultConfigFile()), path != "")
	if err != nil {
		return cfg, err
	}
	cfg.File = file.path
	if err := file.unknown(settings()); err != nil {
		return cfg, err
	}
	for _, s := range settings() {
		values, origin := s.given(c, file)
		if len(values) > 0 {
			if err := s.set(&cfg, values); err != nil {
				return cfg, usagef("%s (from %s): %w", s.name, origin, err)
			}
		}
		cfg.Settings = append(cfg.Settings, api.Setting{Name: s.name, Value: s.shown(cfg), Origin: origin})
	}
	if cfg.Token, err = tokenOf("token-file", cfg.Token, cfg.TokenFile); err != nil {
		return cfg, err
	}
	if err := cfg.Validate(); err != nil {
		return cfg, usageError{cfg.placed(err)}
	}
	return cfg, nil
}

// shown returns the value of a setting for people; a token is hidden.
func (s setting) shown(cfg daemonConfig) string {
	value := s.get(cfg)
	if s.name == "token" && value != "" {
		return "(set)"
	}
	return value
}

// placed adds the origin of the first setting that an error names.
func (c daemonConfig) placed(err error) error {
	var at *daemon.SettingError
	if !errors.As(err, &at) {
		return err
	}
	for _, s := range c.Settings {
		if s.Origin != fromDefault && slices.Contains(at.Settings, s.Name) {
			return fmt.Errorf("%s (from %s): %w", strings.Join(at.Settings, ", "), s.Origin, at.Err)
		}
	}
	return err
}

// The origins of a setting besides FILE:LINE.
const (
	fromFlag    = "flag"
	fromEnv     = "environment"
	fromDefault = "default"
)

// given returns the values of a setting from the source with the highest precedence, and that source.
func (s setting) given(c *cli.Context, file configLines) (values []string, origin string) {
	here, line := os.Getenv(s.env()), file.settings[s.name]
	switch {
	case c.IsSet(s.name) && s.many:
		return c.StringSlice(s.name), fromFlag
	case c.IsSet(s.name) && s.toggle():
		return []string{strconv.FormatBool(c.Bool(s.name))}, fromFlag
	case c.IsSet(s.name):
		return []string{c.String(s.name)}, fromFlag
	case here != "" && s.many:
		return strings.Fields(here), fromEnv
	case here != "":
		return []string{here}, fromEnv
	case len(line.values) > 0:
		return line.values, line.place
	}
	return nil, fromDefault
}
