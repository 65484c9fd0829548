package main

// Listings that are updated: on a terminal they are redrawn in place, and elsewhere each item that changes gets a line.
// What watching costs depends on what changes: on a terminal a change lists only as many jobs as fit, and after a listing
// there is a pause of four times what it took, at least 200 ms. Elsewhere the event alone makes the line. After a gap in
// the events all is listed again.

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/cmd/muster/table"
)

// watched is a listing that is updated.
type watched[T any] struct {
	view[T]

	// fetch lists the items in the order of the listing: at least this number of rows, if there are as many; 0 means
	// all.
	fetch func(ctx context.Context, rows int) (api.Listing[T], error)
	// follow reports changes until it ends.
	follow func(ctx context.Context, n news[T]) error
	// again returns the present state of an item that is no longer listed, by its key. It may be nil.
	again func(ctx context.Context, key string) (T, bool)
	key   func(T) string
	look  func(T) string // what must change so that a line about the item is worth printing
	over  func(T) bool   // the item will not change any more
}

// news receives what follow reports.
type news[T any] struct {
	changed chan struct{} // something may have changed
	items   chan T        // this has changed
}

// stale says that items may have changed, or that changes may have been missed.
func (n news[T]) stale() {
	select {
	case n.changed <- struct{}{}:
	default: // it is reported already
	}
}

// item reports the new state of an item.
func (n news[T]) item(ctx context.Context, item T) {
	select {
	case n.items <- item:
	case <-ctx.Done():
	}
}

// The pause between two listings is at least atLeast, and at least restFold times as long as the last listing took. So
// watching costs the daemons little, however many items there are.
const (
	atLeast  = 200 * time.Millisecond
	restFold = 4
)

// run watches until ctx or the changes end.
func (w watched[T]) run(ctx context.Context) error {
	if w.form == formJSON {
		return usagef("--json: one document cannot go on; use --jsonl with --watch")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	n, ended := news[T]{make(chan struct{}, 1), make(chan T)}, make(chan error, 1)
	go func() { ended <- w.follow(ctx, n) }()
	show := w.append
	if columns, _ := terminalSize(w.out); columns > 0 {
		show = w.redraw
	}
	err := show(ctx, n, ended)
	select {
	case <-ctx.Done(): // the user ended it
		return nil
	default:
		return err
	}
}

// pacer says when the next listing may be made.
type pacer struct {
	timer *time.Timer
	over  bool
}

func newPacer() *pacer {
	t := time.NewTimer(0)
	return &pacer{timer: t}
}

// after begins the pause after a listing that took this long.
func (r *pacer) after(took time.Duration) {
	r.over = false
	r.timer.Reset(max(atLeast, restFold*took))
}

// append prints the listing, then a line for each item that has changed.
func (w watched[T]) append(ctx context.Context, n news[T], ended <-chan error) error {
	p, err := w.printer(nil)
	if err != nil {
		return err
	}
	a := appended[T]{w, p, map[string]last{}}
	r := newPacer()
	defer r.timer.Stop()
	for {
		changed := n.changed
		if !r.over {
			changed = nil
		}
		select {
		case <-ctx.Done():
			return nil
		case err := <-ended:
			return err
		case <-r.timer.C:
			r.over = true
		case item := <-n.items:
			err = a.show([]T{item})
		case <-changed:
			began := time.Now()
			err = a.list(ctx)
			r.after(time.Since(began))
		}
		if err != nil {
			return err
		}
	}
}

// appended is the output of append.
type appended[T any] struct {
	watched[T]

	rows *printer[T]
	seen map[string]last
}

// last is how an item was printed last.
type last struct {
	look string
	over bool
}

// maxSeen bounds the items that are remembered. Beyond it, items that will not change any more are forgotten.
const maxSeen = 100_000

// list fetches the listing, and prints the items that have changed since they were last printed.
func (a appended[T]) list(ctx context.Context) error {
	rows, first := a.limit, len(a.seen) == 0
	if a.sort != "" {
		rows = 0
	}
	l, err := a.fetch(ctx, rows)
	if err != nil {
		return err
	}
	a.incomplete(l.Partial)
	if first {
		l.Items = a.rows.first(l.Items)
	}
	listed := make(map[string]bool, len(l.Items))
	for _, item := range l.Items {
		listed[a.key(item)] = true
	}
	for k, x := range a.seen {
		if listed[k] || x.over || a.again == nil || len(l.Partial) > 0 {
			continue
		}
		if now, there := a.again(ctx, k); there {
			l.Items = append(l.Items, now)
		} else {
			delete(a.seen, k)
		}
	}
	return a.show(l.Items)
}

// show prints the items that look different from when they were last printed.
func (a appended[T]) show(items []T) error {
	var changed []T
	for _, item := range items {
		k, now := a.key(item), last{a.look(item), a.over(item)}
		if a.seen[k] != now {
			changed = append(changed, item)
		}
		a.seen[k] = now
	}
	if len(a.seen) > maxSeen {
		maps.DeleteFunc(a.seen, func(_ string, x last) bool { return x.over })
	}
	if len(changed) == 0 && a.rows.began {
		return nil
	}
	return a.rows.show(changed)
}

// second is how often the screen is redrawn, so that durations advance.
const second = time.Second

// redraw shows the listing on the whole screen. It fetches the listing only after changes, and only the rows that fit.
func (w watched[T]) redraw(ctx context.Context, n news[T], ended <-chan error) error {
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, unix.SIGWINCH)
	defer signal.Stop(resized)
	s := screen{out: w.out}
	defer s.leave()
	r, tick := newPacer(), time.NewTicker(second)
	defer r.timer.Stop()
	defer tick.Stop()
	var l api.Listing[T]
	dirty := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-ended:
			return err
		case <-r.timer.C:
			r.over = true
		case <-n.changed:
			dirty = true
		case <-n.items:
			dirty = true
		case <-resized:
			dirty = true
		case <-tick.C:
			if s.entered && !dirty {
				if err := w.draw(&s, l); err != nil {
					return err
				}
			}
		}
		if !dirty || !r.over {
			continue
		}
		began := time.Now()
		var err error
		if l, err = w.fetch(ctx, w.rowsFor()); err != nil {
			return err
		}
		dirty = false
		if err := w.draw(&s, l); err != nil {
			return err
		}
		r.after(time.Since(began))
	}
}

