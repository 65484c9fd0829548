package daemon

// The words of reasons are in the manual, where people look them up.

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/musterhq/muster/job"
)

// TestReasonsAreInTheManual looks for words of reasons in the source: constants whose name begins with reason, and the field
// Word of a composite literal. It checks that the manual explains each of them.
func TestReasonsAreInTheManual(t *testing.T) {
	manual, err := os.ReadFile("../../docs/manual.md")
	if err != nil {
		t.Fatal(err)
	}
	aWord := regexp.MustCompile(`^[A-Z][A-Za-z]+$`)
	words := map[string]string{} // with their places
	note := func(where string, e ast.Expr) {
		if lit, ok := e.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			if text, err := strconv.Unquote(lit.Value); err == nil && aWord.MatchString(text) {
				words[text] = where
			}
		}
	}
	for dir, files := range sources(t) {
		for _, file := range files {
			where := filepath.Join(dir, file)
			f, err := parser.ParseFile(token.NewFileSet(), filepath.Join("../..", where), nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(f, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.GenDecl:
					if n.Tok != token.CONST {
						break
					}
					for _, s := range n.Specs {
						v := s.(*ast.ValueSpec)
						for i, name := range v.Names {
							if strings.HasPrefix(strings.ToLower(name.Name), "reason") && i < len(v.Values) {
								note(where, v.Values[i])
							}
						}
					}
				case *ast.KeyValueExpr:
					if key, ok := n.Key.(*ast.Ident); ok && key.Name == "Word" {
						note(where, n.Value)
					}
				}
				return true
			})
		}
	}
	if len(words) < 20 {
		t.Fatalf("got %d words, want at least 20: %v", len(words), words)
	}
	for word, where := range words {
		if !slices.ContainsFunc(job.Reasons(), func(m job.Meaning) bool { return m.Word == word }) || !strings.Contains(string(manual), "| `"+word+"` |") {
			t.Errorf("%s has the reason %s, which the manual does not explain", where, word)
		}
	}
}
