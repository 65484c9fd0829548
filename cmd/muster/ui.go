package main

// The verb ui: the dashboard in a browser, through a door that this process holds open.

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/musterhq/muster/internal/dashboard/door"
	"github.com/musterhq/muster/internal/dashboard/ui"
)

func (v hostVerbs) uiCommand() *cli.Command {
	pages := strings.Join(slices.DeleteFunc(slices.Clone(ui.Pages), func(p string) bool { return p == "" }), ", ")
	return &cli.Command{
		Name: "ui", Usage: "show the cluster in a browser, with your rights; Ctrl-C ends it, Enter prints an address for another tab",
		ArgsUsage: "[PAGE]   one of " + pages + ", and what follows it in an address",
		Flags: clientFlags(
			&cli.IntFlag{Name: "port", Usage: "`N` of the port on loopback", DefaultText: "any"},
			&cli.BoolFlag{Name: "no-open", Usage: "only print the address, start no browser", DisableDefaultText: true},
		),
		Action: func(c *cli.Context) error {
			if err := wantArgs(c, 0, 1, "at most one page"); err != nil {
				return err
			}
			page := strings.TrimPrefix(c.Args().First(), "/")
			if !ui.IsPage("/" + page) {
				return usagef("ui: no page %.60q; the pages are %s", page, pages)
			}
			if n := c.Int("port"); c.IsSet("port") && (n < 1 || n >= 1<<16) {
				return usagef("--port %d: want a number from 1 to 65535", n)
			}
			return v.ui(c, page)
		},
	}
}

// ui holds the door open until it is told to end, or its terminal is gone.
func (v hostVerbs) ui(c *cli.Context, page string) error {
	client, err := clientOf(c)
	if err != nil {
		return err
	}
	defer client.Close()
	if _, err := client.Daemon(c.Context, false); err != nil {
		return err
	}
	ctx, cancel := untilHangup(c.Context)
	notices := make(chan string, 8)
	d, err := door.New(ctx, door.Config{Port: c.Int("port"), To: client, Version: version, Notice: func(text string) {
		select {
		case notices <- text:
		default: // a stopped terminal needs no further lines
		}
	}})
	if err != nil {
		cancel()
		return fmt.Errorf("ui: %w", err)
	}
	ended := make(chan error, 1)
	var running sync.WaitGroup
	running.Go(func() { ended <- d.Run(ctx) })
	defer running.Wait()
	defer cancel()
	if err := v.showAddress(d, page, !c.Bool("no-open")); err != nil {
		return err
	}
	return v.holdDoor(ctx, d, page, notices, ended)
}

// untilHangup returns a context that ends with the terminal, unless nohup ignores that.
func untilHangup(ctx context.Context) (context.Context, context.CancelFunc) {
	if signal.Ignored(unix.SIGHUP) {
		return context.WithCancel(ctx)
	}
	return signal.NotifyContext(ctx, unix.SIGHUP)
}

// showAddress prints an address with a code. If open is true, it also opens the address in a browser, if there is one.
func (v hostVerbs) showAddress(d *door.Door, page string, open bool) error {
	address, err := d.Address(page)
	if err != nil {
		return fmt.Errorf("ui: %w", err)
	}
	fmt.Fprintln(v.out, address)
	what := "open it within a minute; it is good for one tab"
	if open {
		if why := openBrowser(address, door.CodeLife); why != "" {
			what += " (no browser was started: " + why + ")"
		}
	}
	fmt.Fprintf(v.err, "muster: %s; Enter prints another, Ctrl-C ends\n", what)
	return nil
}

// holdDoor waits for the end, and prints another address each time that the user asks for one.
func (v hostVerbs) holdDoor(ctx context.Context, d *door.Door, page string, notices <-chan string, ended <-chan error) error {
	asked := make(chan bool)
	go readAsks(ctx, v.in, asked)
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-ended:
			if err != nil {
				err = fmt.Errorf("ui: %w", err)
			}
			return err
		case text := <-notices:
			fmt.Fprintf(v.err, "muster: %s\n", text)
		case more := <-asked:
			if !more {
				return nil
			}
			if err := v.showAddress(d, page, false); err != nil {
				return err
			}
		}
	}
}

// backgroundWait is how often a process in the background checks its terminal.
const backgroundWait = time.Second

// readAsks sends true for each line of the input. It sends false when a terminal, or the program at the other end of a
// pipe, is gone. If the input is neither, it sends nothing.
func readAsks(ctx context.Context, in any, asked chan<- bool) {
	f, ok := in.(*os.File)
	if !ok {
		return
	}
	fd := int(f.Fd()) //nolint:gosec // a descriptor is small
	terminal := term.IsTerminal(fd)
	if !terminal && !isPipe(fd) {
		return
	}
	if terminal {
		signal.Ignore(unix.SIGTTIN) // then a read in the background is an error, and does not stop the process
	}
	send := func(more bool) bool {
		select {
		case asked <- more:
			return true
		case <-ctx.Done():
			return false
		}
	}
	lines := bufio.NewReader(f)
	for {
		_, err := lines.ReadString('\n')
		switch {
		case err == nil:
			if !send(true) {
				return
			}
		case terminal && inBackground(fd):
			if !pause(ctx, backgroundWait) {
				return
			}
		default:
			send(false)
			return
		}
	}
}

// isPipe reports whether another program is at the other end of a descriptor.
func isPipe(fd int) bool {
	var is unix.Stat_t
	err := unix.Fstat(fd, &is)
	kind := is.Mode & unix.S_IFMT
	return err == nil && (kind == unix.S_IFIFO || kind == unix.S_IFSOCK)
}

// inBackground reports whether a terminal is there, and belongs to other processes now.
func inBackground(fd int) bool {
	front, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	return err == nil && front != unix.Getpgrp()
}
