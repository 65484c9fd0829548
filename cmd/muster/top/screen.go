package top

// The screen: bubbletea around the model.

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
)

// screen is the model as bubbletea takes it.
type screen struct {
	ctx   context.Context //nolint:containedctx // bubbletea calls Update without one
	cfg   Config
	feed  feed
	model *model
	drawn string
	old   bool
}

// Init starts the clock.
func (s *screen) Init() tea.Cmd { return s.tick() }

func (s *screen) tick() tea.Cmd {
	return tea.Tick(s.cfg.Refresh, func(time.Time) tea.Msg { return ticked{} })
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
	case tea.WindowSizeMsg:
		ours = sized{msg.Width, msg.Height}
	case ticked:
		cmds = append(cmds, s.tick())
	case opened, silenced, changes, loaded, measured, told:
	default:
		return s, nil // of the terminal itself
	}
	for _, e := range s.model.update(ours, time.Now()) {
		cmds = append(cmds, s.start(e))
	}
	if _, ok := msg.(loaded); ok && s.cfg.Listed != nil {
		cmds = append(cmds, func() tea.Msg { s.cfg.Listed(); return nil })
	}
	s.old = s.old || s.model.stale.frame
	return s, tea.Batch(cmds...)
}

// start starts an effect.
func (s *screen) start(effect any) tea.Cmd {
	switch e := effect.(type) {
	case load:
		return func() tea.Msg { return s.feed.load(s.ctx) }
	case measure:
		return func() tea.Msg { return s.feed.read(s.ctx, e) }
	case cancel:
		return func() tea.Msg { return s.feed.cancel(s.ctx, e) }
	case verb:
		return tea.Exec(&other{cmd: s.cfg.Verb(e.args), args: e.args, stay: e.stay}, returned)
	case suspend:
		return tea.Suspend
	}
	return tea.Quit
}

// returned says how another verb ended. What it had to say the user has read.
func returned(err error) tea.Msg { //nolint:ireturn // bubbletea wants it so
	if exit := (&exec.ExitError{}); err != nil && !errors.As(err, &exit) {
		return told{err.Error(), true}
	}
	return told{}
}

// View returns the frame, which is drawn only if the model has changed.
func (s *screen) View() tea.View {
	if s.old || s.drawn == "" {
		p := attribute
		if s.cfg.Colours {
			p = colours
		}
		s.drawn, s.old = s.model.frame(p), false
	}
	v := tea.NewView(s.drawn)
	v.AltScreen = true
	return v
}

// other is another verb of the program, which has the terminal while it runs.
type other struct {
	cmd  *exec.Cmd
	args []string
	stay bool
	in   io.Reader
	out  io.Writer
}

// SetStdin is called before Run, as are the others.
func (o *other) SetStdin(r io.Reader) { o.in = r }

// SetStdout sets the output.
func (o *other) SetStdout(w io.Writer) { o.out = w }

// SetStderr does nothing: all goes to the terminal.
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
