package table

// Rows as text, one in a line, within the width of a terminal.

import (
	"bytes"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/width"
)

// Printer writes the rows of one table.
type Printer[T any] struct {
	out     io.Writer
	columns Columns[T]
	room    int   // the longest line; 0: no bound
	widest  []int // cell of each column so far
	began   bool
}

// gap is between two columns.
const gap = "  "

// NewPrinter returns a printer whose lines are at most room columns of a terminal wide. If room is 0, no cell is cut.
func NewPrinter[T any](out io.Writer, columns Columns[T], room int) *Printer[T] {
	p := &Printer[T]{out: out, columns: columns, room: room, widest: make([]int, len(columns))}
	for i, c := range columns {
		p.widest[i] = Width(c.header())
	}
	return p
}

// Rows writes a row for each item, and the header before the first. A column becomes as wide as the widest cell so far,
// so a table that is printed in several parts becomes wider, not narrower.
func (p *Printer[T]) Rows(items []T) error {
	rows := make([][]string, 0, len(items)+1)
	if !p.began {
		p.began = true
		header := make([]string, len(p.columns))
		for i, c := range p.columns {
			header[i] = c.header()
		}
		rows = append(rows, header)
	}
	for _, item := range items {
		row := make([]string, len(p.columns))
		for i, c := range p.columns {
			row[i] = Clean(c.Cell(item))
			p.widest[i] = max(p.widest[i], Width(row[i]))
		}
		rows = append(rows, row)
	}
	var b bytes.Buffer
	widths := p.widths()
	for _, row := range rows {
		p.line(&b, row, widths)
	}
	_, err := p.out.Write(b.Bytes())
	return err
}

// line writes a row. Nothing follows the last cell that is not empty.
func (p *Printer[T]) line(b *bytes.Buffer, row []string, widths []int) {
	start, end := b.Len(), b.Len()
	for i, text := range row {
		if i > 0 {
			b.WriteString(gap)
		}
		if p.room > 0 || p.columns[i].width > 0 {
			text = Cut(text, widths[i])
		}
		b.WriteString(text)
		if text != "" {
			end = b.Len()
		}
		for n := Width(text); n < widths[i]; n++ {
			b.WriteByte(' ')
		}
	}
	b.Truncate(max(start, end))
	b.WriteByte('\n')
}

// widths returns the width of each column: that of its widest cell, but the widest columns are cut until a line fits.
func (p *Printer[T]) widths() []int {
	widths := make([]int, len(p.columns))
	total := len(gap) * (len(p.columns) - 1)
	for i, c := range p.columns {
		if widths[i] = p.widest[i]; c.width > 0 {
			widths[i] = c.width
		}
		total += widths[i]
	}
	for ; p.room > 0 && total > p.room; total-- {
		widest := -1
		for i, c := range p.columns {
			if c.Least > 0 && c.width == 0 && widths[i] > max(c.Least, Width(c.header())) && (widest < 0 || widths[i] > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			break // every column is as narrow as it may be
		}
		widths[widest]--
	}
	return widths
}

// Clean replaces characters of foreign text that could control a terminal or break a line.
func Clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '·'
		}
		return r
	}, s)
}

// Width returns how many columns of a terminal a text takes.
func Width(s string) (n int) {
	for _, r := range s {
		n += runeWidth(r)
	}
	return n
}

func runeWidth(r rune) int {
	if r < utf8.RuneSelf {
		return 1
	}
	if unicode.In(r, unicode.Mn, unicode.Me) {
		return 0 // drawn over the letter before it
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	case width.Neutral, width.EastAsianAmbiguous, width.EastAsianNarrow, width.EastAsianHalfwidth:
	}
	return 1
}

// Cut shortens a text to this width, and then ends it with an ellipsis.
func Cut(s string, most int) string {
	if Width(s) <= most {
		return s
	}
	n := 0
	for i, r := range s {
		if n += runeWidth(r); n > most-1 {
			return s[:i] + "…"
		}
	}
	return s
}
