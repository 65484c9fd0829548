package daemon

// The decisions in docs/adr: their form, and their index.

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// maxDecision bounds the words of a decision: one page.
const maxDecision = 500

// decisionLink is the link to a decision on a page of docs/adr, as its file name.
var decisionLink = regexp.MustCompile(`\]\(([0-9]{3}-[a-z0-9-]+\.md)\)`)

// TestDecisionsHaveOneForm: each decision has a title with its number, the three sections in this order, and is no longer
// than a page.
func TestDecisionsHaveOneForm(t *testing.T) {
	for _, name := range decisionFiles(t) {
		number := name[:3]
		text, err := os.ReadFile(filepath.Join("../../docs/adr", name))
		if err != nil {
			t.Fatal(err)
		}
		var sections []string
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "## ") {
				sections = append(sections, strings.TrimSpace(line))
			}
		}
		if want := []string{"## Context", "## Decision", "## Consequences"}; !slices.Equal(sections, want) {
			t.Errorf("%s has the sections %q: want %q", name, sections, want)
		}
		if title := "# " + strings.TrimLeft(number, "0") + ". "; !strings.HasPrefix(string(text), title) {
			t.Errorf("%s does not begin with %q", name, title)
		}
		if n := len(strings.Fields(string(text))); n > maxDecision {
			t.Errorf("%s has %d words: at most %d. Details of mechanism are comments in the code", name, n, maxDecision)
		}
	}
}

// TestDecisionsAreListed: the index of the decisions has one line for each file, in rising order, and all links between
// decisions lead to a file.
func TestDecisionsAreListed(t *testing.T) {
	files := decisionFiles(t)
	index, err := os.ReadFile("../../docs/adr/README.md")
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for line := range strings.Lines(string(index)) {
		if m := decisionLink.FindStringSubmatch(line); m != nil && strings.HasPrefix(line, "| [") {
			listed = append(listed, m[1])
		}
	}
	if !slices.Equal(listed, files) {
		t.Errorf("the index lists %q, want %q", listed, files)
	}
	for _, name := range append([]string{"README.md"}, files...) {
		text, err := os.ReadFile(filepath.Join("../../docs/adr", name))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range decisionLink.FindAllStringSubmatch(string(text), -1) {
			if !slices.Contains(files, m[1]) {
				t.Errorf("%s leads to %s, which does not exist", name, m[1])
			}
		}
	}
}

// decisionFile is a file of code in a decision.
var decisionFile = regexp.MustCompile("`([a-z0-9_./-]+/[a-z0-9_]+\\.go)`")

// TestDecisionsNameFiles: the files of code that decisions name exist.
func TestDecisionsNameFiles(t *testing.T) {
	for _, name := range decisionFiles(t) {
		text, err := os.ReadFile(filepath.Join("../../docs/adr", name))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range decisionFile.FindAllStringSubmatch(string(text), -1) {
			if _, err := os.Stat(filepath.Join("../..", m[1])); err != nil {
				t.Errorf("%s: there is no %s", name, m[1])
			}
		}
	}
}

// decisionCited is how code and pages cite one or two decisions.
var decisionCited = regexp.MustCompile(`\bADR ([0-9]+)(?: and (?:ADR )?([0-9]+))?`)

// TestCitedDecisionsExist: each decision that code or a page cites by its number has a file.
func TestCitedDecisionsExist(t *testing.T) {
	numbers := map[string]bool{}
	for _, name := range decisionFiles(t) {
		numbers[strings.TrimLeft(name[:3], "0")] = true
	}
	var all []string
	for dir, files := range sources(t) {
		for _, name := range files {
			all = append(all, filepath.Join("../..", dir, name))
		}
	}
	for _, pattern := range []string{"../../*.md", "../../*/*.md", "../../*/*/*.md"} {
		pages, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, pages...)
	}
	cited := 0
	for _, path := range all {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range decisionCited.FindAllStringSubmatch(string(text), -1) {
			for _, number := range m[1:] {
				if number != "" && !numbers[number] {
					t.Errorf("%s cites ADR %s, which does not exist", path, number)
				}
			}
			cited++
		}
	}
	if cited < 100 {
		t.Errorf("got %d citations, want at least 100", cited)
	}
}

// decisionFiles returns the files of the decisions, sorted.
func decisionFiles(t *testing.T) (names []string) {
	t.Helper()
	paths, err := filepath.Glob("../../docs/adr/[0-9]*.md")
	if err != nil || len(paths) < 20 {
		t.Fatalf("got %d decisions, %v, want at least 20", len(paths), err)
	}
	for _, path := range paths {
		names = append(names, filepath.Base(path))
	}
	return names
}
