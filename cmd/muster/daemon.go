package main

// The verb daemon, and the hidden ones that it starts: the runner and the NVML
// agent.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/libp2p/go-libp2p/gologshim"
	"github.com/urfave/cli/v2"

	"github.com/musterhq/muster/gpu/nvml"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/node"
	"github.com/musterhq/muster/worker/runner"
)

func (e env) daemonCommand() *cli.Command {
	return &cli.Command{
		Name: "daemon", Usage: "the service that runs on each host",
		Flags: append(settingFlags(),
			&cli.StringFlag{Name: "log-level", Usage: "debug, info, warn or error", Value: "info", EnvVars: []string{"MUSTER_LOG_LEVEL"}},
			&cli.StringFlag{Name: "log-format", Usage: "text or json", Value: "text", EnvVars: []string{"MUSTER_LOG_FORMAT"}},
			&cli.BoolFlag{Name: "gate", Usage: "relay for hosts that cannot be reached (not yet in this version)"}),
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
	handler, err := logHandler(e.err, c.String("log-level"), c.String("log-format"))
	if err != nil {
		return err
	}
	return serve(c.Context, cfg, slog.New(handler))
}

// serve runs a daemon, and another one on the same data each time that it joins
// another cluster.
func serve(ctx context.Context, cfg node.Config, log *slog.Logger) error {
	for {
		n, err := node.New(ctx, cfg, log)
		if err != nil {
			return startError(ctx, err)
		}
		err = n.Run(ctx)
		switch {
		case errors.Is(err, node.ErrRejoin):
			log.InfoContext(ctx, "starting anew in the cluster that was joined")
			cfg.Token, cfg.Bootstrap = "", nil // both are kept in the data directory by now
		case err == nil || ctx.Err() != nil:
			log.InfoContext(ctx, "stopped; tasks run on")
			return nil
		default:
			return fmt.Errorf("daemon: %w", err)
		}
	}
}

func startError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("daemon: %w", err)
}

// logHandler writes as the flags ask; libp2p's own lines go the same way, from
// warnings on.
func logHandler(w io.Writer, level, format string) (slog.Handler, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, usagef("--log-level %q: want debug, info, warn or error", level)
	}
	opts := &slog.HandlerOptions{Level: l}
	switch format {
	case "text":
		gologshim.SetDefaultHandler(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelError}))
		return slog.NewTextHandler(w, opts), nil
	case "json":
		gologshim.SetDefaultHandler(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: slog.LevelError}))
		return slog.NewJSONHandler(w, opts), nil
	}
	return nil, usagef("--log-format %q: want text or json", format)
}

// runnerCommand is the process that holds a host's tasks; daemons start it.
func (e env) runnerCommand() *cli.Command {
	return &cli.Command{
		Name: "runner", Hidden: true,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "dir", Required: true}, &cli.IntFlag{Name: "generation", Value: 1}, &cli.BoolFlag{Name: "allow-root"},
		},
		Action: func(c *cli.Context) error {
			cfg := runner.DefaultConfig()
			cfg.Dir, cfg.Generation, cfg.AllowRoot, cfg.Version = c.String("dir"), c.Int("generation"), c.Bool("allow-root"), version
			return runner.Main(c.Context, cfg, slog.New(slog.NewTextHandler(e.err, nil)))
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
