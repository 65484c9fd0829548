package report

// Text in columns.

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Width bounds the characters of a line of a summary.
const Width = 80

// columns prints cells: the first one to the left, the others to the right of their columns.
type columns struct {
	out    io.Writer
	widths []int
}

func (c columns) row(cells ...string) {
	var b strings.Builder
	for i, cell := range cells {
		w := c.widths[i]
		if i == 0 {
			cell = clip(cell, w)
			b.WriteString(cell + strings.Repeat(" ", w-utf8.RuneCountInString(cell)))
			continue
		}
		b.WriteString(strings.Repeat(" ", max(1, w-utf8.RuneCountInString(cell))) + cell)
	}
	fmt.Fprintln(c.out, strings.TrimRight(b.String(), " "))
}

// clip shortens text to n characters.
func clip(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:max(0, n-1)]) + "…"
}

// fill prints words in lines of at most Width characters, joined by a separator; further lines are indented.
func fill(out io.Writer, words []string, separator string) {
	const indent = "  "
	line := ""
	for _, w := range words {
		w = clip(w, Width-utf8.RuneCountInString(indent))
		switch {
		case line == "":
			line = w
		case utf8.RuneCountInString(line+separator+w) > Width:
			fmt.Fprintln(out, line)
			line = indent + w
		default:
			line += separator + w
		}
	}
	if line != "" {
		fmt.Fprintln(out, line)
	}
}

// bars draws values between 0 and most in n characters.
func bars(values []float64, most float64, n int) string {
	const eighths = "▁▂▃▄▅▆▇█"
	steps := []rune(eighths)
	if len(values) == 0 || most <= 0 {
		return ""
	}
	n = min(n, len(values))
	var b strings.Builder
	for i := range n {
		from, to := i*len(values)/n, (i+1)*len(values)/n
		sum := 0.0
		for _, v := range values[from:to] {
			sum += v
		}
		x := sum / float64(to-from) / most
		if x <= 0 {
			b.WriteRune(' ')
			continue
		}
		b.WriteRune(steps[min(len(steps)-1, int(x*float64(len(steps))))])
	}
	return b.String()
}
