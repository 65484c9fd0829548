package main

// The table of verbs, and the program's entry point.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/musterhq/muster/job"
)

// The exit codes that every verb shares.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
	exitNever  = 3                                    // submit: nothing in the cluster could ever run the job
	exitCtrlC  = job.ExitSignal + int(syscall.SIGINT) // interrupted
)

// usageError is an invalid command line.
type usageError struct{ err error }

func (v usageError) Error() string { return v.err.Error() }
func (v usageError) Unwrap() error { return v.err }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// exitError carries an exit code; if err is nil, nothing is printed.
type exitError struct {
	code int
	err  error
}

func (v exitError) Error() string {
	if v.err == nil {
		return fmt.Sprintf("exit code %d", v.code)
	}
	return v.err.Error()
}

func (v exitError) Unwrap() error { return v.err }

// run is the whole program: it carries out one command line and returns the exit code. An error is one line on s.err.
func run(ctx context.Context, args []string, s streams) int {
	app := newApp(s) //nolint:contextcheck // each verb has the context of its command
	if n := len(args); n > 1 && (args[n-1] == askCompletion || args[n-1] == askDescribed) {
		return answerCompletion(ctx, app, args[1:n-1], args[n-1] == askDescribed)
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
	fmt.Fprintf(w, "muster: %s\n", printable(localTimes(strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", "; "))))
}

func newApp(s streams) *cli.App {
	app := &cli.App{
		Name:                      "muster",
		Usage:                     "run jobs on the GPUs of many hosts, without a server",
		UsageText:                 "muster VERB [FLAGS] [ARGUMENTS]\n\nHelp of one verb: muster VERB --help",
		Version:                   version,
		HideHelpCommand:           true,
		DisableSliceFlagSeparator: true, // values contain commas
		Reader:                    s.in,
		Writer:                    &helpWriter{out: s.out, width: terminalWidth(s.out)},
		CustomAppHelpTemplate:     appHelp,
		ErrWriter:                 s.err,
		ExitErrHandler:            func(*cli.Context, error) {}, // run handles errors
		OnUsageError:              onUsageError,
		Flags:                     clientFlags(cli.VersionFlag, cli.HelpFlag),
		Commands:                  commands(s),
		Action:                    cli.ShowAppHelp, // without a verb
	}
	for _, c := range app.Commands {
		finish(c)
	}
	return app
}

// finish adds to a verb what all verbs have.
func finish(c *cli.Command) {
	c.OnUsageError = onUsageError
	c.HideHelpCommand = true
	names := make([]string, 0, len(c.Subcommands))
	for _, sub := range c.Subcommands {
		finish(sub)
		names = append(names, sub.Name)
	}
	if len(names) > 0 && c.Action == nil {
		c.Action = func(x *cli.Context) error {
			return usagef("%s: want %s; see `%s %s --help`", c.Name, strings.Join(names, " or "), x.App.Name, c.Name)
		}
	}
}

// onUsageError reports an invalid value of a flag in one line. arrange has reported all other errors already.
func onUsageError(c *cli.Context, err error, _ bool) error {
	text := err.Error()
	if rest, toggle := strings.CutPrefix(text, "invalid boolean value "); toggle {
		value, flag, _ := strings.Cut(rest, " for -")
		flag, _, _ = strings.Cut(flag, ":")
		return usagef("%s: it takes no value, such as %.60s; see `%s --help`", dashed(flag), value, c.Command.HelpName)
	}
	value, flag, ok := strings.Cut(strings.TrimPrefix(text, "invalid value "), " for flag -")
	if !ok {
		return usageError{err}
	}
	flag, _, _ = strings.Cut(flag, ":")
	return usagef("%s: invalid value %.60s; see `%s --help`", dashed(flag), value, c.Command.HelpName)
}

// dashed returns the name of a flag with its dashes.
func dashed(flag string) string {
	if len(flag) == 1 {
		return "-" + flag
	}
	return "--" + flag
}

// submitVerbs are submit, run and offers.
type submitVerbs struct {
	streams
	specs specReader
}

// The other groups of verbs. All use the same streams.
type (
	jobVerbs     struct{ streams } // list, show, wait for and change jobs
	taskVerbs    struct{ streams } // output and files of one task, and commands in it
	clusterVerbs struct{ streams } // nodes, GPUs and members
	watchVerbs   struct{ streams } // what happens and has happened in the cluster, and what is used
	hostVerbs    struct{ streams } // programs that run on this host
	programVerbs struct{ streams } // the program itself: help, version, completion
)

// commands returns the table of verbs, in the order of help.
func commands(s streams) []*cli.Command {
	submit, jobs, task := submitVerbs{s, specReader{s}}, jobVerbs{s}, taskVerbs{s}
	cluster, watch, host, program := clusterVerbs{s}, watchVerbs{s}, hostVerbs{s}, programVerbs{s}
	return slices.Concat(
		group("Jobs", submit.submitCommand(), submit.runCommand(), submit.allocCommand(), jobs.jobsCommand(), jobs.showCommand(), jobs.whyCommand(),
			jobs.waitCommand(), task.logsCommand(), jobs.cancelCommand(), jobs.holdCommand(), jobs.releaseCommand(),
			jobs.requeueCommand(), submit.offersCommand(), task.cpCommand(), task.execCommand()),
		group("Cluster", cluster.nodesCommand(), cluster.nodeCommand(), cluster.gpusCommand(), cluster.usersCommand(), watch.usageCommand(), watch.auditCommand(), watch.eventsCommand(), cluster.peersCommand(),
			cluster.inviteCommand(), cluster.joinCommand(), watch.topCommand()),
		group("This host", host.daemonCommand(), host.uiCommand(), host.devCommand(), host.simulateCommand(), host.doctorCommand(), host.configCommand(),
			program.versionCommand(), program.completionCommand(), program.helpCommand(), program.manualCommand(),
			host.runnerCommand(), host.containerRunnerCommand(), host.nvmlAgentCommand()))
}

func group(name string, verbs ...*cli.Command) []*cli.Command {
	for _, v := range verbs {
		v.Category = name
	}
	return verbs
}

func (v programVerbs) helpCommand() *cli.Command {
	return &cli.Command{
		Name: "help", Usage: "show the help of a verb", ArgsUsage: "[VERB...]",
		Action: func(c *cli.Context) error {
			return carryOut(c.Context, newApp(v.streams), append(append([]string{c.App.Name}, c.Args().Slice()...), "--help"))
		},
	}
}

func (v programVerbs) versionCommand() *cli.Command {
	return &cli.Command{
		Name: "version", Usage: "print the version",
		Action: func(c *cli.Context) error {
			if err := wantArgs(c, 0, 0, "no argument"); err != nil {
				return err
			}
			_, err := fmt.Fprintln(v.out, "muster", version)
			return err
		},
	}
}
