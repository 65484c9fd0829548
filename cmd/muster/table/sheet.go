package table

// Rows as text without cutting anything: a cell that does not fit into a line continues in the next.

import (
	"bytes"
	"io"
	"slices"
	"strings"
)

const (
	// hanging is before the second line of the last cell, and of each one after it.
	hanging = "  "
	// leastText is how narrow the last column may become. A longer word in it, such as an address, makes its own line
	// longer. If the other columns leave less space, the last cell stands below its row, after beneath.
	leastText = 30
	beneath   = "    "
)

// Sheet prints rows such as labels with what they say. The zero Sheet has no rows.
type Sheet struct{ rows [][]string }

// Add adds a row. Each row of a sheet has the same number of cells.
func (s *Sheet) Add(cells ...string) {
	row := make([]string, len(cells))
	for i, c := range cells {
		row[i] = Clean(c)
	}
	s.rows = append(s.rows, row)
}

// Print writes the rows. Cells that do not fit into room columns of a terminal are wrapped at words; if room is 0, none
// is wrapped.
func (s *Sheet) Print(out io.Writer, room int) error {
	if len(s.rows) == 0 {
		return nil
	}
	var b bytes.Buffer
	widths, fits := s.widths(len(s.rows[0]), room)
	if !fits {
		widths, _ = s.widths(len(s.rows[0])-1, room)
	}
	for _, row := range s.rows {
		cells := make([][]string, len(widths))
		for i := range cells {
			cells[i] = []string{row[i]}
			if room > 0 {
				cells[i] = wrap(row[i], widths[i], i == len(row)-1)
			}
		}
		writeCells(&b, cells, widths)
		if text := row[len(row)-1]; !fits && text != "" {
			for _, line := range wrap(text, room-len(beneath), true) {
				b.WriteString(beneath + line + "\n")
			}
		}
	}
	_, err := out.Write(b.Bytes())
	return err
}

// writeCells writes the lines of the cells of a row beside each other.
func writeCells(b *bytes.Buffer, cells [][]string, widths []int) {
	height := 1
	for _, lines := range cells {
		height = max(height, len(lines))
	}
	for n := range height {
		start := b.Len()
		for i, lines := range cells {
			text := ""
			if n < len(lines) {
				text = lines[n]
			}
			b.WriteString(text)
			b.WriteString(strings.Repeat(" ", max(0, widths[i]-Width(text))) + gap)
		}
		b.Truncate(start + len(bytes.TrimRight(b.Bytes()[start:], " ")))
		b.WriteByte('\n')
	}
}

// widths returns the widths of the first columns: that of the widest cell, but the widest columns are narrowed until a
// line fits, at most to their longest word. fits reports whether a line fits then.
func (s *Sheet) widths(columns, room int) (widths []int, fits bool) {
	widths, least := make([]int, columns), make([]int, columns)
	for _, row := range s.rows {
		for i, text := range row[:columns] {
			widths[i] = max(widths[i], Width(text))
			for word := range strings.SplitSeq(text, " ") {
				least[i] = max(least[i], Width(word))
			}
		}
	}
	last := columns - 1
	if columns == len(s.rows[0]) {
		least[last] = min(widths[last], leastText)
	}
	total := len(gap) * last
	for _, w := range widths {
		total += w
	}
	for ; room > 0 && total > room; total-- {
		widest := -1
		for i := range widths {
			if widths[i] > least[i] && (widest < 0 || widths[i] >= widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			return widths, false // every column is as narrow as it may be
		}
		widths[widest]--
	}
	return widths, true
}

// wrap splits a text at spaces into lines of at most this width. A longer word has a line of its own. If hang is true,
// the second line and those after it are indented.
func wrap(text string, most int, hang bool) []string {
	if Width(text) <= most {
		return []string{text}
	}
	indent := ""
	var lines []string
	line, empty := "", true
	for word := range strings.SplitSeq(text, " ") {
		if !empty && Width(line)+1+Width(word) > most {
			lines = append(lines, strings.TrimRight(line, " "))
			if hang {
				indent = hanging
			}
			line, empty = indent, true
		}
		switch {
		case !empty:
			line += " " + word
		case word == "" && len(lines) > 0: // spaces at which the text was split
		default:
			line, empty = line+word, false
		}
	}
	return slices.DeleteFunc(append(lines, strings.TrimRight(line, " ")), func(l string) bool { return strings.TrimSpace(l) == "" })
}

// Fill adds the header of the columns and a row for each item.
func (all Columns[T]) Fill(s *Sheet, items []T) {
	header := make([]string, len(all))
	for i, c := range all {
		header[i] = c.header()
	}
	s.Add(header...)
	for _, item := range items {
		row := make([]string, len(all))
		for i, c := range all {
			row[i] = c.Cell(item)
		}
		s.Add(row...)
	}
}
