// Package rulestest reads the files for Prometheus that are shipped beside the program, for tests.
package rulestest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/goccy/go-yaml"
)

// Files are the names of the files with rules.
func Files() []string { return []string{"alerts.yml", "dcgm.yml"} }

// Rule is an alert, or a series that is recorded under a name of its own.
type Rule struct {
	File          string
	Alert, Record string // one of them is empty
	Expr          string
}

// Rules returns the rules of all files in a directory, in their order. Each is an alert or is recorded, and has an expression.
func Rules(t *testing.T, dir string) (all []Rule) {
	t.Helper()
	for _, file := range Files() {
		text, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			t.Fatal(err)
		}
		var rules struct {
			Groups []struct {
				Rules []struct{ Alert, Record, Expr string }
			}
		}
		if err := yaml.Unmarshal(text, &rules); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		before := len(all)
		for _, g := range rules.Groups {
			for _, r := range g.Rules {
				if r.Expr == "" || (r.Alert == "") == (r.Record == "") {
					t.Errorf("%s: %+v is neither an alert nor recorded", file, r)
				}
				all = append(all, Rule{file, r.Alert, r.Record, r.Expr})
			}
		}
		if len(all) == before {
			t.Errorf("%s has no rules", file)
		}
	}
	return all
}
