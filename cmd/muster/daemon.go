package main

// The verb daemon, and the hidden ones that it starts: the runner and the NVML
// agent.

import (
	"errors"
	"io"
	"log/slog"

	"github.com/libp2p/go-libp2p/gologshim"
	"github.com/urfave/cli/v2"

	"github.com/musterhq/muster/gpu/nvml"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/runner"
)

func (e env) daemonCommand() *cli.Command {
	return &cli.Command{
		Name: "daemon", Usage: "run the service that each host of a cluster has",
		Flags:  append(settingFlags(), &cli.BoolFlag{Name: "gate", Hidden: true}),
		Action: e.daemon,
	}
}

func (e env) daemon(c *cli.Context) error {
	if err := wantArgs(c, 0, 0, "no argument"); err != nil {
		return err
	}
	if c.Bool("gate") {
		return usagef("--gate: %w", job.ErrNotYet)
	}
	cfg, err := configOf(c)
	if err != nil {
		return err
	}
	level := new(slog.LevelVar)
	level.Set(cfg.level())
	s := service{
		cfg: cfg, level: level, log: slog.New(logHandler(e.err, cfg.LogFormat, level)),
		reread: func() (daemonConfig, error) { return configOf(c) },
	}
	return s.run(c.Context)
}

// logHandler writes as the settings ask; of libp2p's own lines only errors.
func logHandler(w io.Writer, format string, level slog.Leveler) slog.Handler {
	ours, theirs := &slog.HandlerOptions{Level: level}, &slog.HandlerOptions{Level: slog.LevelError}
	if format == "json" {
		gologshim.SetDefaultHandler(slog.NewJSONHandler(w, theirs))
		return slog.NewJSONHandler(w, ours)
	}
	gologshim.SetDefaultHandler(slog.NewTextHandler(w, theirs))
	return slog.NewTextHandler(w, ours)
}

// errRunner says that the runner has failed, and has said why.
var errRunner = errors.New("runner: failed")

// runnerCommand is the process that holds a host's tasks; daemons start it,
// where the small program of its own (runnerProgram) is not at hand.
func (e env) runnerCommand() *cli.Command {
	return &cli.Command{
		Name: "runner", Hidden: true, SkipFlagParsing: true,
		Action: func(c *cli.Context) error {
			if runner.Command(c.Context, version, c.Args().Slice()) != 0 {
				return errRunner
			}
			return nil
		},
	}
}

// nvmlAgentCommand asks the NVIDIA driver on behalf of a daemon.
func (e env) nvmlAgentCommand() *cli.Command {
	return &cli.Command{
		Name: "nvml-agent", Hidden: true,
		Action: func(c *cli.Context) error { return nvml.Serve(c.Context, e.in, e.out) },
	}
}
