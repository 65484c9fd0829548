package main

// The daemon's settings: each may come from a flag, from MUSTER_* in the
// environment, from the config file, or be the default, in this order.

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/urfave/cli/v2"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/node"
)

// setting is one thing that a daemon may be told.
type setting struct {
	name  string
	value string // what help calls it; empty for a switch
	many  bool   // may be given several times
	usage string
	set   func(c *node.Config, values []string) error
	get   func(c node.Config) string
}

func text(into func(*node.Config) *string) (func(*node.Config, []string) error, func(node.Config) string) {
	return func(c *node.Config, v []string) error { *into(c) = v[len(v)-1]; return nil },
		func(c node.Config) string { return *into(&c) }
}

func texts(into func(*node.Config) *[]string) (func(*node.Config, []string) error, func(node.Config) string) {
	return func(c *node.Config, v []string) error { *into(c) = v; return nil },
		func(c node.Config) string { return strings.Join(*into(&c), " ") }
}

func toggle(into func(*node.Config) *bool) (func(*node.Config, []string) error, func(node.Config) string) {
	return func(c *node.Config, v []string) error {
			b, err := strconv.ParseBool(v[len(v)-1])
			*into(c) = b
			return err
		},
		func(c node.Config) string { return strconv.FormatBool(*into(&c)) }
}

// settings lists them in the order of help.
func settings() []setting {
	var all []setting
	add := func(name, value string, many bool, usage string, set func(*node.Config, []string) error, get func(node.Config) string) {
		all = append(all, setting{name, value, many, usage, set, get})
	}
	str := func(name, value, usage string, into func(*node.Config) *string) {
		set, get := text(into)
		add(name, value, false, usage, set, get)
	}
	strs := func(name, value, usage string, into func(*node.Config) *[]string) {
		set, get := texts(into)
		add(name, value, true, usage, set, get)
	}
	flag := func(name, usage string, into func(*node.Config) *bool) {
		set, get := toggle(into)
		add(name, "", false, usage, set, get)
	}
	str("data-dir", "D", "where the daemon keeps its key, journal and output", func(c *node.Config) *string { return &c.DataDir })
	str("socket", "S", "where the daemon listens for the verbs", func(c *node.Config) *string { return &c.Socket })
	strs("listen", "MULTIADDR", "where other daemons reach it", func(c *node.Config) *[]string { return &c.Listen })
	strs("bootstrap", "MULTIADDR", "a daemon of the cluster to join", func(c *node.Config) *[]string { return &c.Bootstrap })
	str("token", "T", "from muster invite; needed once", func(c *node.Config) *string { return &c.Token })
	str("http", "ADDR", "also serve the API on host:port", func(c *node.Config) *string { return &c.HTTP })
	str("http-token", "F", "file with the token that HTTP asks for; without it only loopback is served", func(c *node.Config) *string { return &c.HTTPToken })
	str("name", "N", "what people call this node", func(c *node.Config) *string { return &c.Name })
	add("label", "k=v", true, "a label for constraints", setLabels, func(c node.Config) string { return labelsText(c.Labels) })
	str("gpus", "auto|none|0,1|sim:8xH100-80GB", "which GPUs to give away", func(c *node.Config) *string { return &c.GPUs })
	add("cpus", "N", false, "CPUs to give away", func(c *node.Config, v []string) error { return number(v[len(v)-1], &c.CPUs) },
		func(c node.Config) string { return strconv.Itoa(c.CPUs) })
	add("memory", "SIZE", false, "memory to give away", func(c *node.Config, v []string) error { return c.Memory.UnmarshalText([]byte(v[len(v)-1])) },
		func(c node.Config) string { return c.Memory.String() })
	flag("no-worker", "run no tasks here", func(c *node.Config) *bool { return &c.NoWorker })
	flag("no-scheduler", "accept no jobs here", func(c *node.Config) *bool { return &c.NoScheduler })
	flag("allow-root", "run root's tasks as root", func(c *node.Config) *bool { return &c.AllowRoot })
	return all
}

