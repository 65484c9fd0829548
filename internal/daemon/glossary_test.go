package daemon

// The names of the code in the glossary exist.

import (
	"go/types"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// glossaryName is a name of the code in the glossary: a package, or a type, function, field or method of one.
var glossaryName = regexp.MustCompile("`([a-z]+)\\.([A-Za-z]+)(?:\\.([A-Za-z]+))?`")

// TestGlossaryNamesExist: each name of the code in the glossary exists, and so does each path.
func TestGlossaryNamesExist(t *testing.T) {
	page, err := os.ReadFile("../../docs/glossary.md")
	if err != nil {
		t.Fatal(err)
	}
	s := loadTree(t)
	byName := map[string]*checked{}
	for dir := range s.sources {
		c, err := s.check(dir)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(dir, "testdata") {
			byName[filepath.Base(dir)] = c
		}
	}
	names := 0
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(line, "|")
		if len(cells) != 6 {
			continue
		}
		for _, m := range glossaryName.FindAllStringSubmatch(cells[3], -1) {
			names++
			c := byName[m[1]]
			if c == nil {
				t.Errorf("there is no package %s", m[1])
				continue
			}
			// unexported names are looked up, too
			obj := c.types.Scope().Lookup(m[2])
			if obj == nil {
				t.Errorf("package %s has no %s", m[1], m[2])
			} else if m[3] != "" {
				if member, _, _ := types.LookupFieldOrMethod(obj.Type(), true, c.types, m[3]); member == nil {
					t.Errorf("%s.%s has no %s", m[1], m[2], m[3])
				}
			}
		}
		for _, path := range regexp.MustCompile("`([a-z0-9]+(?:/[a-z0-9*.]+)+)`").FindAllStringSubmatch(cells[3], -1) {
			names++
			if found, err := filepath.Glob(filepath.Join("../..", path[1])); err != nil || len(found) == 0 {
				t.Errorf("there is no %s", path[1])
			}
		}
	}
	if names < 40 {
		t.Errorf("got %d names, want at least 40: has the table another form?", names)
	}
}

// pathOnPage is a path of this repository, or the name of a file of code, on a page.
var pathOnPage = regexp.MustCompile("`((?:[a-z0-9-]+/)*[a-z0-9_*.-]*[a-z0-9*/])`")

// TestPagesNameFiles: the directories and files of code that these pages name exist. A page in a package names files without
// their directory.
func TestPagesNameFiles(t *testing.T) {
	rooms := map[string]bool{}
	for dir := range sources(t) {
		rooms[strings.Split(dir, "/")[0]] = true
	}
	for page, below := range map[string][]string{
		"docs/architecture.md": {""}, "docs/glossary.md": {""}, "CONTRIBUTING.md": {"", "*/", "*/*/", "*/*/*/"},
		"scheduler/README.md": {"", "scheduler/", "scheduler/*/"}, "worker/README.md": {"", "worker/", "worker/*/", "worker/*/*/"},
		"p2p/README.md": {"", "p2p/", "p2p/*/"}, "api/README.md": {"", "api/", "internal/daemon/"},
	} {
		text, err := os.ReadFile(filepath.Join("../..", page))
		if err != nil {
			t.Fatal(err)
		}
		names := 0
		for _, m := range pathOnPage.FindAllStringSubmatch(string(text), -1) {
			name := m[1]
			first, _, nested := strings.Cut(name, "/")
			if dir := nested && rooms[first] && !strings.Contains(name, "."); !dir && !strings.HasSuffix(name, ".go") {
				continue
			}
			names++
			there := false
			for _, dir := range below {
				found, err := filepath.Glob(filepath.Join("../..", dir+name))
				there = there || err == nil && len(found) > 0
			}
			if !there {
				t.Errorf("%s: there is no %s", page, name)
			}
		}
		if names < 5 {
			t.Errorf("%s: got %d files, want at least 5", page, names)
		}
	}
}
