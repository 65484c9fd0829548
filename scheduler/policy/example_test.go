package policy

// The example of docs/policies.md. TestEachPolicyKeepsTheContract tests it like the registered policies.

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

// Cheapest prefers the host with the lowest label "cost". Hosts without the label come last.
type Cheapest struct{}

// Choose prefers the candidates with the lowest cost.
func (Cheapest) Choose(chosen []Choice, ask Ask, feasible []Candidate, n int) []Choice {
	return rated(chosen, ask, feasible, n, "lowest cost", func(i int) float64 {
		cost, err := strconv.ParseFloat(feasible[i].Profile.Labels["cost"], 64)
		if err != nil {
			cost = 1e9
		}
		return -cost
	})
}

// The page shows the example as it is compiled.
func TestPageShowsTheExample(t *testing.T) {
	page, err := os.ReadFile("../../docs/policies.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, code, _ := strings.Cut(string(source), "// Cheapest prefers")
	code, _, _ = strings.Cut("// Cheapest prefers"+code, "\n\n// The page shows")
	if !strings.Contains(string(page), code) || strings.Count(code, "\n") > 40 {
		t.Errorf("docs/policies.md does not show these lines, or they are more than 40:\n%s", code)
	}
}
