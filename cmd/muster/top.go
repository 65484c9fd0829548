package main

// The verb top: a live view of nodes, GPUs and tasks.

import (
	"context"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/cmd/muster/top"
	"github.com/musterhq/muster/job"
)

// Bounds of --refresh.
const (
	fastest = 200 * time.Millisecond
	slowest = time.Hour
)

// topGCPercent keeps the heap of top small, because it runs for days beside the user's work. In a busy cluster the
// garbage is then collected every few seconds, which takes up to 10 ms.
const topGCPercent = 10

func (v watchVerbs) topCommand() *cli.Command {
	return &cli.Command{
		Name: "top", Usage: "show nodes, GPUs and tasks as they change",
		Description: "Keys: arrows choose, Tab goes to the other list, g shows GPUs or nodes, s sorts, / filters, c cancels (asks first), l shows the\n" +
			"output, e runs a command in the task, w says why it waits, ? lists all keys, q leaves. It needs 80 columns and 24 lines.\n" +
			"A bar says how busy a GPU is, or how much of its memory is in use; – is what is not known. NO_COLOR turns colours off.",
		Flags: clientFlags(
			&cli.StringFlag{Name: "node", Usage: "only the node `N`, and what runs there"},
			&cli.StringFlag{Name: "refresh", Usage: "how often the screen follows, such as 2s or 500ms; a bare number `D` is in seconds", Value: "1s"},
			&cli.BoolFlag{Name: "once", Usage: "print all once, without a terminal, and exit", DisableDefaultText: true}),
		Action: v.top,
	}
}

func (v watchVerbs) top(c *cli.Context) error {
	if err := wantArgs(c, 0, 0, "no argument"); err != nil {
		return err
	}
	refresh, err := refreshOf(c.String("refresh"))
	if err != nil {
		return err
	}
	columns, _ := terminalSize(v.out)
	if !c.Bool("once") && (columns == 0 || !inTerminal(v.in)) {
		return usagef("top: the standard input and output must be a terminal; --once prints one frame anywhere")
	}
	client, err := clientOf(c)
	if err != nil {
		return err
	}
	defer client.Close()
	cfg := top.Config{Daemon: client, Refresh: refresh, Colours: os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb", Size: func() (int, int) { return terminalSize(v.out) }, Rest: releaseMemory, Verb: verbOf(c)}
	if cfg.Node, err = nodeToShow(c.Context, client, c.String("node")); err != nil {
		return asUsage(err)
	}
	if c.Bool("once") {
		frame, err := top.Once(c.Context, cfg, columns)
		if err == nil {
			_, err = io.WriteString(v.out, frame)
		}
		return err
	}
	debug.SetGCPercent(topGCPercent)
	runtime.GOMAXPROCS(1)
	// Ctrl-C ends the other verbs that top runs, and not top: only SIGTERM does.
	ctx, stop := signal.NotifyContext(context.WithoutCancel(c.Context), unix.SIGTERM)
	defer stop()
	return top.Run(ctx, cfg, v.in, v.out)
}

// nodeToShow returns the id of the node that the user names. If the user names none, it only checks that the daemon
// answers.
func nodeToShow(ctx context.Context, client *api.Client, name string) (job.Peer, error) {
	if name == "" {
		_, err := client.Daemon(ctx, false)
		return "", err
	}
	n, err := client.Node(ctx, name)
	return n.ID, err
}

// refreshOf parses --refresh. As in other programs that follow, a bare number is in seconds.
func refreshOf(text string) (time.Duration, error) {
	if n, err := strconv.ParseFloat(text, 64); err == nil {
		text = strconv.FormatFloat(n, 'f', -1, 64) + "s"
	}
	d, err := job.ParseDuration(text)
	if err != nil {
		return 0, usagef("--refresh: %w", err)
	}
	if d.D() < fastest || d.D() > slowest {
		return 0, usagef("--refresh %.40s: want %s to %s", text, fastest, job.Duration(slowest))
	}
	return d.D(), nil
}

// verbOf returns a function that makes the command for another verb of this program, with the same daemon.
func verbOf(c *cli.Context) func(args []string) *exec.Cmd {
	to := daemonOf(c)
	where := []string{"--socket", to.Socket}
	if to.Addr != "" {
		where = []string{"--addr", to.Addr, "--api-token", c.String("api-token")}
	}
	return func(args []string) *exec.Cmd {
		program, err := os.Executable()
		if err != nil {
			program = os.Args[0]
		}
		all := slices.Concat(args[:1], where, args[1:])
		return exec.Command(program, all...) //nolint:gosec,noctx // it is this program, and the user ends it
	}
}
