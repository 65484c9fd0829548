// Package top draws a live view of the cluster on a terminal: nodes, GPUs and tasks.
//
// A daemon keeps a view of the whole cluster while somebody watches. top lists it once, and then follows its events.
// Readings of GPUs are not events, so top asks from time to time for those of the GPUs on the screen.
//
// The model decides everything: it depends only on messages and the time, and returns what to ask or to do. The feed
// asks the daemon. bubbletea controls the terminal, reads its keys and hands it to other verbs; the canvas draws on it. It
// is version 2 of bubbletea: version 1 asks the terminal for its background colour when the program starts, so every verb
// would. logs, exec, why and show are other processes with the terminal, so that Ctrl-C ends them and not top.
//
// top must run for days and cost little. With 500 nodes and 10,000 jobs it takes 29 MB at most: rows are small, a listing
// replaces only rows that differ, and memory is given back every 15 s. Listing everything at each refresh would be
// megabytes each time.
package top

import (
	"context"
	"errors"
	"io"
	"iter"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/job"
)

// Daemon is what top asks of a daemon.
type Daemon interface {
	Events(ctx context.Context, f api.EventFilter) iter.Seq2[api.Event, error]
	ListNodes(ctx context.Context, f api.ListFilter) (api.Listed[api.Node], error)
	ListGPUs(ctx context.Context, f api.ListFilter) (api.Listed[api.GPU], error)
	JobPages(ctx context.Context, f api.JobFilter) iter.Seq2[api.Listing[api.Job], error]
	Cancel(ctx context.Context, id job.ID, x api.Change) (api.Job, error)
}

// Config says what is shown, and how.
type Config struct {
	Daemon  Daemon
	Node    job.Peer      // only this node; empty: all
	Refresh time.Duration // how often the screen is updated, and readings are requested
	Colours bool
	Size    func() (columns, lines int)   // of the terminal; needed by Run only
	Rest    func()                        // gives back memory that is not in use; nil: nothing to do
	Verb    func(args []string) *exec.Cmd // another verb of this program
}

const (
	// frames is how many times a second the terminal is written to at most.
	frames = 10
	// restEvery is how often unused memory is given back. That also happens after each listing, which needs more memory
	// than what follows.
	restEvery = 15 * time.Second
)

// Run shows the view on a terminal until the user leaves it or ctx ends. It handles no signal except that for a new
// size of the terminal. Ctrl-C is a key here. While another verb has the terminal, Ctrl-C is for that verb, even if the
// view comes back before the signal arrives.
func Run(ctx context.Context, cfg Config, in io.Reader, out io.Writer) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	f := feed{cfg.Daemon}
	s := newScreen(ctx, cfg, f, out)
	// The library draws only one cell. It does not take the canvas for a terminal, so it does not follow its size.
	p := tea.NewProgram(s, tea.WithInput(in), tea.WithOutput(s.canvas), tea.WithWindowSize(1, 1), tea.WithFilter(s.answered),
		tea.WithContext(ctx), tea.WithFPS(frames), tea.WithoutSignalHandler())
	s.send = func(msg any) { p.Send(msg) }
	var own sync.WaitGroup
	own.Go(func() { f.follow(ctx, s.send) })
	own.Go(func() {
		sizes := make(chan os.Signal, 1)
		signal.Notify(sizes, syscall.SIGWINCH)
		defer signal.Stop(sizes)
		for ctx.Err() == nil {
			p.Send(resized{})
			select {
			case <-sizes:
			case <-ctx.Done():
			}
		}
	})
	_, err := p.Run()
	end()
	own.Wait()
	if errors.Is(err, tea.ErrProgramKilled) && ctx.Err() != nil && !errors.Is(err, tea.ErrProgramPanic) {
		return nil
	}
	return err
}

// Once returns a frame with all rows, at most width columns wide. If width is 0, no cell is cut, and the frame is plain
// text.
func Once(ctx context.Context, cfg Config, width int) (string, error) {
	now := time.Now()
	m := newModel(cfg.Node, cfg.Refresh)
	m.link.loading = true
	l := feed{cfg.Daemon}.load(ctx, func(msg any) { m.update(msg, now) })
	if l.err != nil {
		return "", l.err
	}
	m.update(l, now)
	m.update(sized{width, 0}, now)
	m.focus = kinds // no row is selected
	p := bare
	switch {
	case width > 0 && cfg.Colours:
		p = colours
	case width > 0:
		p = attribute
	}
	return m.frame(p) + "\n", nil
}
