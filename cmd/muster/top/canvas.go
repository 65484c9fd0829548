package top

// The lines on the terminal. Only what has changed is written.
//
// bubbletea controls the terminal: it switches to the alternate screen and back. It could draw as well, but with three
// buffers of cells, for the wanted screen, the present one, and its own: 3 MB for 200×60. The lines and their pieces
// are in memory anyway.

import (
	"bytes"
	"io"
	"slices"
	"sync"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
)

// canvas is a terminal on which lines are drawn while it shows the alternate screen. What bubbletea writes goes through it.
type canvas struct {
	paint paint

	mu     sync.Mutex
	out    io.Writer
	buf    bytes.Buffer
	width  int    // of the screen
	lines  []line // what the alternate screen shows, or will show once it is on
	on     bool   // the alternate screen is on
	atomic bool   // the terminal can show a change all at once
}

// Write passes on what bubbletea writes, which may switch to the alternate screen, or back.
func (c *canvas) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	on := bytes.LastIndex(b, []byte(ansi.SetModeAltScreenSaveCursor))
	off := bytes.LastIndex(b, []byte(ansi.ResetModeAltScreenSaveCursor))
	if off >= 0 && c.on { // a terminal that has no other screen goes on in the last line
		c.buf.WriteString(ansi.SetModeAutoWrap + ansi.CursorPosition(1, max(len(c.lines), 1)) + ansi.EraseLineRight)
	}
	c.buf.Write(b)
	if on >= 0 || off >= 0 {
		c.on = on > off
	}
	if on > off {
		c.buf.WriteString(ansi.ResetModeAutoWrap + ansi.EraseEntireScreen)
		for y, l := range c.lines {
			c.change(y, nil, l)
		}
	}
	return len(b), c.flush()
}

// resize notes the width of the screen and erases it, because terminals differ in what they keep.
func (c *canvas) resize(width int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.width, c.lines = width, nil
	if c.on {
		c.buf.WriteString(ansi.EraseEntireScreen)
	}
}

// draw makes the screen show these lines.
func (c *canvas) draw(lines []line) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.lines
	if c.lines = lines; !c.on {
		return nil
	}
	for y := range max(len(lines), len(old)) {
		c.change(y, at(old, y), at(lines, y))
	}
	return c.flush()
}

func at(lines []line, y int) line {
	if y < len(lines) {
		return lines[y]
	}
	return nil
}

// change writes what turns one line into another. It writes single pieces if it is certain that the terminal gives each
// letter the width assumed here, and otherwise the whole line.
func (c *canvas) change(y int, old, now line) {
	if slices.Equal(old, now) {
		return
	}
	if !old.sure() || !now.sure() {
		c.rest(0, y, now)
		return
	}
	x := 0
	for i, p := range now {
		width := utf8.RuneCountInString(p.text)
		if i >= len(old) || utf8.RuneCountInString(old[i].text) != width {
			c.rest(x, y, now[i:])
			return
		}
		if p != old[i] {
			c.piece(x, y, old[i], p)
		}
		x += width
	}
	if len(old) > len(now) {
		c.rest(x, y, nil)
	}
}

// sure reports whether every terminal shows each letter in one column. That holds for Latin letters, some signs, and
// what bars and histories are made of.
func (l line) sure() bool {
	for _, p := range l {
		for _, r := range p.text {
			if r >= '\u0300' && r < '\u2010' || r > '\u203a' && r < '\u2500' || r > '\u259f' {
				return false
			}
		}
	}
	return true
}

// piece writes the difference between two pieces of the same width.
func (c *canvas) piece(x, y int, old, now cell) {
	if old.look == now.look {
		a, b := []rune(old.text), []rune(now.text)
		for a[0] == b[0] {
			a, b, x = a[1:], b[1:], x+1
		}
		for a[len(a)-1] == b[len(b)-1] {
			a, b = a[:len(a)-1], b[:len(b)-1]
		}
		now.text = string(b)
	}
	c.buf.WriteString(ansi.CursorPosition(x+1, y+1))
	line{now}.write(&c.buf, c.paint)
}

// rest writes the rest of a line.
func (c *canvas) rest(x, y int, l line) {
	if x >= c.width {
		return // nothing is left of it
	}
	c.buf.WriteString(ansi.CursorPosition(x+1, y+1) + ansi.EraseLineRight)
	l.write(&c.buf, c.paint)
}

// flush writes the whole buffer at once.
func (c *canvas) flush() error {
	b := c.buf.Bytes()
	c.buf.Reset()
	if len(b) == 0 {
		return nil
	}
	if c.on && c.atomic {
		b = slices.Concat([]byte(ansi.SetModeSynchronizedOutput), b, []byte(ansi.ResetModeSynchronizedOutput))
	}
	_, err := c.out.Write(b)
	return err
}

// setAtomic notes that the terminal can show a change at once.
func (c *canvas) setAtomic() {
	c.mu.Lock()
	c.atomic = true
	c.mu.Unlock()
}
