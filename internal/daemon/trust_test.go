package daemon

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestTrustIsTested: every test that docs/trust.md names exists, and every row that says what an attacker cannot do names
// the tests that try it.
func TestTrustIsTested(t *testing.T) {
	page, err := os.ReadFile("../../docs/trust.md")
	if err != nil {
		t.Fatal(err)
	}
	there := testsOf(t, "../..")
	named := regexp.MustCompile(`\b(Test|Fuzz)[A-Z]\w*`)
	rows := 0
	for line := range strings.Lines(string(page)) {
		for _, name := range named.FindAllString(line, -1) {
			if !there[name] {
				t.Errorf("there is no test %s", name)
			}
		}
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) != 6 || strings.HasPrefix(cells[1], "---") || strings.TrimSpace(cells[1]) == "attacker" {
			continue
		}
		rows++
		if cannot := strings.TrimSpace(cells[3]); cannot != "" && !named.MatchString(cells[4]) {
			t.Errorf("no test is named for: %s", cannot)
		}
	}
	if rows < 30 {
		t.Errorf("got %d rows of attackers, want at least 30: has the table another form?", rows)
	}
}

// testsOf returns the names of all tests below a directory.
func testsOf(t *testing.T, dir string) map[string]bool {
	t.Helper()
	declared := regexp.MustCompile(`(?m)^func ((Test|Fuzz)\w+)\(`)
	all := map[string]bool{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range declared.FindAllSubmatch(bytes.TrimSpace(text), -1) {
			all[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
