package main

// The table of verbs, and how a command line becomes one of them.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/urfave/cli/v2"
)

// The exit codes that every verb shares.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
	exitNever  = 3   // submit: nothing in the cluster could ever run the job
	exitOurs   = 125 // run and wait: our own failure, not the job's
)

// usageError is a command line that cannot be meant.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }
func (e usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// exitError carries an exit code; with no err there is nothing to say.
type exitError struct {
	code int
	err  error
}

func (e exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e exitError) Unwrap() error { return e.err }

// run is the whole program: it carries out one command line and returns the
// exit code. Errors are one line on s.err.
func run(ctx context.Context, args []string, s streams) int {
	app := newApp(s)
	args, err := arrange(app, args)
	if err == nil {
		err = app.RunContext(ctx, args)
	}
	var exit exitError
	var usage usageError
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &exit):
		if exit.err != nil {
			say(s.err, exit.err)
		}
		return exit.code
	case errors.As(err, &usage):
		say(s.err, err)
		return exitUsage
	default:
		say(s.err, err)
		return exitFailed
	}
}

// say prints an error as one line.
func say(w io.Writer, err error) {
	fmt.Fprintf(w, "muster: %s\n", strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", "; "))
}

func newApp(s streams) *cli.App {
	e := env{streams: s}
	app := &cli.App{
		Name:            "muster",
		Usage:           "run jobs on the GPUs of many hosts, without a server",
		Version:         version,
		HideVersion:     true,
		HideHelpCommand: true,
		Reader:          s.in,
		Writer:          s.out,
		ErrWriter:       s.err,
		ExitErrHandler:  func(*cli.Context, error) {}, // run decides
		OnUsageError:    onUsageError,
		Flags:           []cli.Flag{socketFlag(), addrFlag()},
		Commands:        e.commands(),
		CommandNotFound: nil,
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return usagef("no such verb: %q; `muster --help` lists them", c.Args().First())
			}
			return cli.ShowAppHelp(c)
		},
	}
	for _, c := range app.Commands {
		finish(c)
	}
	return app
}

// finish gives a verb what all verbs have.
func finish(c *cli.Command) {
	c.OnUsageError = onUsageError
	c.HideHelpCommand = true
	c.UseShortOptionHandling = false
	for _, sub := range c.Subcommands {
		finish(sub)
	}
}

// onUsageError says what was wrong with a flag in one line of ours.
func onUsageError(c *cli.Context, err error, _ bool) error {
	msg := err.Error()
	if flag, ok := strings.CutPrefix(msg, "flag provided but not defined: -"); ok {
		dash := "--"
		if len(strings.TrimLeft(flag, "-")) == 1 {
			dash = "-"
		}
		return usagef("no such flag: %s%s; `%s --help` lists them", dash, strings.TrimLeft(flag, "-"), c.Command.HelpName)
	}
	return usageError{err}
}

// env is what the verbs share.
type env struct{ streams }

func (e env) commands() []*cli.Command {
	return []*cli.Command{
		e.daemonCommand(), e.devCommand(), e.inviteCommand(), e.joinCommand(), e.peersCommand(),
		e.submitCommand(), e.runCommand(), e.jobsCommand(), e.showCommand(), e.whyCommand(), e.waitCommand(), e.logsCommand(), e.cancelCommand(),
		e.nodesCommand(), e.nodeCommand(), e.gpusCommand(), e.offersCommand(), e.doctorCommand(), e.configCommand(), e.versionCommand(),
		e.completionCommand(), e.runnerCommand(), e.nvmlAgentCommand(),
	}
}
