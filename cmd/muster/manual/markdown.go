package manual

// The writer of docs/manual.md: the parts that are generated from the tables, and their places in the file.

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/musterhq/muster/job/jobfile"
)

// The lines around a generated part.
const (
	beginMark = "<!-- made by `make generate`: "
	endMark   = "<!-- end -->"
)

// Fill returns the text of the manual with each generated part made again.
func (b Book) Fill(text string) (string, error) {
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(text, beginMark)
		out.WriteString(before)
		if !found {
			return out.String(), nil
		}
		name, rest, opened := strings.Cut(rest, " -->\n")
		_, rest, closed := strings.Cut(rest, endMark)
		if !opened || !closed {
			return "", fmt.Errorf("part %.40q of the manual has no end", name)
		}
		part, err := b.part(name)
		if err != nil {
			return "", err
		}
		out.WriteString(beginMark + name + " -->\n" + strings.TrimSpace(part) + "\n" + endMark)
		text = rest
	}
}

// part returns a part of the manual by its name.
func (b Book) part(name string) (string, error) {
	if of, ok := strings.CutPrefix(name, "screen "); ok {
		text := screen(of)
		if text == "" {
			return "", fmt.Errorf("there is no screen %q", of)
		}
		return fenced(text), nil
	}
	made, ok := map[string]func() (string, error){
		"verbs":     func() (string, error) { return b.verbsPart(), nil },
		"shared":    func() (string, error) { return b.sharedPart(), nil },
		"settings":  func() (string, error) { return b.settingsPart(), nil },
		"job file":  func() (string, error) { return jobPart(), nil },
		"selectors": func() (string, error) { return table("selector", "means", selectors()), nil },
		"states":    func() (string, error) { return table("state", "means", states()), nil },
		"reasons":   func() (string, error) { return table("reason", "means", reasons()), nil },
		"exit":      func() (string, error) { return table("code", "means", exitCodes()), nil },
		"variables": func() (string, error) { return table("variable", "is", variables()), nil },
		"routes":    b.routesPart,
	}[name]
	if !ok {
		return "", fmt.Errorf("there is no part %q", name)
	}
	return made()
}

func fenced(text string) string { return "```\n" + strings.TrimSuffix(text, "\n") + "\n```\n" }

// table writes items as a table.
func table(left, right string, items []item) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| %s | %s |\n|---|---|\n", left, right)
	for _, it := range items {
		fmt.Fprintf(&b, "| %s | %s |\n", code(it.term), cell(it.text))
	}
	return b.String()
}

// code returns a term as code in a cell of a table.
func code(term string) string { return "`" + strings.ReplaceAll(term, "|", `\|`) + "`" }

// cell returns a text for a cell of a table.
func cell(text string) string {
	parts := strings.Split(text, "`")
	for i := range parts {
		if i%2 == 0 {
			parts[i] = strings.NewReplacer("<", "&lt;", "*", `\*`, "_", `\_`).Replace(parts[i])
		}
	}
	return strings.ReplaceAll(strings.Join(parts, "`"), "|", `\|`)
}

// anchor returns the name of a heading in links.
func anchor(title string) string { return strings.ToLower(strings.ReplaceAll(title, " ", "-")) }

func (b Book) verbsPart() string {
	var out strings.Builder
	group := ""
	for _, v := range b.verbs() {
		if v.Category != "" && v.Category != group && len(v.path) == 1 {
			group = v.Category
			fmt.Fprintf(&out, "### %s\n\n", group)
		}
		fmt.Fprintf(&out, "#### %s\n\n%s.\n\n", v.name(), cell(strings.ToUpper(v.Usage[:1])+v.Usage[1:]))
		fmt.Fprint(&out, fenced(b.usage(v)), "\n")
		if v.Description != "" {
			fmt.Fprintf(&out, "%s\n\n", b.fixed(v.Description))
		}
		if len(v.Aliases) > 0 {
			fmt.Fprintf(&out, "Other names: `%s`.\n\n", strings.Join(v.Aliases, "`, `"))
		}
		own, groups := b.flagsOf(v)
		if items := b.items(own); len(items) > 0 {
			fmt.Fprint(&out, table("flag", "means", items), "\n")
		}
		var also []string
		for _, g := range groups {
			also = append(also, fmt.Sprintf("[%s](#%s)", strings.ToLower(g.Title[:1])+g.Title[1:], anchor(g.Title)))
		}
		if len(also) > 0 {
			fmt.Fprintf(&out, "It also has the %s.\n\n", join(also))
		}
		if text := screen(v.file()); text != "" {
			fmt.Fprint(&out, fenced(text), "\n")
		}
	}
	return out.String()
}

func (b Book) sharedPart() string {
	var out strings.Builder
	for _, g := range b.Shared {
		fmt.Fprintf(&out, "### %s\n\n%s\n\n", g.Title, g.Text)
		items := b.items(g.Flags)
		if g.Title == settingFlags { // the table of settings is a chapter of its own
			items = b.beside(g)
		}
		fmt.Fprint(&out, table("flag", "means", items), "\n")
	}
	return out.String()
}

func (b Book) settingsPart() string {
	var out strings.Builder
	out.WriteString("| setting | default | means | a new value needs |\n|---|---|---|---|\n")
	for _, s := range b.Settings {
		needs := "a restart"
		if s.Live {
			needs = "a reload"
		}
		fmt.Fprintf(&out, "| `%s` | %s | %s | %s |\n", s.Name, cell(b.standard(s)), cell(b.fixed(s.Usage)), needs)
	}
	return out.String()
}

func jobPart() string {
	var out strings.Builder
	out.WriteString("| field | kind | default | bounds | example | means |\n|---|---|---|---|---|---|\n")
	for _, f := range jobfile.Fields() {
		flag := ""
		if f.Flag != "" {
			flag = " Flag: `--" + f.Flag + "`."
		}
		fmt.Fprintf(&out, "| `%s` | %s | %s | %s | %s | %s%s |\n", f.Name, f.Kind(), cell(f.Default()), cell(f.Range()), code(f.Example), cell(f.Text), flag)
	}
	return out.String()
}

// routesPart lists the operations of the HTTP API.
func (b Book) routesPart() (string, error) {
	var doc struct {
		Paths map[string]map[string]struct {
			Summary, Description string
			Parameters           []struct{ Name, In, Description string }
		}
	}
	if err := json.Unmarshal(b.OpenAPI, &doc); err != nil {
		return "", fmt.Errorf("the OpenAPI document: %w", err)
	}
	var out strings.Builder
	out.WriteString("| request | does | query |\n|---|---|---|\n")
	for _, path := range slices.Sorted(maps.Keys(doc.Paths)) {
		for _, method := range slices.Sorted(maps.Keys(doc.Paths[path])) {
			op, query := doc.Paths[path][method], []string{}
			for _, p := range op.Parameters {
				if p.In == "query" {
					query = append(query, "`"+p.Name+"`")
				}
			}
			fmt.Fprintf(&out, "| `%s %s` | %s. %s | %s |\n", strings.ToUpper(method), path, cell(op.Summary), cell(op.Description), strings.Join(query, ", "))
		}
	}
	return out.String(), nil
}
