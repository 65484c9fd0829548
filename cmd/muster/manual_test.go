package main

// The reference that is generated from the tables of the program.

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"
)

const manualFile = "../../docs/manual.md"

// TestManualIsUpToDate generates the parts of docs/manual.md again and compares them.
func TestManualIsUpToDate(t *testing.T) {
	clearEnvironment(t)
	old, err := os.ReadFile(manualFile)
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(t.TempDir(), "manual.md")
	if err := os.WriteFile(copied, old, 0o600); err != nil {
		t.Fatal(err)
	}
	if r := program(t.Context(), "", "manual", "--fill", copied); r.code != 0 {
		t.Fatalf("manual: exit %d, %s, want exit 0", r.code, r.err)
	}
	made, err := os.ReadFile(copied)
	if err != nil {
		t.Fatal(err)
	}
	was, is := strings.Split(string(old), "\n"), strings.Split(string(made), "\n")
	for i := range min(len(was), len(is)) {
		if was[i] != is[i] {
			t.Fatalf("docs/manual.md is stale: run `make manual`; line %d: got\n%s\nwant\n%s", i+1, was[i], is[i])
		}
	}
	if len(was) != len(is) {
		t.Fatalf("docs/manual.md is stale: run `make manual`; got %d lines, want %d", len(was), len(is))
	}
}

// Each verb and each flag that --help shows is in the manual and on a man page, and each verb has an example.
func TestManualHasEveryVerbAndFlag(t *testing.T) {
	clearEnvironment(t)
	text, err := os.ReadFile(manualFile)
	if err != nil {
		t.Fatal(err)
	}
	b, err := book()
	if err != nil {
		t.Fatal(err)
	}
	pages := b.Pages()
	flags := 0
	var walk func(path string, verbs []*cli.Command)
	walk = func(path string, verbs []*cli.Command) {
		for _, c := range verbs {
			if c.Hidden || c.Name == "help" {
				continue
			}
			name := path + " " + c.Name
			page := pages[strings.ReplaceAll(name, " ", "-")+".1"]
			if !strings.Contains(string(text), "#### "+name+"\n") || page == "" {
				t.Errorf("%s has no section, want one", name)
			}
			if len(c.Subcommands) == 0 && !strings.Contains(page, ".SH \"EXAMPLE\"") {
				t.Errorf("%s has no example", name)
			}
			for _, f := range c.Flags {
				v, ok := f.(cli.VisibleFlag)
				if !ok || !v.IsVisible() {
					continue
				}
				flags++
				long := dashed(f.Names()[0])
				if !strings.Contains(page, strings.ReplaceAll(long, "-", `\-`)) || !strings.Contains(string(text), long) && !strings.Contains(string(text), "| `"+f.Names()[0]+"` |") {
					t.Errorf("%s: the flag %s is missing", name, long)
				}
			}
			walk(name, c.Subcommands)
		}
	}
	walk("muster", newApp(streams{}).Commands)
	if flags < 200 {
		t.Errorf("got %d flags, want at least 200", flags)
	}
	if !strings.Contains(string(text), "](#the-config-file)") || len(pages) < 30 {
		t.Errorf("got %d pages, want at least 30", len(pages))
	}
}

// The links of the manual lead to headings that exist.
func TestLinksOfTheManualLeadToHeadings(t *testing.T) {
	text, err := os.ReadFile(manualFile)
	if err != nil {
		t.Fatal(err)
	}
	var anchors []string
	for line := range strings.Lines(string(text)) {
		if title, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && strings.HasPrefix(line, "#") {
			anchors = append(anchors, strings.ToLower(strings.ReplaceAll(strings.TrimSpace(title), " ", "-")))
		}
	}
	links := strings.Split(string(text), "](")[1:]
	for _, l := range links {
		to, _, _ := strings.Cut(l, ")")
		if at, inside := strings.CutPrefix(to, "#"); inside {
			if !slices.Contains(anchors, at) {
				t.Errorf("no heading %s", to)
			}
		} else if _, err := os.Stat(filepath.Join("../../docs", to)); err != nil {
			t.Error(err)
		}
	}
	if len(links) < 20 {
		t.Errorf("got %d links, want at least 20", len(links))
	}
}