// rowsFor returns how many items must be listed to fill the screen; 0: all, because the user wants another order.
func (w watched[T]) rowsFor() int {
	if w.sort != "" {
		return 0
	}
	_, lines := terminalSize(w.out)
	if w.limit > 0 {
		return min(lines, w.limit)
	}
	return lines
}

// draw puts the listing on the screen.
func (w watched[T]) draw(s *screen, l api.Listing[T]) error {
	c := &canvas{}
	c.columns, c.lines = terminalSize(w.out)
	v := w.view
	v.out, v.err = c, c
	l.Items = append([]T{}, l.Items...) // printing may sort them
	if err := v.print(l); err != nil {
		return err
	}
	return s.draw(c, l.Next != "")
}

// canvas is text that will be on a screen.
type canvas struct {
	bytes.Buffer

	columns, lines int
}

// Size returns the size of the terminal for which the text is written.
func (c *canvas) Size() (columns, lines int) { return c.columns, c.lines }

// screen is a terminal that is redrawn as a whole.
type screen struct {
	out     io.Writer
	entered bool
	shown   string // what was written last
	last    string // the same, cut to the width; it stays on the screen at the end
}

// draw shows the first lines of the canvas. more says that there is more than that.
func (s *screen) draw(c *canvas, more bool) error {
	lines := strings.Split(strings.TrimSuffix(c.String(), "\n"), "\n")
	if more || len(lines) > c.lines {
		lines = append(lines[:min(len(lines), max(0, c.lines-1))], "… more; without --watch all are listed")
	}
	var b strings.Builder
	b.WriteString("\x1b[H")
	for i, line := range lines {
		if i > 0 {
			b.WriteString("\n")
		}
		lines[i] = table.Cut(line, c.columns)
		b.WriteString(lines[i] + "\x1b[K")
	}
	b.WriteString("\x1b[J")
	if b.String() == s.shown {
		return nil
	}
	s.shown, s.last = b.String(), strings.Join(lines, "\n")+"\n"
	if !s.entered {
		s.entered = true
		fmt.Fprint(s.out, "\x1b[?1049h\x1b[?25l") // another screen, without a cursor
	}
	_, err := io.WriteString(s.out, s.shown)
	return err
}

// leave returns to the normal screen, and prints there what was drawn last.
func (s *screen) leave() {
	if s.entered {
		fmt.Fprint(s.out, "\x1b[?25h\x1b[?1049l"+s.last)
	}
}
