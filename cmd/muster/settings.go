package main

// The daemon's settings: each may come from a flag, from MUSTER_* in the
// environment, from the config file, or be the default, in this order.

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/musterhq/muster/node"
)

// daemonConfig is what a daemon is told, and how it logs.
type daemonConfig struct {
	node.Config
	LogLevel  slog.Level
	LogFormat string
}

// setting is one thing that a daemon may be told.
type setting struct {
	name  string
	usage string                                       // with the value's name in back quotes; a switch has none
	many  bool                                         // may be given several times
	set   func(c *daemonConfig, values []string) error // one value at least
	get   func(c daemonConfig) string
}

// text is a setting that is kept as it is written.
func text(name, usage string, in func(*daemonConfig) *string) setting {
	return setting{
		name: name, usage: usage,
		set: func(c *daemonConfig, v []string) error { *in(c) = v[len(v)-1]; return nil },
		get: func(c daemonConfig) string { return *in(&c) },
	}
}

// texts is one that may be given several times.
func texts(name, usage string, in func(*daemonConfig) *[]string) setting {
	return setting{
		name: name, usage: usage, many: true,
		set: func(c *daemonConfig, v []string) error { *in(c) = v; return nil },
		get: func(c daemonConfig) string { return strings.Join(*in(&c), " ") },
	}
}

// toggle is a switch.
func toggle(name, usage string, in func(*daemonConfig) *bool) setting {
	return setting{
		name: name, usage: usage,
		set: func(c *daemonConfig, v []string) (err error) {
			if *in(c), err = strconv.ParseBool(v[len(v)-1]); err != nil {
				err = fmt.Errorf("%.40q: want true or false", v[len(v)-1])
			}
			return err
		},
		get: func(c daemonConfig) string { return strconv.FormatBool(*in(&c)) },
	}
}

// settings lists them in the order of help.
func settings() []setting {
	return []setting{
		text("data-dir", "`DIR` with the daemon's key, its journal and the output of tasks", func(c *daemonConfig) *string { return &c.DataDir }),
		text("socket", "`PATH` where the daemon listens for the verbs", func(c *daemonConfig) *string { return &c.Socket }),
		texts("listen", "`MULTIADDR` where other daemons reach it", func(c *daemonConfig) *[]string { return &c.Listen }),
		texts("bootstrap", "`MULTIADDR` of a daemon of the cluster to join", func(c *daemonConfig) *[]string { return &c.Bootstrap }),
		text("token", "`TOKEN` that muster invite printed; needed once", func(c *daemonConfig) *string { return &c.Token }),
		text("http", "`HOST:PORT` where the API is served too", func(c *daemonConfig) *string { return &c.HTTP }),
		text("http-token", "`FILE` with the token that HTTP asks for; without it only loopback is served", func(c *daemonConfig) *string { return &c.HTTPToken }),
		text("name", "`NAME` of this node", func(c *daemonConfig) *string { return &c.Name }),
		{name: "label", many: true, usage: "label `K=V` of this node, for constraints", set: setLabels, get: func(c daemonConfig) string { return labels(c.Labels, " ") }},
		text("gpus", "`GPUS` to give away: auto, none, indexes such as 0,1 or simulated ones such as sim:8xH100-80GB", func(c *daemonConfig) *string { return &c.GPUs }),
		{
			name: "cpus", usage: "`N` CPUs to give away; 0: all", get: func(c daemonConfig) string { return strconv.Itoa(c.CPUs) },
			set: func(c *daemonConfig, v []string) error { return number(v[len(v)-1], &c.CPUs) },
		},
		{
			name: "memory", usage: "`SIZE` of the memory to give away; 0B: all", get: func(c daemonConfig) string { return c.Memory.String() },
			set: func(c *daemonConfig, v []string) error { return c.Memory.UnmarshalText([]byte(v[len(v)-1])) },
		},
		toggle("no-worker", "run no tasks here", func(c *daemonConfig) *bool { return &c.NoWorker }),
		toggle("no-scheduler", "accept no jobs here", func(c *daemonConfig) *bool { return &c.NoScheduler }),
		toggle("allow-root", "run root's tasks, as root", func(c *daemonConfig) *bool { return &c.AllowRoot }),
		{name: "log-level", usage: "`LEVEL` from which it logs: debug, info, warn or error", set: setLogLevel, get: func(c daemonConfig) string { return strings.ToLower(c.LogLevel.String()) }},
		{name: "log-format", usage: "`FORMAT` of the log: text or json", set: setLogFormat, get: func(c daemonConfig) string { return c.LogFormat }},
	}
}

func setLabels(c *daemonConfig, values []string) error {
	c.Labels = map[string]string{}
	for _, v := range values {
		k, val, ok := strings.Cut(v, "=")
		if !ok {
			return fmt.Errorf("%.60q: want K=V", v)
		}
		c.Labels[k] = val
	}
	return nil
}

func setLogLevel(c *daemonConfig, v []string) error {
	levels := map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}
	level, ok := levels[strings.ToLower(v[len(v)-1])]
	if !ok {
		return fmt.Errorf("%.40q: want debug, info, warn or error", v[len(v)-1])
	}
	c.LogLevel = level
	return nil
}

func setLogFormat(c *daemonConfig, v []string) error {
	if c.LogFormat = v[len(v)-1]; c.LogFormat != "text" && c.LogFormat != "json" {
		return fmt.Errorf("%.40q: want text or json", c.LogFormat)
	}
	return nil
}

func (s setting) toggle() bool { return !strings.Contains(s.usage, "`") }

func (s setting) env() string {
	return "MUSTER_" + strings.ToUpper(strings.ReplaceAll(s.name, "-", "_"))
}

// settingFlags are the settings as flags of the daemon.
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

// configOf gathers the settings from everywhere and says where each is from.
func configOf(c *cli.Context) (daemonConfig, error) {
	cfg := daemonConfig{Config: node.DefaultConfig(), LogFormat: "text"}
	cfg.Version, cfg.Origins = version, map[string]string{}
	path := c.String("config")
	file, err := readConfigFile(cmp.Or(path, defaultConfigFile()), path != "")
	if err != nil {
		return cfg, err
	}
	for _, s := range settings() {
		values, origin := s.given(c, file)
		cfg.Origins[s.name] = origin
		var place string
		if origin == "file" {
			place = file[s.name].place
		}
		delete(file, s.name)
		if len(values) == 0 {
			continue
		}
		if err := s.set(&cfg, values); err != nil {
			return cfg, usagef("%s (from %s): %w", s.name, cmp.Or(place, origin), err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(file)) {
		return cfg, usagef("config file %s: no such setting: %.60q", file[name].place, name)
	}
	if err := cfg.Validate(); err != nil {
		return cfg, usageError{err}
	}
	return cfg, nil
}

// given is what was said about a setting where it counts most, and where that is.
func (s setting) given(c *cli.Context, file map[string]fileSetting) (values []string, origin string) {
	here := os.Getenv(s.env())
	switch {
	case c.IsSet(s.name) && s.many:
		return c.StringSlice(s.name), "flag"
	case c.IsSet(s.name) && s.toggle():
		return []string{strconv.FormatBool(c.Bool(s.name))}, "flag"
	case c.IsSet(s.name):
		return []string{c.String(s.name)}, "flag"
	case here != "" && s.many:
		return strings.Fields(here), "environment"
	case here != "":
		return []string{here}, "environment"
	case len(file[s.name].values) > 0:
		return file[s.name].values, "file"
	}
	return nil, "default"
}
