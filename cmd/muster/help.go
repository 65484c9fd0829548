package main

// The help of the program and of its verbs: in the order of the manual, and within the width of the terminal.

import (
	"io"
	"regexp"
	"strings"

	"github.com/urfave/cli/v2"
)

// appHelp is the library's template with the verbs in the order of their table. The library sorts the groups by name.
var appHelp = strings.Replace(cli.AppHelpTemplate, `{{template "visibleCommandCategoryTemplate" .}}`,
	`{{$group := ""}}{{range .VisibleCommands}}{{if ne .Category $group}}{{$group = .Category}}
   {{.Category}}:{{end}}
     {{join .Names ", "}}{{"\t"}}{{.Usage}}{{end}}`, 1)

// helpWriter wraps lines of help that are wider than the terminal; width 0 means that there is no terminal. In a line
// with two columns it wraps the second one, which begins below the first if little space is left beside it.
type helpWriter struct {
	out   io.Writer
	width int
	part  []byte // the beginning of a line whose end was not written yet
}

// leastRoom is the fewest columns for the text beside the names of flags.
const leastRoom = 36

// helpColumns finds the indent, the first column and the gap before the second one.
var helpColumns = regexp.MustCompile(`^( +)(\S+(?: \S+)*)  +`)

func (w *helpWriter) Write(b []byte) (int, error) {
	if w.width == 0 {
		return w.out.Write(b)
	}
	w.part = append(w.part, b...)
	end := strings.LastIndexByte(string(w.part), '\n') + 1
	var wrapped strings.Builder
	for line := range strings.Lines(string(w.part[:end])) {
		wrapped.WriteString(w.wrap(strings.TrimSuffix(line, "\n")))
	}
	w.part = w.part[end:]
	if _, err := io.WriteString(w.out, wrapped.String()); err != nil {
		return 0, err
	}
	return len(b), nil
}

// wrap returns the line as lines that fit.
func (w *helpWriter) wrap(line string) string {
	var out strings.Builder
	indent := len(line) - len(strings.TrimLeft(line, " "))
	text := line
	if m := helpColumns.FindStringSubmatch(line); m != nil {
		text = line[len(m[0]):]
		if indent = len(m[0]); w.width-indent >= leastRoom {
			out.WriteString(m[0])
		} else {
			indent = len(m[1]) + 4
			out.WriteString(m[1] + m[2] + "\n" + strings.Repeat(" ", indent))
		}
	} else {
		out.WriteString(line[:indent])
	}
	at := indent
	for i, word := range strings.Fields(text) {
		switch {
		case i == 0:
		case at+1+len(word) > w.width:
			out.WriteString("\n" + strings.Repeat(" ", indent))
			at = indent
		default:
			out.WriteString(" ")
			at++
		}
		out.WriteString(word)
		at += len(word)
	}
	return out.String() + "\n"
}
