package main

// The table of verbs, and how a command line becomes one of them.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/musterhq/muster/job"
)

// The exit codes that every verb shares.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
	exitNever  = 3   // submit: nothing in the cluster could ever run the job
	exitOurs   = 125 // run and wait: our own failure, not the job's
	exitCtrlC  = 130 // interrupted: 128 and the number of SIGINT
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
	if n := len(args); n > 1 && args[n-1] == askCompletion {
		for _, word := range complete(app, args[1:n-1]) {
			fmt.Fprintln(s.out, word)
		}
		return exitDone
	}
	err := carryOut(ctx, app, args)
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
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		say(s.err, errors.New("interrupted"))
		return exitCtrlC
	default:
		say(s.err, err)
		return exitFailed
	}
}

func carryOut(ctx context.Context, app *cli.App, args []string) error {
	args, err := arrange(app, args)
	if err != nil {
		return err
	}
	return app.RunContext(ctx, args)
}

// say prints an error as one line.
func say(w io.Writer, err error) {
	fmt.Fprintf(w, "muster: %s\n", printable(strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", "; ")))
}

func newApp(s streams) *cli.App {
	e := env{streams: s}
	app := &cli.App{
		Name:                      "muster",
		Usage:                     "run jobs on the GPUs of many hosts, without a server",
		UsageText:                 "muster VERB [FLAGS] [ARGUMENTS]\n\nA verb's own help: muster VERB --help",
		Version:                   version,
		HideHelpCommand:           true,
		DisableSliceFlagSeparator: true, // a comma is part of a value
		Reader:                    s.in,
		Writer:                    s.out,
		ErrWriter:                 s.err,
		ExitErrHandler:            func(*cli.Context, error) {}, // run decides
		OnUsageError:              onUsageError,
		Flags:                     clientFlags(cli.VersionFlag, cli.HelpFlag),
		Commands:                  e.commands(),
		Action:                    cli.ShowAppHelp, // without a verb
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
	for _, sub := range c.Subcommands {
		finish(sub)
	}
}

// onUsageError says in one line of ours which value a flag does not take; all
// else was seen to by arrange.
func onUsageError(c *cli.Context, err error, _ bool) error {
	value, flag, ok := strings.Cut(strings.TrimPrefix(err.Error(), "invalid value "), " for flag -")
	if !ok {
		return usageError{err}
	}
	flag, _, _ = strings.Cut(flag, ":")
	return usagef("%s: it does not take %.60s; see `%s --help`", dashed(flag), value, c.Command.HelpName)
}

// dashed is the name of a flag as people write it.
func dashed(flag string) string {
	if len(flag) == 1 {
		return "-" + flag
	}
	return "--" + flag
}

// env is what the verbs share.
type env struct{ streams }

func (e env) commands() []*cli.Command {
	return append(
		group("Jobs", e.submitCommand(), e.runCommand(), e.jobsCommand(), e.showCommand(), e.whyCommand(), e.waitCommand(), e.logsCommand(),
			e.cancelCommand(), e.holdCommand(), e.releaseCommand(), e.offersCommand(),
			e.cpCommand(), e.execCommand(), later("requeue"), later("simulate")),
		append(
			group("Cluster", e.nodesCommand(), e.nodeCommand(), e.gpusCommand(), e.peersCommand(), e.inviteCommand(), e.joinCommand(),
				later("top"), later("events")),
			group("This host", e.daemonCommand(), e.devCommand(), e.doctorCommand(), e.configCommand(), e.versionCommand(), e.completionCommand(),
				e.helpCommand(), e.runnerCommand(), e.containerRunnerCommand(), e.nvmlAgentCommand())...)...)
}

func group(name string, verbs ...*cli.Command) []*cli.Command {
	for _, v := range verbs {
		v.Category = name
	}
	return verbs
}

// later is a verb that users are promised and this version refuses.
func later(verb string) *cli.Command {
	return &cli.Command{
		Name: verb, Hidden: true, SkipFlagParsing: true,
		Action: func(c *cli.Context) error { return usagef("%s: %w", c.Command.HelpName, job.ErrNotYet) },
	}
}

func (e env) helpCommand() *cli.Command {
	return &cli.Command{
		Name: "help", Usage: "show the help of a verb", ArgsUsage: "[VERB...]",
		Action: func(c *cli.Context) error {
			return carryOut(c.Context, newApp(e.streams), append(append([]string{c.App.Name}, c.Args().Slice()...), "--help"))
		},
	}
}

func (e env) versionCommand() *cli.Command {
	return &cli.Command{
		Name: "version", Usage: "print the version",
		Action: func(c *cli.Context) error {
			if err := wantArgs(c, 0, 0, "no argument"); err != nil {
				return err
			}
			_, err := fmt.Fprintln(e.out, "muster", version)
			return err
		},
	}
}
