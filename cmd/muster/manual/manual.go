// Package manual makes the reference of muster from the tables of the program: the verbs with their flags, the settings,
// the job file, the states, and the routes of the HTTP API. The same pages become parts of docs/manual.md and man pages.
//
// Each fact is said in one table of the program. A test fails if docs/manual.md is stale, and tests with real daemons run
// the commands of the examples in screens. Man pages are not in the repository: `make install` lets the program write them,
// so they fit the installed program. The libraries that make man pages of command lines were of no use: they make one page
// of the whole program, without groups of flags, examples and exit codes.
package manual

import (
	"embed"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// Book is what the reference is made from.
type Book struct {
	App      *cli.App
	Shared   []Shared
	Settings []Setting
	Defaults map[string]string // the text for a default that differs from host to host, by setting, or by flag with its dashes
	Replace  *strings.Replacer // applied to each text of a flag, for what differs from host to host
	OpenAPI  []byte
	Date     string // of this version, as 2026-12-01; empty if it is not known
}

// Shared is a group of flags that several verbs have. The manual describes it once.
type Shared struct {
	Title string
	Text  string
	Flags []cli.Flag
}

// Setting is one setting of a daemon.
type Setting struct {
	Name, Usage, Default, Env string
	Many, Live                bool
}

// page is one page of the reference.
type page struct {
	name    string // such as muster-submit
	section int    // of the man pages
	brief   string
	parts   []part
}

// part is a section of a page.
type part struct {
	title  string
	text   []string // paragraphs
	items  []item
	screen string
}

// item is a term and what it means. Text in back quotes is code.
type item struct{ term, text string }

//go:embed screens
var screens embed.FS

// screen returns an example from a real run, without the commands that only prepare it; empty if there is none.
func screen(name string) string {
	text, err := screens.ReadFile("screens/" + name + ".txt")
	if err != nil {
		return ""
	}
	var shown []string
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "% ") {
			shown = append(shown, line)
		}
	}
	return strings.Join(shown, "")
}

// verb is a verb with its path.
type verb struct {
	path []string
	*cli.Command
}

func (v verb) name() string { return "muster " + strings.Join(v.path, " ") }
func (v verb) file() string { return "muster-" + strings.Join(v.path, "-") }

// verbs returns the verbs that users see, each before its subcommands.
func (b Book) verbs() (all []verb) {
	var walk func(path []string, commands []*cli.Command)
	walk = func(path []string, commands []*cli.Command) {
		for _, c := range commands {
			if c.Hidden || c.Name == "help" {
				continue
			}
			v := verb{append(slices.Clone(path), c.Name), c}
			all = append(all, v)
			walk(v.path, c.Subcommands)
		}
	}
	walk(nil, b.App.Commands)
	return all
}

// usage returns the synopsis of a verb.
func (b Book) usage(v verb) string {
	text := v.name()
	if len(v.Subcommands) == 0 && len(v.Flags) > 0 {
		text += " [FLAGS]"
	}
	return strings.TrimSpace(text + " " + v.ArgsUsage)
}

// hasAll reports whether the verb has all flags of a group.
func hasAll(v verb, g Shared) bool {
	for _, f := range g.Flags {
		if !slices.ContainsFunc(v.Flags, func(own cli.Flag) bool { return own.Names()[0] == f.Names()[0] }) {
			return false
		}
	}
	return true
}

// flagsOf returns the flags of a verb that are in none of its shared groups, and these groups.
func (b Book) flagsOf(v verb) (own []cli.Flag, groups []Shared) {
	own = slices.Clone(v.Flags)
	for _, g := range b.Shared {
		if !hasAll(v, g) {
			continue
		}
		groups = append(groups, g)
		own = slices.DeleteFunc(own, func(f cli.Flag) bool {
			return slices.ContainsFunc(g.Flags, func(s cli.Flag) bool { return s.Names()[0] == f.Names()[0] })
		})
	}
	return own, groups
}

// items describes flags.
func (b Book) items(flags []cli.Flag) (all []item) {
	for _, f := range flags {
		doc, ok := f.(cli.DocGenerationFlag)
		if v, shown := f.(cli.VisibleFlag); !ok || shown && !v.IsVisible() {
			continue
		}
		usage := b.fixed(doc.GetUsage())
		var names []string
		for _, n := range f.Names() {
			if len(n) == 1 {
				names = append([]string{"-" + n}, names...)
			} else {
				names = append(names, "--"+n)
			}
		}
		term := strings.Join(names, ", ")
		if value := valueOf(usage); doc.TakesValue() && value != "" {
			term += " " + value
		}
		all = append(all, item{term, b.meaning(f.Names()[0], usage, doc)})
	}
	return all
}

// fixed returns a text in which what differs from host to host is replaced.
func (b Book) fixed(text string) string {
	if b.Replace == nil {
		return text
	}
	return b.Replace.Replace(text)
}

// valueOf returns the name of a flag's value, which the text of the flag has in back quotes.
func valueOf(usage string) string {
	_, rest, ok := strings.Cut(usage, "`")
	value, _, closed := strings.Cut(rest, "`")
	if !ok || !closed {
		return ""
	}
	return value
}

// meaning returns the text of a flag with its default and its variable.
func (b Book) meaning(name, usage string, doc cli.DocGenerationFlag) string {
	text := strings.TrimSpace(usage)
	standard := b.Defaults["--"+name]
	if standard == "" && doc.TakesValue() {
		standard = strings.Trim(doc.GetDefaultText(), `"`)
	}
	if standard != "" && standard != "0" {
		text += fmt.Sprintf(" (default: %s)", standard)
	}
	if vars := doc.GetEnvVars(); len(vars) > 0 {
		text += fmt.Sprintf(" (environment: %s)", strings.Join(vars, ", "))
	}
	return text
}