func setLabels(c *node.Config, values []string) error {
	c.Labels = map[string]string{}
	for _, v := range values {
		k, val, ok := strings.Cut(v, "=")
		if !ok {
			return fmt.Errorf("%.60q: want k=v", v)
		}
		c.Labels[k] = val
	}
	return nil
}

func labelsText(labels map[string]string) string {
	var all []string
	for k, v := range labels {
		all = append(all, k+"="+v)
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

func (s setting) env() string {
	return "MUSTER_" + strings.ToUpper(strings.ReplaceAll(s.name, "-", "_"))
}

// settingFlags are the settings as flags of the daemon.
func settingFlags() []cli.Flag {
	flags := []cli.Flag{&cli.StringFlag{Name: "config", Usage: "config `F`ile (default " + defaultConfigFile() + ")", EnvVars: []string{"MUSTER_CONFIG"}}}
	for _, s := range settings() {
		switch {
		case s.value == "":
			flags = append(flags, &cli.BoolFlag{Name: s.name, Usage: s.usage})
		case s.many:
			flags = append(flags, &cli.StringSliceFlag{Name: s.name, Usage: "`" + s.value + "` " + s.usage})
		default:
			flags = append(flags, &cli.StringFlag{Name: s.name, Usage: "`" + s.value + "` " + s.usage})
		}
	}
	return flags
}

func defaultConfigFile() string {
	if os.Getuid() == 0 {
		return "/etc/muster/config.yaml"
	}
	if dir, err := os.UserConfigDir(); err == nil {
		return filepath.Join(dir, "muster", "config.yaml")
	}
	return "config.yaml"
}

// configOf gathers the settings from everywhere and says where each is from.
func configOf(c *cli.Context) (node.Config, error) {
	cfg := node.DefaultConfig()
	cfg.Version, cfg.Origins = version, map[string]string{}
	path := c.String("config")
	file, err := readConfigFile(path)
	if err != nil {
		return cfg, err
	}
	for _, s := range settings() {
		var values []string
		origin := "default"
		switch {
		case c.IsSet(s.name) && s.many:
			values, origin = c.StringSlice(s.name), "flag"
		case c.IsSet(s.name) && s.value == "":
			values, origin = []string{strconv.FormatBool(c.Bool(s.name))}, "flag"
		case c.IsSet(s.name):
			values, origin = []string{c.String(s.name)}, "flag"
		case os.Getenv(s.env()) != "":
			values, origin = []string{os.Getenv(s.env())}, "environment"
			if s.many {
				values = strings.Fields(values[0])
			}
		case len(file[s.name]) > 0:
			values, origin = file[s.name], "file"
		}
		cfg.Origins[s.name] = origin
		delete(file, s.name)
		if len(values) == 0 {
			continue
		}
		if err := s.set(&cfg, values); err != nil {
			return cfg, usagef("%s (from %s): %w", s.name, origin, err)
		}
	}
	for name := range file {
		return cfg, usagef("config file: no such setting: %q", name)
	}
	if err := cfg.Validate(); err != nil {
		return cfg, usageError{err}
	}
	return cfg, nil
}

const maxConfigFile = 1 << 20

// readConfigFile reads setting: value or setting: [values]. Without --config a
// file that is not there is empty.
func readConfigFile(path string) (map[string][]string, error) {
	asked := path != ""
	if !asked {
		path = defaultConfigFile()
	}
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) && !asked {
		return nil, nil
	}
	if err != nil {
		return nil, usagef("config file: %w", err)
	}
	if len(raw) > maxConfigFile {
		return nil, usagef("config file %s: larger than %s", path, job.Size(maxConfigFile))
	}
	doc := map[string]any{}
	if err := yaml.NewDecoder(bytes.NewReader(raw)).Decode(&doc); err != nil && len(bytes.TrimSpace(raw)) > 0 {
		first, _, _ := strings.Cut(err.Error(), "\n")
		return nil, usagef("config file %s: %s", path, first)
	}
	values := map[string][]string{}
	for k, v := range doc {
		if many, ok := v.([]any); ok {
			for _, one := range many {
				values[k] = append(values[k], fmt.Sprint(one))
			}
			continue
		}
		values[k] = []string{fmt.Sprint(v)}
	}
	return values, nil
}
