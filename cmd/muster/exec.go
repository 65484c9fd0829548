package main

// The verb exec: a command in a running task.

import (
	"context"
	"errors"
	"os"
	"os/signal"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/job"
)

func (v taskVerbs) execCommand() *cli.Command {
	return &cli.Command{
		Name: "exec", Usage: "run a command in a running task", ArgsUsage: "ID[.T] -- COMMAND...", Args: true,
		Description: "The command runs as the task's user, with the task's environment and limits. It ends with the task. The exit code is that of the command.",
		Flags: clientFlags(
			&cli.BoolFlag{Name: "interactive", Aliases: []string{"i"}, Usage: "connect the standard input", DisableDefaultText: true},
			&cli.BoolFlag{Name: "tty", Aliases: []string{"t"}, Usage: "allocate a terminal", DisableDefaultText: true},
			&cli.BoolFlag{Name: "it", Hidden: true}),
		Action: v.exec,
	}
}

func (v taskVerbs) exec(c *cli.Context) error {
	args := c.Args().Slice()
	if len(args) > 1 && args[1] == "--" {
		args = append(args[:1:1], args[2:]...)
	}
	if len(args) < 2 {
		return usagef("exec: want ID[.T] -- COMMAND...; see `%s --help`", c.Command.HelpName)
	}
	if args[1] == "" {
		return usagef("exec: the program's name is empty")
	}
	client, err := clientOf(c)
	if err != nil {
		return err
	}
	defer client.Close()
	j, task, err := taskNamed(c.Context, client, "exec", args[0])
	if err != nil {
		return ours(err)
	}
	request := api.ExecRequest{Command: args[1:], TTY: c.Bool("tty") || c.Bool("it")}
	streams := api.ExecStreams{Out: v.out, Err: v.err}
	if c.Bool("interactive") || c.Bool("it") {
		streams.In = v.in
	}
	return v.execIn(c.Context, client, j.ID, task, request, streams)
}

// execIn runs a command in a task, and exits with its code.
func (v streams) execIn(ctx context.Context, client *api.Client, id job.ID, task int, request api.ExecRequest, streams api.ExecStreams) error {
	if request.TTY {
		var stop context.CancelFunc
		ctx, stop = untilCutOff(ctx)
		defer stop()
		restore, err := v.enterTerminal(&request, &streams)
		if err != nil {
			return err
		}
		defer restore()
	}
	code, err := client.Exec(ctx, id, task, request, streams)
	if refused := (&api.ExecError{}); errors.As(err, &refused) {
		return exitError{refused.Code, err}
	}
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return exitError{exitCtrlC, errors.New("interrupted")}
	}
	if err != nil {
		return ours(asUsage(err))
	}
	if code != 0 {
		return exitError{code: code}
	}
	return nil
}

// enterTerminal connects this terminal to the command until restore is called.
func (v streams) enterTerminal(r *api.ExecRequest, st *api.ExecStreams) (restore func(), err error) {
	in, ok := v.in.(*os.File)
	if !ok || !term.IsTerminal(int(in.Fd())) { //nolint:gosec // a descriptor is small
		return nil, usagef("exec: --tty: the standard input is not a terminal")
	}
	fd := int(in.Fd()) //nolint:gosec // a descriptor is small
	size := func() (rows, cols uint16) {
		size, err := inputSize(fd)
		if err != nil {
			return 0, 0
		}
		return size.Rows, size.Cols
	}
	r.Term = os.Getenv("TERM")
	r.Rows, r.Cols = size()
	changed, sizes, done := make(chan os.Signal, 1), make(chan [2]uint16), make(chan struct{})
	signal.Notify(changed, unix.SIGWINCH)
	go func() {
		for {
			select {
			case <-changed:
			case <-done:
				return
			}
			rows, cols := size()
			select {
			case sizes <- [2]uint16{rows, cols}:
			case <-done:
				return
			}
		}
	}()
	st.Sizes = sizes
	var before *term.State
	if st.In != nil {
		if before, err = term.MakeRaw(fd); err != nil {
			return nil, err
		}
	}
	return func() {
		signal.Stop(changed)
		close(done)
		if before != nil {
			_ = term.Restore(fd, before) // an error here cannot be handled
		}
	}, nil
}
