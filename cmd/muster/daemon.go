package main

// The verb daemon, and the hidden verbs that the daemon starts: the runner and the NVML agent.

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"

	"github.com/libp2p/go-libp2p/gologshim"
	"github.com/urfave/cli/v2"

	"github.com/musterhq/muster/gpu/nvml"
	"github.com/musterhq/muster/internal/daemon"
	"github.com/musterhq/muster/internal/logcount"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/runner"
	"github.com/musterhq/muster/worker/runner/docker"
	"github.com/musterhq/muster/worker/runner/spawn"
)

func (v hostVerbs) daemonCommand() *cli.Command {
	return &cli.Command{
		Name: "daemon", Usage: "run the daemon; each host of a cluster runs one",
		Flags:  append(settingFlags(), insecureTokenFlag(), &cli.BoolFlag{Name: "gate", Hidden: true}), // gate: serve as a relay for members; not yet supported
		Action: v.daemon,
	}
}

func (v hostVerbs) daemon(c *cli.Context) error {
	if err := wantArgs(c, 0, 0, "no argument"); err != nil {
		return err
	}
	if c.Bool("gate") {
		return usagef("--gate: %w", job.ErrNotYet)
	}
	if err := refuseToken(c, ""); err != nil {
		return err
	}
	cfg, err := configOf(c)
	if err != nil {
		return err
	}
	reread := hideToken(cfg, func() (daemonConfig, error) { return configOf(c) })
	if err := spawn.CloseInherited(); err != nil { // not earlier: the config file may be one of them, as in --config /dev/fd/3
		return err
	}
	if err := freePorts(c.Context, cfg.Listen); err != nil {
		return err
	}
	level := new(slog.LevelVar)
	level.Set(cfg.level())
	lines, theirs := logHandlers(v.err, cfg.LogFormat, level)
	gologshim.SetDefaultHandler(theirs)
	defer theirs.Flush()
	defer lines.Flush()
	s := service{cfg: cfg, level: level, log: slog.New(lines), reread: reread}
	err = s.run(c.Context)
	if errors.As(err, new(*daemon.TwinError)) {
		return exitError{exitTwin, err}
	}
	return err
}

// exitTwin is EX_CONFIG of sysexits.h. It means that a service manager should not start the daemon again.
const exitTwin = 78

// logHandlers format the daemon's log and that of libp2p as configured. Of libp2p's lines they log only errors.
// Repeated lines are counted.
func logHandlers(w io.Writer, format string, level slog.Leveler) (ours, theirs *logcount.Handler) {
	of := func(level slog.Leveler) *logcount.Handler {
		options := &slog.HandlerOptions{Level: level}
		if format == "json" {
			return logcount.New(slog.NewJSONHandler(w, options))
		}
		return logcount.New(slog.NewTextHandler(w, options))
	}
	return of(level), of(slog.LevelError)
}

// errRunner means that the runner has failed and has printed why.
var errRunner = errors.New("runner: failed")

// runnerCommand returns the verb that is the runner of a host's tasks. Daemons start it if the separate program of the
// runner (runnerProgram) is not embedded or cannot be executed.
func (v hostVerbs) runnerCommand() *cli.Command {
	return &cli.Command{
		Name: "runner", Hidden: true, SkipFlagParsing: true,
		Action: func(c *cli.Context) error {
			return runnerOf(c, func(*runner.Config, *slog.Logger) {}, nil)
		},
	}
}

// runnerOf runs a runner, or the guard of one: see docs/adr, ADR 25 and 161.
func runnerOf(c *cli.Context, finish func(*runner.Config, *slog.Logger), orphans func(context.Context, runner.Config) error) error {
	args, failed := c.Args().Slice(), 0
	if n := len(args) - 1; n >= 0 && args[n] == runner.GuardFlag {
		failed = runner.GuardCommand(c.Context, args[:n], orphans)
	} else {
		failed = runner.Command(c.Context, version, args, func(cfg *runner.Config, log *slog.Logger) {
			finish(cfg, log)
			cfg.Guard = append(append([]string{"/proc/self/exe"}, os.Args[1:]...), runner.GuardFlag)
		})
	}
	if failed != 0 {
		return errRunner
	}
	return nil
}

// containerRunnerCommand returns the verb that is the runner of a host's containers. Daemons start it.
func (v hostVerbs) containerRunnerCommand() *cli.Command {
	return &cli.Command{
		Name: "container-runner", Hidden: true, SkipFlagParsing: true,
		Action: func(c *cli.Context) error {
			return runnerOf(c, func(cfg *runner.Config, log *slog.Logger) {
				cfg.Containers = docker.New(docker.Config{Dir: cfg.Dir, Generation: cfg.Generation}, log)
			}, func(ctx context.Context, cfg runner.Config) error {
				return docker.EndOrphans(ctx, cfg.Dir, cfg.Generation)
			})
		},
	}
}

// nvmlAgentCommand returns the verb that queries the NVIDIA driver on behalf of a daemon.
func (v hostVerbs) nvmlAgentCommand() *cli.Command {
	return &cli.Command{
		Name: "nvml-agent", Hidden: true,
		Action: func(c *cli.Context) error {
			if err := spawn.CloseInherited(); err != nil {
				return err
			}
			return nvml.Serve(c.Context, v.in, v.out)
		},
	}
}
