package job

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"testing"
)

// Each state and each reason of a waiting task has one sentence in the manual.
func TestEachWordHasAMeaning(t *testing.T) {
	for _, s := range States() {
		if text := s.Meaning(); !strings.HasSuffix(text, ".") {
			t.Errorf(`%s: %q, want suffix "."`, s, text)
		}
	}
	if len(meanings) != len(States()) {
		t.Errorf("%d meanings of %d states, want as many", len(meanings), len(States()))
	}
	said := map[string]bool{}
	for _, r := range Reasons() {
		said[r.Word] = strings.HasSuffix(r.Text, ".")
	}
	file, err := parser.ParseFile(token.NewFileSet(), "state.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	ast.Inspect(file, func(n ast.Node) bool {
		v, ok := n.(*ast.ValueSpec)
		if !ok || !strings.HasPrefix(v.Names[0].Name, "Reason") {
			return true
		}
		found++
		if word := strings.TrimPrefix(v.Names[0].Name, "Reason"); !said[word] {
			t.Errorf("the reason %s has no meaning", word)
		}
		return true
	})
	if found != len(said) {
		t.Errorf("%d reasons, %d meanings, want as many", found, len(said))
	}
}
