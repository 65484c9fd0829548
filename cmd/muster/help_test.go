package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"
)

// Help fits a terminal of 80 columns and loses no word. Without a terminal nothing is wrapped.
func TestHelpFits80Columns(t *testing.T) {
	f := newFake(t, nil)
	lines := [][]string{{"--help"}, {"help", "submit"}}
	var walk func(path []string, commands []*cli.Command)
	walk = func(path []string, commands []*cli.Command) {
		for _, c := range commands {
			if !c.Hidden {
				lines = append(lines, append(slices.Clone(path), c.Name, "--help"))
				walk(append(slices.Clone(path), c.Name), c.Subcommands)
			}
		}
	}
	walk(nil, newApp(streams{}).Commands)
	if len(lines) < 40 {
		t.Fatalf("got %d verbs, want at least 40", len(lines))
	}
	for _, args := range lines {
		plain, on := f.muster(args...), f.musterOn(&tty{columns: 80, lines: 24}, args...)
		if plain.code != 0 || on.code != 0 || !slices.Equal(strings.Fields(plain.stdout), strings.Fields(on.stdout)) {
			t.Errorf("%s: exit %d and %d, want 0 and the same words on a terminal:\n%s", args, plain.code, on.code, on.stdout)
		}
		for row := range strings.Lines(on.stdout) {
			if row = strings.TrimSuffix(row, "\n"); len(row) > 80 && strings.Contains(strings.TrimSpace(row), " ") {
				t.Errorf("%s: got %d columns, want at most 80: %s", args, len(row), row)
			}
		}
	}
	if r := f.musterOn(&tty{columns: 80, lines: 24}, "submit", "--help"); !strings.Contains(r.stdout, "\n   --time D, -t D\n       time limit: D such as 90m\n") {
		t.Errorf("submit --help: want wrapped flags, got\n%s", r.stdout)
	}
	if r := f.muster("submit", "--help"); len(slices.MaxFunc(strings.Split(r.stdout, "\n"), func(a, b string) int { return len(a) - len(b) })) <= 80 {
		t.Error("without a terminal help is wrapped")
	}
	r := f.muster("--help")
	if at := func(group string) int { return strings.Index(r.stdout, "   "+group+":\n") }; at("Jobs") < 0 || at("Jobs") > at("Cluster") || at("Cluster") > at("This host") {
		t.Errorf("the groups of verbs: want Jobs, Cluster and This host, got\n%s", r.stdout)
	}
}
