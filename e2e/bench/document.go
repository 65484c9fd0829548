package main

// The table of docs/benchmarks.md. The text around it is kept by hand.

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// header is how the table begins in the Markdown file.
const header = `| name | what | measured | raw limit | aim | when and where |
|---|---|---|---|---|---|
`

// document replaces the rows of the figures in r, and keeps the numbers of all others. A figure that was never
// measured has no row.
func document(text string, r *report) (string, error) {
	before, rest, found := strings.Cut(text, header)
	if !found {
		return "", fmt.Errorf("no table that begins with %q", header)
	}
	rows := map[string][]string{} // the cells, by the first one
	for strings.HasPrefix(rest, "|") {
		var line string
		line, rest, _ = strings.Cut(rest, "\n")
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if len(cells) != 6 {
			return "", fmt.Errorf("a row of %d cells: %s", len(cells), line)
		}
		rows[cells[0]] = cells
	}
	var out strings.Builder
	out.WriteString(before + header)
	for _, f := range figures() {
		row := rows[f.Name]
		delete(rows, f.Name)
		if i := slices.IndexFunc(r.Figures, func(m figure) bool { return m.Name == f.Name }); i >= 0 {
			m := r.Figures[i]
			row = []string{"", "", m.text(m.Values), m.text(m.Raw), "", r.Date.Format(time.DateOnly) + ", " + r.Machine}
		}
		if row != nil {
			row[0], row[1], row[4] = f.Name, f.What, f.Aim
			out.WriteString("| " + strings.Join(row, " | ") + " |\n")
		}
	}
	for name := range rows {
		return "", fmt.Errorf("no benchmark measures the row %q", name)
	}
	return out.String() + rest, nil
}
