package top

// The screen: bubbletea around the model, and the canvas.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
)

// screen adapts the model to bubbletea: it is a tea.Model.
type screen struct {
	ctx    context.Context //nolint:containedctx // bubbletea calls Update without one
	cfg    Config
	feed   feed
	send   func(any) // sends a message to Update
	model  *model
	canvas *canvas
	last   time.Time // when the canvas was drawn
	due    bool      // a message to draw it is on its way
	rested time.Time // when memory was given back
}

// Messages of the screen.
type (
	resized  struct{}            // the terminal may have another size
	due      struct{}            // the canvas is to be drawn
	returned struct{ err error } // another verb, which had the terminal, has ended
)

func newScreen(ctx context.Context, cfg Config, f feed, out io.Writer) *screen {
	c := &canvas{out: out, paint: attribute}
	if cfg.Colours {
		c.paint = colours
	}
	return &screen{ctx: ctx, cfg: cfg, feed: f, model: newModel(cfg.Node, cfg.Refresh), canvas: c, rested: time.Now()}
}

// Init starts the ticks.
func (s *screen) Init() tea.Cmd { return s.tick() }

func (s *screen) tick() tea.Cmd {
	return tea.Tick(s.cfg.Refresh, func(time.Time) tea.Msg { return ticked{} })
}

// answered handles what the terminal answers about its modes. bubbletea does not need that, because it draws nothing.
func (s *screen) answered(_ tea.Model, msg tea.Msg) tea.Msg { //nolint:ireturn // bubbletea wants it so
	if r, ok := msg.(tea.ModeReportMsg); ok {
		if r.Mode == ansi.ModeSynchronizedOutput && r.Value == ansi.ModeReset {
			s.canvas.setAtomic()
		}
		return nil
	}
	return msg
}

// Update carries out a message, and starts what the model asks for.
func (s *screen) Update(msg tea.Msg) (tea.Model, tea.Cmd) { //nolint:ireturn // bubbletea wants it so
	var cmds []tea.Cmd
	var ours any = msg
	switch msg := msg.(type) {
	case tea.KeyPressMsg:
		ours = pressed{msg.String(), msg.Text}
	case tea.PasteMsg:
		ours = pasted{msg.Content}
	case resized, tea.ResumeMsg: // a stopped program does not learn of a new size
		width, height := s.cfg.Size()
		s.canvas.resize(width)
		ours = sized{width, height}
	case returned:
		ours = msg.told()
	case ticked:
		cmds = append(cmds, s.tick())
	case due:
		s.due = false
		return s, s.draw()
	case opened, silenced, changes, hosts, page, loaded, measured, notice:
	default:
		return s, nil // of the terminal itself
	}
	for _, e := range s.model.update(ours, time.Now()) {
		cmds = append(cmds, s.start(e))
	}
	if _, ok := msg.(loaded); s.cfg.Rest != nil && (ok || time.Since(s.rested) >= restEvery) {
		s.rested = time.Now()
		cmds = append(cmds, func() tea.Msg { s.cfg.Rest(); return nil })
	}
	if s.model.stale.frame && !s.due {
		wait := time.Until(s.last.Add(time.Second / frames))
		if wait <= 0 {
			cmds = append(cmds, s.draw())
		} else {
			s.due = true
			cmds = append(cmds, tea.Tick(wait, func(time.Time) tea.Msg { return due{} }))
		}
	}
	return s, tea.Batch(cmds...)
}

// draw draws the frame.
func (s *screen) draw() tea.Cmd {
	s.last = time.Now()
	if err := s.canvas.draw(s.model.drawn()); err != nil {
		return tea.Quit // the terminal is gone
	}
	return nil
}

// View is all that bubbletea draws: nothing, on the alternate screen.
func (s *screen) View() tea.View {
	v := tea.NewView(" ")
	v.AltScreen = true
	return v
}

// start starts an effect.
func (s *screen) start(effect any) tea.Cmd {
	switch e := effect.(type) {
	case load:
		return func() tea.Msg { return s.feed.load(s.ctx, s.send) }
	case measure:
		return func() tea.Msg { return s.feed.read(s.ctx, e) }
	case cancel:
		return func() tea.Msg { return s.feed.cancel(s.ctx, e) }
	case verb:
		return tea.Exec(&other{cmd: s.cfg.Verb(e.args), args: e.args, stay: e.stay, out: s.canvas.out}, func(err error) tea.Msg { return returned{err} })
	case suspend:
		return tea.Suspend
	}
	return tea.Quit
}

// told returns the error if the verb could not be run. If it ran and failed, the user has read its message.
func (r returned) told() notice {
	if exit := (&exec.ExitError{}); r.err != nil && !errors.As(r.err, &exit) {
		return notice{r.err.Error(), true}
	}
	return notice{}
}

// other is another verb of the program, which has the terminal while it runs.
type other struct {
	cmd  *exec.Cmd
	args []string
	stay bool
	in   io.Reader
	out  io.Writer // the terminal itself
}

// SetStdin is called before Run.
func (o *other) SetStdin(r io.Reader) { o.in = r }

// SetStdout does nothing: all goes to the terminal.
func (o *other) SetStdout(io.Writer) {}

// SetStderr does nothing.
func (o *other) SetStderr(io.Writer) {}

// Run runs the verb. The view comes back after Enter, or at once if the user has ended the verb.
func (o *other) Run() error {
	o.cmd.Stdin, o.cmd.Stdout, o.cmd.Stderr = o.in, o.out, os.Stderr
	err := o.cmd.Start()
	fmt.Fprintf(o.out, "$ muster %s\n", strings.Join(o.args, " ")) // from here on Ctrl-C reaches the verb
	if err == nil {
		err = o.cmd.Wait()
	}
	if exit := (&exec.ExitError{}); errors.As(err, &exit) && (exit.ExitCode() == 128+int(syscall.SIGINT) || exit.ExitCode() == -1) {
		return nil
	}
	if !o.stay && err == nil {
		return nil
	}
	fmt.Fprint(o.out, "\n(Enter: back to muster top) ")
	b := make([]byte, 1)
	for {
		if n, err := o.in.Read(b); n == 0 || err != nil || b[0] == '\n' || b[0] == '\r' {
			return err
		}
	}
}
