package manual

// The writer of man pages.

import (
	"fmt"
	"strings"
)

// roff returns the page in the markup of man(7).
func (p page) roff(date string) string {
	var b strings.Builder
	fmt.Fprintf(&b, ".\\\" Made by `muster manual`; change the tables of the program instead.\n.TH %s %d \"%s\" muster \"muster manual\"\n.nh\n", quoted(strings.ToUpper(p.name)), p.section, date)
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", escaped(p.name), escaped(p.brief))
	for _, part := range p.parts {
		fmt.Fprintf(&b, ".SH %s\n", quoted(part.title))
		for i, text := range part.text {
			if i > 0 {
				b.WriteString(".PP\n")
			}
			b.WriteString(line(text) + "\n")
		}
		for _, it := range part.items {
			fmt.Fprintf(&b, ".TP\n\\fB%s\\fR\n%s\n", escaped(it.term), line(it.text))
		}
		if part.screen != "" {
			b.WriteString(".nf\n")
			for text := range strings.Lines(part.screen) {
				b.WriteString(leading(escaped(strings.TrimSuffix(text, "\n"))) + "\n")
			}
			b.WriteString(".fi\n")
		}
	}
	return b.String()
}

// line returns a paragraph as one line. Text in back quotes is bold.
func line(text string) string {
	var b strings.Builder
	for i, part := range strings.Split(text, "`") {
		if i%2 == 1 {
			b.WriteString("\\fB" + escaped(part) + "\\fR")
		} else {
			b.WriteString(escaped(part))
		}
	}
	return leading(b.String())
}

// escaped returns a text in which nothing is taken for markup. A bare hyphen would be printed as a typographic one,
// which cannot be copied into a command line.
func escaped(text string) string {
	return strings.NewReplacer(`\`, `\e`, "-", `\-`, "…", `\[u2026]`, "×", `\[mu]`, "·", `\[pc]`, "°", `\[de]`).Replace(text)
}

// leading escapes the first character of a line if it would make the line a request.
func leading(text string) string {
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, "'") {
		return `\&` + text
	}
	return text
}

// quoted returns a text as one argument of a request.
func quoted(text string) string { return `"` + strings.ReplaceAll(escaped(text), `"`, `\(dq`) + `"` }
